"""Results and their recorded times as pandas frames, for tables that programs read. pandas is imported at the first call: it is slow to import."""

import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from perfkit.figures.declaration import Declared, Subject, declared, figures_of
from perfkit.result.distribution import QUANTILES, Distribution, distribution
from perfkit.result.interval_log import read_intervals_of, read_times, read_window_starts
from perfkit.result.model import Point, Result
from perfkit.result.point_parts import Estimated
from perfkit.result.sweep import shown_value
from perfkit.stats.buckets import EMPTY, BucketCounts, bucket_bounds_ns
from perfkit.text import csv_cell

if TYPE_CHECKING:
    import pandas as pd

_SWEEP_COLUMNS = (
    "protocol", "load", "level", "throughput_per_s", "inferences_per_s", "p50_ns", "p95_ns", "p99_ns", "error_rate", "slo", "valid",
    "capacity_low_per_s", "capacity_high_per_s",
)  # fmt: skip


START_FIGURES = ("load_ns", "ready_ns", "first_answer_ns", "first_answer_after_ns", "steady_after_requests", "warm_p50_ns")
"""The figures of cold starts that are columns, as medians over the starts."""


def points_frame(points: Iterable[Point]) -> "pd.DataFrame":
    """A row for each load point: rates per second, times in nanoseconds; percentiles with too few samples are None.

    `level` is the concurrency or the arrival rate. `times` is the kind of the times in `mean_ns` to `max_ns`: `response`, or `service`
    in a closed loop. `server_…` are the server's own means per request. docs/how-to/python.md describes every column.
    """
    import pandas as pd

    rows = [
        {
            **dict.fromkeys(_POINT_TYPES),  # in this order
            "workload": point.workload,
            "alone": point.alone,
            "protocol": point.protocol,
            "load": point.load.kind,
            "level": point.load.level,
            "repetition": point.repetition,
            "times": point.times_name.split()[0],
            "samples": point.times.count,
            "mean_ns": point.times.mean,
            **{f"{name}_ns": getattr(point.times, name) for name in QUANTILES},
            "max_ns": point.times.max,
            **{name: _start_figure(point, name) for name in START_FIGURES},
            **{name: value for one in declared(Point) for name, value in _cells(one, one.value_of(point))},
            "slo": point.slo and point.slo.verdict,
            "valid": point.valid,
            "warnings": " ".join(dict.fromkeys(warning.code for warning in point.warnings)),
        }
        for point in points
    ]
    return pd.DataFrame(rows, dtype=object)  # integers beside None stay integers


def with_types(frame: "pd.DataFrame") -> "pd.DataFrame":
    """A frame of load points or addresses with the types of its columns; integers that may be missing have pandas' type Int64."""
    return frame.astype({name: kind for name, kind in _POINT_TYPES.items() if name in frame and kind}).infer_objects()


def _cells(one: Declared, value: Any) -> Iterator[tuple[str, Any]]:
    """The columns of a declared figure with their values."""
    stem = one.figure.column
    if stem and one.kind is Distribution:
        yield from ((f"{stem}_{name}_ns", value and getattr(value, name)) for name in one.figure.percentiles)
    elif stem and one.kind is Estimated:
        yield from ((f"{stem}{end}_ns", value and getattr(value, end[1:] or "value")) for end in ("", "_low", "_high"))
    elif stem:
        yield stem, value


def _types(subject: Subject) -> dict[str, str]:
    """The columns of a subject's figures, in their order."""
    return {
        name: "Int64" if one.kind in (int, Distribution) else "float64"
        for one in figures_of(Point, subject)
        for name, _ in _cells(one, None)
    }


