"""How a gate spends its time: the length of its windows and the number of its pairs, from the noise that its trial measured. Pure.

The variance of a run's logarithm is b² + w²/T: b is the noise between restarts, w that within a run for one second, T the window.
"""

import dataclasses
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

from perfkit.errors import TimeTooShortError, UsageError
from perfkit.gate.metrics import Metric
from perfkit.gate.paired import Rule, fewest_pairs, minimum_detectable_effect, rule_for
from perfkit.gate.pairs import RunPoint
from perfkit.gate.verdict import MetricNoise, Timing
from perfkit.result.distribution import QUANTILES
from perfkit.stats.percentiles import minimum_samples
from perfkit.stats.probability import normal_quantile
from perfkit.units import write_minutes


@dataclasses.dataclass(frozen=True, slots=True)
class Components:
    """Variances of a figure; None if they cannot be estimated."""

    within: float | None
    """Between the runs of one machine."""
    within_df: int
    between: float | None
    """Between machines, without the variance within; at least 0."""
    between_df: int


def variance_components(groups: Sequence[Sequence[float]]) -> Components:
    """The variance components of a one-way layout, with a group per machine and a value per run.

    Analysis of variance for unequal groups, σ_b² = (MS_b - MS_w) / n₀ with n₀ = (N - Σnᵢ²/N)/(k-1); source: S. R. Searle,
    G. Casella & C. E. McCulloch, *Variance Components*, section 3.6. Assumptions: machines from one population, and equal variance on each.
    """
    groups = [group for group in groups if group]
    count, machines = sum(map(len, groups)), len(groups)
    means = [sum(group) / len(group) for group in groups]
    within_df = count - machines
    within = (
        sum((value - mean) ** 2 for group, mean in zip(groups, means, strict=True) for value in group) / within_df if within_df else None
    )
    if machines < 2 or within is None:
        return Components(within, within_df, None, 0)
    whole = sum(map(sum, groups)) / count
    between = sum(len(group) * (mean - whole) ** 2 for group, mean in zip(groups, means, strict=True)) / (machines - 1)
    size = (count - sum(len(group) ** 2 for group in groups) / count) / (machines - 1)
    return Components(within, within_df, max((between - within) / size, 0.0), machines - 1)


def pooled_variance(parts: Sequence[tuple[float | None, int]]) -> tuple[float | None, int]:
    """One variance from several estimates with their degrees of freedom, and the sum of these."""
    known = [(variance, df) for variance, df in parts if variance is not None and df > 0]
    total = sum(df for _, df in known)
    return (sum(variance * df for variance, df in known) / total, total) if total else (None, 0)


WINDOWS_S = (2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0, 12.0, 15.0, 20.0)
SHORTEST_WINDOW_S, LONGEST_WINDOW_S = 0.1, 120.0
_SMALL_SHARE = 0.1  # of the variance between restarts: it makes the deviation of a pair 5 % larger
_EFFICIENCY = 3 / math.pi  # of the signed-rank test beside Student's t (E. L. Lehmann, *Nonparametrics*, 2.4)
_SPARE = 1.25  # a window holds so many times the samples that a percentile needs, since no run is like the trial
_USUAL_S = 360.0  # trial and pairs of a gate whose time nobody gave, if it decides at its second look
MOST_PAIRS = 60
_QUANTILES = 400  # by which a normal distribution is represented


