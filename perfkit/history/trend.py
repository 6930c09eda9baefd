"""Trends: one metric of one series over many results, its steps, and the commits of the steps. Pure.

Steps in the level of a series are found by E-divisive with a permutation test: for trends in hindsight, not for gates.
"""

import dataclasses
import itertools
import json
import math
import statistics
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from perfkit.history.accepted import AcceptedChange
from perfkit.history.series import HistoryEntry, Kind, Series, Unit
from perfkit.result.fingerprint import fingerprint_differences
from perfkit.result.part import dataclass_document

SIGNIFICANCE, PERMUTATIONS, SHORTEST = 0.01, 999, 3
_ROUNDING = 1e-9  # a permutation that splits equally well, such as the reverse, may differ by the rounding of sums
_Values = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, slots=True)
class ChangePoint:
    """A step; `index` is that of the first value after it."""

    index: int
    p: float
    before: float
    """The mean of the values between the previous step and this one; `after` is that up to the next step."""
    after: float


def change_points(
    values: Sequence[float],
    *,
    seed: int = 0,
    significance: float = SIGNIFICANCE,
    permutations: int = PERMUTATIONS,
    shortest: int = SHORTEST,
) -> list[ChangePoint]:
    """The steps of a series, ascending. A segment has at least `shortest` values; the same seed gives the same steps.

    Step by step, the split with the largest energy distance between its sides is tested by permuting the values within the
    segments found so far. p = (z+1)/(B+1) if z of B permutations split at least as well; it is never 0, and a series without
    a step shows none with probability 1 - `significance`. Sources: D. S. Matteson & N. A. James, "A nonparametric approach for
    multiple change point analysis of multivariate data" (J. Am. Statist. Assoc. 109, 2014); for performance histories, with splits
    that reach to the ends of the segment, D. Daly et al., "The use of change point detection to identify software performance
    regressions" (ICPE 2020). Assumption: exchangeable values between steps; a drift appears as several steps.
    """
    series, random = np.asarray(values, dtype=np.float64), np.random.default_rng(seed)
    bounds, p_values = [0, series.size], dict[int, float]()
    while True:
        segments = list(itertools.pairwise(bounds))
        best, place = _best_split(series, segments, shortest)
        if place is None:
            break
        at_least_as_good, most = 0, significance * (permutations + 1) - 1
        for _ in range(permutations):
            shuffled = np.concatenate([random.permutation(series[start:end]) for start, end in segments])
            at_least_as_good += _best_split(shuffled, segments, shortest)[0] >= best * (1 - _ROUNDING)
            if at_least_as_good > most:  # the others cannot make it significant
                break
        if at_least_as_good > most:
            break
        p_values[place] = (at_least_as_good + 1) / (permutations + 1)
        bounds = sorted((*bounds, place))
    means = {start: float(series[start:end].mean()) for start, end in itertools.pairwise(bounds) if end > start}
    return [ChangePoint(place, p_values[place], means[bounds[bounds.index(place) - 1]], means[place]) for place in sorted(p_values)]


def _best_split(series: _Values, segments: Sequence[tuple[int, int]], shortest: int) -> tuple[float, int | None]:
    """The largest statistic of all splits and its index; None if no segment can be split, or the values in each are equal."""
    best, place = 0.0, None
    for start, end in segments:
        if end - start >= 2 * shortest:
            statistics = split_statistics(series[start:end])[shortest - 1 : end - start - shortest]
            index = int(statistics.argmax())
            if statistics[index] > best:
                best, place = float(statistics[index]), start + shortest + index
    return best, place


def split_statistics(values: _Values) -> _Values:
    """mn/(m+n) times the energy distance, for each split into the first m values and the other n, m = 1 … N-1.

    The energy distance is 2 E|X-Y| - E|X-X'| - E|Y-Y'|; the means within a side are over distinct pairs, and 0 for a single value.
    """
    size = values.size
    rows = np.abs(values[:, None] - values)
    inside = 2 * np.cumsum(np.cumsum(rows, axis=1).diagonal())  # twice the sum over the pairs of the first m
    total, along = inside[-1], np.cumsum(rows.sum(axis=1))
    left = np.arange(1, size)
    right = size - left
    first, across = inside[:-1], along[:-1] - inside[:-1]
    second = total - first - 2 * across
    within = first / np.maximum(left * (left - 1), 1) + second / np.maximum(right * (right - 1), 1)
    statistics: _Values = left * right / size * (2 * across / (left * right) - within)
    return statistics


