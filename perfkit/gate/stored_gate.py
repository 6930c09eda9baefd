"""The gate's second mode: a verdict from stored results. Pure.

The unit is the run, a server started and measured. A candidate's runs are held against a baseline's with a limit from how runs
of one server are known to differ; without that knowledge nothing is gated, and the verdict says what is missing.
"""

from collections.abc import Iterator, Sequence

import perfkit
from perfkit.gate.baseline import TIMES, Baseline, Figures, Run
from perfkit.gate.metrics import MARGINS, Metric
from perfkit.gate.stored_comparison import Failures, RunFigures, compare_failures, compare_runs, known_spread, slowness
from perfkit.gate.verdict import Comparison, Verdict, VerdictKind
from perfkit.result.fingerprint import fingerprint_differences, same_build, scenario_differences
from perfkit.stats.paired import FALSE_ALARM_RATE, Rule

_NOT_SIDE_BY_SIDE = (
    "This verdict rests on stored results: baseline and candidate were measured at different times. It cannot tell a slower server "
    "from a machine that changed in between (updates, clocks, neighbours), and promises its false-alarm rate only where the machine "
    "did not. `perfkit gate SCENARIO --baseline TARGET --candidate TARGET` measures both in turn, and does tell them apart."
)
_RUNS = "A run is one start of the server: its repetitions and requests share that process and count as one."
_REMOTE = "The target was reached over a network: the fingerprint knows the load generator's machine, and nothing of the server's."
_Key = tuple[str, str]


def stored_verdict(
    baseline: Baseline, candidate: Baseline, *, labels: tuple[str, str], started_at: str, same_build_is_meant: bool = False
) -> Verdict:
    """The verdict on a candidate's runs against a baseline's; either may be a single result.

    Incomparable where fingerprints do not match, both sides name the same build (unless that is meant), or a metric of the
    baseline is gone; invalid where a run was; otherwise Student's t tests of H0 "slower by no more than the noise band" on the
    runs' logarithms, with the limit t √(2σ_h² + σ_r²(1/n + 1/n')): σ_r between runs, σ_h between hosts and left out where
    both sides ran on one. Holm's correction over all metrics and load points; pass by non-inferiority as in the paired gate.
    Assumption: logarithms of runs near to normal.
    """
    gate = _Gate(baseline, candidate, labels, started_at)
    if incomparable := [*_mismatches(baseline, candidate, same_build_is_meant=same_build_is_meant), *_vanished(baseline, candidate)]:
        return gate.verdict("incomparable", incomparable)
    faults = [
        f"{label}, measured {run.started_at}: {fault}"
        for label, side in zip(labels, (baseline, candidate), strict=True)
        for run in side.runs
        for fault in run.faults
    ]
    if faults := faults or list(gate.lacking()):
        return gate.verdict("invalid", faults)
    return gate.judge()


def _mismatches(baseline: Baseline, candidate: Baseline, *, same_build_is_meant: bool) -> Iterator[str]:
    for one in fingerprint_differences(baseline.fingerprint, candidate.fingerprint):
        differing = scenario_differences(baseline.scenario, candidate.scenario) if one.key == "scenario" else []
        yield "; ".join(each.sentence for each in differing) if differing else one.sentence
    known = {(run.started_at, run.host_id) for run in baseline.runs}
    for run in candidate.runs:
        if (run.started_at, run.host_id) in known:
            yield f"the run started at {run.started_at} is in the baseline and in the candidate; measure the candidate anew"
    if not same_build_is_meant:
        yield from (one.sentence for one in same_build(baseline.build, candidate.build))


def _vanished(baseline: Baseline, candidate: Baseline) -> Iterator[str]:
    """What of the baseline some run of the candidate lacks: silence is no pass."""
    there = [_values(run) for run in candidate.runs]
    for metric, load_point in _in_all(baseline.runs):
        if not all((metric, load_point) in run for run in there):
            yield f"{metric} of {load_point} is in the baseline and missing in the candidate: a metric that disappears is not passed over"


