"""What an overload for a while did to a target, and how it recovered: see `perfkit.points.surge` for the definitions."""

import math
from collections.abc import Iterator
from typing import Literal

from perfkit.result.load import SurgeLoad
from perfkit.result.part import Part

SurgeVerdict = Literal["degrades", "recovers", "collapses", "undecided"]


class SurgeRepetition(Part):
    """One surge; goodput is taken by the intended starts of the requests."""

    repetition: int
    before_per_s: float
    """The goodput before the surge."""
    during_per_s: float
    """The goodput of the requests of the surge."""
    after_per_s: float
    """The goodput after the surge."""
    kept_share: float | None
    """The goodput of the surge ÷ that before it; None if there was none before."""
    in_flight_left: int
    """The requests in flight at the surge's end."""
    recovery_s: float | None
    """From the surge's end until the SLO held again and kept holding; None if it did not within the window."""


class SurgeFigure(Part):
    """The mean of a figure over the repetitions with its 95 % interval, whose ends are None for fewer than three."""

    value: float
    low: float | None
    high: float | None


class Surges(Part):
    """The surges of a load point."""

    verdict: SurgeVerdict
    reason: str
    """Why, in a sentence."""
    repetitions: tuple[SurgeRepetition, ...]
    figures: dict[str, SurgeFigure]
    """By the names of the figures of a repetition; `recovery_s` only if every repetition recovered."""
    slot_s: float
    """The length of the intervals of the next two."""
    scheduled_per_s: tuple[float, ...]
    """Arrivals over the window, as a mean over the repetitions."""
    good_per_s: tuple[float, ...]
    """Arrivals that were answered within the SLO, by their intended starts."""


_ROUNDING = 1e-6


def surge_problems(found: Surges, load: SurgeLoad) -> Iterator[tuple[str, str]]:
    """What is wrong with the stored figures of surges, as keys and reasons: means, intervals, and the arrivals over time."""
    if not found.repetitions:
        yield "repetitions", "there is none, so there was no surge"
        return
    for number, one in enumerate(found.repetitions):
        expected = one.during_per_s / one.before_per_s if one.before_per_s else None
        if (one.kept_share is None) != (expected is None) or not math.isclose(one.kept_share or 0, expected or 0, rel_tol=_ROUNDING):
            yield f"repetitions.{number}.kept_share", f"{one.kept_share} is not the goodput during the surge ÷ that before it, {expected}"
    for name in SurgeRepetition.model_fields:
        values = [getattr(one, name) for one in found.repetitions]
        figure, is_known = found.figures.get(name), None not in values
        if name == "repetition" or (figure is None and not is_known):
            continue
        if figure is None or not is_known or not math.isclose(figure.value, sum(values) / len(values), rel_tol=_ROUNDING):
            yield f"figures.{name}", f"{figure and figure.value} is not the mean of the repetitions"
        elif figure.low is not None and figure.high is not None and not figure.low <= figure.value <= figure.high:
            yield f"figures.{name}", f"{figure.low:g} to {figure.high:g} is no interval around {figure.value:g}"
    if (found.verdict == "collapses" and any(one.recovery_s is not None for one in found.repetitions)) or (
        found.verdict in ("degrades", "recovers") and "recovery_s" not in found.figures
    ):
        yield "verdict", f"{found.verdict} does not fit the recovery times"
    if not found.slot_s > 0 or len(found.scheduled_per_s) != len(found.good_per_s):
        yield "slot_s", "it is not above zero, or the series differ in length"
    elif any(good > scheduled * (1 + _ROUNDING) for scheduled, good in zip(found.scheduled_per_s, found.good_per_s, strict=True)):
        yield "good_per_s", "more requests were answered than there were"
    else:
        start, end = (round(instant_s / found.slot_s) for instant_s in (load.start_s, load.end_s))
        for name, piece in (("before_per_s", found.good_per_s[:start]), ("during_per_s", found.good_per_s[start:end])):
            if (figure := found.figures.get(name)) is None or not piece:
                continue
            if not math.isclose(figure.value, mean := sum(piece) / len(piece), rel_tol=_ROUNDING, abs_tol=_ROUNDING):
                yield f"figures.{name}", f"{figure.value:g}/s is not that of good_per_s, {mean:g}/s"