MAXIMUM_RESULTS = 500  # more would take the permutations minutes, and old steps are known
_LONGEST_START = 100  # results of the other branch: enough to know its level, and to find its newest step quickly
_BEFORE, _AFTER = 3, 10  # results: the place of a step is uncertain, and an accepted change may be merged days later
_TOLERANCE = 0.01  # the gate's noise band: levels of a history are no exact figures
_UNCERTAINTY = 2  # how many results a step may be found too early


@dataclasses.dataclass(frozen=True, slots=True)
class Trend:
    """A metric at one load point of one series, ordered by time; the values are above zero."""

    series: Series
    load_point: str
    metric: str
    unit: Unit
    entries: tuple[HistoryEntry, ...]
    values: tuple[float, ...]
    start: int = 0
    """How many of the first results are of the branch that this one starts from."""

    @property
    def scenario(self) -> str:
        """The scenario's name."""
        return self.series.scenario

    @property
    def title(self) -> str:
        """Scenario, metric, load point, branch and machine in words."""
        return f"{self.scenario}: {self.metric}, {self.load_point} ({self.series.place})"


@dataclasses.dataclass(frozen=True, slots=True)
class Step:
    """A change of level."""

    index: int
    """The index of the first result after it, among the results of the trend."""
    commit: str
    """The commit of the first result after the step; empty if unknown."""
    previous_commit: str
    """The commit of the last result before the step; the cause is one of the commits after it, up to and including `commit`."""
    started_at: str
    ratio: float
    """The geometric mean after ÷ the geometric mean before the step."""
    is_worse: bool
    """Whether the figure got worse: a time longer, a throughput lower, or noise larger."""
    p: float
    """The p-value of the change, by permutation."""
    environment: tuple[str, ...]
    """Sentences about the environment's changes at the step, which may be its cause."""
    accepted: str = ""
    """Why the change was accepted; empty if it was not."""
    accepted_until: str = ""
    """The last day on which it is accepted (ISO 8601); empty if it was not."""

    @property
    def slowdown(self) -> float:
        """How much worse it is, as a share: 0.05 for 5 %; only of a step for the worse."""
        return max(self.ratio, 1 / self.ratio) - 1


def find_steps(trend: Trend, *, seed: int = 0, trends: int = 1) -> list[Step]:
    """Find the steps among a trend's last 500 values, ascending, with `change_points`.

    A trend without a step shows one with a probability of at most 1 %. With the number of `trends` that are judged together, that is the
    probability that any of those without a step shows one: each gets an equal part of it (Bonferroni), whatever they have in common.
    """
    skipped, significance = max(0, len(trend.values) - MAXIMUM_RESULTS), SIGNIFICANCE / trends
    values = [math.log(value) for value in trend.values[skipped:]]
    permutations = max(PERMUTATIONS, math.ceil(1 / significance))  # with fewer, no p-value would be small enough
    changes = change_points(values, seed=seed, significance=significance, permutations=permutations)
    first = max(0, trend.start - _UNCERTAINTY) - skipped  # steps before it are the other branch's
    return [_step(trend, skipped + change.index, change.after - change.before, change.p) for change in changes if change.index >= first]


def with_acceptances(trend: Trend, steps: Sequence[Step], changes: Sequence[AcceptedChange]) -> list[Step]:
    """Steps with the accepted changes that explain them; also of those that have expired.

    An accepted change explains one step: for the worse, no larger than what was accepted, and from a few results before to some after the
    first result of its commit, or without that commit (which is another one after a merge) the first result since its day.
    """
    explained = list(steps)
    for change in changes if trend.series.kind == "result" else ():
        if (change.scenario, change.metric) != (trend.scenario, trend.metric) or not change.is_at(trend.load_point):
            continue
        place = _place(trend, change)
        for number, step in enumerate(explained):
            is_near = place is not None and place - _BEFORE <= step.index <= place + _AFTER
            if is_near and step.is_worse and not step.accepted_until and step.slowdown <= (1 + change.slowdown) * (1 + _TOLERANCE) - 1:
                explained[number] = dataclasses.replace(step, accepted=change.reason, accepted_until=change.expires.isoformat())
                break
    return explained


