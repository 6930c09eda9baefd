"""Results of simulated queues."""

import pytest

from tests.queue_results import Writer, shared_mm1_results
from tests.stats.conftest import queue_response_times


@pytest.fixture(scope="session")
def queue():
    return queue_response_times


@pytest.fixture(scope="session")
def mm1_results(tmp_path_factory):
    return shared_mm1_results(tmp_path_factory)


@pytest.fixture
def write(tmp_path):
    return Writer(tmp_path)
