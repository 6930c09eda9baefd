"""The watchdog over a history: steps for the worse that nobody has accepted, series without new results, and gaps. Pure."""

import dataclasses
import itertools
import json
import math
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

from perfkit.clock import Instant, parse_instant
from perfkit.history.series import HistoryEntry, Series
from perfkit.history.trend import Step, Trend
from perfkit.result.part import dataclass_document

NOT_JUDGED = "mde_"
"""The beginning of metrics that follow from others: the minimum detectable effect rises with the noise, which has a series of its own."""
SECONDARY = ("cpu_time",)
"""Metrics that are judged only if they are named."""
_DAY_S = 86_400.0
_REMAINING_SHARE = 0.5  # a step of which later ones have undone more counts as undone
FindingKind = Literal["worse", "silent", "better", "accepted"]
_FEWEST_RESULTS = 5
_GAP = 1.75  # times the usual interval
_REGULAR_SHARE = 0.75  # of the intervals that are no gaps; otherwise results come when they come


@dataclasses.dataclass(frozen=True, slots=True)
class Recent:
    """How far back a step is still told: results of its series, or time."""

    results: int | None = 30
    age_s: float | None = None

    def has(self, trend: Trend, step: Step, now: Instant) -> bool:
        """Whether the first result after a step is recent."""
        if self.age_s is not None:
            return _age_s(trend.entries[step.index], now) <= self.age_s
        return self.results is None or len(trend.values) - step.index <= self.results


@dataclasses.dataclass(frozen=True, slots=True)
class Finding:
    """Something that the watchdog tells."""

    kind: FindingKind
    """`worse` and `silent` (no new results) are alarms; `better` and `accepted` are for information."""
    is_alarm: bool
    """Whether the check fails because of it."""
    scenario: str
    branch: str
    """The branch; empty if unknown."""
    machine: str
    """The machine; empty if unknown."""
    load_point: str | None
    """The load point; null for a series without new results."""
    metric: str | None
    """The metric; null for a series without new results."""
    since: str
    """The start of the first result after the step, or of the series' last result, in UTC (ISO 8601)."""
    commit: str
    """The commit of that result; empty if unknown."""
    sentence: str
    """All of it in words."""


@dataclasses.dataclass(frozen=True, slots=True)
class HistoryCheck:
    """What the watchdog found, as `perfkit history check --format json` prints it."""

    series: int
    """How many series were checked."""
    figures: int
    """How many figures were judged for steps; they share the false alarms of the check, 1 %."""
    alarms: int
    """How many of the findings are alarms."""
    findings: tuple[Finding, ...]
    """Alarms first."""


def current_series(last: Mapping[Series, Sequence[HistoryEntry]], forked: Mapping[str, str], branch: str | None) -> list[Series]:
    """The series that go on, from the results of each, in order of time.

    Left out are branches that start from another, unless `branch` names one, and series that a later one has replaced: of the same scenario
    and branch, with another payload, model or machine, and begun after the last result of this one.
    """
    chosen = {series: entries for series, entries in last.items() if entries and (branch is not None or series.branch not in forked)}

    def is_replaced(series: Series) -> bool:
        end = chosen[series][-1].started_at
        return any(
            (one.scenario, one.kind) == (series.scenario, series.kind)
            and series.branch in (one.branch, "")  # results of an unknown branch are those before branches were known
            and entries[0].started_at > end
            for one, entries in chosen.items()
        )

    return [series for series in chosen if not is_replaced(series)]


def is_judged(trend: Trend, named: Sequence[str] = ()) -> bool:
    """Whether the steps of a trend may be alarms, `named` being the metrics that were asked for."""
    return not trend.metric.startswith(NOT_JUDGED) and (trend.metric not in SECONDARY or trend.metric in named)


def check_history(
    trends: Sequence[tuple[Trend, Sequence[Step]]],
    results: Mapping[Series, Sequence[HistoryEntry]],
    every: Sequence[Trend],
    *,
    now: Instant,
    max_age_s: float | None,
    recent: Recent,
) -> HistoryCheck:
    """Judge current series: trends with their steps, and all their results, ordered by time, also those without valid figures.

    The trends are those that `is_judged`, and `find_steps` knew their number.

    `every` has all trends of the history: steps may be judged of some metrics only, but silence is of the whole series.

    A step for the worse is an alarm if it is recent, not accepted (or no longer), and later steps have not undone half of it. A series
    is silent if its last result with valid figures is older than `max_age_s`.
    """
    findings = [finding for trend, steps in trends for finding in _step_findings(trend, steps, now, recent)]
    if max_age_s is not None:
        newest = dict[Series, HistoryEntry]()
        for trend in every:
            if trend.series not in newest or trend.entries[-1].started_at > newest[trend.series].started_at:
                newest[trend.series] = trend.entries[-1]
        findings += _silent_findings(newest, results, now, max_age_s)
    findings.sort(key=lambda finding: not finding.is_alarm)
    return HistoryCheck(len(results), len(trends), sum(finding.is_alarm for finding in findings), tuple(findings))


def check_json(check: HistoryCheck) -> str:
    """The findings as JSON."""
    return json.dumps(dataclass_document("perfkit.history-check/1", check), indent=1) + "\n"


