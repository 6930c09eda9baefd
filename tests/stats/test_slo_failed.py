"""The share of failed requests by the sample of the answers: what it tells beside a simulation of requests and samples."""

import numpy as np
import pytest

from perfkit.stats.slo import FailedShare

RNG = np.random.default_rng(7)


def sampled(requests, rejected, wrong, share):
    """The counts of a simulated window: rejected requests, and wrong answers of which only the checked ones are known."""
    rejections = RNG.binomial(requests, rejected)
    answers = requests - rejections
    checked = round(share * answers)
    found = RNG.binomial(checked, wrong)
    return requests, rejections + found, checked, found


def test_the_dispersion_is_that_of_the_number_of_failures_which_a_sample_of_the_answers_tells():
    shares = [FailedShare.of_counts(*sampled(10_000, 0.01, 0.02, 0.05)) for _ in range(2000)]
    numbers = [one.estimate * 10_000 for one in shares]
    assert np.mean(numbers) == pytest.approx(10_000 * (0.01 + 0.99 * 0.02), rel=0.02)
    # four standard errors of a variance of 2,000 values are 13 %
    assert np.var(numbers) / np.mean(numbers) == pytest.approx(np.mean([one.dispersion for one in shares]), rel=0.13)


def test_several_samples_together_are_as_their_sum_where_all_were_sampled_alike():
    counts = [sampled(5000, 0.02, 0.1, 0.2) for _ in range(4)]
    together = FailedShare.over([(one[0], FailedShare.of_counts(*one)) for one in counts])
    whole = FailedShare.of_counts(*map(sum, zip(*counts, strict=True)))
    assert (together.estimate, together.dispersion) == pytest.approx((whole.estimate, whole.dispersion), rel=0.01)
    assert together.low < whole.low < whole.high < together.high
    assert FailedShare.over([]) == FailedShare(0.0, 0.0, 0.0)


def test_a_load_point_that_was_sampled_less_counts_by_its_requests():
    # 1 % of 10,000 answers of one load were checked, all of another's 100: half of the first are wrong, none of the second
    parts = [(10_000, FailedShare.of_counts(10_000, 50, 100, 50)), (100, FailedShare.of_counts(100, 0, 100, 0))]
    assert FailedShare.over(parts).estimate == pytest.approx(5000 / 10_100)


def test_counted_failures_are_independent_requests_each():
    assert FailedShare.of_counts(1000, 30, 0, 0).independent(1000) == pytest.approx((30, 1000))
    assert FailedShare.of_counts(1000, 30, 1000, 30).independent(1000) == pytest.approx((30, 1000))
    failed, requests = FailedShare.of_counts(1000, 10, 100, 10).independent(1000)
    assert (failed, requests) == pytest.approx((10, 100))
