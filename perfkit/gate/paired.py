"""The rule by which a gate decides from pairs of runs: exact tests against a noise band, corrected for metrics and looks.

A pair is a run of the baseline and a run of the candidate, in random order. Its difference in a metric is ln(candidate ÷
baseline), inverted for throughput, or candidate minus baseline for a share; above 0 the candidate is worse. The unit of
replication is the pair: requests within a run share their server process, and say nothing about other server processes.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from perfkit.stats.signed_rank import Array, cut_off, hodges_lehmann, lower_limit, signed_rank_p

DEFAULT_PAIRS = 20
_FEWEST_AFTER_FIRST_LOOK = 4
FALSE_ALARM_RATE, ERRORS_PART = 0.01, 0.001  # a tenth of the false alarms is reserved for the error rate
PASS_RATE = 0.05
NOISE_BAND = 0.01
POWER = 0.9
_SIMULATED_GATES = 500


@dataclasses.dataclass(frozen=True, slots=True)
class MetricBounds:
    """The limits of one metric, as differences: up to `band` counts as no change, and a pass requires less than `margin`."""

    band: float
    margin: float
    is_error_rate: bool = False

    @classmethod
    def of_ratio(cls, band: float, margin: float) -> "MetricBounds":
        """Limits given as slowdowns: 0.01 is 1 % slower."""
        return cls(math.log1p(band), math.log1p(margin))


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """After how many pairs the gate looks, and its error rates over all looks and metrics."""

    looks: tuple[int, ...]
    planned_looks: int
    """Each of so many looks has an equal part of the errors, whether or not it takes place."""
    false_alarm_rate: float = FALSE_ALARM_RATE
    pass_rate: float = PASS_RATE
    """The highest probability that a metric at its margin passes."""

    @classmethod
    def at(cls, *looks: int) -> "Rule":
        """The rule that looks after these numbers of pairs."""
        return cls(looks, len(looks))

    def ending_at(self, pairs: int) -> "Rule":
        """The rule of a gate whose time is over after so many pairs, fewer than planned: they are its last look.

        The errors keep their bounds: whichever pairs the time allows, the signs of their differences are still fair coins.
        """
        return dataclasses.replace(self, looks=(*(count for count in self.looks if count < pairs), pairs))

    def fewest_pairs(self, metrics: int) -> int:
        """The fewest pairs with which the error rate and one of so many metrics can regress: the smallest p of n pairs is 2^-n."""
        return math.ceil(math.log2(max(metrics / self.time_alpha, 1 / self.error_rate_alpha)))

    @property
    def time_alpha(self) -> float:
        """The significance level of one look for all metrics but the error rate."""
        return (self.false_alarm_rate - ERRORS_PART) / self.planned_looks

    @property
    def error_rate_alpha(self) -> float:
        """The significance level of one look for the error rate."""
        return ERRORS_PART / self.planned_looks

    def first_step_alpha(self, bounds: Sequence[MetricBounds], index: int) -> float:
        """The p at one look below which metric `index` has regressed whatever the other metrics' p-values are."""
        errors = sum(one.is_error_rate for one in bounds)
        return self.error_rate_alpha / errors if bounds[index].is_error_rate else self.time_alpha / (len(bounds) - errors)

    @property
    def pass_alpha(self) -> float:
        """The significance level of one look for a pass."""
        return self.pass_rate / self.planned_looks


@dataclasses.dataclass(frozen=True, slots=True)
class Look:
    """The tests at one look, as arrays over gates and metrics, or over metrics alone."""

    adjusted_p: Array
    """At or below the rule's `false_alarm_rate` the metric has regressed."""
    regressed: np.ndarray
    passed: np.ndarray