@dataclasses.dataclass(frozen=True, slots=True)
class TrialMetric:
    """A gated metric in the trial: for each arm, for each of its processes, the windows of its load point."""

    metric: Metric
    arms: tuple[tuple[tuple[RunPoint, ...], ...], ...]

    @property
    def per_s(self) -> float:
        """The mean rate of ok requests."""
        windows = [window for arm in self.arms for process in arm for window in process]
        return statistics.fmean((window.scheduled - window.failed) / window.duration_s for window in windows)

    def estimate_noise(self) -> MetricNoise | None:
        """The noise between restarts and within runs; None unless each process has windows with a value, and one of them two.

        An analysis of variance for each arm, since the candidate may differ, pooled over both. All windows have one length.
        """
        name = self.metric.name
        logs = [
            [[self.metric.difference(1.0, value) for window in process if (value := window.figures.get(name))] for process in arm]
            for arm in self.arms
        ]
        parts = [variance_components(arm) for arm in logs]
        within, _ = pooled_variance([(part.within, part.within_df) for part in parts])
        between, _ = pooled_variance([(part.between, part.between_df) for part in parts])
        if within is None or between is None or not all(process for arm in logs for process in arm):
            return None
        window_s = self.arms[0][0][0].duration_s
        return MetricNoise(
            metric=name, load_point=self.metric.load_point, between=math.sqrt(between), within_one_second=math.sqrt(within * window_s)
        )

    def least_window_s(self, *, is_enough: bool) -> float:
        """`least_window_s` at the rate of the trial."""
        return least_window_s(self.metric.name, self.per_s, is_enough=is_enough)


def least_window_s(metric: str, per_s: float, *, is_enough: bool) -> float:
    """The window in which a percentile has all the samples that it should have, or the fewest with which it is reported; 0 for another metric."""
    if (quantile := QUANTILES.get(metric)) is None:
        return 0.0
    samples = minimum_samples(quantile) if is_enough else 1 / (1 - quantile)
    return _SPARE * samples / per_s if per_s > 0 else math.inf


@dataclasses.dataclass(frozen=True, slots=True)
class RunCost:
    """What one run of an arm takes: `overhead_s` is starting and stopping the server, connecting and warming up."""

    overhead_s: float
    load_points: int

    def seconds(self, window_s: float) -> float:
        """The length of a run."""
        return self.overhead_s + self.load_points * window_s


@dataclasses.dataclass(frozen=True, slots=True)
class TimeRequest:
    """What the user decided about the time of the gate."""

    window_s: float | None = None
    """From measure.duration; None if it is to be chosen."""
    pairs: int | None = None
    """From --pairs: those of the last look; None for the default, or as many as the time allows."""
    limit_s: float | None = None
    """From --time, for the whole gate."""
    spent_s: float = 0.0
    """On the trial."""
    left_s: float | None = None
    """What the trial has left of the limit."""
    control_pairs: int = 0
    """Measured before the others."""


_TIME_RESERVE = 1.15  # the next trial may find that a run takes longer


@dataclasses.dataclass(frozen=True, slots=True)
class Schedule:
    """The window of every run, and the pairs of the last look; None for the default."""

    window_s: float
    pairs: int | None


