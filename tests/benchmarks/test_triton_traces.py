"""The spans of a real Triton, if it is installed: sent to a run, and written into its own trace files."""

import pytest

from benchmarks.peers.install import peers_folder
from benchmarks.peers.triton import running_triton
from perfkit.target.started_server import free_ports

TRITON = peers_folder() / "bin" / "tritonserver"
pytestmark = pytest.mark.skipif(not TRITON.exists(), reason="Triton is not installed; benchmarks/peers/install.py installs it")
STAGES = ("request_way", "queue", "compute_input", "compute_infer", "compute_output", "response_way")


def options(*keys):
    explicit = ["--model-control-mode=explicit", "--load-model=simple"]
    return explicit + [part for key in ("level=TIMESTAMPS", *keys) for part in ("--trace-config", key)]


@pytest.fixture
def breakdowns(measure, monkeypatch):
    """What runs say over both protocols, which wait two seconds for spans: over gRPC some never come."""
    monkeypatch.setattr("perfkit.measurement.request_traces.SPANS_WITHIN_S", 2.0)

    def run(triton, traces):
        target = {"model": "simple", "urls": {protocol: triton.url(protocol) for protocol in ("http", "grpc")}}
        lengths = {"warmup": "0s", "requests": 100, "repetitions": 1}
        document = {"load": {"closed": {"concurrency": 2}}, "measure": lengths, "telemetry": True, "traces": {"share": "100%", **traces}}
        return {point["protocol"]: (point["breakdown"], point["requests"]["ok"]) for point in measure({"target": target, **document})}

    return run


def check(breakdown):
    assert breakdown["unknown"] == []
    assert breakdown["clock_problem"] == ""
    check_parts(breakdown)


def check_parts(breakdown):
    for one in breakdown["slowest"]:
        assert sum(one["parts_ns"].values()) == one["total_ns"]
        assert all(one["parts_ns"][stage] > 0 for stage in STAGES)


def test_triton_sends_its_spans_to_the_run(breakdowns):
    (port,) = free_ports(1)
    url = f"opentelemetry,url=http://127.0.0.1:{port}/v1/traces"
    with running_triton(
        peers_folder(), options=options("mode=opentelemetry", "rate=1000000000", url, "opentelemetry,bsp_schedule_delay=200")
    ) as triton:
        found = breakdowns(triton, {"listen": f"127.0.0.1:{port}"})
    breakdown, ok = found["http"]
    assert breakdown["sampled"] == ok
    check(breakdown)
    # over gRPC Triton reads past the header's end and overlooks a part of the headers, now and then all of them
    breakdown, ok = found["grpc"]
    assert breakdown["sampled"] == ok - breakdown["without_spans"]
    assert breakdown["clock_problem"] == ""
    check_parts(breakdown)


def test_tritons_own_trace_files_are_read_by_request_id(breakdowns, tmp_path):
    with running_triton(
        peers_folder(), options=options("mode=triton", "rate=1", f"triton,file={tmp_path / 'trace.json'}", "triton,log-frequency=1")
    ) as triton:
        found = breakdowns(triton, {"files": "trace.json*"})
    for breakdown, ok in found.values():
        assert breakdown["sampled"] + breakdown["without_spans"] == ok
        assert breakdown["sampled"] > 90  # the last ones may not be written yet
        check(breakdown)
