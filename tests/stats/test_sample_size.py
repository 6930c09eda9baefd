"""How many requests a percentile needs, and how many show that a limit is met."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.stats.percentiles import is_limit_shown_met, is_withheld, minimum_samples


def minimum_samples_by_counting(above: Fraction) -> int:
    """Counts up until at most one sample above the percentile has a chance of 1 % or less; exact."""
    below, samples = 1 - above, 1
    while below**samples + samples * above * below ** (samples - 1) > Fraction(1, 100):
        samples += 1
    return samples


@pytest.mark.parametrize(("quantile", "samples"), [(0.9, 64), (0.95, 130), (0.99, 662), (0.999, 6_636)])
def test_the_minimum_equals_loadgens_with_one_request_above_the_limit(quantile, samples):
    assert minimum_samples(quantile) == samples
    assert is_limit_shown_met(quantile, samples, 1)
    assert not is_limit_shown_met(quantile, samples - 1, 1)


@pytest.mark.parametrize("percent", [1, 10, 25, 50, 75, 80, 90, 95, 97, 98])
def test_the_minimum_equals_that_of_the_exact_binomial_sum(percent):
    assert minimum_samples(percent / 100) == minimum_samples_by_counting(Fraction(100 - percent, 100))


@given(st.floats(0.01, 0.9999), st.floats(0.01, 0.9999))
def test_a_higher_percentile_needs_no_fewer_samples(one, other):
    low, high = sorted((one, other))
    assert minimum_samples(low) <= minimum_samples(high)


@pytest.mark.parametrize(("quantile", "enough"), [(0.5, 2), (0.9, 10), (0.95, 20), (0.99, 100), (0.999, 1_000), (0.9999, 10_000)])
def test_a_percentile_is_withheld_below_one_over_one_minus_q_samples(quantile, enough):
    assert is_withheld(quantile, 0)
    assert is_withheld(quantile, enough - 1)
    assert not is_withheld(quantile, enough)


@pytest.mark.parametrize(("time", "samples"), [(0.2, 662), (1.0, 662), (1.5, 993), (69.0, 45_678), (9.99, 6_614)])
def test_correlation_multiplies_the_minimum(time, samples):
    assert minimum_samples(0.99, time) == samples


def probability_of_at_most(above, trials):
    return sum(math.comb(trials, number) * 0.01**number * 0.99 ** (trials - number) for number in range(above + 1))


@pytest.mark.parametrize("above", [0, 3, 17])
def test_with_more_above_the_limit_the_binomial_decides(above):
    needed = next(count for count in range(above + 1, 20_000) if probability_of_at_most(above, count) <= 0.01)
    assert is_limit_shown_met(0.99, needed, above)
    assert not is_limit_shown_met(0.99, needed - 1, above)


def test_correlated_requests_count_for_fewer():
    assert is_limit_shown_met(0.99, 662 * 70, 70, autocorrelation_time=70)
    assert not is_limit_shown_met(0.99, 662 * 70 - 70, 70, autocorrelation_time=70)
    assert is_limit_shown_met(0.99, 662, 1, autocorrelation_time=0.5)  # a time below 1 does not lower the minimum


def test_millions_of_requests_are_judged_and_a_quantile_of_one_allows_none_above_the_limit():
    assert is_limit_shown_met(1.0, 5, 0)
    assert not is_limit_shown_met(1.0, 10**6, 1)

    assert is_limit_shown_met(0.99, 10_000_000, 99_000)
    assert not is_limit_shown_met(0.99, 10_000_000, 99_900)
