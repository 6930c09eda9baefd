"""Results of simulated queues."""

import pytest

from tests.queue_results import Writer


@pytest.fixture(scope="session")
def mm1_results(tmp_path_factory):
    """Three restarts of M/M/1 with a service time of 10 ms, 2 % apart in speed, up to an overload, and its closed loop."""
    write = Writer(tmp_path_factory.mktemp("mm1"))
    rates = (20, 35, 50, 60, 70, 75, 80, 110)
    folders = [write(rates, seed=seed, restart=restart, seconds=40, overloaded_from=100) for seed, restart in enumerate((0.02, -0.02, 0.0))]
    numbers = (1, 2, 4, 8, 16, 32, 64, 96)
    return [
        *folders,
        write((), concurrencies=numbers, throughputs=[100 * n / (1 + 0.03 * (n - 1) + 0.0003 * n * (n - 1)) for n in numbers]),
    ]


@pytest.fixture
def write(tmp_path):
    """Writes a result folder; see `Writer`."""
    return Writer(tmp_path)