def _in_all(runs: Sequence[Run]) -> list[_Key]:
    """The metrics and load points that every run has."""
    values = [_values(run) for run in runs]
    return [key for key in values[0] if all(key in others for others in values[1:])]


def _values(run: Run) -> dict[_Key, float]:
    """All figures that have a ratio, by metric and load point."""
    found: dict[_Key, float] = {}
    for point in run.points:
        if point.throughput_per_s > 0:
            found["throughput", point.title] = point.throughput_per_s
        found |= {(name, point.title): float(point.times_ns[name] or 0) for name in TIMES if name in MARGINS and point.times_ns.get(name)}
    return found


class _Gate:
    """One verdict in the making."""

    def __init__(self, baseline: Baseline, candidate: Baseline, labels: tuple[str, str], started_at: str) -> None:
        self._baseline, self._candidate, self._labels, self._started_at = baseline, candidate, labels, started_at
        hosts = set(candidate.hosts)
        self._is_one_host = len(hosts) == 1 and "" not in hosts and hosts <= set(baseline.hosts)
        self._base_runs = [run for run in baseline.runs if not self._is_one_host or run.host_id in hosts]
        self._rule = Rule(looks=(min(len(self._base_runs), len(candidate.runs)),))
        self._control = {(one.metric, one.load_point): one for one in baseline.control}

    def lacking(self) -> Iterator[str]:
        """Sentences for metrics that shall have a say and that the baseline does not have."""
        asked, there = self._baseline.metrics, _in_all(self._baseline.runs)
        for metric, load_point in self._expected() if asked is not None else ():
            if (metric, load_point) not in there:
                yield f"gate.metrics asks for {metric}, which the baseline lacks at {load_point}: too few requests carry it; measure longer"
        if not any(key in there for key in self._expected()):
            yield "The baseline holds no metric that has a say: too few requests carry the percentiles; measure longer"

    def _expected(self) -> list[_Key]:
        """The metrics that have a say if there are enough requests to carry them."""
        return [(name, point.title) for point in self._base_runs[0].points for name in MARGINS if self._margin(name, point) is not None]

    def judge(self) -> Verdict:
        """Tests every metric."""
        points = {point.title: point for point in self._base_runs[0].points}
        metrics = [
            Metric(metric, load_point, "per_s" if metric == "throughput" else "ns", self._margin(metric, points[load_point]))
            for metric, load_point in _in_all(self._baseline.runs)
        ]
        comparisons = [
            *compare_runs(self._rule, [self._figures(metric) for metric in metrics]),
            *compare_failures(
                self._rule, [Failures(title, _failures(self._base_runs, title), _failures(self._candidate.runs, title)) for title in points]
            ),
        ]
        verdicts = {one.verdict for one in comparisons if one.gated}
        kind: VerdictKind = "regressed" if "regressed" in verdicts else "inconclusive" if "inconclusive" in verdicts else "pass"
        return self.verdict(kind, _why(kind, [one for one in comparisons if one.gated]), comparisons)

    def _figures(self, metric: Metric) -> RunFigures:
        key = (metric.name, metric.load_point)
        control = self._control.get(key)
        baseline, candidate = (
            [slowness(metric, _of(key, runs)) for runs in _by_host(side.runs)] for side in (self._baseline, self._candidate)
        )
        spread = known_spread(
            baseline,
            candidate,
            (control.variance, control.degrees_of_freedom) if control else None,
            runs=(len(self._base_runs), len(self._candidate.runs)),
            is_one_host=self._is_one_host,
        )
        return RunFigures(metric, _of(key, self._base_runs), _of(key, self._candidate.runs), spread)

    def _margin(self, metric: str, point: Figures) -> float | None:
        """None where it has no say: an open loop's throughput is that of its arrivals, and the scenario may name others."""
        is_asked = self._baseline.metrics is None or metric in self._baseline.metrics
        return MARGINS[metric] if is_asked and (metric != "throughput" or point.load.kind == "closed") else None

    def verdict(self, kind: VerdictKind, reasons: Sequence[str], comparisons: Sequence[Comparison] = ()) -> Verdict:
        """The value."""
        sides = {"baseline": (self._baseline, self._base_runs), "candidate": (self._candidate, self._candidate.runs)}
        described = {
            name: {
                "runs": len(runs),
                "hosts": list(dict.fromkeys(run.host_id for run in runs)),
                "commits": list(dict.fromkeys(run.commit for run in runs if run.commit)),
                "seeds": list(dict.fromkeys(run.seed for run in runs)),
                "fingerprint": side.fingerprint,
            }
            for name, (side, runs) in sides.items()
        }
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
            environment=described,
        )

    def _notes(self) -> Iterator[str]:
        yield _NOT_SIDE_BY_SIDE
        counts = f"{_count(len(self._base_runs))} of the baseline, {_count(len(self._candidate.runs))} of the candidate"
        if self._is_one_host:
            yield f"Both were measured on one host ({self._candidate.hosts[0]}): {counts}. {_RUNS}"
            if not (self._control or len(self._base_runs) > 1 or len(self._candidate.runs) > 1):
                yield (
                    "How one run differs from the next is not known from single runs, so nothing can be gated: put several runs into the "
                    "baseline (`perfkit baseline RESULT RESULT …`), or calibrate by `perfkit gate --control N` and `perfkit baseline --control`."
                )
        else:
            yield f"Baseline and candidate were measured on different hosts, or do not say on which: {counts}. {_RUNS}"
            if len(self._baseline.hosts) < 2:
                yield (
                    "How hosts differ is not calibrated, so nothing can be gated: put runs from several hosts of this kind into the "
                    "baseline, each with two runs or more, measure on the baseline's host, or give `perfkit gate` both servers."
                )
            else:
                yield f"The limit allows for differences between hosts as they were among the baseline's {len(self._baseline.hosts)}."
        gated = set(_in_all(self._baseline.runs))
        there = [key for run in (*self._baseline.runs, *self._candidate.runs) for key in _values(run)]
        new = dict.fromkeys(key for key in (*self._expected(), *there) if key not in gated)
        if new:
            listed = ", ".join(f"{metric} of {load_point}" for metric, load_point in new)
            yield f"Not gated, since not every run of the baseline has it: {listed}. Write the baseline anew to gate it, with longer runs where too few requests carry it."
        reached = {one[1] for one in (self._baseline.fingerprint.get("transport") or {}).values()}
        if "network" in reached:
            yield _REMOTE


