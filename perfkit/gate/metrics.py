"""The metrics of a gate: their margins, which of them count, their values in each pair, and the comparison of one metric. Pure."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from perfkit.gate.paired import FALSE_ALARM_RATE, NOISE_BAND, Look, MetricBounds
from perfkit.gate.pairs import ARMS, CPU_FIGURES, FIGURES, PART_FIGURES, PERCENTILES, Pair, failed_share
from perfkit.gate.sentences import format_change
from perfkit.gate.verdict import MAXIMUM_EFFECT, Comparison, MetricVerdict, Unit
from perfkit.history.accepted import NOTHING_ACCEPTED, STANDARD_LOADS, AcceptedChange, AcceptedChanges
from perfkit.stats.signed_rank import Array, hodges_lehmann

MARGINS = {"throughput": 0.05, "p50": 0.05, "p95": 0.05, "p99": 0.10}
SECONDARY_MARGINS = {"cpu_time": 0.05, "instructions": 0.05}
"""The margins of what a request costs the server's CPUs; these metrics count for the verdict only if the scenario names them."""
PART_MARGINS = {name: MARGINS[name.rpartition("_")[2]] for name in PART_FIGURES}
"""The margins of the times of parts of streamed answers, which also count only if they are named."""
ERROR_RATE, ERROR_RATE_BAND = "error_rate", 0.001
_ALL_POINTS = "all load points"
_MOST_HIDDEN = 0.5  # of a figure
_FEW = 0.29  # of the pairs


def margin_of(metric: str) -> float:
    """The margin of a metric that has a ratio, where it counts for the verdict."""
    return {**MARGINS, **SECONDARY_MARGINS, **PART_MARGINS}[metric]


def unit_of(metric: str) -> Unit:
    """The unit of a metric that has a ratio."""
    return "per_s" if metric == "throughput" else "count" if metric == "instructions" else "ns"


@dataclasses.dataclass(frozen=True, slots=True)
class Metric:
    """A metric at one load point; `margin` is None if it is for information only."""

    name: str
    load_point: str
    unit: Unit
    margin: float | None
    accepted: AcceptedChange | None = None
    """A slowdown that people have accepted: the noise band and the margin begin there."""
    lasting_load_point: str = ""
    """The name of the load point that is the same in every gate, if `load_point` is not; see `Comparison.lasting_load_point`."""
    generator_share: float = 0.0
    """See `Comparison.generator_share`."""

    @property
    def is_gated(self) -> bool:
        """Whether the metric counts for the verdict."""
        return self.margin is not None

    @property
    def is_share(self) -> bool:
        """Whether candidate and baseline are compared by difference: a share of the baseline may be zero."""
        return self.unit == "share"

    @property
    def noise_band(self) -> float:
        """Changes for the worse up to this size count as no change: those within the noise, beyond what is accepted."""
        return self._beyond_accepted(ERROR_RATE_BAND if self.is_share else NOISE_BAND)

    @property
    def shifted_margin(self) -> float | None:
        """The change for the worse that a pass must rule out: the margin, beyond what is accepted."""
        return None if self.margin is None else self._beyond_accepted(self.margin)

    def _beyond_accepted(self, slowdown: float) -> float:
        """A further slowdown beyond the accepted one: both together, from the baseline."""
        if self.accepted is None:
            return slowdown
        known = self.accepted.slowdown
        return known + slowdown if self.is_share else (1 + known) * (1 + slowdown) - 1

    @property
    def bounds(self) -> MetricBounds:
        """Noise band and margin as differences; for a share the two are equal."""
        if self.is_share:
            return MetricBounds(self.noise_band, self.noise_band, is_error_rate=True)
        return MetricBounds.of_ratio(self.noise_band, self.shifted_margin or NOISE_BAND)

    @property
    def improvement_bounds(self) -> MetricBounds:
        """The bounds beyond which the metric has improved: an accepted slowdown does not shift them."""
        return dataclasses.replace(self, accepted=None).bounds

    def difference(self, baseline: float, candidate: float) -> float:
        """How much worse the candidate is: a logarithm, or a plain difference for a share. Raises ValueError if there is no ratio."""
        if self.is_share:
            return candidate - baseline
        if baseline <= 0 or candidate <= 0:
            raise ValueError(f"{self.name} at {self.load_point}: there is no ratio of {candidate:g} to {baseline:g}")
        return math.log(baseline / candidate) if self.unit == "per_s" else math.log(candidate / baseline)

    def scaled(self, difference: float | None) -> float | None:
        """A difference as candidate ÷ baseline, or as it is for a share; None for an unbounded one."""
        if difference is None or math.isinf(difference):
            return None
        return difference if self.is_share else math.exp(-difference if self.unit == "per_s" else difference)

    def figures(self, baseline: Sequence[float], candidate: Sequence[float], difference: float) -> tuple[float, float]:
        """One figure per side whose difference is exactly `difference`, about the middle of both sides' values.

        The middle is the mean of the two sides' Hodges-Lehmann estimates, on a logarithmic scale for a ratio. Shares stay within 0 and 1.
        """
        scale = np.asarray if self.is_share else np.log
        middle = float(np.mean([hodges_lehmann(scale(np.asarray(side, np.float64))) for side in (baseline, candidate)]))
        if self.is_share:
            low = min(max(middle - difference / 2, -difference, 0.0), 1.0, 1.0 - difference)
            return low, low + difference
        change = -difference if self.unit == "per_s" else difference
        return math.exp(middle - change / 2), math.exp(middle + change / 2)


