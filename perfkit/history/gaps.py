"""Results that are missing in a history: gaps in a regular series, and results without valid figures. Pure."""

import dataclasses
import itertools
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence

from perfkit.clock import Instant, parse_instant
from perfkit.history.series import HistoryEntry, Series
from perfkit.history.trend import Trend

_FEWEST_RESULTS = 5
_GAP = 1.75  # times the usual interval
_REGULAR_SHARE = 0.75  # of the intervals that are no gaps; otherwise results come when they come


@dataclasses.dataclass(frozen=True, slots=True)
class Gap:
    """Results that a series lacks."""

    series: Series
    after: str
    """The start of the last result before the gap, or of the result without valid figures, in UTC (ISO 8601)."""
    before: str | None
    """The start of the next result; None if there is none yet."""
    missing: int | None
    """About how many are missing; None for a result that is there, but has no valid figures."""


def find_gaps(
    results: Mapping[Series, Sequence[HistoryEntry]], trends: Sequence[Trend], now: Instant, forked: Collection[str] = ()
) -> list[Gap]:
    """The gaps of each series, in order of time; `results` has all results of each, ordered by time, `trends` the valid figures.

    A gap is an interval of more than 1.75 times the median one, in a series whose results come regularly. The branches in `forked`, which
    start from others, may end.
    """
    valid = {(trend.series, entry.started_at) for trend in trends for entry in trend.entries[trend.start :]}
    found = [
        gap for series, entries in results.items() for gap in (*_silences(series, entries, now), *_without_figures(series, entries, valid))
    ]
    went_on = (gap for gap in found if gap.missing is None or gap.before is not None or gap.series.branch not in forked)
    return sorted(went_on, key=lambda gap: gap.after)


def _silences(series: Series, entries: Sequence[HistoryEntry], now: Instant) -> Iterator[Gap]:
    starts = [parse_instant(entry.started_at) for entry in entries]
    intervals_s = [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(starts)]
    if len(entries) < _FEWEST_RESULTS or (usual_s := statistics.median(intervals_s)) <= 0:
        return
    if sum(interval_s <= _GAP * usual_s for interval_s in intervals_s) < _REGULAR_SHARE * len(intervals_s):
        return
    ends: list[str | None] = [*(entry.started_at for entry in entries[1:]), None]
    for entry, end, interval_s in zip(entries, ends, [*intervals_s, (now - starts[-1]).total_seconds()], strict=True):
        if interval_s > _GAP * usual_s:
            yield Gap(series, entry.started_at, end, max(1, round(interval_s / usual_s) - (0 if end is None else 1)))


def _without_figures(series: Series, entries: Sequence[HistoryEntry], valid: set[tuple[Series, str]]) -> Iterator[Gap]:
    for entry in entries:
        if (series, entry.started_at) not in valid:
            yield Gap(series, entry.started_at, None, None)