def _step_findings(trend: Trend, steps: Sequence[Step], now: Instant, recent: Recent) -> Iterator[Finding]:
    today = now.date().isoformat()
    for number, step in enumerate(steps):
        if not recent.has(trend, step, now):
            continue
        is_accepted = bool(step.accepted_until) and step.accepted_until >= today
        later = sum(
            math.log(one.ratio) for one in steps[number:] if one is step or not (one.accepted_until and one.accepted_until >= today)
        )
        if not is_accepted and later / math.log(step.ratio) < _REMAINING_SHARE:
            continue
        kind: FindingKind = "accepted" if is_accepted else "worse" if step.is_worse else "better"
        change = f"{abs(100 * (step.ratio - 1)):.1f} % {'higher' if step.ratio > 1 else 'lower'}"
        commit, before = (one[:10] or "an unknown commit" for one in (step.commit, step.previous_commit))
        noise = "the machine got noisier: " if trend.series.kind == "canary" and step.is_worse else ""
        words = f"{noise}{change} since {step.started_at}, {commit} (after {before}), p {step.p:.2g}"
        if is_accepted:
            words += f"; accepted until {step.accepted_until}: {step.accepted}"
        elif step.accepted_until:
            words += f"; its acceptance expired on {step.accepted_until}"
        words += "".join(f"; at the same time {sentence}" for sentence in step.environment)
        yield _finding(kind, trend.series, f"{trend.title}: {words}", step.started_at, step.commit, trend.load_point, trend.metric)


def _silent_findings(
    newest: Mapping[Series, HistoryEntry], results: Mapping[Series, Sequence[HistoryEntry]], now: Instant, max_age_s: float
) -> Iterator[Finding]:
    for series, entries in results.items():
        last = newest.get(series)
        if last is not None and _age_s(last, now) <= max_age_s:
            continue
        what = "no new canary" if series.kind == "canary" else "no new result"
        if last is None:
            words = f"{what}: none has valid figures; the newest is of {entries[-1].started_at}"
        else:
            words = (
                f"{what} since {last.started_at} ({_days(_age_s(last, now))} ago, commit {last.commit[:10] or 'unknown'}, {last.source})"
            )
            without = sum(entry.started_at > last.started_at for entry in entries)
            words += f"; {without} later ones have no valid figures" if without else ""
        shown = last or entries[-1]
        sentence = f"{series.scenario} ({series.place}): {words}; the longest silence allowed is {_days(max_age_s)}"
        yield _finding("silent", series, sentence, shown.started_at, shown.commit)


def _finding(
    kind: FindingKind, series: Series, sentence: str, since: str, commit: str, load_point: str | None = None, metric: str | None = None
) -> Finding:
    is_alarm = kind in ("worse", "silent")
    return Finding(kind, is_alarm, series.scenario, series.branch, series.machine, load_point, metric, since, commit, sentence)


def _age_s(entry: HistoryEntry, now: Instant) -> float:
    return (now - parse_instant(entry.started_at)).total_seconds()


def _days(seconds: float) -> str:
    return f"{seconds / _DAY_S:.1f} days" if seconds >= _DAY_S else f"{seconds / 3600:.1f} hours"


@dataclasses.dataclass(frozen=True, slots=True)
class Gap:
    """Results that a series lacks."""

    series: Series
    after: str
    """The start of the last result before the gap, or of the result without valid figures, in UTC (ISO 8601)."""
    before: str | None
    """The start of the next result; None if there is none yet."""
    missing: int | None
    """About how many are missing; None for a result that is there, but has no valid figures."""


def find_gaps(
    results: Mapping[Series, Sequence[HistoryEntry]], trends: Sequence[Trend], now: Instant, forked: Collection[str] = ()
) -> list[Gap]:
    """The gaps of each series, in order of time; `results` has all results of each, ordered by time, `trends` the valid figures.

    A gap is an interval of more than 1.75 times the median one, in a series whose results come regularly. The branches in `forked`, which
    start from others, may end.
    """
    valid = {(trend.series, entry.started_at) for trend in trends for entry in trend.entries[trend.start :]}
    found = [
        gap for series, entries in results.items() for gap in (*_silences(series, entries, now), *_without_figures(series, entries, valid))
    ]
    went_on = (gap for gap in found if gap.missing is None or gap.before is not None or gap.series.branch not in forked)
    return sorted(went_on, key=lambda gap: gap.after)


def _silences(series: Series, entries: Sequence[HistoryEntry], now: Instant) -> Iterator[Gap]:
    starts = [parse_instant(entry.started_at) for entry in entries]
    intervals_s = [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(starts)]
    if len(entries) < _FEWEST_RESULTS or (usual_s := statistics.median(intervals_s)) <= 0:
        return
    if sum(interval_s <= _GAP * usual_s for interval_s in intervals_s) < _REGULAR_SHARE * len(intervals_s):
        return
    ends: list[str | None] = [*(entry.started_at for entry in entries[1:]), None]
    for entry, end, interval_s in zip(entries, ends, [*intervals_s, (now - starts[-1]).total_seconds()], strict=True):
        if interval_s > _GAP * usual_s:
            yield Gap(series, entry.started_at, end, max(1, round(interval_s / usual_s) - (0 if end is None else 1)))


def _without_figures(series: Series, entries: Sequence[HistoryEntry], valid: set[tuple[Series, str]]) -> Iterator[Gap]:
    for entry in entries:
        if (series, entry.started_at) not in valid:
            yield Gap(series, entry.started_at, None, None)
