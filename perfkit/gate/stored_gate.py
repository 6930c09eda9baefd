"""The stored gate: a verdict from stored results. Pure.

The unit is the sitting: what one host has measured without a pause of six hours. The candidate's are compared with the baseline's on the same
host; where the hosts differ, all of a host is one sitting. With too few sittings the runs are compared, with an allowance for what sittings may
differ by; with too few runs nothing is gated. The verdict says how many are missing.
"""

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import perfkit
from perfkit.clock import parse_instant
from perfkit.gate.accepted import acceptance_notes
from perfkit.gate.baseline import Baseline, BaselinePoint, BaselineRun
from perfkit.gate.metrics import ERROR_RATE, ERROR_RATE_BAND, Metric, with_acceptance
from perfkit.gate.paired import FALSE_ALARM_RATE
from perfkit.gate.stored_runs import (
    LARGEST_SHIFT,
    RECOMMENDED_SITTINGS,
    STORED_MARGINS,
    FailedRequests,
    RunValues,
    Sittings,
    compare_runs,
    missing_units,
)
from perfkit.gate.verdict import Comparison, Verdict, VerdictKind
from perfkit.history.accepted import NOTHING_ACCEPTED, AcceptedChanges
from perfkit.result.distribution import PERCENTILES
from perfkit.result.fingerprint import fingerprint_differences, same_build, scenario_differences
from perfkit.stats.slo import FailedShare

_PAUSE_S = 6 * 3600.0
_SITTING = (
    f"A sitting is what one host measured with pauses of less than {_PAUSE_S / 3600:.0f} hours between the starts of its runs; where the hosts differ, all "
    "that a host measured. What it has in common (temperature, clock rates, other tenants) is no property of the server."
)
_NOT_PAIRED = (
    "This verdict rests on stored results: baseline and candidate were measured at different times. A machine that has changed for good in between "
    "cannot be told from a change of the server. `perfkit gate SCENARIO --baseline TARGET --candidate TARGET` measures both in turn, which tells "
    "the two apart in one sitting, and finds smaller changes."
)
_RUNS = "A run is one start of the server; its repetitions and requests share that process and count as one."
_NOT_STARTED = (
    "perfkit did not start the servers of {}: each run counts as one start of a server all the same. If several runs share a process, the "
    "false-alarm rate does not hold, since two processes of one build may differ by several per cent: restart the server before each run, "
    "as `target.command` does."
)
_NOT_COMPARED = (
    "gate.metrics names {}, which a gate from stored results does not compare, so its verdict would leave out what it should decide. Measure both in "
    "turn (`perfkit gate SCENARIO --baseline cmd:… --candidate cmd:…`), or measure the baseline again without it in gate.metrics."
)
_REMOTE = "The target was reached over a network: the fingerprint covers the load generator's machine, not the server's."
_Key = tuple[str, str]
"""Metric and load point."""


def stored_verdict(
    baseline: Baseline,
    candidate: Baseline,
    *,
    labels: tuple[str, str],
    started_at: str,
    allow_same_build: bool = False,
    accepted: AcceptedChanges = NOTHING_ACCEPTED,
) -> Verdict:
    """Compare a candidate's runs with a baseline's; either may be a single result.

    Incomparable if the fingerprints differ, both sides name the same build (unless allowed), or the candidate lacks a metric of the
    baseline; invalid if a run was invalid; inconclusive with too few runs. Otherwise `stored_runs.judge_runs` decides, by one exact
    test of all metrics and load points.
    """
    gate = _StoredGate(baseline, candidate, labels, started_at, accepted.of(baseline.name))
    if mismatches := [*_mismatches(baseline, candidate, allow_same_build=allow_same_build), *_missing_metrics(baseline, candidate)]:
        return gate.verdict("incomparable", mismatches)
    faults = [
        f"{label}, measured {run.started_at}: {fault}"
        for label, side in zip(labels, (baseline, candidate), strict=True)
        for run in side.runs
        for fault in run.faults
    ]
    if faults := faults or list(gate.missing_gated_metrics()):
        return gate.verdict("invalid", faults)
    return gate.compare()


