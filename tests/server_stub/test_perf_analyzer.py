"""NVIDIA's perf_analyzer against the server, if it is installed: row P1 of the conformance checklist.

Required: exit code 0, and the server section, which it computes from the server's statistics.
"""

import json
import re
import subprocess

import pytest

from benchmarks.peers.install import perf_analyzer_path
from benchmarks.processes import running_server

PERF_ANALYZER = perf_analyzer_path()

pytestmark = pytest.mark.skipif(
    not PERF_ANALYZER.exists(), reason="perf_analyzer is not installed; benchmarks/peers/install.py installs it"
)
SERVER_SECTION = re.compile(r"Server: \n\s+Inference count: [1-9].*?Avg request latency: \d+ usec", re.DOTALL)
STREAM, SHARED = "--streaming --async", "--shared-memory system --output-shared-memory-size 1024"
CASES = [
    *(f"simple {protocol} {mode}" for protocol in ("http", "grpc") for mode in ("", "--sync", "--async", SHARED)),
    "simple http -b 8 --input-tensor-format json --output-tensor-format json", f"simple grpc {STREAM}", f"simple grpc {STREAM} {SHARED}",
    "simple http --collect-metrics --metrics-url METRICS_URL --metrics-interval 500", "simple_string http --string-data 5", "simple_int8 grpc",
    "identity_fp32 grpc --shape INPUT0:64", "identity_bf16 http --shape INPUT0:64", "synthetic http --shape INPUT0:4",
    "simple_sequence http --sync --sequence-length 5", "simple_sequence grpc --async --sequence-length 5",
    f"simple_dyna_sequence grpc {STREAM} --sequence-length 5", f"repeat_int32 grpc {STREAM} --input-data INPUT_DATA",
]  # fmt: skip
LOAD = "--concurrency-range 2 --request-count 50"
"""Not windows of a fixed time: in one without an answer, on a busy machine, perf_analyzer says so and then hangs."""
FOUR_ANSWERS = {"data": [{name: {"content": [0] * size, "shape": [size]} for name, size in (("IN", 4), ("DELAY", 4), ("WAIT", 1))}]}


@pytest.fixture(scope="module")
def server():
    with running_server("--threads=1", "--allow-client-shm") as running:
        yield running


@pytest.mark.parametrize("case", CASES)
def test_P1_perf_analyzer_succeeds_and_prints_its_server_section(server, tmp_path, case):
    (tmp_path / "data.json").write_text(json.dumps(FOUR_ANSWERS))
    values = {"INPUT_DATA": str(tmp_path / "data.json"), "METRICS_URL": f"127.0.0.1:{server.ready['metrics_port']}/metrics"}
    model, protocol, *options = case.split()
    words = ["-m", model, "-i", protocol, "-u", f"127.0.0.1:{server.ready[f'{protocol}_port']}"]
    words += [*(values.get(option, option) for option in options), *LOAD.split()]
    ended = subprocess.run([PERF_ANALYZER, *words], capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert SERVER_SECTION.search(ended.stdout), ended.stdout
