"""Percentiles from bucket counts, for simulated queues with closed forms."""

import math

import numpy as np
import pytest

from perfkit.result.distribution import distribution
from perfkit.stats.buckets import BucketCounts

COUNT, SERVICE_NS = 2_000_000, 10_000_000


def recorded(times):
    return distribution(BucketCounts.of(np.rint(times * SERVICE_NS)))


@pytest.mark.parametrize(("load", "p50_within", "p99_within"), [(0.5, 0.02, 0.03), (0.8, 0.04, 0.06)])
def test_the_percentiles_of_mm1_equal_the_closed_form(queue, load, p50_within, p99_within):
    """Response times are exponential with mean 1/(μ-λ). Their standard errors are 0.5 % (p50) and 1.3 % (p99) at ρ = 0.8 and
    0.2 and 0.4 % at 0.5, from autocorrelation times of 26, 75, 3.5 and 8.4: four or more, false alarms below 0.01 %."""  # fmt: skip
    found = recorded(queue(np.random.default_rng(11), load, COUNT, warm_up=20_000))
    mean_ns = SERVICE_NS / (1 - load)
    assert found.count == COUNT
    assert found.p50 == pytest.approx(mean_ns * math.log(2), rel=p50_within)
    assert found.p99 == pytest.approx(mean_ns * math.log(100), rel=p99_within)


@pytest.mark.parametrize(("load", "mean", "p95", "p99", "within"), [(0.5, 1.5, 3.051, 4.336, 0.03), (0.8, 3.0, 7.620, 11.356, 0.06)])
def test_the_percentiles_of_md1_equal_the_closed_form(queue, load, mean, p95, p99, within):
    """Its tails vary less than those of M/M/1 at the same load, which are within four standard errors: false alarms below 0.01 %."""
    found = recorded(queue(np.random.default_rng(12), load, COUNT, warm_up=20_000, service="constant"))
    assert found.mean == pytest.approx(mean * SERVICE_NS, rel=within)
    assert (found.p95, found.p99) == pytest.approx((p95 * SERVICE_NS, p99 * SERVICE_NS), rel=within)
