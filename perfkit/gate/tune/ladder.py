"""The scan of a configuration: at which concurrency it is worth most. Pure."""

import dataclasses
from collections.abc import Sequence

CONCURRENCIES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
_RISES, _PATIENCE, _ALIKE = 1.03, 2, 0.99


@dataclasses.dataclass(frozen=True, slots=True)
class Scanned:
    """A step of the ladder that was measured."""

    step: int
    throughput_per_s: float
    meets_slo: bool


def next_step(scanned: Sequence[Scanned], start: int, steps: int) -> int | None:
    """The step to measure next, of `steps`, the first of which is `start`; None once the best one is known.

    It goes up until the SLO is missed, or two steps in a row have not raised the throughput by 3 %. Where no step above the first is
    better, it goes down until one meets the SLO and the throughput falls.
    """
    if not scanned:
        return start
    highest, lowest = max(one.step for one in scanned), min(one.step for one in scanned)
    by_step = {one.step: one for one in scanned}
    first, top = by_step[start], by_step[highest]
    if highest + 1 < steps and top.meets_slo and not _has_levelled_off([by_step[step] for step in range(start, highest + 1)]):
        return highest + 1
    met = [one for one in scanned if one.meets_slo]
    if lowest == 0 or any(one.step > start and one.throughput_per_s >= _RISES * first.throughput_per_s for one in met):
        return None
    above = [one.throughput_per_s for one in met if one.step > lowest]
    goes_down = not met or lowest == start or (bool(above) and by_step[lowest].throughput_per_s >= _RISES * max(above))
    return lowest - 1 if goes_down else None


def best_step(scanned: Sequence[Scanned]) -> int | None:
    """The lowest step whose throughput is that of the best, less 1 %, among those that meet the SLO; None if none does."""
    met = [one for one in scanned if one.meets_slo and one.throughput_per_s > 0]
    most = max((one.throughput_per_s for one in met), default=0.0)
    return min((one.step for one in met if one.throughput_per_s >= _ALIKE * most), default=None)


def _has_levelled_off(going_up: Sequence[Scanned]) -> bool:
    best, without_rise = 0.0, 0
    for one in going_up:
        without_rise = 0 if one.throughput_per_s >= _RISES * best else without_rise + 1
        best = max(best, one.throughput_per_s)
    return without_rise >= _PATIENCE