def make_schedule(trial: Sequence[TrialMetric], request: TimeRequest, cost: RunCost) -> tuple[Schedule, Timing]:
    """Choose window and pairs. Raises UsageError for windows or a time that are too short."""
    count = len(trial)
    noise = {one.metric: found for one in trial if (found := one.estimate_noise()) is not None}
    least_s = _check_samples(trial, request.window_s)
    rule = rule_for(count, request.pairs)
    longest_s = ((_USUAL_S - request.spent_s) / (2 * rule.looks[len(rule.looks) // 2]) - cost.overhead_s) / cost.load_points
    schedule = Schedule(request.window_s or _shortest_window_s(trial, noise, rule, longest_s), request.pairs)
    if request.left_s is not None:
        rules = dict(_rules(count, request.pairs))
        if (best := spend_time(noise, rules, cost, request, least_s)) is None:
            fewest = min(rules)
            run_s = cost.seconds(request.window_s or max(least_s, 1.0))
            needed_s = (request.limit_s or 0.0) - request.left_s + 2 * (fewest + request.control_pairs) * run_s
            enough = write_minutes(needed_s * _TIME_RESERVE)
            shorter = "" if request.window_s is None else ", or lessen measure.duration"
            raise TimeTooShortError(
                f"--time {write_minutes(request.limit_s or 0.0)}: too short for {fewest} pairs, since each run takes {cost.overhead_s:.1f} s "
                f"beside its windows: give at least {enough}{shorter}",
                enough=enough,
            )
        schedule = best
    chosen_by = "scenario" if request.window_s is not None else "trial" if request.left_s is None else "time"
    return schedule, Timing.model_validate(
        {
            "window_s": schedule.window_s,
            "window_chosen_by": chosen_by,
            "run_overhead_s": cost.overhead_s,
            "load_points": cost.load_points,
            "time_limit_s": request.limit_s,
            "noise": tuple(noise.values()),
        }
    )


def spend_time(
    noise: Mapping[Metric, MetricNoise], rules: Mapping[int, Rule], cost: RunCost, request: TimeRequest, least_s: float
) -> Schedule | None:
    """The pairs, one of the keys of `rules`, and the window that use the time left best; None if it is too short for any.

    Best is the smallest distance from the estimate to the limit of a pass, in margins, of the metric for which that is largest. A
    given window is kept; without noise the pairs are as many as possible.
    """
    best: tuple[float, Schedule] | None = None
    for pairs, rule in rules.items():
        run_s = (request.left_s or 0.0) / (2 * (pairs + request.control_pairs))
        available_s = (run_s - cost.overhead_s) / cost.load_points
        length_s = request.window_s or math.floor(10 * min(available_s, max(WINDOWS_S[-1], math.ceil(least_s)))) / 10
        if length_s < max(least_s, SHORTEST_WINDOW_S) or length_s > available_s:
            continue
        widest = max((half_width(one, rule, pairs, length_s) / metric.bounds.margin for metric, one in noise.items()), default=-pairs)
        if best is None or widest < best[0]:
            best = widest, Schedule(length_s, pairs)
    return None if best is None else best[1]


def half_width(noise: MetricNoise, rule: Rule, pairs: int, window_s: float) -> float:
    """The distance from the estimate to the limit of a pass after so many pairs, as a logarithm."""
    return normal_quantile(1 - rule.limit_alpha(pairs)) * noise.pair_deviation(window_s) / math.sqrt(_EFFICIENCY * pairs)


def detectable_effect(noise: MetricNoise, metric: Metric, rule: Rule, metrics: int, window_s: float) -> float:
    """The slowdown that 90 % of gates with this noise, normally distributed, detect in one of so many metrics, as a share."""
    deviation = noise.pair_deviation(window_s)
    differences = [deviation * normal_quantile((number + 0.5) / _QUANTILES) for number in range(_QUANTILES)]
    difference = minimum_detectable_effect(rule, [metric.bounds] * metrics, 0, differences)
    return math.inf if difference is None else math.expm1(difference)


def describe_schedule(trial: Sequence[TrialMetric], timing: Timing, pairs: int | None, *, looks_early: bool = True) -> Iterator[str]:
    """Sentences: how long the gate takes, why its windows are as long as they are, and what that costs."""
    cost, window_s, rule = RunCost(timing.run_overhead_s, timing.load_points), timing.window_s, rule_for(len(trial), pairs)
    if window_s is None:
        return
    counts = (rule.all_looks if looks_early else rule.looks)[0], rule.looks[-1]
    first, last = (write_minutes(2 * count * cost.seconds(window_s)) for count in counts)
    yield f"windows of {window_s:g} s; the gate takes about {first if first == last else f'{first} to {last}'} ({counts[0]} to {counts[1]} pairs)"
    metrics = {one.metric.name: one.metric for one in trial}
    if (noisiest := max(timing.noise, key=lambda one: one.pair_deviation(window_s), default=None)) is None:
        return
    metric = metrics[noisiest.metric]
    within = noisiest.within_one_second / math.sqrt(window_s)
    effects = [detectable_effect(noisiest, metric, rule, len(trial), length_s) for length_s in (window_s, WINDOWS_S[-1])]
    longer = "" if window_s >= WINDOWS_S[-1] else f", with windows of {WINDOWS_S[-1]:g} s {effects[1]:.1%}"
    yield (
        f"noise of {metric.name}, the noisiest metric, by the trial: {noisiest.between:.1%} between restarts, {within:.1%} within such a "
        f"window; detectable: about {effects[0]:.1%}{longer}"
    )
    asked_s = _asked_window_s({metrics[one.metric]: one for one in timing.noise if one.metric in metrics}, rule)
    if timing.window_chosen_by == "trial" and asked_s > window_s:
        asked = write_minutes(2 * rule.looks[-1] * cost.seconds(asked_s) + _USUAL_S / 4)
        yield f"noise within runs asks for windows of {asked_s:g} s: give --time {asked} for them, or a quieter machine"


def _shortest_window_s(trial: Sequence[TrialMetric], noise: Mapping[Metric, MetricNoise], rule: Rule, longest_s: float) -> float:
    """The shortest window that the noise asks for, up to `longest_s`, with enough samples for each percentile if 20 s hold them."""
    affordable = [window_s for window_s in WINDOWS_S if window_s <= longest_s] or [WINDOWS_S[0]]
    needs = [max(one.least_window_s(is_enough=False), min(one.least_window_s(is_enough=True), WINDOWS_S[-1])) for one in trial]
    return max(min(_asked_window_s(noise, rule), affordable[-1]), *(float(math.ceil(need)) for need in needs))


def _asked_window_s(noise: Mapping[Metric, MetricNoise], rule: Rule) -> float:
    """The shortest window whose noise within a run hardly matters; 20 s if none is long enough.

    Noise within a run hardly matters if it is at most a tenth of the variance between restarts, or if an unchanged candidate is
    likely to pass at the first full look: the limit of a pass is within half of the margin.
    """

    def is_long_enough(window_s: float) -> bool:
        return all(
            one.within_one_second**2 / window_s <= _SMALL_SHARE * one.between**2
            or half_width(one, rule, rule.looks[0], window_s) <= metric.bounds.margin / 2
            for metric, one in noise.items()
        )

    return next((window_s for window_s in WINDOWS_S if is_long_enough(window_s)), WINDOWS_S[-1])


def _check_samples(trial: Sequence[TrialMetric], window_s: float | None) -> float:
    """The least window of all metrics; raises UsageError if the given one, or the longest that a gate chooses, is shorter."""
    neediest = max(trial, key=lambda one: one.least_window_s(is_enough=False))
    least_s, metric = neediest.least_window_s(is_enough=False), neediest.metric
    if least_s <= (window_s or LONGEST_WINDOW_S):
        return least_s
    if math.isinf(least_s):
        raise UsageError(f"no request of the trial was answered at {metric.load_point}, so {metric.name} cannot be gated")
    at_rate = f"at {neediest.per_s:.3g} requests a second"
    if window_s is None:
        raise UsageError(
            f"{metric.name} at {metric.load_point} needs windows of {least_s:.0f} s {at_rate}: leave it out (gate.metrics), or give "
            "measure.duration"
        )
    raise UsageError(
        f"measure.duration {window_s:g}s: too short for {metric.name} at {metric.load_point}, {at_rate}: give at least "
        f"{math.ceil(10 * least_s) / 10:g}s, or leave {metric.name} out (gate.metrics)"
    )


def _rules(metrics: int, pairs: int | None) -> Iterator[tuple[int, Rule]]:
    """The rules that a time limit may choose from, by their pairs."""
    fewest = fewest_pairs(metrics)
    for count in range(fewest, max(fewest + 1, MOST_PAIRS + 1)) if pairs is None else (pairs,):
        yield count, rule_for(metrics, count)
