"""How many samples a percentile needs, and when the generator was the bottleneck."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.stats.validity import generator_fault, is_withheld, minimum_samples
from tests.stats.conftest import MS, histogram_of


def by_brute_force(above: Fraction) -> int:
    """Counts up until at most one sample above the percentile has a chance of 1 % or less; exact."""
    below, samples = 1 - above, 1
    while below**samples + samples * above * below ** (samples - 1) > Fraction(1, 100):
        samples += 1
    return samples


@pytest.mark.parametrize(("quantile", "samples"), [(0.9, 64), (0.95, 130), (0.99, 662), (0.999, 6_636)])
def test_the_minimum_samples_are_those_of_loadgen(quantile, samples):
    assert minimum_samples(quantile) == samples


@pytest.mark.parametrize("percent", [1, 10, 25, 50, 75, 80, 90, 95, 97, 98])
def test_the_minimum_samples_are_those_of_the_exact_binomial_sum(percent):
    assert minimum_samples(percent / 100) == by_brute_force(Fraction(100 - percent, 100))


@given(st.floats(0.01, 0.9999), st.floats(0.01, 0.9999))
def test_a_higher_percentile_needs_no_fewer_samples(one, other):
    low, high = sorted((one, other))
    assert minimum_samples(low) <= minimum_samples(high)


@pytest.mark.parametrize(("quantile", "enough"), [(0.5, 2), (0.9, 10), (0.95, 20), (0.99, 100), (0.999, 1_000), (0.9999, 10_000)])
def test_a_percentile_is_withheld_below_one_over_one_minus_q_samples(quantile, enough):
    assert is_withheld(quantile, 0)
    assert is_withheld(quantile, enough - 1)
    assert not is_withheld(quantile, enough)


def fault(busy_share=0.1, scheduled=1000, unsent=0, lags_ns=(), response_ns=()):
    return generator_fault(
        busy_share=busy_share, scheduled=scheduled, unsent=unsent, lag=histogram_of(lags_ns), response_time=histogram_of(response_ns)
    )


def test_a_core_above_85_percent_binds_the_generator():
    assert fault(0.85) == ""
    assert fault(0.8501) == "it kept its core 85% busy, above 85%"


def test_arrivals_that_it_never_came_to_bind_the_generator():
    assert fault(unsent=10) == ""
    assert fault(unsent=11) == "it never came to 11 of 1,000 arrivals"


@pytest.mark.parametrize(
    ("late_ms", "median_ms", "bound"), [(0.9, 1, False), (1.1, 1, True), (1.1, 30, False), (9.9, 200, False), (10.1, 200, True)]
)
def test_lateness_of_one_in_a_hundred_binds_beyond_1_ms_and_5_percent_of_the_median(late_ms, median_ms, bound):
    lags = [1_000] * 98 + [round(late_ms * MS)] * 2
    assert bool(fault(lags_ns=lags, response_ns=[median_ms * MS] * 100)) == bound
