"""The same input data, sent by NVIDIA's perf_analyzer and by perfkit: the requests that both export are the same, in the same order."""

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from benchmarks.peers.install import perf_analyzer_path
from tests import forked
from tests.perf_analyzer.exports import export_of

pytestmark = pytest.mark.skipif(
    not perf_analyzer_path().exists(), reason="perf_analyzer is not installed; benchmarks/peers/install.py installs it"
)
REQUESTS = 8


def step(*values: object) -> dict[str, object]:
    return {"INPUT0": [values[0]] * 16, "INPUT1": list(values[1:]) or list(range(16))}


OTHER = {"INPUT0": {"content": list(range(16)), "shape": [16]}, "INPUT1": {"b64": "AQAAAAIAAAADAAAA" + "AAAA" * 17 + "AA=="}}
CASES: dict[str, tuple[str, list[Any], list[str], dict[str, Any]]] = {
    "steps of two files": ("simple", [{"data": [step(1), OTHER]}, {"data": [step(2)]}], [], {}),
    "sequences": (
        "simple_sequence",
        [{"data": [[{"INPUT": [value]} for value in (5, 6, 7)]]}],
        ["--sequence-id-range", "7:9"],
        {"sequences": {"first_id": 7, "end_id": 9}},
    ),
    "long sequences": (
        "simple_sequence",
        [{"data": [[{"INPUT": [value]} for value in (5, 6)]]}],
        ["--sequence-length", "3", "--sequence-length-variation", "0", "--sequence-id-range", "1:100"],
        {"sequences": {"first_id": 1, "length": 3}},
    ),
}


@pytest.fixture(scope="module")
def url():
    """The address of the bundled server."""
    models = {model for model, *_ in CASES.values()}
    command = [sys.executable, "-m", "server_stub", "--http-port=0", "--grpc-port=0", "--exit-with-stdin", "--model", *models]
    with forked.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"127.0.0.1:{json.loads(process.stdout.readline())['http_port']}"
        process.communicate()


def both(url, folder, model, data, options, sections):
    """The sequence's id and the inputs of the first requests, as perf_analyzer and as perfkit sent them."""
    given = [part for name in data for part in ("--input-data", name)]
    command = [perf_analyzer_path(), "-m", model, "-u", url, "--request-count", f"{REQUESTS}", *given, *options]
    subprocess.run([*command, "--profile-export-file", "theirs.json"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    scenario = {
        "target": {"url": f"http://{url}", "model": model},
        "workload": {"data": [str(folder / name) for name in data]},
        "load": {"closed": {"concurrency": 1}},
        "measure": {"warmup": "0s", "requests": REQUESTS, "repetitions": 1},
        **sections,
    }
    for document in (json.loads((folder / "theirs.json").read_text()), export_of(folder, scenario)):
        requests = sorted(document["experiments"][0]["requests"], key=lambda one: one["timestamp"])
        yield [(one.get("sequence_id"), one["request_inputs"]) for one in requests][:REQUESTS]


@pytest.mark.parametrize("case", CASES)
def test_the_same_requests_in_the_same_order(url, tmp_path, case):
    model, documents, options, sections = CASES[case]
    for number, document in enumerate(documents):
        (tmp_path / f"{number}.json").write_text(json.dumps(document))
    theirs, ours = both(url, tmp_path, model, [f"{number}.json" for number in range(len(documents))], options, sections)
    assert len(theirs) == REQUESTS
    assert ours == theirs


def test_the_files_of_a_folder(url, tmp_path):
    (tmp_path / "data").mkdir()
    for number, name in enumerate(("INPUT0", "INPUT1")):
        (tmp_path / "data" / name).write_bytes((np.arange(16, dtype="<i4") * (number + 1)).tobytes())
    theirs, ours = both(url, tmp_path, "simple", ["data"], [], {})
    assert ours == theirs
    assert ours[0][1] == {"INPUT0": list(range(16)), "INPUT1": list(range(0, 32, 2))}
