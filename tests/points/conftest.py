"""A measurement made by hand."""

import pytest

from tests.points.made_measurement import measurement
from tests.stats.conftest import queue_response_times


@pytest.fixture(scope="session")
def queue():
    return queue_response_times


@pytest.fixture
def measured():
    """Makes a measurement: see `measurement`."""
    return measurement
