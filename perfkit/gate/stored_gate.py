"""The stored gate: a verdict from stored results. Pure.

The unit is the run: a server started and measured. The candidate's runs are compared with the baseline's, with a limit that follows
from the known variation between runs of one server. If that is unknown nothing is gated, and the verdict says what is missing.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import perfkit
from perfkit.gate.baseline import Baseline, BaselinePoint, BaselineRun
from perfkit.gate.metrics import MARGINS, Metric
from perfkit.gate.stored_comparison import MINIMUM_VARIANCE, RequestCounts, RunValues, compare_error_rates, compare_runs, slowness
from perfkit.gate.verdict import Comparison, Verdict, VerdictKind
from perfkit.result.distribution import PERCENTILES
from perfkit.result.fingerprint import fingerprint_differences, same_build, scenario_differences
from perfkit.stats.paired import FALSE_ALARM_RATE, Rule
from perfkit.stats.variance_components import mean_difference_error

_NOT_PAIRED = (
    "This verdict rests on stored results: baseline and candidate were measured at different times. It cannot tell a slower server "
    "from a machine that has changed in between (updates, clock rates, other tenants), and its false-alarm rate holds only if the "
    "machine has not. `perfkit gate SCENARIO --baseline TARGET --candidate TARGET` measures both in turn and can tell the two apart."
)
_RUNS = "A run is one start of the server; its repetitions and requests share that process and count as one."
_REMOTE = "The target was reached over a network: the fingerprint covers the load generator's machine, not the server's."
_Key = tuple[str, str]
"""Metric and load point."""


def stored_verdict(
    baseline: Baseline, candidate: Baseline, *, labels: tuple[str, str], started_at: str, allow_same_build: bool = False
) -> Verdict:
    """Compare a candidate's runs with a baseline's; either may be a single result.

    Incomparable if the fingerprints differ, both sides name the same build (unless allowed), or the candidate lacks a metric of the
    baseline; invalid if a run was invalid. Otherwise H0 "slower by no more than the noise band" is tested by Student's t on the runs'
    logarithms, with the standard error of `mean_difference_error` and Holm's correction over all metrics and load points; a pass is
    shown by non-inferiority, as in the paired gate. Assumption: the logarithms of runs are about normal.
    """
    gate = _StoredGate(baseline, candidate, labels, started_at)
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
            if name in MARGINS and (time_ns := point.times_ns.get(name)):
                values[name, point.title] = float(time_ns)
    return values


class _StoredGate:
    def __init__(self, baseline: Baseline, candidate: Baseline, labels: tuple[str, str], started_at: str) -> None:
        self._baseline, self._candidate, self._labels, self._started_at = baseline, candidate, labels, started_at
        hosts = set(candidate.hosts)
        self._is_one_host = len(hosts) == 1 and "" not in hosts and hosts <= set(baseline.hosts)
        self._baseline_runs = [run for run in baseline.runs if not self._is_one_host or run.host_id in hosts]
        self._rule = Rule(looks=(min(len(self._baseline_runs), len(candidate.runs)),))
        self._control = {(variance.metric, variance.load_point): variance for variance in baseline.control}

    def missing_gated_metrics(self) -> Iterator[str]:
        """Sentences about gated metrics that the baseline lacks."""
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
        counts = [
            RequestCounts(title, _request_counts(self._baseline_runs, title), _request_counts(self._candidate.runs, title))
            for title in points
        ]
        comparisons = compare_runs(self._rule, [self._run_values(metric) for metric in metrics]) + compare_error_rates(self._rule, counts)
        gated = [comparison for comparison in comparisons if comparison.gated]
        verdicts = {comparison.verdict for comparison in gated}
        kind: VerdictKind = "regressed" if "regressed" in verdicts else "inconclusive" if "inconclusive" in verdicts else "pass"
        return self.verdict(kind, _reasons(kind, gated), comparisons)

    def verdict(self, kind: VerdictKind, reasons: Sequence[str], comparisons: Sequence[Comparison] = ()) -> Verdict:
        """The verdict as a value, with its notes."""
        return Verdict(
            kind=kind,
            reasons=tuple(reasons),
            notes=tuple(self._notes()),
            mode="stored",
            scenario=self._baseline.name,
            baseline=self._labels[0],
            candidate=self._labels[1],
            false_alarm_rate=FALSE_ALARM_RATE,
            pairs=self._rule.looks[0],
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
        return [(name, point.title) for point in points for name in MARGINS if self._margin(name, point) is not None]

    def _margin(self, metric: str, point: BaselinePoint) -> float | None:
        """None if the metric is not gated: `gate.metrics` leaves it out, or it is the throughput of an open loop, which its schedule gives."""
        is_named = self._baseline.metrics is None or metric in self._baseline.metrics
        return MARGINS[metric] if is_named and (metric != "throughput" or point.load.kind == "closed") else None

    def _run_values(self, metric: Metric) -> RunValues:
        key = (metric.name, metric.load_point)
        control = self._control.get(key)
        baseline, candidate = (
            [slowness(metric, _column(key, runs)) for runs in _runs_by_host(side.runs)] for side in (self._baseline, self._candidate)
        )
        error = mean_difference_error(
            baseline,
            candidate,
            counts=(len(self._baseline_runs), len(self._candidate.runs)),
            is_one_machine=self._is_one_host,
            control=(control.variance, control.degrees_of_freedom) if control else None,
            minimum_variance=MINIMUM_VARIANCE,
        )
        return RunValues(metric, _column(key, self._baseline_runs), _column(key, self._candidate.runs), error)

    def _notes(self) -> Iterator[str]:
        yield _NOT_PAIRED
        counts = f"{_count(len(self._baseline_runs))} of the baseline, {_count(len(self._candidate.runs))} of the candidate"
        if self._is_one_host:
            yield f"Both were measured on one host ({self._candidate.hosts[0]}): {counts}. {_RUNS}"
            if not (self._control or len(self._baseline_runs) > 1 or len(self._candidate.runs) > 1):
                yield (
                    "The variation from run to run is unknown from single runs, so nothing can be gated: put several runs into the "
                    "baseline (`perfkit baseline RESULT RESULT …`), or calibrate with `perfkit gate --control N` and `perfkit baseline --control`."
                )
        else:
            yield f"Baseline and candidate were measured on different hosts, or on unknown ones: {counts}. {_RUNS}"
            if len(self._baseline.hosts) < 2:
                yield (
                    "The variation between hosts is unknown, so nothing can be gated: put runs from several hosts of this kind into the "
                    "baseline, at least two from each, or measure on the baseline's host, or measure both servers with a paired gate."
                )
            else:
                yield f"The limit includes the variation between the baseline's {len(self._baseline.hosts)} hosts."
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


def _column(key: _Key, runs: Sequence[BaselineRun]) -> tuple[float, ...]:
    return tuple(_values(run)[key] for run in runs)


def _runs_by_host(runs: Sequence[BaselineRun]) -> list[list[BaselineRun]]:
    return [[run for run in runs if run.host_id == host] for host in dict.fromkeys(run.host_id for run in runs)]


def _reasons(kind: VerdictKind, gated: Sequence[Comparison]) -> list[str]:
    if kind == "regressed":
        return [comparison.reason for comparison in gated if comparison.verdict == "regressed"]
    if kind == "pass":
        return [f"All {len(gated)} metrics are within their margins of the baseline."]
    undecided = [comparison for comparison in gated if comparison.verdict == "inconclusive"]
    listed = "; ".join(comparison.title for comparison in undecided)
    if all(comparison.interval is None for comparison in undecided):
        return [f"The variation from run to run is unknown, so these metrics cannot be gated: {listed}."]
    return [f"{len(undecided)} of {len(gated)} metrics are shown neither to be worse nor to be within their margins: {listed}."]


def _request_counts(runs: Sequence[BaselineRun], title: str) -> tuple[tuple[int, int], ...]:
    return tuple((point.scheduled - point.ok, point.scheduled) for run in runs for point in run.points if point.title == title)


def _count(count: int) -> str:
    return f"{count} run" if count == 1 else f"{count} runs"
