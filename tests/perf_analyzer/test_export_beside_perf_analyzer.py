"""The same requests, exported by NVIDIA's perf_analyzer and by perfkit."""

import json
import subprocess
import sys
from typing import Any

import pytest

from benchmarks.peers.install import perf_analyzer_path
from tests import forked
from tests.perf_analyzer.exports import assert_exported_alike

pytestmark = pytest.mark.skipif(
    not perf_analyzer_path().exists(), reason="perf_analyzer is not installed; benchmarks/peers/install.py installs it"
)
WORDS = ["", "a", "naïve", *map(str, range(13))]
CASES: dict[str, tuple[dict[str, Any], str, list[str]]] = {
    "simple_string": ({name: {"content": list(map(str, range(16))), "shape": [16]} for name in ("INPUT0", "INPUT1")}, "http", []),
    "identity_bytes": ({"INPUT0": {"content": WORDS, "shape": [16]}}, "http", []),
    "identity_fp32": ({"INPUT0": {"content": [0.1, -2.5, 3.5e20, 1.5e-30], "shape": [4]}}, "grpc", []),
    "repeat_int32": (
        {name: {"content": values, "shape": [len(values)]} for name, values in (("IN", [4, 2]), ("DELAY", [1, 1]), ("WAIT", [0]))},
        "grpc",
        ["--async", "--streaming"],
    ),
}


@pytest.fixture(scope="module")
def ready():
    """The ready line of the bundled server with these models."""
    command = [sys.executable, "-m", "server_stub", "--http-port=0", "--grpc-port=0", "--exit-with-stdin", "--model", *CASES]
    with forked.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
        process.communicate()


@pytest.mark.parametrize("model", CASES)
def test_a_request_is_exported_alike(ready, tmp_path, model):
    data, protocol, options = CASES[model]
    assert_exported_alike(tmp_path, f"127.0.0.1:{ready[f'{protocol}_port']}", model, data, protocol, options)
