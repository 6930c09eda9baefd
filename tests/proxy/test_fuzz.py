"""Short runs of `benchmarks.fuzz_ports`: broken bytes on the ports of `perfkit record` and of a fleet."""

import random

import pytest

from benchmarks import fuzz_ports


@pytest.mark.parametrize(
    ("trial", "seeds"),
    [(fuzz_ports.try_http, 100), (fuzz_ports.try_grpc, 100), (fuzz_ports.try_message, 100), (fuzz_ports.try_recording, 20), (fuzz_ports.try_caller, 10)],
)  # fmt: skip
def test_a_port_survives_whatever_it_is_sent(trial, seeds):
    outcomes = {trial(random.Random(seed)) for seed in range(seeds)}
    assert len(outcomes) > 1
