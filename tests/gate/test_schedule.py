import math
import random
import statistics

import numpy as np
import pytest

from perfkit.errors import TimeTooShortError, UsageError
from perfkit.gate.metrics import Metric
from perfkit.gate.paired import look, rule_for
from perfkit.gate.pairs import RunPoint
from perfkit.gate.schedule import (
    RunCost,
    TimeRequest,
    TrialMetric,
    describe_schedule,
    detectable_effect,
    half_width,
    make_schedule,
    pooled_variance,
    variance_components,
)
from perfkit.gate.verdict import MetricNoise
from perfkit.units import NS_PER_S, parse_duration_ns

P50 = Metric("p50", "http, 70/s poisson", "ns", 0.05)
P99 = Metric("p99", "http, 70/s poisson", "ns", 0.10)
COST = RunCost(3.0, 2)


def windows(metric, values, *, per_s=1000.0, duration_s=2.0):
    """A trial with these values: for each arm, for each process, those of its windows."""
    scheduled = round(per_s * duration_s)
    return TrialMetric(
        metric,
        tuple(
            tuple(
                tuple(
                    RunPoint(
                        load_point=metric.load_point, kind="open", valid=True, duration_s=duration_s, scheduled=scheduled, failed=0,
                        figures={metric.name: value},
                    )
                    for value in process
                )
                for process in arm
            )
            for arm in values
        ),
    )  # fmt: skip


def noisy(metric, between, within, *, processes=2, count=2, seed=1, **rates):
    rng = random.Random(seed)
    levels = [[rng.gauss(0, between) for _ in range(processes)] for _ in range(2)]
    return windows(
        metric, [[[10e6 * math.exp(level + rng.gauss(0, within)) for _ in range(count)] for level in arm] for arm in levels], **rates
    )


def test_noise_is_split_into_that_between_restarts_and_that_within_a_run():
    # by hand: the first arm's processes have the logarithms (0, .02) and (.1, .12), the second's (0, 0) and (0, 0)
    values = [[[1.0, math.exp(0.02)], [math.exp(0.1), math.exp(0.12)]], [[1.0, 1.0], [1.0, 1.0]]]
    noise = windows(P50, values).estimate_noise()
    within = (2 * 0.0001 + 2 * 0.0001) / 4  # squares about the processes' means, over the degrees of freedom of both arms
    between = (0.005 - 0.0001) / 2 * 2 / 2  # of the means .01 and .11, and none in the other arm
    assert noise.within_one_second == pytest.approx(math.sqrt(within * 2))
    assert noise.between**2 == pytest.approx((0.1**2 - 0.0002) / 2 / 2)
    assert noise.between**2 == pytest.approx(between)


def test_estimated_noise_is_that_of_the_windows_in_the_mean():
    found = [noisy(P50, 0.03, 0.02, processes=5, count=4, seed=seed).estimate_noise() for seed in range(200)]
    assert statistics.fmean(one.between**2 for one in found) == pytest.approx(0.03**2, rel=0.1)
    assert statistics.fmean(one.within_one_second**2 for one in found) == pytest.approx(2 * 0.02**2, rel=0.1)


def test_a_trial_whose_windows_lack_a_figure_tells_no_noise():
    assert windows(P50, [[[1.0, None], [None, None]], [[1.0, 1.0], [1.0, 1.0]]]).estimate_noise() is None
    assert windows(P50, [[[1.0]], [[1.0]]]).estimate_noise() is None


@pytest.mark.parametrize(
    ("between", "within", "chosen_s"),
    [
        (0.0, 0.0, 2.0),  # nothing to gain
        (0.05, 0.001, 2.0),  # restarts dominate: longer windows would not help
        (0.0, 0.02, 2.0),  # twelve pairs pass anyway
        (0.0, 0.5, 4.0),  # never enough: what six minutes allow for 16 pairs
    ],
)
def test_the_window_is_the_shortest_whose_noise_hardly_matters(between, within, chosen_s):
    schedule, timing = make_schedule([noisy(P50, between, within)], TimeRequest(), COST)
    assert (schedule.window_s, schedule.pairs) == (chosen_s, None)
    assert timing.window_chosen_by == "trial"


def test_longer_windows_are_chosen_until_a_pass_is_likely():
    trial = noisy(P50, 0.0, 0.045, processes=2)
    schedule, timing = make_schedule([trial], TimeRequest(), COST)
    rule, (noise,) = rule_for(1), timing.noise
    assert 2.0 < schedule.window_s < 20.0
    assert half_width(noise, rule, 12, schedule.window_s) <= math.log(1.05) / 2 < half_width(noise, rule, 12, schedule.window_s - 1.01)


