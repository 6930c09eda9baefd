"""The rule by which a gate decides from pairs: exact tests against a noise band, corrected for metrics and looks.

A pair is a run of the baseline and one of the candidate in an order drawn by a coin. Its difference is the logarithm of how
many times slower the candidate was, or candidate minus baseline for a share; larger is worse. The unit of replication is the
pair: requests within a run share their server process, and say nothing of how the next process will be.
"""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np

from perfkit.stats.signed_rank import Array, signed_rank_p

LOOKS, QUICK_LOOKS = (12, 16, 20), (10,)
FALSE_ALARM_RATE, ERRORS_PART = 0.01, 0.001  # of the one per cent, a tenth of a per cent is the error rate's
PASS_RATE = 0.05
NOISE_BAND = 0.01
POWER = 0.9


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """What is asked of one metric, as differences: no change up to `band`, a pass only below `margin`."""

    band: float
    margin: float
    is_error_rate: bool = False

    @classmethod
    def of_ratio(cls, band: float, margin: float) -> "Bounds":
        """Of a slowdown by those shares."""
        return cls(math.log1p(band), math.log1p(margin))


@dataclasses.dataclass(frozen=True, slots=True)
class Rule:
    """When it looks, and the chances it takes, all looks and metrics together."""

    looks: tuple[int, ...] = LOOKS
    false_alarm_rate: float = FALSE_ALARM_RATE
    pass_rate: float = PASS_RATE
    """A metric at its margin passes with this chance at most."""

    @property
    def times_rate(self) -> float:
        """What is left of the false alarms for all metrics but the error rate, at one look."""
        return (self.false_alarm_rate - ERRORS_PART) / len(self.looks)

    @property
    def errors_rate(self) -> float:
        """The error rate's part of the false alarms, at one look."""
        return ERRORS_PART / len(self.looks)

    def first_step_error(self, bounds: Sequence[Bounds], index: int) -> float:
        """The p at one look at which metric `index` has regressed whatever the others say."""
        errors = sum(one.is_error_rate for one in bounds)
        return self.errors_rate / errors if bounds[index].is_error_rate else self.times_rate / (len(bounds) - errors)

    @property
    def limit_error(self) -> float:
        """The chance with which an interval's end is missed, at one look."""
        return self.pass_rate / len(self.looks)


@dataclasses.dataclass(frozen=True, slots=True)
class Look:
    """What one look came to, an array over gates and metrics, or over metrics alone."""

    adjusted_p: Array
    """Below the rule's `false_alarm_rate` the metric has regressed."""
    regressed: np.ndarray
    passed: np.ndarray


def rule_for(metrics: int, *, quick: bool = False) -> Rule:
    """The rule for so many metrics beside the error rate.

    With more metrics than section A's four the first look comes later, since before it no evidence could be enough: of n
    pairs the smallest p is 2^-n.
    """
    looks = QUICK_LOOKS if quick else LOOKS
    least = math.ceil(math.log2(max(metrics, 1) / Rule(looks).times_rate))
    later = max(0, least - looks[0])
    return Rule(tuple(look + later for look in looks))


def look(rule: Rule, bounds: Sequence[Bounds], differences: Array) -> Look:
    """Judges differences of shape [..., metrics, pairs].

    Regressed: H0 "no more than the band" is refused by the exact signed-rank test, with Holm's correction over the metrics
    (S. Holm, Scand. J. Statist. 6, 1979) and an equal part of the false alarms for each look, which holds under any
    dependence; the error rate has a part of its own. Passed: H0 "at the margin or worse" is refused, at an equal part for each
    look; all metrics must, so these need no correction (R. L. Berger, Technometrics 24, 1982).
    """
    band, margin = np.array([one.band for one in bounds]), np.array([one.margin for one in bounds])
    p = signed_rank_p(differences - band[:, None])
    is_errors = np.array([one.is_error_rate for one in bounds], bool)
    adjusted = np.empty_like(p)
    adjusted[..., ~is_errors] = holm(p[..., ~is_errors]) * (rule.false_alarm_rate / rule.times_rate)
    adjusted[..., is_errors] = p[..., is_errors] * (is_errors.sum() * rule.false_alarm_rate / rule.errors_rate)
    adjusted = np.minimum(adjusted, 1.0)
    passed = signed_rank_p(margin[:, None] - differences) <= rule.limit_error
    return Look(adjusted, adjusted <= rule.false_alarm_rate, passed)


def holm(p: Array) -> Array:
    """P-values corrected for their number along the last axis, after Holm; each 1 at most."""
    count = p.shape[-1]
    order = np.argsort(p, axis=-1)
    stepped = np.take_along_axis(p, order, -1) * np.arange(count, 0, -1)
    adjusted = np.empty_like(p)
    np.put_along_axis(adjusted, order, np.maximum.accumulate(stepped, axis=-1) if count else stepped, -1)
    return np.minimum(adjusted, 1.0)


def decide(looked: Look) -> Literal["regressed", "pass"] | None:
    """What one gate's look settles; None where it settles nothing yet."""
    if looked.regressed.any():
        return "regressed"
    return "pass" if looked.passed.all() else None
