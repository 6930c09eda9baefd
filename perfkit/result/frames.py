"""Results as pandas frames, for tables that programs read. pandas is imported at the first call: it is slow to import."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perfkit.figures.declaration import Declared, Subject, declared, figures_of
from perfkit.result.distribution import QUANTILES, Distribution
from perfkit.result.model import Estimated, Point, Result
from perfkit.result.sweep import shown_value
from perfkit.text.foreign import csv_cell

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
                "valid": search.stopped_because != "generator",
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
