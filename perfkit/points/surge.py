"""The figures of overloads and recoveries, and their verdict. Pure."""

from collections.abc import Mapping, Sequence

import numpy as np

from perfkit.points.measured import PointMeasurement
from perfkit.result.load import OpenLoad
from perfkit.result.surge import SurgeFigure, SurgeRepetition, Surges, SurgeVerdict
from perfkit.stats.recovery import mean_over_repetitions, recovery_s
from perfkit.units import NS_PER_S

_FIGURES = [name for name in SurgeRepetition.model_fields if name != "repetition"]
KEPT_SHARE = 0.9
"""The share of the goodput before a surge that a target that degrades keeps at least."""
AT_ONCE_S = 1.0
"""A target that meets its SLO again within this time after a surge has recovered at once."""


def pooled_surges(parts: Sequence[PointMeasurement]) -> Surges | None:
    """The surges of a load point with the mean of each figure; None for other loads, and where every window ended before or with its surge.

    Requests belong to the slot of their intended start, so that neither late sending nor a queue moves them out of the surge.
    """
    measured = [(part, one) for part in parts if (one := _repetition(part)) is not None]
    if not measured:
        return None
    parts, found = zip(*measured, strict=True)
    figures = dict[str, SurgeFigure]()
    for name in _FIGURES:
        values = [value for one in found if (value := getattr(one, name)) is not None]
        mean = mean_over_repetitions(values) if len(values) == len(found) else None
        if mean is not None:
            figures[name] = SurgeFigure(value=mean.value, low=mean.low, high=mean.high)
    verdict, reason = _verdict(found, figures)
    size = min(part.window.series.good.size for part in parts)
    slot_s = parts[0].window.series.interval_ns / NS_PER_S
    scheduled, good = (
        tuple((np.sum([getattr(part.window.series, name)[:size] for part in parts], axis=0) / (len(parts) * slot_s)).tolist())
        for name in ("scheduled", "good")
    )
    return Surges(
        verdict=verdict,
        reason=reason,
        repetitions=tuple(found),
        figures=figures,
        slot_s=slot_s,
        scheduled_per_s=scheduled,
        good_per_s=good,
    )


def _repetition(part: PointMeasurement) -> SurgeRepetition | None:
    if not isinstance(part.load, OpenLoad) or part.load.surge is None:
        return None
    series, surge = part.window.series, part.load.surge
    slot_s = series.interval_ns / NS_PER_S
    start, end = (round(instant_s / slot_s) for instant_s in (surge.start_s, surge.end_s))
    if not series.scheduled[end:].any():
        return None
    before, during, after = (
        float(piece.sum()) / (piece.size * slot_s) if piece.size else 0.0
        for piece in (series.good[:start], series.good[start:end], series.good[end:])
    )
    beyond = series.scheduled - series.good
    return SurgeRepetition(
        repetition=part.repetition,
        before_per_s=before,
        during_per_s=during,
        after_per_s=after,
        kept_share=during / before if before else None,
        in_flight_left=int(series.in_flight_change[:end].sum()),
        recovery_s=recovery_s(series.scheduled[end:].tolist(), beyond[end:].tolist(), slot_s, part.beyond_share),
    )


def _verdict(found: Sequence[SurgeRepetition], figures: Mapping[str, SurgeFigure]) -> tuple[SurgeVerdict, str]:
    """The verdict and why; it says no more than the intervals of the goodput kept and of the recovery time do.

    `undecided` without goodput before a surge or three repetitions. `collapses`: no surge was recovered from within the window. `degrades`: each
    was, within a second, and at least 0.9 of the goodput was kept. `recovers`: each was, but less goodput was kept, or the recovery took longer.
    Otherwise `undecided`.
    """
    kept, recovery = figures.get("kept_share"), figures.get("recovery_s")
    recovered = [one.recovery_s for one in found if one.recovery_s is not None]
    if kept is None:
        return "undecided", "No request met the SLO before the surge: give a lower base rate, or a longer limit."
    if kept.low is None or kept.high is None:
        return "undecided", "Fewer than three repetitions have no interval: measure more."
    if not recovered:
        return "collapses", "The SLO did not hold again within the time after the surge."
    if recovery is None or recovery.low is None:
        return "undecided", f"The SLO held again after {len(recovered)} of {len(found)} surges: give a longer time after them."
    shares = f"{kept.low:.0%} to {kept.high:.0%}"
    if kept.low >= KEPT_SHARE and max(recovered) <= AT_ONCE_S:
        return "degrades", f"During the surge goodput was at least {kept.low:.0%} of that before, and the SLO held again at once."
    if kept.high < KEPT_SHARE or recovery.low > AT_ONCE_S:
        return "recovers", f"During the surge goodput was {shares} of that before, and the SLO held again."
    if kept.low >= KEPT_SHARE:
        return "undecided", f"{AT_ONCE_S:g} s is within the interval of the recovery time: measure more repetitions."
    return "undecided", f"The goodput kept, {shares}, is on both sides of {KEPT_SHARE:.0%}: measure more repetitions."
