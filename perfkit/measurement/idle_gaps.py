"""The figures of a load with idle gaps: the penalty of the first request after each."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from perfkit.errors import MeasurementWarning
from perfkit.result.model import Estimated, IdleGaps
from perfkit.scenario.model import USEFUL_GAPS
from perfkit.stats.buckets import EMPTY, BucketCounts
from perfkit.stats.median_difference import Estimate, compare_medians
from perfkit.units import NS_PER_S, format_duration_ns


def idle_gaps(times: Mapping[str, BucketCounts], following: Sequence[BucketCounts], reconnected: int) -> IdleGaps:
    """The penalty from a window's times; `following` are those of the other requests, in equal parts of the window."""
    after_gap = times.get("after_gap_time", EMPTY)
    compared = compare_medians(after_gap, following)
    difference_ns, ratio = (None, None) if compared is None else (compared.difference_ns, compared.ratio)
    return IdleGaps(
        gaps=after_gap.count,
        reconnected=reconnected,
        penalty_ns=_estimated(difference_ns),
        penalty_ratio=_estimated(ratio),
    )


def idle_warnings(idle: IdleGaps, window_s: float, repetitions: int) -> Iterator[MeasurementWarning]:
    """A warning if the penalty is unknown or its interval is wide, with the window that each repetition needs."""
    if idle.gaps < USEFUL_GAPS or idle.penalty_ns is None:
        needed, each_s = max(USEFUL_GAPS, 2 * idle.gaps if idle.penalty_ns is None else 0), window_s / max(idle.gaps, 1)
        duration = format_duration_ns(1.1 * needed / repetitions * each_s * NS_PER_S)
        found = (
            f"Only {idle.gaps} idle gaps: the penalty of the first request {'is unknown' if idle.penalty_ns is None else 'is uncertain'}"
        )
        yield MeasurementWarning("few_gaps", f"{found}. {needed} need windows of about {duration}.")


def _estimated(estimate: Estimate | None) -> Estimated | None:
    return None if estimate is None else Estimated(**dataclasses.asdict(estimate))
