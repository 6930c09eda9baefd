"""SLOs: satisfied, violated, or not to be judged."""

import dataclasses

import numpy as np
import pytest
import scipy.stats

from perfkit.stats.buckets import BucketCounts
from perfkit.stats.percentiles import PercentileInterval, percentile_intervals
from perfkit.stats.slo import CheckedAnswers, FirstResponses, SloLimits, judge_slo

MS = 1_000_000


def times_of(count, highest_ms=100):
    """Evenly from 0 to the highest: p50 and p99 are 50 and 99 % of it."""
    return BucketCounts.of(np.linspace(0, highest_ms * MS, count))


def interval_of(quantile, value_ns, *, low_ns=0, high_ns=None, count=10_000, time=1.0):
    return PercentileInterval(quantile, 0.95, value_ns, low_ns, high_ns, count, time, 30, is_uncorrelated=True)


@pytest.mark.parametrize(("limit_ms", "verdict"), [(120, "satisfied"), (99.2, "satisfied"), (98.8, "violated"), (1, "violated")])
def test_a_percentile_is_judged_by_its_value(limit_ms, verdict):
    found = judge_slo(SloLimits({0.99: int(limit_ms * MS)}), times_of(10_000), {}, 0.0)
    assert found.verdict == verdict
    assert found.reason.startswith(f"The SLO is {verdict}: p99 is 99.0 ms, ")


@pytest.mark.parametrize(("limit_ms", "verdict"), [(99.2, "satisfied"), (98.8, "violated")])
def test_an_interval_across_the_limit_changes_only_the_sentence(limit_ms, verdict):
    interval = interval_of(0.99, 99 * MS, low_ns=90 * MS, high_ns=110 * MS)
    found = judge_slo(SloLimits({0.99: int(limit_ms * MS)}), times_of(10_000), {0.99: interval}, 0.0)
    assert found.verdict == verdict
    assert "p99 is 99.0 ms (90.0 ms to 110 ms), " in found.reason
    open_above = dataclasses.replace(interval, high_ns=None)
    assert "(90.0 ms or more)" in judge_slo(SloLimits({0.99: 1}), times_of(10_000), {0.99: open_above}, 0.0).reason


@pytest.mark.parametrize(
    ("quantile", "count", "verdict"),
    [
        (0.99, 661, "inconclusive"),
        (0.99, 662, "satisfied"),
        (0.999, 5_000, "inconclusive"),
        (0.999, 6_636, "satisfied"),
        (0.5, 0, "inconclusive"),
    ],
)
@pytest.mark.parametrize("limit_ms", [1, 1000])
def test_too_few_samples_are_inconclusive_on_either_side_of_the_limit(quantile, count, verdict, limit_ms):
    found = judge_slo(SloLimits({quantile: limit_ms * MS}), times_of(count), {}, 0.0)
    assert found.verdict == ("violated" if limit_ms == 1 and verdict == "satisfied" else verdict)


def test_correlation_multiplies_the_samples_needed():
    slo, times = SloLimits({0.99: 200 * MS}), times_of(10_000)
    assert judge_slo(slo, times, {0.99: interval_of(0.99, 99 * MS, time=15.0)}, 0.0).verdict == "satisfied"
    found = judge_slo(slo, times, {0.99: interval_of(0.99, 99 * MS, time=16.0)}, 0.0)
    assert found.reason == (
        "The SLO is inconclusive: p99 needs 10,592 samples, because slow requests come in groups, and has 10,000, "
        "in which it is 99.0 ms and none is above 200 ms (measure 1.3 times as long)."
    )


@pytest.mark.parametrize(("error_rate", "verdict"), [(0.0, "satisfied"), (0.001, "satisfied"), (0.0011, "violated")])
def test_the_error_rate_may_reach_its_limit(error_rate, verdict):
    found = judge_slo(SloLimits({}, 0.001), times_of(0), {}, error_rate)
    assert found.verdict == verdict
    assert f"the error rate is {error_rate:.3%}" in found.reason


@pytest.mark.parametrize(
    ("answers", "checked", "wrong", "verdict"),
    [
        (10**6, 3687, 0, "inconclusive"),  # no wrong one among n shows at most 1 - 0.025 ** (1 / n)
        (10**6, 3688, 0, "satisfied"),
        (10**6, 3688, 1, "inconclusive"),
        (10**6, 1000, 10, "violated"),
        (1000, 1000, 1, "satisfied"),  # all were checked: nothing is estimated
        (1000, 1000, 2, "violated"),
        (1000, 0, 0, "inconclusive"),
    ],
)
def test_wrong_answers_are_judged_by_the_interval_of_their_share(answers, checked, wrong, verdict):
    counted = CheckedAnswers(answers, checked, wrong)
    assert judge_slo(SloLimits({}, None, 0.001), times_of(0), {}, 0.0, answers=counted).verdict == verdict


