"""What an overload for a while did to a target, and how it recovered: see `perfkit.points.surge` for the definitions."""

from typing import Literal

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
