"""Results as pandas frames, for tables that programs read. pandas is imported at the first call: it is slow to import."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perfkit.figures.resources import ServerFigures
from perfkit.result.distribution import QUANTILES
from perfkit.result.model import Point, Result
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
            "workload": point.workload,
            "alone": point.alone,
            "protocol": point.protocol,
            "load": point.load.kind,
            "level": point.load.level,
            "repetition": point.repetition,
            "throughput_per_s": point.throughput_per_s,
            "inferences_per_s": point.inferences_per_s,
            "goodput_per_s": point.goodput_per_s,
            "times": point.times_name.split()[0],
            "samples": point.times.count,
            "mean_ns": point.times.mean,
            **{f"{name}_ns": getattr(point.times, name) for name in QUANTILES},
            "max_ns": point.times.max,
            "scheduled": point.requests.scheduled,
            "ok": point.requests.ok,
            "error_rate": point.error_rate,
            "start_delay_p99_ns": point.start_delay_ns and point.start_delay_ns.p99,
            "sequences_ended": point.sequences and point.sequences.ended,
            "sequences_failed": point.sequences and point.sequences.failed,
            "sequence_p50_ns": point.sequence_time_ns and point.sequence_time_ns.p50,
            "sequence_p99_ns": point.sequence_time_ns and point.sequence_time_ns.p99,
            "responses_per_s": point.responses and point.responses.per_s,
            "first_response_p50_ns": point.first_response_time_ns and point.first_response_time_ns.p50,
            "first_response_p99_ns": point.first_response_time_ns and point.first_response_time_ns.p99,
            "response_gap_p50_ns": point.response_gap_ns and point.response_gap_ns.p50,
            "response_gap_p99_ns": point.response_gap_ns and point.response_gap_ns.p99,
            "connections": point.connections.opened,
            "connect_p50_ns": point.connections.connect_time_ns and point.connections.connect_time_ns.p50,
            "connect_p99_ns": point.connections.connect_time_ns and point.connections.connect_time_ns.p99,
            **{name: _start_figure(point, name) for name in START_FIGURES},
            "after_gap_p50_ns": point.after_gap_time_ns and point.after_gap_time_ns.p50,
            "following_p50_ns": point.following_time_ns and point.following_time_ns.p50,
            "gaps_reconnected": point.idle and point.idle.reconnected,
            **{
                f"gap_penalty{end}_ns": getattr(point.idle.penalty_ns, figure) if point.idle and point.idle.penalty_ns else None
                for end, figure in (("", "value"), ("_low", "low"), ("_high", "high"))
            },
            "server_queue_ns": point.server and point.server.queue_ns,
            "server_compute_ns": point.server and _compute_ns(point.server),
            "server_cpu_per_request_ns": point.server_cpu and point.server_cpu.time_per_request_ns,
            "server_cpus": point.server_cpu and point.server_cpu.cpus,
            "generator_cpu_share": point.generator.cpu_share,
            "energy_per_inference_j": point.energy_per_inference_j,
            "slo": point.slo and point.slo.verdict,
            "valid": point.valid,
            "warnings": " ".join(dict.fromkeys(warning.code for warning in point.warnings)),
        }
        for point in points
    ]
    return pd.DataFrame(rows, dtype=object)  # integers beside None stay integers


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


def _compute_ns(server: ServerFigures) -> float | None:
    parts = (server.compute_input_ns, server.compute_infer_ns, server.compute_output_ns)
    return sum(part for part in parts if part is not None) if any(part is not None for part in parts) else None


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
