"""The rule by which a gate decides from pairs of runs: exact tests against a noise band, corrected for metrics and looks.

A pair is a run of the baseline and a run of the candidate, in random order. Its difference in a metric is ln(candidate ÷
baseline), inverted for throughput, or candidate minus baseline for a share; above 0 the candidate is worse. The unit of
replication is the pair: requests within a run share their server process, and say nothing about other server processes.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from perfkit.stats.alike import alike_limits, are_alike
from perfkit.stats.signed_rank import Array, cut_off, hodges_lehmann, limits, lower_limit, signed_rank_p

DEFAULT_PAIRS = 20
_FEWEST_AFTER_FIRST_LOOK = 4
FALSE_ALARM_RATE, ERRORS_PART = 0.01, 0.001  # a tenth of the false alarms is reserved for the error rate
EARLY_PART = 0.0025
"""The part of the false alarms for looks before the first of three full ones; see `Rule.early`."""
PASS_RATE = 0.05
NOISE_BAND = 0.01
POWER = 0.9
_SIMULATED_GATES = 500
_FIRST_EARLY_LOOK = 5
_EARLY_RATIOS = (1.5, 1.5, 1.5, 2.0, 2.5, 3.0)
"""The largest difference ÷ the smallest at the first early look, the second and so on. With four metrics, the worst laws found alarm in 0.22 % of gates."""
_EARLY_PASS, _EARLY_PASS_ALPHA = 7, 2**-7


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


class LookPart(NamedTuple):
    """The parts of one full look in the errors of all full looks."""

    alarms: float
    error_rate_alarms: float
    passes: float


_THREE_LOOKS = LookPart(0.16, 1 / 3, 0.3), LookPart(0.24, 1 / 3, 0.3), LookPart(0.6, 1 / 3, 0.4)
_ALL, _NOTHING = LookPart(1.0, 1.0, 1.0), LookPart(0.0, 0.0, 0.0)


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """After how many pairs the gate looks, and its error rates over all looks and metrics."""

    looks: tuple[int, ...]
    """The full looks."""
    parts: tuple[LookPart, ...]
    """The parts of the full looks."""
    early: tuple[int, ...] = ()
    """The looks before the first full one: at gross regressions, and after seven pairs at passes."""
    early_part: float = EARLY_PART
    """The false alarms of the early looks, if there are any."""
    false_alarm_rate: float = FALSE_ALARM_RATE
    pass_rate: float = PASS_RATE
    """The highest probability that a metric at its margin passes."""

    @classmethod
    def at(cls, *looks: int) -> "Rule":
        """The rule with full looks after these numbers of pairs, each with an equal part of the errors, and no early ones."""
        return cls(looks, (LookPart(*([1 / len(looks)] * 3)),) * len(looks))

    @property
    def all_looks(self) -> tuple[int, ...]:
        """The early and the full looks."""
        return (*self.early, *self.looks)

    def ending_at(self, pairs: int) -> "Rule":
        """The rule of a gate whose time is over after so many pairs, fewer than planned: they are its last look, with all that is left of the errors.

        The errors keep their bounds: whichever pairs the time allows, the signs of their differences are still fair coins.
        """
        done = sum(count < pairs for count in self.looks)
        left = LookPart(*map(sum, zip(*self.parts[done:], strict=True)))
        early = tuple(count for count in self.early if count < pairs)
        return dataclasses.replace(self, looks=(*self.looks[:done], pairs), parts=(*self.parts[:done], left), early=early)

    def fewest_pairs(self, metrics: int, part: LookPart = _ALL) -> int:
        """The fewest pairs with which the error rate and one of so many metrics can regress at a full look: the smallest p of n pairs is 2^-n."""
        return math.ceil(math.log2(max(metrics / (self._time_rate * part.alarms), 1 / (ERRORS_PART * part.error_rate_alarms))))

    @property
    def _time_rate(self) -> float:
        """The false alarms of all full looks but those of the error rate."""
        return self.false_alarm_rate - ERRORS_PART - (self.early_part if self.early else 0.0)

    def _part(self, pairs: int) -> LookPart:
        return self.parts[self.looks.index(pairs)] if pairs in self.looks else _NOTHING

    def time_alpha(self, pairs: int) -> float:
        """The significance level of a full look for all metrics but the error rate; 0 where there is none."""
        return self._time_rate * self._part(pairs).alarms

    def error_rate_alpha(self, pairs: int) -> float:
        """The significance level of a full look for the error rate; 0 where there is none."""
        return ERRORS_PART * self._part(pairs).error_rate_alarms

    def first_step_alpha(self, bounds: Sequence[MetricBounds], index: int, pairs: int) -> float:
        """The p at a full look below which metric `index` has regressed whatever the other metrics' p-values are."""
        errors = sum(one.is_error_rate for one in bounds)
        is_errors = bounds[index].is_error_rate
        return self.error_rate_alpha(pairs) / errors if is_errors else self.time_alpha(pairs) / (len(bounds) - errors)

    def pass_alpha(self, pairs: int) -> float:
        """The significance level of a look for a pass; 0 where there is none."""
        if pairs == _EARLY_PASS and pairs in self.early:
            return _EARLY_PASS_ALPHA
        return (self.pass_rate - (_EARLY_PASS_ALPHA if _EARLY_PASS in self.early else 0.0)) * self._part(pairs).passes

    def early_ratio(self, pairs: int) -> float:
        """How alike the differences of an early look must be, see `are_alike`."""
        return _EARLY_RATIOS[min(pairs - self.early[0], len(_EARLY_RATIOS) - 1)]

    def limits(self, differences: Array, pairs: int) -> tuple[Array, Array]:
        """The limits of the shift after a number of pairs, by the tests of that look; the upper one is infinite for fewer differences than these need."""
        if self._is_early_alone(pairs) and differences.shape[-1] == pairs:
            return alike_limits(differences, self.early_ratio(pairs))
        return limits(differences, self.limit_alpha(pairs))

    def limit_alpha(self, pairs: int) -> float:
        """The highest probability that one of the `limits` does not hold; where there is no look, that of the first full one."""
        return self.early_part if self._is_early_alone(pairs) else self.pass_alpha(pairs) or self.pass_alpha(self.looks[0])

    def _is_early_alone(self, pairs: int) -> bool:
        """Whether a look is only at gross regressions."""
        return pairs in self.early and not self.pass_alpha(pairs)


