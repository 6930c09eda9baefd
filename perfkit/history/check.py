"""The watchdog over a history: steps for the worse that nobody has accepted, and series without new results. Pure."""

import dataclasses
import json
import math
from collections.abc import Iterator, Mapping, Sequence
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
    and branch, with another payload, model or machine, and begun after the last
    result of this one.
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
