"""What the exporter does with traces that do not fit, and its clock."""

import itertools
import subprocess
import sys

import pytest

from server_stub.tracing.otlp_exporter import OtlpExporter
from server_stub.tracing.request_trace import ParentSpan, RequestTrace
from server_stub.tracing.spans import unix_offset_ns
from server_stub.tracing.trace_config import TraceConfig
from tests.server_stub.tracing.collector import instants


def finished_trace(trace_id):
    """A trace that ended before it reached a model."""
    return RequestTrace(1, "HTTP", ParentSpan(trace_id, 1), 1_000, 2_000, ended_ns=3_000)


def test_traces_that_do_not_fit_are_counted_and_the_others_are_sent_at_the_end(collector):
    warnings: list[tuple[str, str]] = []
    # one trace of three spans may wait, and nothing is sent before the end
    config = TraceConfig(mode="opentelemetry", level=("TIMESTAMPS",), url=collector.url, max_waiting=3, max_batch=3, delay_ms=3_600_000)
    exporter = OtlpExporter(config, lambda event, message: warnings.append((event, message)), close_timeout_s=100)
    for trace_id in range(0x301, 0x306):
        exporter.add(finished_trace(trace_id))
    exporter.close()
    (span,) = collector.trace(0x301)
    times = instants(span)
    assert (times["HTTP_RECV_START"], times["HTTP_RECV_END"], times["end"]) == (
        times["start"],
        times["start"] + 1_000,
        times["start"] + 2_000,
    )
    assert {int(span["traceId"], 16) for span in collector.spans} & set(range(0x302, 0x306)) == set()
    assert warnings == [("traces_lost", f"4 traced requests did not reach {collector.url}")]


def test_nothing_is_said_if_nothing_was_lost(collector):
    warnings: list[tuple[str, str]] = []
    config = TraceConfig(mode="opentelemetry", level=("TIMESTAMPS",), url=collector.url)
    OtlpExporter(config, lambda event, message: warnings.append((event, message)), close_timeout_s=100).close()
    assert warnings == []


def test_unix_time_is_tied_by_the_closest_pair_of_readings():
    # the second reading of Unix time is enclosed within 20 ns, the others within 1,000
    monotonic = itertools.chain([0, 1_000, 5_000, 5_020], itertools.count(10_000, 1_000))
    unix = iter([100_900, 105_010, 111_900, 113_900, 115_900])
    assert unix_offset_ns(lambda: next(unix), lambda: next(monotonic)) == 100_000


@pytest.mark.parametrize("missing", ["opentelemetry", "requests"])
def test_missing_packages_are_named_before_the_server_starts(missing):
    # None in sys.modules makes a package impossible to import
    program = f"import sys; sys.modules[{missing!r}] = None; from server_stub.__main__ import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "--http-port=0", "--grpc-port=0", "--trace-url", "http://127.0.0.1:9/v1/traces"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    assert (
        ended.stderr
        == f"server_stub: sending traces needs the package {missing}: pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http\n"
    )
