"""Here processes are what is tested."""

import pytest


@pytest.fixture(autouse=True)
def started(starts_python):
    return starts_python
