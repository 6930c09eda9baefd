"""Spans of a real Triton, if it is installed: over both protocols, of an ensemble, and in its own files."""

import time
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

from benchmarks.peers.install import peers_folder
from benchmarks.peers.triton import ODD_MODELS, running_triton
from perfkit.clock import MonotonicClock
from perfkit.spans.formats import read_spans_file
from perfkit.spans.server_times import server_times
from perfkit.telemetry.messages import SpansConfig
from perfkit.telemetry.spans.receiver import SpanReceiver

pytestmark = pytest.mark.skipif(
    not (peers_folder() / "bin" / "tritonserver").exists(), reason="Triton is not installed; benchmarks/peers/install.py installs it"
)
PREFIX, MS = "5a" * 8, 1_000_000
PARTS = ("queue_ns", "compute_input_ns", "compute_infer_ns", "compute_output_ns")


def options(*settings):
    models = [f"--load-model={name}" for name in ("classify", "pipeline")]
    return ["--model-control-mode=explicit", *models] + [option for setting in settings for option in ("--trace-config", setting)]


@pytest.fixture(scope="module")
def receiver():
    running = SpanReceiver(SpansConfig("127.0.0.1", 0, PREFIX, 1000), MonotonicClock())
    yield running
    running.close()


@pytest.fixture(scope="module")
def triton(receiver):
    url = f"opentelemetry,url=http://127.0.0.1:{receiver.port}/v1/traces"
    settings = ("mode=opentelemetry", url, "opentelemetry,bsp_schedule_delay=200", "level=TIMESTAMPS", "rate=1000000")
    with running_triton(peers_folder(), models=ODD_MODELS, options=options(*settings)) as running:
        yield running


def client_of(triton, protocol):
    library = {"http": tritonclient.http, "grpc": tritonclient.grpc}[protocol]
    return library, library.InferenceServerClient(triton.url(protocol).partition("//")[2])


def sent(triton, protocol, model, numbers, clock=time.time_ns):
    """The instants before and after each of some requests, by trace id."""
    library, client = client_of(triton, protocol)
    tensor = library.InferInput("x", [1, 4], "FP32")
    tensor.set_data_from_numpy(np.ones((1, 4), np.float32))
    instants = {}
    for number in numbers:
        trace_id, before_ns = f"{PREFIX}{number:016x}", clock()
        client.infer(model, [tensor], headers={"traceparent": f"00-{trace_id}-{number:016x}-01"}, request_id=f"r{number}")
        instants[trace_id] = (before_ns, clock())
    client.close()
    return instants


def reported(receiver, protocol, instants):
    """The report of these traces. Over gRPC Triton 2.51 overlooks a `traceparent` of every eight or so: it reads the header's value to
    the next null byte, which need not follow it."""
    report = receiver.collected.report(tuple(instants), 60.0 if protocol == "http" else 2.0, lambda: None)
    assert len(report.times) == len(instants) if protocol == "http" else report.times
    return report


def assert_consistent(times, before_ns, after_ns):
    parts = [getattr(times, part) for part in PARTS]
    assert before_ns <= times.received_ns <= times.work_began_ns <= times.work_ended_ns <= times.answered_ns <= after_ns
    assert min(parts) >= 0
    assert sum(parts) <= times.work_ended_ns - times.work_began_ns


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_the_sleep_of_the_model_is_found_in_its_compute(triton, receiver, protocol):
    instants = sent(triton, protocol, "classify", range(1, 21) if protocol == "http" else range(21, 60))
    for trace_id, times in reported(receiver, protocol, instants).times.items():
        assert_consistent(times, *instants[trace_id])
        assert times.compute_infer_ns >= 9 * MS


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_the_models_of_an_ensemble_are_joined(triton, receiver, protocol):
    instants = sent(triton, protocol, "pipeline", range(100, 120) if protocol == "http" else range(120, 160))
    report = reported(receiver, protocol, instants)
    assert report.counts.received == 6 * len(report.times)  # the front end, the ensemble, and two models with their computes
    for trace_id, times in report.times.items():
        assert_consistent(times, *instants[trace_id])


def test_a_trace_file_of_triton_tells_the_same_by_request_id_on_the_monotonic_clock(tmp_path):
    settings = ("mode=triton", f"triton,file={tmp_path / 'trace'}", "triton,log-frequency=1", "level=TIMESTAMPS", "rate=1")
    with running_triton(peers_folder(), models=ODD_MODELS, options=options(*settings)) as running:
        asked = {
            f"r{number}": instants
            for number, (protocol, model) in enumerate([("http", "classify"), ("grpc", "classify"), ("grpc", "pipeline")], 1)
            for instants in sent(running, protocol, model, [number], time.monotonic_ns).values()
        }
    found: dict[str, Any] = {}
    for path in sorted(tmp_path.iterdir()):
        spans = read_spans_file(path)
        assert spans.malformed == 0
        found |= spans.spans
    assert set(found) == set(asked)
    for request_id, instants in asked.items():
        assert_consistent(server_times(found[request_id]), *instants)
