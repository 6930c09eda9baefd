"""Whether one window shows by itself that a limit is kept."""

import math

import pytest

from perfkit.search.sample_bound import keeps_to


def binomial_cdf(most, trials, chance):
    return sum(math.comb(trials, number) * chance**number * (1 - chance) ** (trials - number) for number in range(most + 1))


@pytest.mark.parametrize(("quantile", "needed"), [(0.9, 64), (0.95, 130), (0.99, 662), (0.999, 6636)])
def test_with_one_above_it_takes_as_many_as_loadgen_asks_for(quantile, needed):
    assert keeps_to(quantile, needed, 1)
    assert not keeps_to(quantile, needed - 1, 1)


@pytest.mark.parametrize("above", [0, 3, 17, 60])
def test_more_above_take_as_many_as_the_binomial_says(above):
    needed = next(count for count in range(above + 1, 20_000) if binomial_cdf(above, count, 0.01) <= 0.01)
    assert keeps_to(0.99, needed, above)
    assert not keeps_to(0.99, needed - 1, above)


def test_correlated_requests_count_for_fewer():
    assert keeps_to(0.99, 662 * 70, 70, autocorrelation_time=70)
    assert not keeps_to(0.99, 662 * 70 - 70, 70, autocorrelation_time=70)
    assert keeps_to(0.99, 662, 1, autocorrelation_time=0.5)  # which is no reason to ask for fewer


def test_a_limit_of_none_is_kept_by_none_alone():
    assert keeps_to(1.0, 5, 0)
    assert not keeps_to(1.0, 10**6, 1)


def test_large_windows_are_no_matter():
    assert keeps_to(0.99, 10_000_000, 99_000)
    assert not keeps_to(0.99, 10_000_000, 99_900)
