"""The rule by which a gate decides from stored runs of two servers, measured at different times: an exact test with an allowance.

All differences are slowdowns on a logarithmic scale, or differences of a share; above 0 the candidate is worse. Between the two
measurements the machine may have changed, which no test of the runs can tell from a change of the server. So every time and rate may have
changed by `MACHINE_ALLOWANCE` without any change of the server.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from perfkit.stats.paired import FALSE_ALARM_RATE, PASS_RATE, POWER, MetricBounds
from perfkit.stats.rank_sum import cut_off, shift, shift_limits, step_down_p
from perfkit.stats.signed_rank import Array

MACHINE_ALLOWANCE = 0.05
"""By how much the machine may have changed all times in between, either way. With it an unchanged candidate is called slower in less than
1 % of gates on a machine whose drift has a standard deviation of 3 % (`benchmarks/stored_gate_simulation.py`)."""
FEWEST_CANDIDATE_RUNS = 3
RECOMMENDED_RUNS = (10, 5)
"""Of the baseline, and of the candidate."""
_FEWEST_ARRANGEMENTS = math.ceil(1 / FALSE_ALARM_RATE)
_SIMULATED_GATES = 500


@dataclasses.dataclass(frozen=True, slots=True)
class RunTests:
    """The tests of a gate, as arrays over gates and metrics, or over metrics alone."""

    adjusted_p: Array
    """At or below `FALSE_ALARM_RATE` the metric has regressed."""
    regressed: np.ndarray
    passed: np.ndarray
    """For an error rate too, by its runs; a pass needs enough requests besides."""


def allowance(bounds: MetricBounds) -> float:
    """The difference in a metric that the machine may have made: none in an error rate."""
    return 0.0 if bounds.is_error_rate else math.log1p(MACHINE_ALLOWANCE)


def judge_runs(bounds: Sequence[MetricBounds], baseline: Array, candidate: Array) -> RunTests:
    """Tests slownesses of shape [..., metrics, runs]; there must be enough runs (`missing_runs`).

    Regressed: the permutation test of `step_down_p` rejects H0 "worse by no more than the band and the allowance together", with one error
    rate for all metrics. Passed: the upper limit of the shift, at 95 %, and the allowance stay below the margin together. A pass needs all
    metrics, so these limits need no correction (R. L. Berger, Technometrics 24, 1982).
    """
    values = np.concatenate([baseline, np.asarray(candidate) - _no_change(bounds)], axis=-1)
    # rates without any error stay equal: lowered by the band, they would make the opposite arrangement as extreme as a regression
    adjusted = step_down_p(np.where(_is_error_rate(bounds), np.maximum(values, 0.0), values), np.shape(candidate)[-1])
    high = shift_limits(baseline, candidate, PASS_RATE)[1]
    passed = high + np.array([allowance(one) for one in bounds]) < np.array([one.margin for one in bounds])
    return RunTests(adjusted, adjusted <= FALSE_ALARM_RATE, passed)


def improved_runs_p(bounds: Sequence[MetricBounds], baseline: Array, candidate: Array) -> Array:
    """P-values of H0 "better by no more than the band and the allowance together", shape [..., metrics]: the mirrored test of `judge_runs`."""
    least = _no_change(bounds)
    values = -np.concatenate([baseline, candidate + least], axis=-1)
    return step_down_p(np.where(_is_error_rate(bounds), np.minimum(values, -least), values), np.shape(candidate)[-1])


def _no_change(bounds: Sequence[MetricBounds]) -> Array:
    """The differences that count as no change, shape [metrics, 1]."""
    return np.array([[one.band + allowance(one)] for one in bounds])


def _is_error_rate(bounds: Sequence[MetricBounds]) -> npt.NDArray[np.bool_]:
    return np.array([[one.is_error_rate] for one in bounds])


def estimate_shift(bounds: MetricBounds, baseline: Sequence[float], candidate: Sequence[float]) -> tuple[float, float, float]:
    """How much worse the candidate is, and the limits of that at 95 % each, farther out by the allowance; infinite for too few runs."""
    one, other = np.asarray(baseline, np.float64), np.asarray(candidate, np.float64)
    low, high = shift_limits(one, other, PASS_RATE)
    return float(shift(one, other)), float(low) - allowance(bounds), float(high) + allowance(bounds)


def missing_runs(baseline: int, candidate: int) -> tuple[int, int]:
    """How many more runs of the baseline and of the candidate a verdict needs.

    The candidate needs three, and there must be 100 ways to arrange all runs, since the smallest p is one of them. More runs of the
    candidate are asked for first, up to the recommended number.
    """
    more = max(FEWEST_CANDIDATE_RUNS, candidate)
    while math.comb(baseline + more, more) < _FEWEST_ARRANGEMENTS and more < RECOMMENDED_RUNS[1]:
        more += 1
    needed = baseline
    while math.comb(needed + more, more) < _FEWEST_ARRANGEMENTS:
        needed += 1
    return needed - baseline, more - candidate


def detectable_shift(bounds: Sequence[MetricBounds], index: int, baseline: Sequence[float], candidate: Sequence[float]) -> float | None:
    """The difference in metric `index` alone that 90 % of gates would detect if their runs are as noisy as these; None for too few runs.

    Gates are simulated from the residuals of both sides about their medians; √(n/(n-2)) corrects the variance that so few residuals lack.
    A gate detects a shift that exceeds band and allowance by more than its lower limit is below zero, at the first step of Bonferroni's
    correction, whichever the other metrics are; if there are too few runs for that, at the smallest p that they can have, which takes all
    metrics to be worse together. The machine is taken not to have changed. This is an approximation, with a fixed seed.
    """
    one, other = np.asarray(baseline, np.float64), np.asarray(candidate, np.float64)
    if any(missing_runs(one.size, other.size)):
        return None
    runs = one.size + other.size
    beyond = max(cut_off(one.size, other.size, FALSE_ALARM_RATE / len(bounds)), 1)
    residuals = np.concatenate([one - np.median(one), other - np.median(other)]) * math.sqrt(runs / (runs - 2))
    drawn = np.random.default_rng(0).choice(residuals, (_SIMULATED_GATES, runs))
    differences = (drawn[:, one.size :, None] - drawn[:, None, : one.size]).reshape(_SIMULATED_GATES, -1)
    lowest = np.partition(differences, beyond - 1, axis=-1)[:, beyond - 1]
    return bounds[index].band + allowance(bounds[index]) - float(np.quantile(lowest, 1 - POWER))