_POINT_TYPES = {
    **dict.fromkeys(("workload", "alone", "protocol", "load"), ""),
    "level": "float64",
    "repetition": "Int64",
    **_types("rates"),
    "times": "",
    "samples": "Int64",
    "mean_ns": "float64",
    **{f"{name}_ns": "Int64" for name in QUANTILES},
    "max_ns": "Int64",
    **{name: kind for subject in ("requests", "sequences", "streams", "connections") for name, kind in _types(subject).items()},
    **dict.fromkeys(START_FIGURES, "float64"),
    **{name: kind for subject in ("idle gaps", "server", "generator", "gpus") for name, kind in _types(subject).items()},
    "slo": "",
    "valid": "bool",
    "warnings": "",
}
"""The columns of `points_frame` in their order, each with its type; none for texts and what pandas infers."""


def addresses_frame(points: Iterable[Point]) -> "pd.DataFrame":
    """A row for each address of each load point, of targets with several; the columns are those of `points_frame` that apply."""
    import pandas as pd

    rows = [
        {
            "protocol": point.protocol,
            "load": point.load.kind,
            "level": point.load.level,
            "address": one.address,
            "repetition": point.repetition,
            "throughput_per_s": one.throughput_per_s,
            "times": point.times_name.split()[0],
            "samples": one.times_ns.count,
            "mean_ns": one.times_ns.mean,
            **{f"{name}_ns": getattr(one.times_ns, name) for name in QUANTILES},
            "max_ns": one.times_ns.max,
            "scheduled": one.requests,
            "ok": one.ok,
            "error_rate": one.errors / one.requests if one.requests else 0.0,
            "connections": one.connections,
        }
        for point in points
        for one in point.replicas or ()
    ]
    return pd.DataFrame(rows, dtype=object)


def _start_figure(point: Point, name: str) -> float | None:
    spread = point.cold_start.figures.get(name) if point.cold_start else None
    return spread.median if spread else None


def sweep_frame(cases: Sequence[tuple[Mapping[str, Any], Result | None]]) -> "pd.DataFrame":
    """The load points of a sweep, a row each; after those of a search a row with its capacity.

    `cases` are pairs of the swept values and the result, None without one. The swept keys are the first columns.
    """
    import pandas as pd

    keys = list(dict.fromkeys(key for values, _ in cases for key in values))
    parts = []
    for values, result in cases:
        if result is None:
            continue
        part = points_frame(result.summary)
        if search := result.search:
            capacity = {
                "load": "search",
                "level": search.capacity_per_s,
                "valid": search.stopped_because not in ("generator", "cold"),
                "capacity_low_per_s": search.low_per_s,
                "capacity_high_per_s": search.high_per_s,
            }
            part = pd.concat([part, pd.DataFrame([capacity], dtype=object)])
        parts.append(part.assign(**{key: shown_value(values[key]) if key in values else "" for key in keys}))
    table = pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
    is_mix = "workload" in table and bool(table["workload"].notna().any())
    return table.reindex(columns=[*keys, *(("workload", "alone") if is_mix else ()), *_SWEEP_COLUMNS])


def csv_text(frame: "pd.DataFrame") -> str:
    """A frame as CSV without its index; missing values are empty, and no text is a formula to a spreadsheet."""
    import pandas as pd

    rows = [[csv_cell(value) if isinstance(value, str) else value for value in row] for row in frame.itertuples(index=False, name=None)]
    cleaned = pd.DataFrame(rows, columns=[csv_cell(str(name)) for name in frame.columns], dtype=object)
    return cleaned.to_csv(index=False, lineterminator="\n")


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
    of ok answers that ended in the second, and `failures` that of the others.
    """
    starts_s, merged = read_window_starts(folder), dict[tuple[int, int, str, float], list[BucketCounts]]()
    for key, kind, start_s, times in read_intervals_of(folder, result):
        merged.setdefault((*key, kind, start_s), []).append(times)
    points = {(point.key, point.repetition or 0): point for point in result.points}
    rows = []
    for (index, repetition, kind, start_s), parts in merged.items():
        pooled = result.summary[index]
        window_s = start_s - starts_s.get((index, repetition), 0.0)
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
