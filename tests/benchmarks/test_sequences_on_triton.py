"""Sequences of a real Triton, if it is installed: ids that its control inputs hold."""

import pytest

from benchmarks.peers.install import peers_folder
from benchmarks.peers.triton import TRAFFIC_MODELS, running_triton
from benchmarks.processes import run_perfkit

pytestmark = pytest.mark.skipif(
    not (peers_folder() / "bin" / "tritonserver").exists(), reason="Triton is not installed; benchmarks/peers/install.py installs it"
)


@pytest.fixture(scope="module")
def triton():
    with running_triton(peers_folder(), models=TRAFFIC_MODELS) as running:
        yield running


@pytest.mark.parametrize("protocol", ["http", "grpc"])
@pytest.mark.parametrize("workers", [1, 2])
def test_a_control_input_of_32_bits_gets_every_id_whole(triton, protocol, workers):
    run = run_perfkit(
        {
            "name": "short-ids",
            "target": {"url": triton.url(protocol), "model": "sequence_short_ids"},
            "sequences": {"length": 3},
            "load": {"closed": {"concurrency": [4]}},
            "measure": {"warmup": "0s", "requests": 60, "repetitions": 1, "workers": workers},
        }
    )
    assert (run.point["requests"]["ok"], run.point["requests"]["rejected"]) == (60, 0)
