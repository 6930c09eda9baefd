"""Validation of a model on points that it was not fitted to."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from perfkit.units import format_percent

FIT_SHARE, FEWEST_ABOVE, FEWEST_BELOW, MEAN_WITHIN, P99_WITHIN = 0.7, 3, 3, 0.10, 0.15
FALSE_REJECTIONS = 0.05
_POWER, _TELLING = 0.95, 0.5
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
    """The verdict on a model: accepted unless the data reject it. The sentence says which errors the data could not detect."""

    model: str
    errors: tuple[HeldOut, ...]
    is_accepted: bool
    sentence: str


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
    """Reject a model whose errors exceed the allowed 10 % of a mean or 15 % of a p99 by more than chance explains.

    `noise` holds draws of ln(predicted ÷ measured) for a correct model (draws × errors). It contains the variation of the held-out
    measurements and of those that the model was fitted to. The test statistic is the largest excess of |ln(predicted ÷ measured)| over
    the allowed error, in standard deviations of the noise. Its critical value is the 95 % quantile of the noise's own largest deviation.
    So a model within the allowed errors is rejected with a probability of at most about 5 % (`FALSE_REJECTIONS`), whatever the number of
    points. The sentence names the errors that are detected with a power of 95 %; if these exceed 50 %, it says "not rejected".
    """
    allowed = {"mean": MEAN_WITHIN, "p99": P99_WITHIN}
    if not errors:
        return Validation(model, (), is_accepted=False, sentence=f"Model rejected: {model} has no held-out points.")
    sd = np.maximum(noise.std(axis=0), _LEAST_SD)
    largest = float(np.quantile((np.abs(noise) / sd).max(axis=1), 1 - FALSE_REJECTIONS))
    margins = np.log1p([allowed[one.figure] for one in errors])
    excess = (np.abs([math.log(one.predicted / one.measured) for one in errors]) - margins) / sd
    is_rejected = float(excess.max()) > largest + 1e-9
    detectable = np.expm1(margins + (largest + float(np.quantile(noise / sd, _POWER))) * sd)
    shown, told = [], []
    for figure in dict.fromkeys(one.figure for one in errors):
        places = [place for place, one in enumerate(errors) if one.figure == figure]
        worst = places[int(np.argmax(excess[places]))]
        reach = math.copysign(margins[worst] + largest * sd[worst], errors[worst].error)
        allowed_here = f"{errors[worst].rate_per_s:.4g}/s (allowed {_percent(abs(math.expm1(reach)))})"
        shown.append(f"{figure} off by {format_percent(abs(errors[worst].error))} at {allowed_here}")
        told.append((figure, float(detectable[places].min())))
    found = f"{model}, {', '.join(shown)} on points it was not fitted to"
    if is_rejected:
        return Validation(model, tuple(errors), is_accepted=False, sentence=f"Model rejected: {found}.")
    limits = " and ".join(f"{_percent(share)} of a {figure}" for figure, share in told)
    verdict = "accepted" if max(share for _, share in told) <= _TELLING else "not rejected"
    return Validation(
        model, tuple(errors), is_accepted=True, sentence=f"Model {verdict}: {found}; the data could not tell errors below {limits}."
    )


def _percent(share: float) -> str:
    return format_percent(share) if share < 10 else f"{share:.0f} times"