def lasting_load_point(load_point: str, kind: Literal["closed", "open"]) -> str:
    """The name of a load point of the standard profile that is the same in every gate: its concurrency and rate follow from the trial."""
    return f"{load_point.partition(',')[0]}, {STANDARD_LOADS[kind]}"


def with_acceptance(metric: Metric, accepted: AcceptedChanges) -> Metric:
    """The metric with the accepted change that it is judged against, if there is one that counts."""
    change = accepted.find(metric.name, metric.lasting_load_point or metric.load_point) if metric.is_gated else None
    return metric if change is None else dataclasses.replace(metric, accepted=change)


@dataclasses.dataclass(frozen=True, slots=True)
class MetricChoice:
    """Which metrics count for the verdict: those in `names`, or for None all but the secondary ones and those of parts of answers."""

    is_standard: bool = False
    """The standard profile takes throughput only from its closed loop, and percentiles only from its open loop."""
    names: tuple[str, ...] | None = None
    accepted: AcceptedChanges = NOTHING_ACCEPTED
    """The accepted changes of the scenario."""

    def gated(self, kind: Literal["closed", "open"]) -> tuple[str, ...]:
        """The metrics that count at a load point of this kind; the throughput of an open loop is given by its schedule and never counts."""
        percentiles = tuple(name for name in MARGINS if name != "throughput")
        names = percentiles if kind == "open" else ("throughput",) if self.is_standard else ("throughput", *percentiles)
        return tuple(name for name in (*names, *SECONDARY_MARGINS, *PART_MARGINS) if name in (names if self.names is None else self.names))

    def gated_metrics(self, load_point: str, kind: Literal["closed", "open"]) -> tuple[Metric, ...]:
        """The metrics that count at a load point."""
        return tuple(Metric(name, load_point, unit_of(name), margin_of(name)) for name in self.gated(kind))


@dataclasses.dataclass(frozen=True, slots=True)
class PairedValues:
    """One metric's values, one per arm and pair, in the order of measurement."""

    metric: Metric
    baseline: tuple[float, ...]
    candidate: tuple[float, ...]
    generator_shares: tuple[float, ...] = ()
    """In each pair, the share of one of the values that may be the load generator's, the larger one; empty without disturbances."""

    @property
    def differences(self) -> list[float]:
        """How much worse the candidate was in each pair."""
        return [self.metric.difference(*values) for values in zip(self.baseline, self.candidate, strict=True)]

    @property
    def estimate(self) -> float:
        """The Hodges-Lehmann estimate of the difference."""
        return float(hodges_lehmann(np.array(self.differences)))

    @property
    def servers_differences(self) -> list[float]:
        """How much worse the candidate's server may have been in each pair: the share of the generator hides as large a share of a slowdown.

        Pairs of which more than half may be the generator's are left out: they say little about the server. Neither depends on which arm
        was disturbed, so the signs of the differences minus a margin are positive with a probability of at least ½ at that margin.
        """
        if not self.generator_shares:
            return self.differences
        return [
            one if one <= 0 or self.metric.is_share else math.log1p(math.expm1(one) / (1 - share))
            for one, share in zip(self.differences, self.generator_shares, strict=True)
            if share <= _MOST_HIDDEN
        ]

    def limits(self, find: Callable[[Array], tuple[Array, Array]]) -> tuple[float, float]:
        """The limits of the difference that a function finds: the upper one is that of the servers' own, and infinite for too few pairs."""
        low, high = find(np.array(self.differences))[0], find(np.array(self.servers_differences))[1]
        return float(low), max(float(high), self.estimate)


def paired_values(pairs: Sequence[Pair], choice: MetricChoice) -> list[PairedValues]:
    """All metrics that every run of the pairs has, and the error rate."""
    values = []
    for index, point in enumerate(pairs[0].baseline.points):
        gated = choice.gated(point.kind)
        for name in (*(FIGURES if point.kind == "closed" else PERCENTILES), *CPU_FIGURES, *PART_FIGURES):
            columns = [tuple(value for pair in pairs if (value := pair.runs[arm].points[index].figures.get(name))) for arm in ARMS]
            if all(len(column) == len(pairs) for column in columns):  # only metrics that are not gated can be missing here
                margin = margin_of(name) if name in gated else None
                shares = _generator_shares(pairs, index, name)
                metric = Metric(name, point.load_point, unit_of(name), margin, generator_share=_usual_share(shares))
                if choice.is_standard:
                    metric = dataclasses.replace(metric, lasting_load_point=lasting_load_point(point.load_point, point.kind))
                values.append(PairedValues(with_acceptance(metric, choice.accepted), columns[0], columns[1], shares))
    rates = [tuple(failed_share([pair.runs[arm]]).estimate for pair in pairs) for arm in ARMS]
    errors = with_acceptance(Metric(ERROR_RATE, _ALL_POINTS, "share", ERROR_RATE_BAND), choice.accepted)
    return [*values, PairedValues(errors, *rates)]