def test_the_interval_of_the_share_of_wrong_answers_is_exact():
    found = CheckedAnswers(10_000, 200, 3).interval
    exact = scipy.stats.binomtest(3, 200).proportion_ci(0.95, method="exact")
    assert found == pytest.approx((exact.low, exact.high), rel=1e-9)


def test_a_violated_limit_outweighs_an_inconclusive_one_and_that_a_satisfied_one():
    slo = SloLimits({0.5: 60 * MS, 0.999: 200 * MS}, 0.01)
    assert [verdict for verdict, _ in judge_slo(slo, times_of(1000), {}, 0.0).limits] == ["satisfied", "inconclusive", "satisfied"]
    assert judge_slo(slo, times_of(1000), {}, 0.0).verdict == "inconclusive"
    found = judge_slo(slo, times_of(1000), {}, 0.5)
    assert found.reason == "The SLO is violated: the error rate is 50.000%, above 1.000%."


@pytest.mark.parametrize(("cause", "word"), [("overloaded", "overloaded"), ("not_steady", "not steady")])
def test_an_overloaded_or_drifting_point_violates_any_limit(cause, word):
    is_overloaded, is_not_steady = cause == "overloaded", cause == "not_steady"
    for slo in (SloLimits({0.99: 1000 * MS}), SloLimits({0.9999: 1000 * MS}), SloLimits({}, 1.0)):
        found = judge_slo(slo, times_of(10_000), {}, 0.0, is_overloaded=is_overloaded, is_not_steady=is_not_steady)
        assert found.verdict == "violated"
        assert f"the target was {word}" in found.reason
    assert judge_slo(SloLimits({}), times_of(10), {}, 0.0, is_overloaded=is_overloaded, is_not_steady=is_not_steady).verdict == "satisfied"


def test_an_slo_without_limits_is_satisfied():
    found = judge_slo(SloLimits({}), BucketCounts.of([]), {}, 1.0)
    assert (found.verdict, found.limits, found.reason) == ("satisfied", (), "The SLO is satisfied.")


def test_an_slo_is_judged_with_percentile_intervals():
    parts = [BucketCounts.of(np.random.default_rng(index).exponential(10 * MS, 200)) for index in range(60)]
    slo = SloLimits({0.5: 8 * MS, 0.99: 50 * MS}, 0.0)
    found = judge_slo(slo, BucketCounts.merged(parts), percentile_intervals(parts, (0.5, 0.99)), 0.0)
    assert found.verdict == "satisfied"
    assert [sentence[:3] for _, sentence in found.limits] == ["p50", "p99", "the"]


def test_a_limit_is_shown_with_all_its_digits():
    found = judge_slo(SloLimits({0.99: 180_600_000}), times_of(10_000, highest_ms=183), {}, 0.0)
    assert found.reason == "The SLO is violated: p99 is 181 ms, above 180.6 ms."


@pytest.mark.parametrize(("limit_ms", "verdict", "words"), [(120, "satisfied", "within 120 ms"), (80, "violated", "above 80 ms")])
def test_first_responses_are_judged_by_their_own_times(limit_ms, verdict, words):
    slo = SloLimits({0.99: 1000 * MS}, first_response_ns={0.99: limit_ms * MS})
    interval = interval_of(0.99, 99 * MS, low_ns=90 * MS, high_ns=110 * MS)
    found = judge_slo(slo, times_of(10_000, 500), {}, 0.0, first_response=FirstResponses(times_of(10_000), {0.99: interval}))
    assert found.verdict == verdict
    assert f"the first response's p99 is 99.0 ms (90.0 ms to 110 ms), {words}" in found.reason


@pytest.mark.parametrize("first", [FirstResponses(), FirstResponses(times_of(100))])
def test_too_few_first_responses_are_inconclusive(first):
    found = judge_slo(SloLimits({}, first_response_ns={0.99: 1}), times_of(10_000), {}, 0.0, first_response=first)
    assert (found.verdict, found.reason.partition(" needs")[0]) == ("inconclusive", "The SLO is inconclusive: the first response's p99")
