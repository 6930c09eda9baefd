"""The dispersion of counts at several rates, without a fit."""

import numpy as np
import pytest

from perfkit.search.dispersion import dispersion_of
from perfkit.search.share_curve import CountAt, LimitCount


def counts(*rates_and_beyond, dispersion=1.0):
    return [CountAt(rate, LimitCount(beyond, 1_000, 0.01, dispersion)) for rate, beyond in rates_and_beyond]


def test_counts_that_rise_with_the_rate_are_not_dispersed():
    assert dispersion_of(counts((10, 0), (20, 5), (40, 30), (30, 12))) == 1
    assert dispersion_of(counts((10, 0), (20, 0))) == dispersion_of([]) == 1


def test_the_dispersion_within_the_windows_is_their_mean_weighted_by_the_counts():
    assert dispersion_of([*counts((10, 10), dispersion=2.0), *counts((20, 30), dispersion=6.0)]) == pytest.approx((10 * 2 + 30 * 6) / 40)


def test_counts_that_fall_with_the_rate_are_dispersed():
    # pooled, each expects 20: ((40 - 20)² + (0 - 20)²) ÷ 20 = 40, of one degree of freedom
    assert dispersion_of(counts((10, 40), (20, 0))) == pytest.approx(40)
    assert dispersion_of(counts((10, 1), (20, 40), (30, 0), (40, 90))) == pytest.approx(40)
    assert dispersion_of(counts((10, 40), (10, 0))) == pytest.approx(40)  # nor does a rate explain a difference from itself


def test_groups_of_requests_at_one_rate_are_found_between_windows_that_hold_one_or_none():
    random = np.random.default_rng(1)
    found = dispersion_of(counts(*((50, 25 * int(random.poisson(0.4))) for _ in range(400))))
    assert found == pytest.approx(25, rel=0.2)  # the standard error of this Pearson's χ² is 7 %