def test_noise_lengthens_windows_only_as_far_as_six_minutes_allow_and_says_what_it_asks_for():
    trial = [noisy(P50, 0.0, 0.5)]
    for spent_s, window_s in ((0, 4.0), (60, 3.0), (300, 2.0)):
        schedule, timing = make_schedule(trial, TimeRequest(spent_s=spent_s), COST)
        assert schedule.window_s == window_s
        assert window_s == 2.0 or spent_s + 2 * 16 * COST.seconds(window_s) <= 360
    # 2 x 20 runs of 3 + 2 x 20 s, and a minute and a half for a trial
    assert list(describe_schedule(trial, timing, schedule.pairs))[-1].startswith(
        "noise within runs asks for windows of 20 s: give --time 31m"
    )
    quiet = make_schedule([noisy(P50, 0.0, 0.001)], TimeRequest(), COST)
    assert not any("asks for" in sentence for sentence in describe_schedule([noisy(P50, 0.0, 0.001)], quiet[1], None))


def test_a_percentile_has_its_samples_in_the_window_if_twenty_seconds_hold_them():
    # 662 for p99, and a quarter more: 827.5 requests
    for per_s, window_s in ((1000, 2.0), (100, 9.0), (50, 17.0), (10, 20.0), (5, 25.0)):
        schedule, _ = make_schedule([windows(P99, [[[1.0, 1.0]] * 2] * 2, per_s=per_s)], TimeRequest(), COST)
        assert schedule.window_s == window_s


def test_windows_too_short_for_a_metric_are_refused_before_the_first_pair():
    slow = windows(P99, [[[1.0]], [[1.0]]], per_s=20)
    with pytest.raises(
        UsageError, match=r"measure.duration 3s: too short for p99 at http, 70/s poisson, at 20 requests a second: give at least 6.3s"
    ):
        make_schedule([slow], TimeRequest(window_s=3.0), COST)
    assert make_schedule([slow], TimeRequest(window_s=6.3), COST)[0].window_s == 6.3
    with pytest.raises(UsageError, match=r"p99 at http, 70/s poisson needs windows of 125 s .*leave it out \(gate.metrics\)"):
        make_schedule([windows(P99, [[[1.0]], [[1.0]]], per_s=1)], TimeRequest(), COST)
    with pytest.raises(UsageError, match="no request of the trial was answered at http, 70/s poisson, so p99"):
        make_schedule([windows(P99, [[[1.0]], [[1.0]]], per_s=0)], TimeRequest(), COST)


@pytest.mark.parametrize("left_s", [150, 300, 600, 3600])
@pytest.mark.parametrize(("between", "within"), [(0.05, 0.002), (0.002, 0.08)])
def test_a_given_time_is_kept_and_spent_on_what_is_noisy(left_s, between, within):
    trial = [noisy(P50, between, within)]
    schedule, timing = make_schedule(trial, TimeRequest(limit_s=left_s + 60, left_s=left_s), COST)
    spent_s = 2 * (schedule.pairs or 0) * COST.seconds(schedule.window_s)
    assert spent_s <= left_s
    assert timing.window_chosen_by == "time"
    (noise,) = timing.noise

    def width(pairs):
        window_s = min(20.0, (left_s / (2 * pairs) - COST.overhead_s) / 2)
        return half_width(noise, rule_for(1, pairs), pairs, window_s) if window_s >= 0.1 else math.inf

    # no other number of pairs would do much better: windows are whole tenths of a second
    assert half_width(noise, rule_for(1, schedule.pairs), schedule.pairs or 0, schedule.window_s) <= 1.03 * min(map(width, range(10, 61)))


def test_noise_between_restarts_asks_for_pairs_and_noise_within_for_windows():
    request = TimeRequest(limit_s=660, left_s=600)
    restarts, _ = make_schedule([noisy(P50, 0.05, 0.002)], request, COST)
    within, _ = make_schedule([noisy(P50, 0.0, 0.2)], request, COST)
    assert (restarts.pairs or 0) > (within.pairs or 0) > 0
    assert restarts.window_s < within.window_s


def test_a_time_too_short_for_the_fewest_pairs_is_refused_with_one_that_is_not():
    with pytest.raises(
        TimeTooShortError, match=r"--time 2m: too short for 10 pairs, since each run takes 3.0 s beside its windows: give at least 4m"
    ) as refused:
        make_schedule([noisy(P50, 0.01, 0.01)], TimeRequest(limit_s=120, left_s=60), COST)
    assert refused.value.enough == "4m"
    # the message has a reserve: the next trial may find that a run takes longer
    schedule, _ = make_schedule([noisy(P50, 0.01, 0.01)], TimeRequest(limit_s=180, left_s=120), COST)
    assert schedule.pairs == 10