def _mismatches(baseline: Baseline, candidate: Baseline, *, allow_same_build: bool) -> Iterator[str]:
    for difference in fingerprint_differences(baseline.fingerprint, candidate.fingerprint):
        keys = scenario_differences(baseline.scenario, candidate.scenario) if difference.key == "scenario" else []
        yield "; ".join(key.sentence for key in keys) if keys else difference.sentence
    known = {(run.started_at, run.host_id) for run in baseline.runs}
    for run in candidate.runs:
        if (run.started_at, run.host_id) in known:
            yield f"the run started at {run.started_at} is both in the baseline and in the candidate; measure the candidate again"
    if not allow_same_build:
        yield from (difference.sentence for difference in same_build(baseline.build, candidate.build))


def _missing_metrics(baseline: Baseline, candidate: Baseline) -> Iterator[str]:
    """Metrics of the baseline that a run of the candidate lacks: a missing metric must not pass."""
    runs = [_values(run) for run in candidate.runs]
    for metric, load_point in _common_keys(baseline.runs):
        if not all((metric, load_point) in values for values in runs):
            yield f"{metric} of {load_point} is in the baseline and missing in the candidate, so it cannot be compared"


def _common_keys(runs: Sequence[BaselineRun]) -> list[_Key]:
    values = [_values(run) for run in runs]
    return [key for key in values[0] if all(key in others for others in values[1:])]


def _values(run: BaselineRun) -> dict[_Key, float]:
    """All values of a run that have a ratio."""
    values: dict[_Key, float] = {}
    for point in run.points:
        if point.throughput_per_s > 0:
            values["throughput", point.title] = point.throughput_per_s
        for name in PERCENTILES:
            if name in STORED_MARGINS and (time_ns := point.times_ns.get(name)):
                values[name, point.title] = float(time_ns)
    return values


