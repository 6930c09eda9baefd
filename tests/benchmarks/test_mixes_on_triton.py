"""Streams and replays as workloads of a mix on a real Triton, if it is installed: the parts add up, and Triton counts the same requests."""

import pytest

from benchmarks.peers.install import peers_folder
from benchmarks.peers.traffic import counted_requests
from benchmarks.peers.triton import TRAFFIC_MODELS, running_triton
from benchmarks.processes import run_perfkit

pytestmark = pytest.mark.skipif(
    not (peers_folder() / "bin" / "tritonserver").exists(), reason="Triton is not installed; benchmarks/peers/install.py installs it"
)
REPEATED = {"IN": {"value": [1, 2, 3, 4]}, "DELAY": {"value": [2, 0, 1, 0]}, "WAIT": {"value": [1]}}
ROWS = 60
WAYS = [("http", {}, 1), ("http", {}, 2), ("grpc", {}, 1), ("grpc", {"requests_per_stream": 9, "in_flight": 2}, 2)]
ways = pytest.mark.parametrize(("protocol", "stream", "workers"), WAYS)


@pytest.fixture(scope="module")
def triton():
    with running_triton(peers_folder(), models=TRAFFIC_MODELS) as running:
        yield running


def measured(triton, protocol, stream, workers, *, weights=(None, None), loads=(None, None), **sections):
    """The points of streams beside plain requests, by workload; their parts add up, and Triton counts them."""
    own = [{"weight": weight} if load is None else {"load": load} for weight, load in zip(weights, loads, strict=True)]
    streams = {"name": "streams", "model": "repeat_int32", "inputs": REPEATED, "stream": stream, **own[0]}
    plain = {"name": "plain", "model": "identity_fp16", "inputs": {"INPUT0": {"generate": "random", "shape": [8]}}, **own[1]}
    before = {one["name"]: counted_requests(triton, one["model"]) for one in (streams, plain)}
    measure = {"warmup": "0s", "repetitions": 1, "workers": workers, **sections.pop("measure", {})}
    run = run_perfkit(
        {"name": "mix", "target": {"url": triton.url(protocol)}, "workloads": [streams, plain], "measure": measure, **sections}
    )
    points = {point["workload"]: point for point in run.points}
    whole = points[None]
    for name, count in whole["requests"].items():
        assert count == sum(points[one]["requests"][name] for one in before), name
    for one in (streams, plain):
        found = points[one["name"]]["requests"]
        assert found["ok"] == found["scheduled"]
        assert counted_requests(triton, one["model"]) - before[one["name"]] == found["ok"] + 1, "with the first request, before the load"
    assert whole["responses"]["count"] == points["streams"]["responses"]["count"] == 4 * points["streams"]["requests"]["ok"]
    assert points["plain"]["responses"] is None
    return points


@ways
@pytest.mark.parametrize("load", [{"closed": {"concurrency": 4}}, {"open": {"rate": 200}}], ids=str)
def test_streams_share_a_load_with_plain_requests(triton, protocol, stream, workers, load):
    points = measured(triton, protocol, stream, workers, weights=(3, 1), load=load, measure={"requests": 400})
    assert [points[name]["requests"]["ok"] for name in (None, "streams", "plain")] == [400, 300, 100]


@ways
def test_streams_and_plain_requests_are_replayed(triton, tmp_path, protocol, stream, workers):
    (tmp_path / "trace.csv").write_text("timestamp_s\n" + "".join(f"{number * 0.005:.3f}\n" for number in range(ROWS)))
    replay = {"replay": {"trace": str(tmp_path / "trace.csv")}}
    points = measured(triton, protocol, stream, workers, loads=(replay, replay))
    assert [points[name]["requests"]["ok"] for name in (None, "streams", "plain")] == [2 * ROWS, ROWS, ROWS]