def _place(trend: Trend, change: AcceptedChange) -> int | None:
    """The index of the first result with an accepted change; None if there is none yet, or all results are later than it."""
    commits = [index for index, entry in enumerate(trend.entries) if change.commit and entry.commit == change.commit]
    days = (index for index, entry in enumerate(trend.entries) if entry.started_at >= change.accepted.isoformat())
    return commits[0] if commits else next(days, 0) or None


def with_starts(trends: Sequence[Trend], every: Sequence[Trend], starts: Mapping[str, str], *, seed: int = 0) -> list[Trend]:
    """Trends that begin with the newest level of the branch that theirs starts from, of the same metric and otherwise the same series.

    `every` has all trends of the history.

    `starts` names that branch for a branch; others start from the results whose branch is unknown, which earlier versions stored.
    """
    known = {(trend.series, trend.load_point, trend.metric): trend for trend in every}
    return [_with_start(trend, known, starts, seed) for trend in trends]


def _with_start(trend: Trend, known: Mapping[tuple[Series, str, str], Trend], starts: Mapping[str, str], seed: int) -> Trend:
    branch, seen = trend.series.branch, {trend.series.branch}
    while branch:
        branch = starts.get(branch, "")
        if branch in seen:
            return trend
        seen.add(branch)
        other = known.get((dataclasses.replace(trend.series, branch=branch), trend.load_point, trend.metric))
        earlier = 0 if other is None else sum(entry.started_at < trend.entries[0].started_at for entry in other.entries)
        if other is not None and earlier:
            first = max(0, earlier - _LONGEST_START)
            changes = change_points([math.log(value) for value in other.values[first:earlier]], seed=seed)
            first += changes[-1].index if changes else 0
            entries, values = other.entries[first:earlier], other.values[first:earlier]
            return dataclasses.replace(trend, entries=entries + trend.entries, values=values + trend.values, start=len(values))
    return trend


def _step(trend: Trend, index: int, shift: float, p: float) -> Step:
    before, after = trend.entries[index - 1], trend.entries[index]
    changed = [difference.sentence for difference in fingerprint_differences(before.fingerprint, after.fingerprint)]
    if before.host_id != after.host_id:
        changed.append("it was measured on another host")
    is_worse = (shift > 0) == (trend.unit != "per_s")
    return Step(index, after.commit, before.commit, after.started_at, math.exp(shift), is_worse, p, tuple(changed))


def trend_levels(trend: Trend, steps: Sequence[Step]) -> list[tuple[int, int, float]]:
    """The levels between the steps: the first index, the index behind the last one, and the geometric mean of the values there."""
    ends = (0, *(step.index for step in steps), len(trend.values))
    return [(start, end, statistics.geometric_mean(trend.values[start:end])) for start, end in itertools.pairwise(ends)]


@dataclasses.dataclass(frozen=True, slots=True)
class TrendSteps:
    """A trend's name, the number of its results, and its steps."""

    scenario: str
    load_point: str
    metric: str
    unit: Unit
    kind: Kind
    """Whether the figures are of results, or the noise that gates of a server against itself measured."""
    branch: str
    """The branch; empty if unknown."""
    machine: str
    """The machine's host id, or the name given for machines of a kind; empty if unknown."""
    model: str
    """Name and version of the model; empty if unknown."""
    payload: str
    """The beginning of the digest of the requests' payload; empty if unknown."""
    results: int
    """How many results the trend has, with those of the branch that it starts from."""
    start: int
    """How many of the first results are of the branch that this one starts from."""
    steps: tuple[Step, ...]
    """Its changes of level, in the order of time."""


@dataclasses.dataclass(frozen=True, slots=True)
class StepsDocument:
    """The trends of a history and their steps, as `perfkit history steps --format json` prints them."""

    trends: tuple[TrendSteps, ...]
    """Sorted by scenario, load point and metric."""


def steps_json(trends: Sequence[tuple[Trend, Sequence[Step]]]) -> str:
    """Trends and their steps as JSON."""
    listed = tuple(
        TrendSteps(
            scenario=trend.scenario,
            load_point=trend.load_point,
            metric=trend.metric,
            unit=trend.unit,
            kind=trend.series.kind,
            branch=trend.series.branch,
            machine=trend.series.machine,
            model=trend.series.model,
            payload=trend.series.payload,
            results=len(trend.values),
            start=trend.start,
            steps=tuple(steps),
        )
        for trend, steps in trends
    )
    return json.dumps(dataclass_document("perfkit.steps/1", StepsDocument(listed)), indent=1) + "\n"
