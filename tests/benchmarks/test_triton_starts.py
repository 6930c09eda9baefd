"""Cold starts and idle gaps of a real Triton, if it is installed: its model declares how long it loads, and how slow its first answers are."""

import shlex
import shutil

import pytest

from benchmarks.peers.install import peers_folder
from benchmarks.peers.traffic import counted_requests
from benchmarks.peers.triton import START_MODELS

TRITON = peers_folder() / "bin" / "tritonserver"
pytestmark = pytest.mark.skipif(not TRITON.exists(), reason="Triton is not installed; benchmarks/peers/install.py installs it")
MS = 1_000_000
# as the model's config.pbtxt says
LOAD_MS, FIRST_MS, SLOW_MS, SLOW_REQUESTS = 700, 300, 30, 8
MODEL = "slow_start"
REQUESTS = 60


@pytest.fixture
def start_points(measure):
    """The points of a run on the model, each protocol's in turn."""

    def run(target, load, **length):
        points = measure({"target": {"model": MODEL, **target}, "load": load, "measure": {"repetitions": 1, **length}})
        assert sorted(point["protocol"] for point in points) == ["grpc", "http"]
        return points

    return run


def check_start(point):
    """The declared times are lower bounds of the measured ones; what sleeping and a busy machine add is not bounded."""
    (start,) = point["cold_start"]["starts"]
    assert point["requests"]["ok"] == REQUESTS
    assert start["ready_ns"] >= LOAD_MS * MS
    assert start["times_ns"][0] == start["first_answer_ns"] >= FIRST_MS * MS
    assert min(start["times_ns"][1 : 1 + SLOW_REQUESTS]) >= SLOW_MS * MS
    assert start["first_answer_after_ns"] >= start["ready_ns"] + start["first_answer_ns"]
    assert start["failed_before_answer"] == 0
    return start


def test_triton_is_restarted_by_its_command_line(start_points, tmp_path):
    shutil.copytree(START_MODELS, tmp_path / "models")  # the Python backend writes compiled files beside its models
    command = (
        f"{shlex.quote(str(TRITON))} --model-repository={shlex.quote(str(tmp_path / 'models'))} --http-port={{http_port}} "
        "--grpc-port={grpc_port} --allow-metrics=false --exit-timeout-secs=5"
    )
    target = {"command": command, "protocols": ["http", "grpc"]}
    for point in start_points(target, {"cold_start": {"by": "restart", "requests": REQUESTS}}):
        start = check_start(point)
        assert (start["unload_ns"], start["load_ns"]) == (None, None)


def test_a_model_of_triton_is_reloaded_over_the_repository_api(triton, start_points):
    triton.load(MODEL)
    urls = {protocol: triton.url(protocol) for protocol in ("http", "grpc")}
    for point in start_points({"urls": urls}, {"cold_start": {"by": "reload", "requests": REQUESTS}}):
        start = check_start(point)
        assert LOAD_MS * MS <= start["load_ns"] <= start["ready_ns"]
        assert start["unload_ns"] > 0
    triton.request(f"v2/models/{MODEL}/ready")  # raises HTTPError for a model that is not loaded


def test_the_requests_after_idle_gaps_of_triton_are_counted_apart(triton, start_points):
    gaps, then = 6, 3
    triton.load(MODEL)
    urls = {protocol: triton.url(protocol) for protocol in ("http", "grpc")}
    before = counted_requests(triton, MODEL)
    points = start_points({"urls": urls}, {"idle": {"gap": "50ms", "then": then}}, warmup="0s", requests=gaps * (1 + then))
    # with a first request over each protocol, before the load
    assert counted_requests(triton, MODEL) - before == 2 * (1 + gaps * (1 + then))
    for point in points:
        assert point["idle"]["reconnected"] == 0
        assert point["requests"]["ok"] == gaps * (1 + then)
        counts = (point["idle"]["gaps"], point["after_gap_time_ns"]["count"], point["following_time_ns"]["count"])
        assert counts == (gaps, gaps, gaps * then)