class _StoredGate:
    def __init__(
        self, baseline: Baseline, candidate: Baseline, labels: tuple[str, str], started_at: str, accepted: AcceptedChanges
    ) -> None:
        self._accepted = accepted
        self._baseline, self._candidate, self._labels, self._started_at = baseline, candidate, labels, started_at
        hosts = set(candidate.hosts)
        self._is_one_host = len(hosts) == 1 and "" not in hosts and hosts <= set(baseline.hosts)
        self._baseline_runs = [run for run in baseline.runs if not self._is_one_host or run.host_id in hosts]
        sittings = [_sittings(runs, by_host=not self._is_one_host) for runs in (self._baseline_runs, candidate.runs)]
        self._numbers = (len(sittings[0]), len(sittings[1]))
        self._sizes = Sittings(*(tuple(map(len, side)) for side in sittings))
        if self._sizes.are_enough:  # each with as many runs, so that they are exchangeable
            self._runs_each = min(map(min, self._sizes))
            self._units = [[sitting[: self._runs_each] for sitting in side] for side in sittings]
            self._sizes = Sittings(*((1,) * number for number in self._numbers))
        else:
            self._units = [[[run] for sitting in side for run in sitting] for side in sittings]
        self._counts = (len(self._units[0]), len(self._units[1]))

    def missing_gated_metrics(self) -> Iterator[str]:
        """Sentences about gated metrics that the baseline lacks, or that no stored gate compares."""
        if unknown := [name for name in self._baseline.metrics or () if name not in STORED_MARGINS]:
            yield _NOT_COMPARED.format(", ".join(unknown))
            return
        available = _common_keys(self._baseline.runs)
        for metric, load_point in self._gated_keys() if self._baseline.metrics is not None else ():
            if (metric, load_point) not in available:
                yield f"gate.metrics names {metric}, which the baseline lacks at {load_point}: too few requests; measure longer"
        if not any(key in available for key in self._gated_keys()):
            yield "The baseline has no metric to gate: there are too few requests for the percentiles; measure longer"

    def compare(self) -> Verdict:
        """Test every metric."""
        points = {point.title: point for point in self._baseline_runs[0].points}
        metrics = [
            Metric(name, load_point, "per_s" if name == "throughput" else "ns", self._margin(name, points[load_point]))
            for name, load_point in _common_keys(self._baseline.runs)
        ]
        error_rates = [Metric(ERROR_RATE, title, "share", ERROR_RATE_BAND) for title in points]
        values = [*map(self._run_values, self._accept(metrics)), *map(self._error_rates, self._accept(error_rates))]
        comparisons = compare_runs(values, self._sizes)
        gated = [comparison for comparison in comparisons if comparison.gated]
        verdicts = {comparison.verdict for comparison in gated}
        kind: VerdictKind = "regressed" if "regressed" in verdicts else "inconclusive" if "inconclusive" in verdicts else "pass"
        return self.verdict(kind, [*self._missing_sittings(kind), *_reasons(kind, gated)], comparisons)

    def verdict(self, kind: VerdictKind, reasons: Sequence[str], comparisons: Sequence[Comparison] = ()) -> Verdict:
        """The verdict as a value, with its notes."""
        return Verdict(
            kind=kind,
            reasons=tuple(reasons),
            notes=(*self._notes(), *acceptance_notes(comparisons, self._accepted)),
            mode="stored",
            scenario=self._baseline.name,
            baseline=self._labels[0],
            candidate=self._labels[1],
            false_alarm_rate=FALSE_ALARM_RATE,
            pairs=min(self._counts),
            comparisons=tuple(comparisons),
            started_at=self._started_at,
            perfkit_version=perfkit.__version__,
            environment={
                "baseline": _describe_side(self._baseline, self._baseline_runs),
                "candidate": _describe_side(self._candidate, self._candidate.runs),
            },
        )

    def _gated_keys(self) -> list[_Key]:
        points = self._baseline_runs[0].points
        return [(name, point.title) for point in points for name in STORED_MARGINS if self._margin(name, point) is not None]

    def _margin(self, metric: str, point: BaselinePoint) -> float | None:
        """None if the metric is not gated: `gate.metrics` leaves it out, or it is the throughput of an open loop, which its schedule gives."""
        is_named = self._baseline.metrics is None or metric in self._baseline.metrics
        return STORED_MARGINS[metric] if is_named and (metric != "throughput" or point.load.kind == "closed") else None

    def _accept(self, metrics: Sequence[Metric]) -> list[Metric]:
        return [with_acceptance(metric, self._accepted) for metric in metrics]

    def _error_rates(self, metric: Metric) -> RunValues:
        baseline, candidate = ([_requests(unit, metric.load_point) for unit in side] for side in self._units)
        return RunValues.of_errors(metric, baseline, candidate)

    def _run_values(self, metric: Metric) -> RunValues:
        key = (metric.name, metric.load_point)
        baseline, candidate = (tuple(statistics.median(_values(run)[key] for run in unit) for unit in side) for side in self._units)
        return RunValues(metric, baseline, candidate)

    def _missing_sittings(self, kind: VerdictKind) -> Iterator[str]:
        more = missing_units(*self._numbers)
        if kind in ("regressed", "pass") or self._sizes.are_enough:
            return
        listed = " and ".join(
            f"{_count(number, self._what, 'more ')} of the {side}"
            for number, side in zip(more, ("baseline", "candidate"), strict=True)
            if number
        )
        where = "a run each, on other days or at least six hours apart" if self._is_one_host else "a run on each"
        yield (
            f"There are too few {self._what}s to be compared by themselves, {self._numbers[0]} of the baseline and {self._numbers[1]} of the candidate: "
            f"measure {listed}, {where}. "
            f"{RECOMMENDED_SITTINGS[0]} and {RECOMMENDED_SITTINGS[1]} are recommended."
        )

    def _allowance_note(self) -> str:
        what, allowed = self._what, f"{self._sizes.largest_allowance:.0%}"
        if sum(self._numbers) == 2:
            return (
                f"One {what} of each side does not show by how much {what}s differ. A standard deviation of {LARGEST_SHIFT:.0%} at most is assumed: only a slowdown of "
                f"more than {allowed} is told from that of another {what}, intervals reach farther, and an unchanged candidate seldom passes."
            )
        return (
            f"By how much {what}s differ is estimated from these, few as they are, and assumed to be {LARGEST_SHIFT:.0%} at most (standard deviation): up to "
            f"{allowed} of a slowdown may be that, intervals reach farther, and less is found than with enough {what}s."
        )

    @property
    def _what(self) -> str:
        return "sitting" if self._is_one_host else "host"

    def _notes(self) -> Iterator[str]:
        yield _NOT_PAIRED
        runs = f"{_count(len(self._baseline_runs))} of the baseline, {_count(len(self._candidate.runs))} of the candidate"
        hosts = f"on one host ({self._candidate.hosts[0]})" if self._is_one_host else "on different hosts, or on unknown ones"
        numbers = f"{_count(self._numbers[0], self._what)} against {self._numbers[1]}"
        yield f"Both were measured {hosts}: {runs}, {numbers}. {_SITTING} {_RUNS}"
        if self._sizes.are_enough:
            counted = "its first run" if self._runs_each == 1 else f"the median of its first {self._runs_each} runs"
            yield f"Each {self._what} counts once, with {counted}: as many as every one has."
        elif not any(missing_units(*self._counts)):
            yield self._allowance_note()
        sides = {"baseline": self._baseline_runs, "candidate": self._candidate.runs}
        if unknown_starts := [side for side, runs in sides.items() if len(runs) > 1 and any(run.starts_server is False for run in runs)]:
            yield _NOT_STARTED.format(" and ".join(f"the {side}'s runs" for side in unknown_starts))
        compared = set(_common_keys(self._baseline.runs))
        present = [key for run in (*self._baseline.runs, *self._candidate.runs) for key in _values(run)]
        if left_out := dict.fromkeys(key for key in (*self._gated_keys(), *present) if key not in compared):
            listed = ", ".join(f"{metric} of {load_point}" for metric, load_point in left_out)
            yield (
                f"Not gated, because not every run of the baseline has it: {listed}. To gate it, make the baseline again, with longer runs "
                "if there are too few requests."
            )
        if "network" in {protocol[1] for protocol in (self._baseline.fingerprint.get("transport") or {}).values()}:
            yield _REMOTE