def rule_for(metrics: int, pairs: int | None = None) -> Rule:
    """The rule for a number of metrics beside the error rate, with its last look after `pairs`, by default 20.

    From 16 pairs on there are three looks, the first after three fifths of the pairs, or later if the smallest p of so few would not
    be significant after correction. With many metrics the default is larger. Raises ValueError if `pairs` are too few.
    """
    fewest, alone = (Rule.at(*([0] * looks)).fewest_pairs(metrics) for looks in (3, 1))
    last = max(DEFAULT_PAIRS, fewest + _FEWEST_AFTER_FIRST_LOOK) if pairs is None else pairs
    first = max(fewest, 3 * last // 5)
    if last - first >= _FEWEST_AFTER_FIRST_LOOK:
        return Rule.at(first, (first + last) // 2, last)
    if last < alone:
        raise ValueError(f"{metrics} metrics need at least {alone} pairs to show a regression, found {last}")
    return Rule.at(last)


def look(rule: Rule, bounds: Sequence[MetricBounds], differences: Array) -> Look:
    """Tests differences of shape [..., metrics, pairs].

    Regressed: the exact signed-rank test rejects H0 "no worse than the band", with Holm's correction over the metrics (S. Holm,
    Scand. J. Statist. 6, 1979) and an equal part of the false alarms for each look, which holds under any dependence;
    the error rate has a part of its own. Passed: the test rejects H0 "at the margin or worse", with an equal part for
    each look. A pass needs all metrics, so these tests need no correction (R. L. Berger, Technometrics 24, 1982).
    """
    band, margin = np.array([one.band for one in bounds]), np.array([one.margin for one in bounds])
    adjusted = _adjusted_p(rule, bounds, signed_rank_p(differences - band[:, None]))
    passed = signed_rank_p(margin[:, None] - differences) <= rule.pass_alpha
    return Look(adjusted, adjusted <= rule.false_alarm_rate, passed)


def improvement_p(rule: Rule, bounds: Sequence[MetricBounds], differences: Array) -> Array:
    """P-values of H0 "no better than the band" for differences of shape [..., metrics, pairs]: the mirrored test of `look`.

    They have the same correction, so at most `rule.false_alarm_rate` of gates call any metric improved that is not better than its band.
    """
    band = np.array([one.band for one in bounds])
    return _adjusted_p(rule, bounds, signed_rank_p(-differences - band[:, None]))


def _adjusted_p(rule: Rule, bounds: Sequence[MetricBounds], p: Array) -> Array:
    """P-values of shape [..., metrics], adjusted for metrics and looks."""
    is_errors = np.array([one.is_error_rate for one in bounds], bool)
    adjusted = np.empty_like(p)
    adjusted[..., ~is_errors] = holm(p[..., ~is_errors]) * (rule.false_alarm_rate / rule.time_alpha)
    adjusted[..., is_errors] = p[..., is_errors] * (is_errors.sum() * rule.false_alarm_rate / rule.error_rate_alpha)
    return np.minimum(adjusted, 1.0)


def holm(p: Array) -> Array:
    """P-values adjusted for their number along the last axis by Holm's procedure; at most 1."""
    count = p.shape[-1]
    order = np.argsort(p, axis=-1)
    stepped = np.take_along_axis(p, order, -1) * np.arange(count, 0, -1)
    adjusted = np.empty_like(p)
    np.put_along_axis(adjusted, order, np.maximum.accumulate(stepped, axis=-1) if count else stepped, -1)
    return np.minimum(adjusted, 1.0)


def decide(looked: Look) -> Literal["regressed", "pass"] | None:
    """The decision of one gate at one look; None if it needs more pairs."""
    if looked.regressed.any():
        return "regressed"
    return "pass" if looked.passed.all() else None


def minimum_detectable_effect(rule: Rule, bounds: Sequence[MetricBounds], index: int, differences: Sequence[float]) -> float | None:
    """The difference in metric `index` that 90 % of gates would detect if their pairs are as noisy as these.

    Gates are simulated from the residuals of the differences about their Hodges-Lehmann estimate, with random signs, since a
    pair's order is random; √(n/(n-2)) corrects the variance that so few residuals lack. A gate detects a shift that exceeds
    the band by more than the gate's lower limit is below zero, at any look, at the first step of Holm's correction: whichever
    the other metrics are. This is an approximation, with a fixed seed: 86 to 90 % of the simulated standard gates detect it,
    and 78 to 83 % of those with a single look at 10 pairs (`benchmarks/gate_simulation.py`).

    None for fewer than three pairs, and if no look has enough pairs to detect anything.
    """
    values, alpha = np.asarray(differences, np.float64), rule.first_step_alpha(bounds, index)
    cut_offs = {count: cut_off(count, alpha) for count in rule.looks}
    if values.size < 3 or not any(cut_offs.values()):
        return None
    rng = np.random.default_rng(0)
    residuals = (values - hodges_lehmann(values)) * math.sqrt(values.size / (values.size - 2))
    drawn = rng.choice(residuals, (_SIMULATED_GATES, rule.looks[-1])) * rng.choice((-1.0, 1.0), (_SIMULATED_GATES, rule.looks[-1]))
    lowest = np.max([lower_limit(drawn[:, :count], alpha) for count, beyond in cut_offs.items() if beyond], axis=0)
    return bounds[index].band - float(np.quantile(lowest, 1 - POWER))
