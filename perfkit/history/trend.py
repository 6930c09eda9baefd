"""Trends: one metric of one series over many results, its steps, and the commits of the steps. Pure.

Steps are found in hindsight (`change_points`), some results after them: not for gates.
"""

import dataclasses
import itertools
import json
import math
import statistics
from collections.abc import Mapping, Sequence

from perfkit.history.accepted import AcceptedChange
from perfkit.history.change_points import SIGNIFICANCE, SIMULATIONS, change_points
from perfkit.history.series import HistoryEntry, Kind, Series, Unit
from perfkit.result.fingerprint import fingerprint_differences
from perfkit.result.part import dataclass_document

MAXIMUM_RESULTS = 500  # more would take the simulations minutes, and old steps are known
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
    """The p-value of the change, by simulation."""
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

    A trend without a step shows one with a probability of 1 %, also if its results are correlated (up to 0.5) or drift (up to 3 % in 60 results).
    With the number of `trends` that are judged together, that is the probability that any of those without a step shows one: each gets an equal
    part of it (Bonferroni), whatever they have in common.
    """
    skipped, significance = max(0, len(trend.values) - MAXIMUM_RESULTS), SIGNIFICANCE / trends
    values = [math.log(value) for value in trend.values[skipped:]]
    simulations = max(SIMULATIONS, math.ceil(1 / significance))  # with fewer, no p-value would be small enough
    changes = change_points(values, seed=seed, significance=significance, simulations=simulations)
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

    `starts` names that branch for a branch; others start from the results whose branch is unknown.
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