@pytest.mark.parametrize("per_s", [2.0, 3.0, 10.0, 40.0, 1000.0])
def test_the_time_that_a_refusal_asks_for_is_not_refused(per_s):
    # at low rates a p99 needs longer windows than the noise asks for
    trial = [noisy(P99, 0.01, 0.01, per_s=per_s)]
    with pytest.raises(TimeTooShortError) as refused:
        make_schedule(trial, TimeRequest(limit_s=60, left_s=30), COST)
    enough_s = parse_duration_ns(refused.value.enough) / NS_PER_S
    schedule, _ = make_schedule(trial, TimeRequest(limit_s=enough_s, left_s=enough_s - 30), COST)
    assert schedule.window_s >= trial[0].least_window_s(is_enough=False)


def test_pairs_and_windows_that_are_given_are_kept():
    schedule, _ = make_schedule([noisy(P50, 0.01, 0.01)], TimeRequest(pairs=30, limit_s=900, left_s=900), COST)
    assert (schedule.pairs, schedule.window_s) == (30, 6.0)
    schedule, timing = make_schedule([noisy(P50, 0.01, 0.01)], TimeRequest(window_s=4.0, limit_s=900, left_s=900), COST)
    assert (schedule.window_s, timing.window_chosen_by) == (4.0, "scenario")
    assert 2 * (schedule.pairs or 0) * COST.seconds(4.0) <= 900 < 2 * ((schedule.pairs or 0) + 1) * COST.seconds(4.0)


def test_the_time_of_control_pairs_is_left_for_them():
    schedule, _ = make_schedule([noisy(P50, 0.01, 0.01)], TimeRequest(limit_s=600, left_s=600, control_pairs=10), COST)
    assert 2 * ((schedule.pairs or 0) + 10) * COST.seconds(schedule.window_s) <= 600


def test_the_length_of_a_gate_and_the_price_of_its_windows_are_told():
    trial = [noisy(P50, 0.01, 0.03), noisy(P99, 0.02, 0.04)]
    schedule, timing = make_schedule(trial, TimeRequest(window_s=5.0, limit_s=None), COST)
    first, second = describe_schedule(trial, timing, schedule.pairs)
    assert first == "windows of 5 s; the gate takes about 3m to 9m (5 to 20 pairs)"
    assert second.startswith("noise of p99, the noisiest metric, by the trial: ")
    assert ", with windows of 20 s " in second
    full_looks_alone, _ = describe_schedule(trial, timing, schedule.pairs, looks_early=False)
    assert full_looks_alone.endswith(" (12 to 20 pairs)")


@pytest.mark.parametrize("pairs", [10, 15, 40])
def test_the_effect_that_is_told_is_detected_by_nine_of_ten_gates_with_normal_noise(pairs):
    noise, rule = MetricNoise(metric="p50", load_point="", between=0.03, within_one_second=0.04), rule_for(4, pairs)
    effect = detectable_effect(noise, P50, rule, 4, 4.0)
    rng = np.random.default_rng(3)
    shifts = np.array([math.log1p(effect), 0.0, 0.0, 0.0])
    differences = shifts[:, None] + rng.normal(0, noise.pair_deviation(4.0), (2000, 4, pairs))
    detected = np.any([look(rule, [P50.bounds] * 4, differences[..., :count]).regressed[:, 0] for count in rule.looks], axis=0).mean()
    assert 0.85 < detected < 0.95


def test_the_components_of_a_layout_worked_out_by_hand():
    # means 2, 5, 8 of two each: MS_b = 2·(9 + 0 + 9)/2 = 18, MS_w = 3·0.5/3 = 0.5, so (18 - 0.5)/2
    found = variance_components([[1.5, 2.5], [4.5, 5.5], [7.5, 8.5]])
    assert (found.within, found.within_df, found.between_df) == (0.5, 3, 2)
    assert found.between == pytest.approx(8.75)


def test_equal_machines_have_no_variance_between_them_and_components_that_cannot_be_estimated_are_none():
    assert variance_components([[1.0, 3.0], [1.0, 3.0]]).between == 0.0
    assert variance_components([[1.0, 2.0]]).between is None
    alone = variance_components([[1.0], [2.0]])
    assert (alone.within, alone.within_df, alone.between) == (None, 0, None)


def test_unequal_groups_are_unbiased():
    random, between, within = np.random.default_rng(3), [], []
    for _ in range(4000):
        found = variance_components([(random.normal(0, 2.0) + random.normal(0, 1.0, size)).tolist() for size in (2, 5, 3, 9)])
        between.append(found.between or 0.0)
        within.append(found.within or 0.0)
    assert np.mean(within) == pytest.approx(1.0, rel=0.03)
    assert np.mean(between) == pytest.approx(4.0, rel=0.06)  # truncation at 0 adds next to nothing here


def test_estimates_are_pooled_by_their_degrees_of_freedom():
    assert pooled_variance([(1.0, 3), (5.0, 1), (None, 0)]) == (2.0, 4)
    assert pooled_variance([(None, 0)]) == (None, 0)