def _of(key: _Key, runs: Sequence[Run]) -> tuple[float, ...]:
    return tuple(_values(run)[key] for run in runs)


def _by_host(runs: Sequence[Run]) -> list[list[Run]]:
    hosts: dict[str, list[Run]] = {}
    for run in runs:
        hosts.setdefault(run.host_id, []).append(run)
    return list(hosts.values())


def _why(kind: VerdictKind, gated: Sequence[Comparison]) -> list[str]:
    """The verdict's reasons."""
    if kind == "regressed":
        return [one.reason for one in gated if one.verdict == "regressed"]
    if kind == "pass":
        return [f"All {len(gated)} metrics are within their margins of the baseline."]
    unsure = [one for one in gated if one.verdict == "inconclusive"]
    listed = "; ".join(one.title for one in unsure)
    if all(one.interval is None for one in unsure):
        return [f"How such runs differ by themselves is not known, so these metrics cannot be gated: {listed}."]
    return [f"{len(unsure)} of {len(gated)} metrics are neither surely worse nor surely within their margins: {listed}."]


def _failures(runs: Sequence[Run], title: str) -> tuple[tuple[int, int], ...]:
    return tuple((point.scheduled - point.ok, point.scheduled) for run in runs for point in run.points if point.title == title)


def _count(count: int) -> str:
    return f"{count} run" if count == 1 else f"{count} runs"
