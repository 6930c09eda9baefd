"""Whether a disturbance moved a figure: against figures that are known without it."""

import numpy as np
import pytest
from scipy.stats import binomtest

from perfkit.stats.buckets import BucketCounts
from perfkit.stats.percentiles import percentile_intervals
from perfkit.stats.probability import binomial_limits
from perfkit.stats.validity import Alternative, moved_error_rate, moved_rate, moved_time

MS = 1_000_000
QUANTILES = (0.5, 0.9, 0.99, 0.999)


def exponential(count=4000, mean_ms=10.0, seed=1):
    return np.random.default_rng(seed).exponential(mean_ms * MS, count).astype(np.int64)


def at_rank(values, quantile):
    """The percentile as HdrHistogram defines it."""
    return np.sort(values)[int(quantile * values.size + 0.5) - 1]


def moved(values, alternatives):
    """`moved_time` of some values."""
    return moved_time(BucketCounts.of(values), alternatives, QUANTILES)


def dropping(untouched):
    batches = [BucketCounts.of(part) for part in np.array_split(untouched, 40)]
    whole = BucketCounts.of(untouched)
    return Alternative(whole, whole, batches)


def bounding(untouched, touched, most_ns):
    batches = [BucketCounts.of(part) for part in np.array_split(untouched, 40)]
    least, most = (BucketCounts.of([*untouched, *np.maximum(touched + change_ns, 0)]) for change_ns in (-most_ns, most_ns))
    return Alternative(least, most, batches)


def test_times_that_nothing_touched_are_unmoved():
    values = exponential()
    assert moved(values, [dropping(values)]) is None


@pytest.mark.parametrize(("touched", "figure"), [(1, None), (8, "p99.9"), (300, "p99"), (1600, "p90")])
def test_the_percentile_that_was_moved_most_is_named(touched, figure):
    values = exponential(8000)
    stopped = values.copy()
    stopped[:touched] += 100 * MS
    effect = moved(stopped, [dropping(values[touched:])])
    assert (effect.figure if effect else None) == figure
    if effect is not None and effect.without is not None:
        quantile = float(figure.removeprefix("p")) / 100
        assert effect.reported == pytest.approx(at_rank(stopped, quantile), rel=2e-3)
        assert effect.without == pytest.approx(at_rank(values[touched:], quantile), rel=2e-3)


def test_a_figure_within_its_interval_is_unmoved_and_one_beyond_it_is_moved():
    """The p99 without the stop is 45.7 ms, in [41.1, 54.9] ms; with it, 50.0 ms is within, and 85 ms is not."""
    values = exponential(1500, seed=3)
    without = dropping(np.delete(values, np.s_[750:770]))
    ends = percentile_intervals(without.batches, [0.99])[0.99]
    assert ends.low_ns is not None and ends.high_ns is not None  # noqa: PT018 - for mypy
    effects = []
    for touched in (7, 20):
        stopped = values.copy()
        stopped[750 : 750 + touched] += 80 * MS
        reported = at_rank(stopped, 0.99)
        assert (ends.low_ns <= reported <= ends.high_ns) == (touched == 7)
        effects.append(moved(stopped, [without]))
    assert effects[0] is None
    assert effects[1] is not None
    assert effects[1].figure == "p99"


def test_a_figure_with_too_few_samples_for_an_interval_is_not_judged():
    """In 4,000 requests the p99.9 has an interval that is open above: ten late ones move it, and nothing else."""
    values = exponential()
    stopped = values.copy()
    stopped[1000:1010] += 60 * MS
    assert at_rank(stopped, 0.999) > 1.1 * at_rank(values, 0.999)
    assert moved(stopped, [dropping(np.delete(values, np.s_[1000:1010]))]) is None


def test_a_mean_that_moves_alone_is_named():
    values = exponential()
    stopped = values.copy()
    stopped[0] += 3_000 * MS
    effect = moved(stopped, [dropping(values[1:])])
    assert effect is not None
    assert effect.figure == "mean"
    assert effect.reported == pytest.approx(stopped.mean(), rel=1e-3)
    assert effect.without == pytest.approx(values[1:].mean(), rel=1e-3)


def test_a_short_stop_of_long_requests_moves_nothing_although_it_touched_most_of_them():
    """Six of ten requests of 5 s were touched by a stop of 10 ms: dropping them says little, their bounds say enough."""
    values = exponential(40, 5_000.0)
    touched = values[:24] + 10 * MS
    reported = np.array([*touched, *values[24:]])
    assert moved(reported, [bounding(values[24:], touched, 10 * MS), dropping(values[24:])]) is None


def test_one_alternative_that_shows_no_effect_is_enough():
    values = exponential()
    touched = values[:400] + 50 * MS
    reported = np.array([*touched, *values[400:]])
    wrong = dropping(exponential(mean_ms=30))
    assert moved(reported, [wrong]) is not None
    assert moved(reported, [wrong, dropping(np.array([*touched, *values[400:]]))]) is None


def test_without_any_undisturbed_time_nothing_can_be_told():
    effect = moved(exponential(), [dropping(np.zeros(0, dtype=np.int64))])
    assert effect is not None
    assert effect.without is None
    assert moved(np.zeros(0, dtype=np.int64), [dropping(np.zeros(0, dtype=np.int64))]) is None


@pytest.mark.parametrize(("share", "moved"), [(0.0, False), (0.005, False), (0.02, True), (0.3, True)])
def test_a_rate_that_lost_more_than_a_hundredth_is_moved(share, moved):
    counts = np.full(200, 100)
    disturbed = np.zeros(200, dtype=np.bool_)
    stopped = round(share * 200)
    disturbed[50 : 50 + stopped] = True
    counts[disturbed] = 0
    effect = moved_rate(counts, disturbed)
    assert (effect is not None) == moved
    if effect is not None:
        assert effect.reported == pytest.approx(100 * (1 - share))
        assert effect.without == 100.0


def test_a_rate_within_its_own_interval_is_unmoved():
    counts = np.random.default_rng(3).poisson(4, 200)
    disturbed = np.zeros(200, dtype=np.bool_)
    disturbed[:3] = True
    counts[:3] = 0
    assert moved_rate(counts, disturbed) is None, "1.5 % less, and the interval is ±7 %"


def test_a_rate_that_was_mostly_disturbed_is_left_to_the_mean_time():
    assert moved_rate(np.arange(10) // 5, np.arange(10) < 6) is None


@pytest.mark.parametrize(
    ("failed", "touched_failed", "moved"), [(0, 0, False), (1, 1, True), (30, 0, False), (31, 1, False), (80, 50, True)]
)
def test_failures_that_a_stop_may_have_caused_move_the_error_rate(failed, touched_failed, moved):
    effect = moved_error_rate(failed, 1000, touched_failed, 60)
    assert (effect is not None) == moved
    assert effect is None or effect.reported == failed / 1000


@pytest.mark.parametrize(("successes", "trials"), [(0, 1), (1, 1), (0, 300), (2, 149), (5, 149), (300, 300), (114, 10_000)])
def test_binomial_limits_are_those_of_scipy_s_exact_test(successes, trials):
    expected = binomtest(successes, trials).proportion_ci(method="exact")
    assert binomial_limits(successes, trials) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_without_trials_any_probability_is_possible():
    assert binomial_limits(0, 0) == (0.0, 1.0)
