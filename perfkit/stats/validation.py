"""Validation of a model on points that it was not fitted to."""

import dataclasses
from collections.abc import Sequence

FIT_SHARE, FEWEST_ABOVE, MEAN_WITHIN, P99_WITHIN = 0.7, 3, 0.10, 0.15


@dataclasses.dataclass(frozen=True, slots=True)
class Split:
    """Indices of the points to fit and of those held out; `sentence` says what is missing for a validation, empty if nothing."""

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
    """The verdict on a model."""

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
    inside = [low[len(low) // 2]] if len(low) >= 3 else []
    fitted = [place for place in low if place not in inside]
    missing = []
    if len(above) < FEWEST_ABOVE:
        missing.append(
            f"at least {FEWEST_ABOVE} rates above {FIT_SHARE:.0%} of the capacity at which the target kept up (found {len(above)})"
        )
    if not inside:
        missing.append(f"at least 3 below (found {len(low)})")
    sentence = f"Validation needs {' and '.join(missing)}." if missing else ""
    return Split(tuple(fitted), tuple(sorted(inside + above)), sentence)


def judge_model(model: str, errors: Sequence[HeldOut]) -> Validation:
    """Accepts a model that predicts every held-out mean within 10 % and every held-out p99 within 15 %."""
    allowed = {"mean": MEAN_WITHIN, "p99": P99_WITHIN}
    if not errors:
        return Validation(model, (), is_accepted=False, sentence=f"Model rejected: {model} has no held-out points.")
    shares = {figure: [abs(one.error) for one in errors if one.figure == figure] for figure in allowed}
    worst = {figure: max(errors_of) for figure, errors_of in shares.items() if errors_of}
    is_accepted = all(share <= allowed[figure] + 1e-9 for figure, share in worst.items())
    shown = ", ".join(f"{figure} off by up to {share:.0%} (allowed {allowed[figure]:.0%})" for figure, share in worst.items())
    verdict = "accepted" if is_accepted else "rejected"
    return Validation(model, tuple(errors), is_accepted, f"Model {verdict}: {model}, {shown} on points it was not fitted to.")
