import contextlib

import pytest

from tests.server_stub.tracing.collector import Collector


@pytest.fixture(scope="session")
def collector():
    with contextlib.closing(Collector()) as running:
        yield running


@pytest.fixture(scope="session")
def traced_server(start_server, collector):
    """A server that traces the requests with a traceparent."""
    options = ("--device=cpu", "--trace-url", collector.url, "--synthetic", "service=constant:3ms,lead=0s")
    with start_server(*options, "--model", "simple", "synthetic", "repeat_int32") as started:
        yield started