def _generator_shares(pairs: Sequence[Pair], index: int, name: str) -> tuple[float, ...]:
    """See `PairedValues.generator_shares`."""
    shares = tuple(max(run.points[index].generator_shares.get(name, 0.0) for run in pair.runs.values()) for pair in pairs)
    return shares if any(shares) else ()


def _usual_share(shares: Sequence[float]) -> float:
    """The share that no more than 29 % of the pairs exceed: so many disturbed ones leave most of the evidence."""
    return sorted(shares)[math.ceil((1 - _FEW) * len(shares)) - 1] if shares else 0.0


class MetricTests(NamedTuple):
    """The tests of a gated metric. The p-values are adjusted: of a change for the worse, and of one for the better, beyond the noise band."""

    verdict: MetricVerdict
    adjusted_p: float
    improvement_p: float

    @classmethod
    def of_each(cls, looked: Look, improvement_p: Array) -> "Iterator[MetricTests]":
        """The tests of all gated metrics, in the order of the metrics."""
        for regressed, passed, *p in zip(looked.regressed, looked.passed, looked.adjusted_p, improvement_p, strict=True):
            yield cls("regressed" if regressed else "pass" if passed else "inconclusive", *map(float, p))


def build_comparison(
    metric: Metric,
    baseline_values: Sequence[float],
    candidate_values: Sequence[float],
    *,
    difference: float,
    limits: tuple[float | None, float | None] | None,
    confidence: float,
    pairs: int,
    tested: MetricTests | None = None,
    detectable_difference: float | None = None,
) -> Comparison:
    """The comparison of a metric; `difference`, its `limits` and `detectable_difference` are as `Metric.difference` gives them."""
    figures = metric.figures(baseline_values, candidate_values, difference)
    effect = detectable_difference
    if effect is not None and not metric.is_share:
        effect = MAXIMUM_EFFECT if effect > math.log1p(MAXIMUM_EFFECT) else math.expm1(effect)
    interval = None if limits is None else (metric.scaled(limits[0]), metric.scaled(limits[1]))
    if interval is not None and metric.unit == "per_s":
        interval = interval[::-1]  # the largest slowdown is the lowest rate
    comparison = Comparison(
        metric=metric.name,
        load_point=metric.load_point,
        lasting_load_point=metric.lasting_load_point,
        accepted=metric.accepted,
        unit=metric.unit,
        better="higher" if metric.unit == "per_s" else "lower",
        scale="difference" if metric.is_share else "ratio",
        gated=metric.is_gated,
        baseline=figures[0],
        candidate=figures[1],
        estimate=metric.scaled(difference),
        interval=interval,
        confidence=confidence,
        pairs=pairs,
        adjusted_p=None if tested is None else tested.adjusted_p,
        improvement_p=None if tested is None else tested.improvement_p,
        improved=tested is not None and tested.improvement_p <= FALSE_ALARM_RATE,
        noise_band=metric.noise_band,
        margin=metric.noise_band if metric.shifted_margin is None else metric.shifted_margin,
        generator_share=metric.generator_share,
        minimum_detectable_effect=effect,
        verdict="inconclusive" if tested is None else tested.verdict,
        reason="",
        baseline_values=tuple(baseline_values),
        candidate_values=tuple(candidate_values),
    )
    return comparison.model_copy(update={"reason": f"{comparison.title}: {format_change(comparison)}{_explanation(comparison)}."})


def _explanation(comparison: Comparison) -> str:
    noise = ERROR_RATE_BAND if comparison.scale == "difference" else NOISE_BAND
    noise_band, margin = (
        f"{round(100 * value, 4):g} {'%' if comparison.scale == 'ratio' else 'percentage point' + 's' * (value != 0.01)}"
        for value in (noise, comparison.margin)
    )
    accepted = "" if comparison.accepted is None else comparison.accepted.amount
    limit = f"{f'accepted slowdown of {accepted} and the ' if accepted else ''}noise band of {noise_band}"
    if comparison.interval is None:
        return "; there are too few runs for an interval"
    if not comparison.gated:
        return "; for information only"
    if comparison.verdict == "regressed":
        p = "" if comparison.adjusted_p is None else f" (adjusted p {comparison.adjusted_p:.2g})"
        return f", worse by more than the {limit}{p}"
    if comparison.outcome == "improved":
        p = "" if comparison.improvement_p is None else f" (adjusted p {comparison.improvement_p:.2g})"
        return f", better by more than the noise band of {noise_band}{p}"
    if comparison.verdict == "pass":
        return f", within the margin of {margin}{f', of which {accepted} are accepted' if accepted else ''}"
    return f": neither a regression beyond the {limit} nor a change within the margin of {margin} is shown"
