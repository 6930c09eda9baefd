"""Streams and replays as workloads of a mix on a real Triton, if it is installed: the parts add up, and Triton counts the same requests."""

import pytest

from benchmarks.peers.traffic import counted_requests

REPEATED = {"IN": {"value": [1, 2, 3, 4]}, "DELAY": {"value": [2, 0, 1, 0]}, "WAIT": {"value": [1]}}
ROWS = 60
WAYS = [("http", {}, 1), ("http", {}, 2), ("grpc", {}, 1), ("grpc", {"requests_per_stream": 9, "in_flight": 2}, 2)]
ways = pytest.mark.parametrize(("protocol", "stream", "workers"), WAYS)


@pytest.fixture
def mixed_points(triton, measure):
    """The points of streams beside plain requests, by workload; their parts add up, and Triton counts them."""

    def run(protocol, stream, workers, *, weights=(None, None), loads=(None, None), **sections):
        own = [{"weight": weight} if load is None else {"load": load} for weight, load in zip(weights, loads, strict=True)]
        streams = {"name": "streams", "model": "repeat_int32", "inputs": REPEATED, "stream": stream, **own[0]}
        plain = {"name": "plain", "model": "identity_fp16", "inputs": {"INPUT0": {"generate": "random", "shape": [8]}}, **own[1]}
        triton.load("repeat_int32", "identity_fp16")
        before = {one["name"]: counted_requests(triton, one["model"]) for one in (streams, plain)}
        length = {"warmup": "0s", "repetitions": 1, "workers": workers, **sections.pop("length", {})}
        document = {"name": "mix", "target": {"url": triton.url(protocol)}, "workloads": [streams, plain], "measure": length, **sections}
        points = {point["workload"]: point for point in measure(document)}
        whole = points[None]
        for name, count in whole["requests"].items():
            assert count == sum(points[one]["requests"][name] for one in before), name
        for one in (streams, plain):
            found = points[one["name"]]["requests"]
            assert found["ok"] == found["scheduled"]
            assert counted_requests(triton, one["model"]) - before[one["name"]] == found["ok"] + 1, (
                "with the first request, before the load"
            )
        assert whole["responses"]["count"] == points["streams"]["responses"]["count"] == 4 * points["streams"]["requests"]["ok"]
        assert points["plain"]["responses"] is None
        return points

    return run


@ways
@pytest.mark.parametrize("load", [{"closed": {"concurrency": 4}}, {"open": {"rate": 200}}], ids=str)
def test_streams_share_a_load_with_plain_requests(mixed_points, protocol, stream, workers, load):
    points = mixed_points(protocol, stream, workers, weights=(3, 1), load=load, length={"requests": 200})
    assert [points[name]["requests"]["ok"] for name in (None, "streams", "plain")] == [200, 150, 50]


@ways
def test_streams_and_plain_requests_are_replayed(mixed_points, tmp_path, protocol, stream, workers):
    (tmp_path / "trace.csv").write_text("timestamp_s\n" + "".join(f"{number * 0.005:.3f}\n" for number in range(ROWS)))
    replay = {"replay": {"trace": str(tmp_path / "trace.csv")}}
    points = mixed_points(protocol, stream, workers, loads=(replay, replay))
    assert [points[name]["requests"]["ok"] for name in (None, "streams", "plain")] == [2 * ROWS, ROWS, ROWS]