def _describe_side(side: Baseline, runs: Sequence[BaselineRun]) -> dict[str, Any]:
    return {
        "runs": len(runs),
        "hosts": list(dict.fromkeys(run.host_id for run in runs)),
        "commits": list(dict.fromkeys(run.commit for run in runs if run.commit)),
        "seeds": list(dict.fromkeys(run.seed for run in runs)),
        "fingerprint": side.fingerprint,
    }


def _sittings(runs: Sequence[BaselineRun], *, by_host: bool) -> list[list[BaselineRun]]:
    """The runs in the order of time, those of one sitting together."""
    if by_host:
        return [[run for run in runs if run.host_id == host] for host in dict.fromkeys(run.host_id for run in runs)]
    sittings: list[list[BaselineRun]] = []
    for run in sorted(runs, key=lambda run: run.started_at):
        if sittings and _pause_s(sittings[-1][-1], run) < _PAUSE_S:
            sittings[-1].append(run)
        else:
            sittings.append([run])
    return sittings


def _pause_s(run: BaselineRun, later: BaselineRun) -> float:
    return (parse_instant(later.started_at) - parse_instant(run.started_at)).total_seconds()


def _reasons(kind: VerdictKind, gated: Sequence[Comparison]) -> list[str]:
    if kind == "regressed":
        return [comparison.reason for comparison in gated if comparison.verdict == "regressed"]
    if kind == "pass":
        return [f"All {len(gated)} metrics are within their margins of the baseline."]
    undecided = [comparison for comparison in gated if comparison.verdict == "inconclusive"]
    listed = "; ".join(comparison.title for comparison in undecided)
    return [f"{len(undecided)} of {len(gated)} metrics are shown neither to be worse nor to be within their margins: {listed}."]


def _requests(runs: Sequence[BaselineRun], title: str) -> FailedRequests:
    """The scheduled requests at a load point, and the share of them that failed."""
    points = [point for run in runs for point in run.points if point.title == title]
    counts = [(point.scheduled, point.scheduled - point.ok, point.checked, point.wrong) for point in points]
    scheduled, *others = map(sum, zip(*counts, strict=True)) if counts else (0, 0, 0, 0)
    return scheduled, FailedShare.of_counts(scheduled, *others)


def _count(count: int, what: str = "run", kind: str = "") -> str:
    return f"{count} {kind}{what}{'s' * (count != 1)}"
