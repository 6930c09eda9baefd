"""The comparisons of a stored gate: runs of two servers, measured at different times, by the rule of `stats.stored_runs`. Pure."""

import dataclasses
import math
from collections.abc import Iterator, Sequence

import numpy as np

from perfkit.gate.metrics import Metric, MetricTests, build_comparison
from perfkit.gate.paired import PASS_RATE
from perfkit.gate.stored_runs import detectable_shift, estimate_shift, improved_runs_p, judge_runs, missing_runs
from perfkit.gate.verdict import Comparison
from perfkit.stats.ratio_interval import Estimate, difference_of, share_interval

STORED_MARGINS = {"throughput": 0.15, "p50": 0.15, "p95": 0.15, "p99": 0.20}
"""Slowdowns that a pass must rule out: wider than a paired gate's, since the machine may have changed in between."""
_CONFIDENCE = 1 - 2 * PASS_RATE
_Counts = tuple[int, int]


@dataclasses.dataclass(frozen=True, slots=True)
class RunValues:
    """One metric's values, one for each run of a side (where the hosts differ, for each host)."""

    metric: Metric
    baseline: tuple[float, ...]
    candidate: tuple[float, ...]
    requests: tuple[tuple[_Counts, ...], tuple[_Counts, ...]] | None = None
    """For an error rate: the failed and the scheduled requests behind each value, of the baseline and of the candidate."""

    @classmethod
    def of_errors(cls, metric: Metric, baseline: Sequence[_Counts], candidate: Sequence[_Counts]) -> "RunValues":
        """The error rate, from the failed and the scheduled requests of each run."""
        base, other = (tuple(failed / scheduled if scheduled else 0.0 for failed, scheduled in side) for side in (baseline, candidate))
        return cls(metric, base, other, (tuple(baseline), tuple(candidate)))

    @property
    def logs(self) -> tuple[list[float], list[float]]:
        """Both sides on the scale of the tests, of which the larger is the worse."""
        origin = 0.0 if self.metric.is_share else 1.0
        baseline, candidate = ([self.metric.difference(origin, value) for value in side] for side in (self.baseline, self.candidate))
        return baseline, candidate


def compare_runs(metrics: Sequence[RunValues]) -> tuple[Comparison, ...]:
    """Compare each metric; all have the same runs. With too few runs none has a verdict."""
    gated = [values for values in metrics if values.metric.is_gated]
    bounds = [values.metric.bounds for values in gated]
    tests: Iterator[MetricTests] = iter(())
    if not any(missing_runs(len(metrics[0].baseline), len(metrics[0].candidate))):
        baseline, candidate = (np.array(side) for side in zip(*(values.logs for values in gated), strict=True))
        improvement = improved_runs_p([values.metric.improvement_bounds for values in gated], baseline, candidate)
        tests = MetricTests.of_each(judge_runs(bounds, baseline, candidate), improvement)
    places = iter(range(len(gated)))
    return tuple(
        _comparison(values, next(tests, None), detectable_shift(bounds, next(places), *values.logs))
        if values.metric.is_gated
        else _comparison(values)
        for values in metrics
    )


def pooled_errors(baseline: Sequence[_Counts], candidate: Sequence[_Counts]) -> Estimate:
    """The difference of the failed shares of all requests, candidate − baseline, with Newcombe's limits at 95 % each."""
    return difference_of(_share(baseline), _share(candidate))


def _comparison(values: RunValues, tested: MetricTests | None = None, detectable: float | None = None) -> Comparison:
    difference, low, high = _interval(values)
    if tested is not None and tested.verdict == "pass" and high >= values.metric.bounds.margin:  # too few requests
        tested = tested._replace(verdict="inconclusive")
    comparison = build_comparison(
        values.metric,
        values.baseline,
        values.candidate,
        difference=difference,
        limits=(low, high) if math.isfinite(low) and math.isfinite(high) else None,
        confidence=_CONFIDENCE,
        pairs=min(len(values.baseline), len(values.candidate)),
        tested=tested,
        detectable_difference=detectable,
    )
    if values.requests is None:
        return comparison
    pooled = zip(("baseline", "candidate"), (_share(side).value for side in values.requests), strict=True)
    return comparison.model_copy(update=dict(pooled))


def _interval(values: RunValues) -> tuple[float, float, float]:
    """The shift and its limits; those of an error rate enclose Newcombe's of all requests, which few requests leave wide."""
    difference, low, high = estimate_shift(values.metric.bounds, *values.logs)
    if values.requests is None:
        return difference, low, high
    pooled = pooled_errors(*values.requests)
    assert pooled.low is not None
    assert pooled.high is not None
    return pooled.value, min(pooled.low, low), max(pooled.high, high)


def _share(runs: Sequence[_Counts]) -> Estimate:
    """The failed share of all runs' requests, with its interval; anything from 0 to 1 without requests."""
    failed, scheduled = (sum(counts) for counts in zip(*runs, strict=True))
    return share_interval(failed, scheduled, _CONFIDENCE) if scheduled else Estimate(0.0, 0.0, 1.0)
