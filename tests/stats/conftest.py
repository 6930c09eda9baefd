"""Response times of a simulated queue."""

import numpy as np
import pytest


def queue_response_times(random, load, count, *, warm_up, service="exponential"):
    """Response times of a single-server queue with Poisson arrivals, in mean service times, in the order of arrival.

    Lindley's recursion W' = max(0, W + S - A), unrolled: W is the walk of S - A above its own lowest point so far.
    """
    number = count + warm_up
    served = random.exponential(1.0, number) if service == "exponential" else np.ones(number)
    walk = np.concatenate(([0.0], np.cumsum(served[:-1] - random.exponential(1 / load, number - 1))))
    return (walk - np.minimum.accumulate(walk) + served)[warm_up:]


@pytest.fixture(scope="session")
def queue():
    return queue_response_times
