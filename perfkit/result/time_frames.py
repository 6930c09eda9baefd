"""The recorded times of a result as pandas data frames, by second or by histogram bucket."""

import pathlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from perfkit.result.distribution import QUANTILES, distribution
from perfkit.result.interval_log import read_intervals_of, read_times, read_window_starts
from perfkit.result.model import Point, Result
from perfkit.stats.buckets import EMPTY, BucketCounts, bucket_bounds_ns

if TYPE_CHECKING:
    import pandas as pd

_INTEGERS = (
    "repetition",
    "samples",
    "low_ns",
    "high_ns",
    "count",
    "max_ns",
    "completions",
    "failures",
    *(f"{name}_ns" for name in QUANTILES),
)
_INTERVAL_COLUMNS = (
    "workload", "alone", "protocol", "load", "level", "repetition", "times", "time_s", "window_s", "samples", "mean_ns", *(f"{name}_ns" for name in QUANTILES),
    "max_ns", "completions", "failures",
)  # fmt: skip
_HISTOGRAM_COLUMNS = ("workload", "alone", "protocol", "load", "level", "times", "low_ns", "high_ns", "count", "cumulative_share")


def intervals_frame(folder: pathlib.Path, result: Result) -> "pd.DataFrame":
    """A row for each second of each repetition and kind of time in `latency.hlog`. Raises ResultError.

    `time_s` is the second's start since the start of the log, `window_s` that since the start of the window. `times` is `service`,
    `response` or `delay` (start delay). A time belongs to the second in which its request was due to start. `completions` is the number
    of ok answers that ended in the second, and `failures` that of the others; results of earlier versions lack it.
    """
    starts_s, merged = read_window_starts(folder), dict[tuple[int, int, str, float], list[BucketCounts]]()
    for key, kind, start_s, times in read_intervals_of(folder, result):
        merged.setdefault((*key, kind, start_s), []).append(times)
    points = {(point.key, point.repetition or 0): point for point in result.points}
    first_s: dict[tuple[int, int], float] = {}
    for index, repetition, _, start_s in merged:  # for a log that does not state where its windows start
        first_s[index, repetition] = min(first_s.get((index, repetition), start_s), start_s)
    rows = []
    for (index, repetition, kind, start_s), parts in merged.items():
        pooled = result.summary[index]
        window_s = start_s - starts_s.get((index, repetition), first_s[index, repetition])
        figures, point = distribution(BucketCounts.merged(parts)), points.get((pooled.key, repetition))
        rows.append(
            {
                **_load_point(pooled),
                "repetition": repetition,
                "times": kind,
                "time_s": start_s,
                "window_s": window_s,
                "samples": figures.count,
                "mean_ns": figures.mean,
                **{f"{name}_ns": getattr(figures, name) for name in QUANTILES},
                "max_ns": figures.max,
                "completions": _in_second(point, "throughput_series_per_s", round(window_s)),
                "failures": _in_second(point, "failed_series_per_s", round(window_s)),
            }
        )
    return _frame(rows, _INTERVAL_COLUMNS)


def histograms_frame(folder: pathlib.Path, result: Result) -> "pd.DataFrame":
    """A row for each non-empty bucket of the load points' histograms, repetitions pooled. Raises ResultError.

    A bucket holds the times from `low_ns` to `high_ns`. `cumulative_share`, from 0 to 1, is the share of the times up to `high_ns`.
    """
    rows = []
    for point, counts in zip(result.summary, read_histograms(folder, result), strict=True):
        lows, highs = bucket_bounds_ns(counts.indices)
        shares = np.cumsum(counts.counts) / max(counts.count, 1)
        named = {**_load_point(point), "times": point.times_name.split()[0]}
        for low, high, count, share in zip(lows.tolist(), highs.tolist(), counts.counts.tolist(), shares.tolist(), strict=True):
            rows.append({**named, "low_ns": low, "high_ns": high, "count": count, "cumulative_share": share})
    return _frame(rows, _HISTOGRAM_COLUMNS)


def read_histograms(folder: pathlib.Path, result: Result) -> list[BucketCounts]:
    """The histogram of each point of the summary, repetitions pooled; raises ResultError."""
    histograms = [EMPTY for _ in result.summary]
    for (index, _), _, times in read_times(folder, result):
        histograms[index] = BucketCounts.merged([histograms[index], times])
    return histograms


def _load_point(point: Point) -> dict[str, Any]:
    return {
        "workload": point.workload,
        "alone": point.alone,
        "protocol": point.protocol,
        "load": point.load.kind,
        "level": float(point.load.level),
    }


def _in_second(point: Point | None, name: str, second: int) -> int | None:
    series: Sequence[int] | None = getattr(point, name, None)
    return series[second] if series is not None and 0 <= second < len(series) else None


def _frame(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> "pd.DataFrame":
    import pandas as pd

    frame = pd.DataFrame(rows, columns=list(columns))
    return frame.astype({name: "Int64" for name in columns if name in _INTEGERS})
