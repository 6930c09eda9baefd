"""NVIDIA's perf_analyzer against the server, if it is installed: row P1 of the conformance checklist."""

import pytest

from benchmarks.peers.install import perf_analyzer_path
from benchmarks.perf_analyzer_on_server import COUNT_WINDOWS, STREAM, Case, run

PERF_ANALYZER = perf_analyzer_path()

pytestmark = pytest.mark.skipif(
    not PERF_ANALYZER.exists(), reason="perf_analyzer is not installed; benchmarks/peers/install.py installs it"
)
CASES = {"http": Case("simple", "http"), "grpc": Case("simple", "grpc"), "stream": Case("simple", "grpc", STREAM)}


@pytest.mark.parametrize("case", CASES)
def test_P1_perf_analyzer_succeeds_and_prints_its_server_section(server, tmp_path, case):
    row, is_met = run(PERF_ANALYZER, CASES[case], server.ready, tmp_path / "unused", COUNT_WINDOWS)
    assert is_met, row
