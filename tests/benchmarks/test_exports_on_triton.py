"""Requests to a real Triton, exported by NVIDIA's perf_analyzer and by perfkit."""

import pytest

from benchmarks.peers.install import peers_folder
from tests.perf_analyzer.exports import assert_exported_alike

pytestmark = pytest.mark.skipif(
    not all((peers_folder() / "bin" / name).exists() for name in ("tritonserver", "perf_analyzer")),
    reason="Triton or perf_analyzer is not installed; benchmarks/peers/install.py installs them",
)
STREAMED = ["--async", "--streaming"]
REPEATED = {name: {"content": values, "shape": [len(values)]} for name, values in (("IN", [4, 2]), ("DELAY", [1, 1]), ("WAIT", [0]))}
FLOATS = {"INPUT0": {"content": [0.5, -0.1, 3.5e20], "shape": [3]}}
TEXTS = {"TEXT": {"content": ["a", "bc", ""], "shape": [3]}}


@pytest.mark.parametrize(
    ("model", "data", "protocol", "options"),
    [
        ("paced_identity", FLOATS, "http", []),
        ("paced_identity", FLOATS, "grpc", STREAMED),
        ("repeat_int32", REPEATED, "grpc", STREAMED),
        ("repeat_strings", TEXTS, "grpc", STREAMED),
    ],
)
def test_a_request_is_exported_alike(triton, tmp_path, model, data, protocol, options):
    triton.load(model)
    assert_exported_alike(tmp_path, triton.url(protocol).partition("://")[2], model, data, protocol, options)
