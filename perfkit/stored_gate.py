"""The gate's second mode: a verdict from stored results. Pure.

The unit is the run, a server started and measured. A candidate's runs are held against a baseline's with a limit from how runs
of one server are known to differ; without that knowledge nothing is gated, and the verdict says what is missing.
"""

import dataclasses
import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

import perfkit
from perfkit.result.baseline import TIMES, Baseline, Figures, Run
from perfkit.result.fingerprint import fingerprint_differences, same_build, scenario_differences
from perfkit.result.verdict import Comparison, MetricVerdict, Verdict, VerdictKind
from perfkit.stats.comparison import ERROR_RATE, ERROR_RATE_BAND, MARGINS, Metric, change
from perfkit.stats.paired import FALSE_ALARM_RATE, NOISE_BAND, PASS_RATE, POWER, Rule, holm
from perfkit.stats.ratio_interval import Estimate, share_difference, share_interval
from perfkit.stats.student_t import student_t_quantile, student_t_tail
from perfkit.stats.variance_components import Components, pooled_variance, variance_components

ERROR_RATE_MARGIN = 0.01
_NOT_SIDE_BY_SIDE = (
    "This verdict rests on stored results: baseline and candidate were measured at different times. It cannot tell a slower server "
    "from a machine that changed in between (updates, clocks, neighbours), and promises its false-alarm rate only where the machine "
    "did not. `perfkit gate SCENARIO --baseline TARGET --candidate TARGET` measures both in turn, and does tell them apart."
)
_RUNS = "A run is one start of the server: its repetitions and requests share that process and count as one."
_REMOTE = "The target was reached over a network: the fingerprint knows the load generator's machine, and nothing of the server's."
_Key = tuple[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class _Spread:
    """How the difference of two means would vary though nothing changed: of logarithms, with its degrees of freedom."""

    error: float
    df: int


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
    if faults:
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

    def judge(self) -> Verdict:
        """Tests every metric."""
        points = {point.title: point for point in self._base_runs[0].points}
        metrics = [
            Metric(metric, load_point, "per_s" if metric == "throughput" else "ns", self._margin(metric, points[load_point]))
            for metric, load_point in _in_all(self._baseline.runs)
        ]
        spreads = {metric: self._spread(metric) for metric in metrics}
        tested = [metric for metric in metrics if metric.margin is not None and spreads[metric] is not None]
        p = holm(np.array([self._p(metric, spreads[metric]) for metric in tested])) * (FALSE_ALARM_RATE / self._rule.times_rate)
        adjusted = {metric: min(float(one), 1.0) for metric, one in zip(tested, p, strict=True)}
        comparisons = [self._comparison(metric, spreads[metric], adjusted.get(metric), len(tested)) for metric in metrics]
        comparisons += [self._error_rate(points[title], len(points)) for title in points]
        verdicts = {one.verdict for one in comparisons if one.gated}
        kind: VerdictKind = "regressed" if "regressed" in verdicts else "inconclusive" if "inconclusive" in verdicts else "pass"
        return self.verdict(kind, _why(kind, [one for one in comparisons if one.gated]), comparisons)

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
        counts = f"{_runs(len(self._base_runs))} of the baseline, {_runs(len(self._candidate.runs))} of the candidate"
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
        new = dict.fromkeys(key for run in (*self._baseline.runs, *self._candidate.runs) for key in _values(run) if key not in gated)
        if new:
            listed = ", ".join(f"{metric} of {load_point}" for metric, load_point in new)
            yield f"Not gated, since not every run of the baseline has it: {listed}. Write the baseline anew to gate it."
        reached = {one[1] for one in (self._baseline.fingerprint.get("transport") or {}).values()}
        if "network" in reached:
            yield _REMOTE

    def _differences(self, metric: Metric, runs: Sequence[Run]) -> list[float]:
        """How much slower each run was than a nanosecond, or one a second: logarithms whose differences are slowdowns."""
        return [metric.difference(1.0, _values(run)[metric.name, metric.load_point]) for run in runs]

    def _shift(self, metric: Metric) -> float:
        base, candidate = (self._differences(metric, runs) for runs in (self._base_runs, self._candidate.runs))
        return statistics.fmean(candidate) - statistics.fmean(base)

    def _spread(self, metric: Metric) -> _Spread | None:
        """None where it is not known how runs, or hosts, differ."""
        base, candidate = (self._components(metric, side.runs) for side in (self._baseline, self._candidate))
        parts = [(base.within, base.within_df), (candidate.within, candidate.within_df)]
        if control := self._control.get((metric.name, metric.load_point)):
            parts.append((control.variance, control.degrees_of_freedom))
        within, df = pooled_variance(parts)
        if within is None:
            return None
        square = within * (1 / len(self._base_runs) + 1 / len(self._candidate.runs))
        if self._is_one_host:
            return _Spread(math.sqrt(square), df)
        if base.between is None:
            return None
        return _Spread(math.sqrt(2 * base.between + square), min(base.between_df, df))

    def _components(self, metric: Metric, runs: Sequence[Run]) -> Components:
        hosts: dict[str, list[Run]] = {}
        for run in runs:
            hosts.setdefault(run.host_id, []).append(run)
        return variance_components([self._differences(metric, some) for some in hosts.values()])

    def _p(self, metric: Metric, spread: _Spread | None) -> float:
        assert spread is not None
        beyond = self._shift(metric) - metric.bounds.band
        return student_t_tail(beyond / spread.error, spread.df) if spread.error else float(beyond <= 0)

    def _comparison(self, metric: Metric, spread: _Spread | None, adjusted_p: float | None, tested: int) -> Comparison:
        shift, bounds = self._shift(metric), metric.bounds
        low = high = detectable = None
        verdict: MetricVerdict = "inconclusive"
        if spread is not None:
            reach = student_t_quantile(1 - PASS_RATE, spread.df) * spread.error
            low, high = shift - reach, shift + reach
            t = student_t_quantile(1 - self._rule.times_rate / max(tested, 1), spread.df) + student_t_quantile(POWER, spread.df)
            detectable = math.expm1(bounds.band + t * spread.error)
            if adjusted_p is not None and adjusted_p <= FALSE_ALARM_RATE:
                verdict = "regressed"
            elif high < bounds.margin:
                verdict = "pass"
        is_rate, key = metric.unit == "per_s", (metric.name, metric.load_point)
        ends = [None if end is None else math.exp(-end if is_rate else end) for end in ((high, low) if is_rate else (low, high))]
        values = [tuple(_values(run)[key] for run in runs) for runs in (self._base_runs, self._candidate.runs)]
        made = Comparison(
            metric=metric.name,
            load_point=metric.load_point,
            unit=metric.unit,
            better="higher" if is_rate else "lower",
            gated=metric.margin is not None,
            baseline=statistics.median(values[0]),
            candidate=statistics.median(values[1]),
            estimate=math.exp(-shift if is_rate else shift),
            interval=None if spread is None else (ends[0], ends[1]),
            confidence=1 - 2 * PASS_RATE,
            pairs=self._rule.looks[0],
            adjusted_p=adjusted_p,
            noise_band=NOISE_BAND,
            margin=metric.margin if metric.margin is not None else NOISE_BAND,
            minimum_detectable_effect=detectable,
            verdict=verdict,
            reason="",
            baseline_values=values[0],
            candidate_values=values[1],
        )
        return made.model_copy(update={"reason": _reason(made, known=spread is not None)})

    def _error_rate(self, point: Figures, points: int) -> Comparison:
        """Requests of all runs together, counted as independent; the limits are Newcombe's."""
        sides = [_errors(runs, point.title) for runs in (self._base_runs, self._candidate.runs)]
        strict, usual = (
            share_difference(*(_share(hits, count, 1 - 2 * error) for hits, count, _ in sides))
            for error in (self._rule.errors_rate / points, PASS_RATE)
        )
        verdict: MetricVerdict = "inconclusive"
        if strict.low is not None and strict.low > ERROR_RATE_BAND:
            verdict = "regressed"
        elif usual.high is not None and usual.high < ERROR_RATE_MARGIN:
            verdict = "pass"
        made = Comparison(
            metric=ERROR_RATE,
            load_point=point.title,
            unit="share",
            better="lower",
            scale="difference",
            baseline=_ratio(*sides[0][:2]),
            candidate=_ratio(*sides[1][:2]),
            estimate=usual.value,
            interval=(usual.low, usual.high),
            confidence=1 - 2 * PASS_RATE,
            pairs=self._rule.looks[0],
            noise_band=ERROR_RATE_BAND,
            margin=ERROR_RATE_MARGIN,
            verdict=verdict,
            reason="",
            baseline_values=sides[0][2],
            candidate_values=sides[1][2],
        )
        return made.model_copy(update={"reason": _reason(made, known=True)})


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


def _errors(runs: Sequence[Run], title: str) -> tuple[int, int, tuple[float, ...]]:
    """Failed and scheduled requests of all runs, and each run's share."""
    points = [point for run in runs for point in run.points if point.title == title]
    shares = tuple(_ratio(point.scheduled - point.ok, point.scheduled) for point in points)
    return sum(point.scheduled - point.ok for point in points), sum(point.scheduled for point in points), shares


def _share(hits: int, count: int, confidence: float) -> Estimate:
    return share_interval(hits, count, confidence) if count else Estimate(0.0, 0.0, 1.0)


def _ratio(hits: int, count: int) -> float:
    return hits / count if count else 0.0


def _reason(made: Comparison, *, known: bool) -> str:
    if not known:
        return f"{made.title}: {change(made)}; how such runs differ by themselves is not known."
    if not made.gated:
        return f"{made.title}: {change(made)}; for information, without a say in the verdict."
    ending = {
        "regressed": f"beyond the noise band of {made.noise_band:.1%}",
        "pass": f"worse by less than the margin of {made.margin:.0%}",
        "inconclusive": f"neither surely beyond the noise band of {made.noise_band:.1%} nor surely within the margin of {made.margin:.0%}",
    }[made.verdict]
    p = "" if made.adjusted_p is None or made.verdict != "regressed" else f" (adjusted p {made.adjusted_p:.2g})"
    return f"{made.title}: {change(made)}, {ending}{p}."


def _runs(count: int) -> str:
    return f"{count} run" if count == 1 else f"{count} runs"


def control_spread(comparisons: Sequence[Comparison]) -> Mapping[_Key, tuple[float, int]]:
    """The variance of one run's logarithm from pairs of the baseline with itself, and its degrees of freedom.

    A pair's difference has twice a run's variance; the control's differences have mean zero, but their own is taken off all
    the same, for a drift within pairs.
    """
    found: dict[_Key, tuple[float, int]] = {}
    for one in comparisons:
        pairs = [
            math.log(other / base)
            for base, other in zip(one.baseline_values, one.candidate_values, strict=True)
            if base and other and one.scale == "ratio"
        ]
        if len(pairs) > 1:
            found[one.metric, one.load_point] = (statistics.variance(pairs) / 2, len(pairs) - 1)
    return found