@dataclasses.dataclass(frozen=True, slots=True)
class Look:
    """The tests at one look, as arrays over gates and metrics, or over metrics alone."""

    adjusted_p: Array
    """At or below the rule's `false_alarm_rate` the metric has regressed."""
    regressed: np.ndarray
    passed: np.ndarray


def fewest_pairs(metrics: int) -> int:
    """The fewest pairs for which `rule_for` has a rule."""
    return _rule_of_one_full_look(metrics).fewest_pairs(metrics)


def _rule_of_one_full_look(metrics: int) -> Rule:
    return Rule((), (_ALL,), early=(_first_early_look(metrics) + 1,), early_part=EARLY_PART / 4)


def _first_early_look(metrics: int) -> int:
    return _FIRST_EARLY_LOOK + max(0, math.ceil(math.log(max(metrics, 1) / 4, 4)))


def rule_for(metrics: int, pairs: int | None = None) -> Rule:
    """The rule for a number of metrics beside the error rate, with its last look after `pairs`, by default 20.

    From 16 pairs on there are three full looks, the first after three fifths of the pairs, or later if the smallest p of so few would not
    be significant after correction. With fewer pairs the early looks begin a pair later, with a quarter of the false alarms, since the
    only full look needs them. With many metrics the default is larger, and the early looks begin later. Raises ValueError if `pairs` are
    too few.
    """
    begin, only = _first_early_look(metrics), _rule_of_one_full_look(metrics)
    fewest, alone = Rule((), (), early=(begin,)).fewest_pairs(metrics, _THREE_LOOKS[0]), fewest_pairs(metrics)
    last = max(DEFAULT_PAIRS, fewest + _FEWEST_AFTER_FIRST_LOOK) if pairs is None else pairs
    first = max(fewest, 3 * last // 5)
    if last - first >= _FEWEST_AFTER_FIRST_LOOK:
        return Rule((first, (first + last) // 2, last), _THREE_LOOKS, tuple(range(begin, first)))
    if last < alone:
        raise ValueError(f"{metrics} metrics need at least {alone} pairs to show a regression, found {last}")
    return dataclasses.replace(only, looks=(last,), early=tuple(range(begin + 1, last)))


def look(rule: Rule, bounds: Sequence[MetricBounds], differences: Array, pairs: int | None = None) -> Look:
    """Tests differences of shape [..., metrics, n] after a number of pairs, by default n.

    Regressed: at a full look the exact signed-rank test rejects H0 "no worse than the band", with Holm's correction over the metrics (S. Holm,
    Scand. J. Statist. 6, 1979) and the look's part of the false alarms, which holds under any dependence; the error rate has a part of
    its own. At an early one, all differences are beyond the margin and alike (`perfkit.stats.alike`); at the first of them this counts for
    the first metric only, so that the bound holds for all. Passed: the test rejects H0 "at the margin or worse", with the look's part. A pass
    needs all metrics, so these tests need no correction (R. L. Berger, Technometrics 24, 1982).
    """
    pairs = differences.shape[-1] if pairs is None else pairs
    margin = np.array([one.margin for one in bounds])
    adjusted = _adjusted_p(rule, bounds, differences, pairs)
    passed = signed_rank_p(margin[:, None] - differences) <= rule.pass_alpha(pairs)
    return Look(adjusted, adjusted <= rule.false_alarm_rate, passed)


def improvement_p(rule: Rule, bounds: Sequence[MetricBounds], differences: Array) -> Array:
    """P-values of H0 "no better than the band" for differences of shape [..., metrics, pairs]: the mirrored test of `look`.

    They have the same correction, so at most `rule.false_alarm_rate` of gates call any metric improved that is not better than its band.
    """
    return _adjusted_p(rule, bounds, -differences, differences.shape[-1])


def _adjusted_p(rule: Rule, bounds: Sequence[MetricBounds], differences: Array, pairs: int) -> Array:
    """P-values of shape [..., metrics], adjusted for metrics and looks; at an early look their upper bound, or 1."""
    band = np.array([one.band for one in bounds])[:, None]
    is_errors = np.array([one.is_error_rate for one in bounds], bool)
    adjusted = np.ones(differences.shape[:-1])
    if pairs in rule.early:
        margin = np.array([one.margin for one in bounds])
        is_gross = are_alike(differences - band, rule.early_ratio(pairs)) & (differences.min(axis=-1) >= margin) & ~is_errors
        if pairs == rule.early[0]:
            is_gross[..., np.cumsum(~is_errors) > 1] = False
        adjusted[is_gross] = rule.false_alarm_rate
    elif pairs in rule.looks:
        p = signed_rank_p(differences - band)
        adjusted[..., ~is_errors] = holm(p[..., ~is_errors]) * (rule.false_alarm_rate / rule.time_alpha(pairs))
        adjusted[..., is_errors] = p[..., is_errors] * (is_errors.sum() * rule.false_alarm_rate / rule.error_rate_alpha(pairs))
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
    the band by more than the gate's lower limit is below zero, at any full look, at the first step of Holm's correction: whichever
    the other metrics are. This is an approximation, with a fixed seed: 86 to 90 % of the simulated standard gates detect it,
    and 78 to 83 % of those with a single look at 10 pairs (`benchmarks/gate_simulation.py`).

    None for fewer than three pairs, and if no look has enough pairs to detect anything.
    """
    values, alphas = np.asarray(differences, np.float64), {count: rule.first_step_alpha(bounds, index, count) for count in rule.looks}
    cut_offs = {count: cut_off(count, alpha) for count, alpha in alphas.items()}
    if values.size < 3 or not any(cut_offs.values()):
        return None
    rng = np.random.default_rng(0)
    residuals = (values - hodges_lehmann(values)) * math.sqrt(values.size / (values.size - 2))
    drawn = rng.choice(residuals, (_SIMULATED_GATES, rule.looks[-1])) * rng.choice((-1.0, 1.0), (_SIMULATED_GATES, rule.looks[-1]))
    lowest = np.max([lower_limit(drawn[:, :count], alphas[count]) for count, beyond in cut_offs.items() if beyond], axis=0)
    return bounds[index].band - float(np.quantile(lowest, 1 - POWER))
