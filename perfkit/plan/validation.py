"""Validation of a model on points that it was not fitted to."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from perfkit.units import format_percent

FIT_SHARE, FEWEST_ABOVE, FEWEST_BELOW, MEAN_WITHIN, P99_WITHIN = 0.7, 3, 3, 0.10, 0.15
FALSE_REJECTIONS = 0.05
MEAN_AT_MOST, P99_AT_MOST = 0.25, 0.50
"""The largest errors with which a model is used, whatever the noise allows; see `judge_model`."""
_POWER = 0.95
_LEAST_SD = 1e-6


@dataclasses.dataclass(frozen=True, slots=True)
class Split:
    """The indices of the fitted and of the held-out points; `sentence` names the points that a validation lacks, empty if none."""

    fitted: tuple[int, ...]
    held_out: tuple[int, ...]
    sentence: str


@dataclasses.dataclass(frozen=True, slots=True)
class HeldOut:
    """The measured and the predicted figure of a held-out point, in one unit."""

    rate_per_s: float
    figure: str
    """`mean` or `p99`."""
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """The signed error as a share of the measured figure."""
        return self.predicted / self.measured - 1


@dataclasses.dataclass(frozen=True, slots=True)
class Validation:
    """The verdict on a model, as a sentence too. It is used only if it is accepted."""

    model: str
    errors: tuple[HeldOut, ...]
    verdict: Literal["accepted", "not validated", "rejected"]
    """`rejected`: the data contradict it, or it cannot be judged; `not validated`: they are too noisy to tell."""
    sentence: str

    @property
    def is_accepted(self) -> bool:
        """Whether the model may be used."""
        return self.verdict == "accepted"


def split_points(rates_per_s: Sequence[float], capacity_per_s: float) -> Split:
    """Splits points for validation: those up to 70 % of the capacity are fitted, except the middle one; the rest are held out.

    Validation needs at least 3 points above 70 %, and 3 below: 2 to fit, and the middle one.
    """
    order = sorted(range(len(rates_per_s)), key=lambda place: rates_per_s[place])
    low = [place for place in order if rates_per_s[place] <= FIT_SHARE * capacity_per_s]
    above = [place for place in order if rates_per_s[place] > FIT_SHARE * capacity_per_s]
    inside = [low[len(low) // 2]] if len(low) >= FEWEST_BELOW else []
    fitted = [place for place in low if place not in inside]
    missing = []
    if len(above) < FEWEST_ABOVE:
        missing.append(f"at least {FEWEST_ABOVE} above {format_percent(FIT_SHARE)} of the capacity (found {len(above)})")
    if not inside:
        missing.append(f"at least {FEWEST_BELOW} up to {format_percent(FIT_SHARE)} of the capacity (found {len(low)})")
    sentence = f"Validation needs rates at which the target kept up: {' and '.join(missing)}." if missing else ""
    return Split(tuple(fitted), tuple(sorted(inside + above)), sentence)


def judge_model(model: str, errors: Sequence[HeldOut], noise: npt.NDArray[np.float64]) -> Validation:
    """Accept a model whose errors are small enough to be useful, and that noise alone could not make look so.

    `noise` holds draws of ln(predicted ÷ measured) for a correct model (draws × errors). It contains the variation of the held-out
    measurements and of those that the model was fitted to.

    Rejected is a model whose errors exceed 10 % of a mean or 15 % of a p99 by more than chance explains. The test statistic is the largest
    excess of |ln(predicted ÷ measured)| over these, in standard deviations of the noise. Its critical value is the 95 % quantile of the
    noise's own largest deviation. So a model within 10 % and 15 % is rejected with a probability of at most about 5 % (`FALSE_REJECTIONS`),
    whatever the number of points.

    The noisier the measurements, the larger the errors that this allows. Not validated is therefore a model that is not rejected, but is off
    by more than a factor of 1.25 in a mean or 1.5 in a p99, or for which larger errors than these would pass at every held-out point. What-ifs
    are about changes of a fifth to a quarter (`perfkit.plan.performance_models`), which a mean that is off by more would hide. A p99 has about
    twice the relative standard error of a mean, √100 ÷ ln 100 = 2.2 (see there), hence twice the limit.

    The sentence names the errors that are detected with a power of 95 %.
    """
    least, most = {"mean": MEAN_WITHIN, "p99": P99_WITHIN}, {"mean": MEAN_AT_MOST, "p99": P99_AT_MOST}
    if not errors:
        return Validation(model, (), "rejected", f"Model rejected: {model} has no held-out points.")
    sd = np.maximum(noise.std(axis=0), _LEAST_SD)
    largest = float(np.quantile((np.abs(noise) / sd).max(axis=1), 1 - FALSE_REJECTIONS))
    off = np.abs([math.log(one.predicted / one.measured) for one in errors])
    margins, useful = (np.log1p([shares[one.figure] for one in errors]) for shares in (least, most))
    by_chance = margins + largest * sd
    excess = (off - margins) / sd
    is_rejected = float(excess.max()) > largest + 1e-9
    detectable = np.expm1(margins + (largest + float(np.quantile(noise / sd, _POWER))) * sd)
    shown, told, untold = [], [], []
    for figure in dict.fromkeys(one.figure for one in errors):
        places = [place for place, one in enumerate(errors) if one.figure == figure]
        worst = places[int(np.argmax(excess[places]))]
        if not is_rejected and ((off > useful)[places].any() or (by_chance > useful)[places].all()):
            worst = places[int(np.argmax(off[places]))]
            untold.append(f"up to {_reach(by_chance[worst], errors[worst])} of a {figure}")
        allowed = _reach(min(by_chance[worst], useful[worst]), errors[worst])
        shown.append(f"{figure} off by {format_percent(abs(errors[worst].error))} at {errors[worst].rate_per_s:.4g}/s (allowed {allowed})")
        told.append(f"{_percent(float(detectable[places].min()))} of a {figure}")
    found = f"{model}, {', '.join(shown)} on points it was not fitted to"
    if is_rejected:
        return Validation(model, tuple(errors), "rejected", f"Model rejected: {found}.")
    if untold:
        noisy = f"the measurements are too noisy to tell (errors {' and '.join(untold)} would pass); measure longer"
        return Validation(model, tuple(errors), "not validated", f"Model not validated, and not used: {found}; {noisy}.")
    return Validation(
        model, tuple(errors), "accepted", f"Model accepted: {found}; the data could not tell errors below {' and '.join(told)}."
    )


def _reach(ln_factor: float, error: HeldOut) -> str:
    """The error by this factor to the side of a point's error."""
    return _percent(abs(math.expm1(math.copysign(ln_factor, error.error))))


def _percent(share: float) -> str:
    return format_percent(share) if share < 10 else f"{share:.0f} times"
