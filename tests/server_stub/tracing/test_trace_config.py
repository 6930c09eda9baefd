"""The options of tracing."""

import pathlib

import pytest

from perfkit.errors import UsageError
from server_stub.tracing.trace_config import MAX_RATE, TraceConfig, parse_trace_config

URL = "http://127.0.0.1:4318/v1/traces"


def test_nothing_is_traced_by_default():
    assert parse_trace_config(()) == TraceConfig()
    assert not TraceConfig().is_possible


def test_a_url_alone_traces_requests_with_a_parent():
    config = parse_trace_config((), URL)
    assert (config.mode, config.level, config.rate, config.url) == ("opentelemetry", ("TIMESTAMPS",), MAX_RATE, URL)


def test_the_pairs_are_tritons():
    pairs = ("mode=triton", "triton,file=/x/t.json", "triton,log-frequency=5", "level=TENSORS", "level=TIMESTAMPS", "rate=7", "count=9")
    config = parse_trace_config(pairs)
    assert (config.file, config.log_frequency, config.rate, config.count) == (pathlib.Path("/x/t.json"), 5, 7, 9)
    assert config.level == ("TIMESTAMPS", "TENSORS")
    config = parse_trace_config(("opentelemetry,resource=service.name=mine", "rate=5", "opentelemetry,bsp_max_queue_size=4096"), URL)
    assert (config.resource["service.name"], config.rate, config.max_waiting) == ("mine", 5, 4096)


@pytest.mark.parametrize(
    ("pairs", "text"),
    [
        (("rate",), "KEY=VALUE"),
        (("rate=",), "KEY=VALUE"),
        (("rate=0",), "from 1"),
        (("rate=1.5",), "from 1"),
        (("mode=x",), "use mode="),
        (("level=MAX",), "use mode="),
        (("triton,url=x",), "use mode="),
        (("opentelemetry,resource=x",), "use mode="),
        (("level=TIMESTAMPS",), "triton,file=FILE"),
        (("level=TIMESTAMPS", "mode=opentelemetry"), "opentelemetry,url=URL"),
        (("mode=opentelemetry", "opentelemetry,url=127.0.0.1:4318"), "is not one"),
        (("mode=opentelemetry", "opentelemetry,url=http://x:70000/"), "is not one"),
        (("mode=opentelemetry", f"opentelemetry,url={URL}", "opentelemetry,bsp_max_queue_size=9"), "at most bsp_max_queue_size"),
    ],
)
def test_unusable_options_are_refused(pairs, text):
    with pytest.raises(UsageError, match=text):
        parse_trace_config(pairs)
