"""The tables of what served a run: the server's own figures, its models, addresses and connections, and GPUs."""

import functools
from collections.abc import Sequence
from typing import Any

from perfkit.figures.declaration import figures_of, value_at
from perfkit.figures.resources import STAGE_NAMES
from perfkit.report.load_points import figure_column, interval_cell, load_columns, load_point_table, percentile_columns, times_caption
from perfkit.report.table import MISSING, Cell, Column, Kind, Table
from perfkit.result.distribution import Distribution
from perfkit.result.model import Point
from perfkit.units import format_duration_ns

_GIB = 2.0**30


def server_table(points: Sequence[Point]) -> Table:
    """The server's own figures, means per request; no rows where it reported none."""
    times = {
        "queue_ns": "queue", "compute_input_ns": "input", "compute_infer_ns": "infer", "compute_output_ns": "output",
        "success_ns": "server, total", "client_mean_ns": "client",
    }  # fmt: skip
    has_cpu_time = any(point.server_cpu for point in points)
    columns = (
        *load_columns(points),
        Column("requests", "requests", "count", _server_requests),
        *(Column(key, heading, "duration_ns", functools.partial(_server_time, key)) for key, heading in times.items()),
        Column("mean_batch", "mean batch", "number", lambda point: _cell(point.server and point.server.mean_batch, "{:.2f}")),
        *(
            (
                figure_column("server_cpu.time_per_request_ns", "cpu_time_per_request_ns"),
                Column("cpus", "CPUs", "number", lambda point: _cell(value_at(point, "server_cpu.cpus"), "{:.2f}")),
            )
            if has_cpu_time
            else ()
        ),
    )
    servers = [point.server for point in points if point.server]
    by_page = [server for server in servers if server.source == "metrics"]
    if by_page:
        note = (
            "Means per request from the server's page of metrics, over the window. Client is the mean service time in the window; the difference is "
            "what the page does not time."
        )
        missing = dict.fromkeys(STAGE_NAMES[stage] for server in by_page for stage in server.missing)
        if missing:
            note += (
                f" Not on the page: {', '.join(missing)}. If it has them under names that perfkit does not know, metrics.queue and so on in the "
                "scenario give them."
            )
    else:
        note = (
            "Means per request from the server's v2 statistics, over the whole load point with its warm-up. Client is the mean service time of "
            "the same requests; the difference is the network, parsing, and waiting before the server's own queue."
        )
    if has_cpu_time:
        note += " CPU time is that of all the server's processes in the window for each ok answer, and CPUs how many they kept busy."
    return load_point_table("server", "Server", columns, points if has_cpu_time or servers else (), note)


def server_times_table(points: Sequence[Point]) -> Table:
    """One row per load point and stage that the server's page of metrics times; no rows without such a page."""
    columns = (
        Column("stage", "stage", value=lambda row: STAGE_NAMES[row[1].stage]),
        Column("metric", "metric"),
        Column("count", "times", "count"),
        Column("mean_ns", "mean", "duration_ns", functools.partial(_part_time, "mean_ns")),
        *(Column(name, name, value=functools.partial(_bucket, name)) for name in ("p50", "p90", "p99")),
    )
    note = (
        "The times of each stage in the window by the server's page of metrics. A percentile is only known to lie between the bounds of one of the "
        "metric's buckets; – marks those without buckets, or with too few times."
    )
    return _parts_table("server_times", "Server's times", columns, points, "server.times", note)


def composing_models_table(points: Sequence[Point]) -> Table:
    """One row per load point and model of an ensemble's steps; no rows for other models."""
    times = {"queue_ns": "queue", "compute_input_ns": "input", "compute_infer_ns": "infer", "compute_output_ns": "output"}
    columns = (
        Column("model", "model", value=lambda row: row[1].name),
        Column("versions", "version", value=lambda row: ", ".join(row[1].versions)),
        Column("requests", "requests", "count"),
        *(Column(key, heading, "duration_ns", functools.partial(_part_time, key)) for key, heading in times.items()),
        Column("mean_batch", "mean batch", "number", lambda row: _cell(row[1].mean_batch, "{:.2f}")),
    )
    note = "Means per request of the models that the ensemble runs, from their v2 statistics; other requests for them count, too."
    return _parts_table("composing_models", "Composing models", columns, points, "server.composing_models", note)


def replicas_table(points: Sequence[Point]) -> Table:
    """One row per load point and address; no rows for a target with a single one."""
    columns = (
        Column("address", "address"), Column("requests", "requests", "count"), Column("share", "share", "share", _share_of_requests),
        Column("errors", "errors", "count"), Column("throughput_per_s", "throughput", "rate_per_s"), *_part_percentiles(),
        Column("connections", "connections", "count"),
    )  # fmt: skip
    note = f"The requests of each address; {times_caption(points)}. Connections are those of the whole load point, with its warm-up."
    return _parts_table("replicas", "Addresses", columns, points, "replicas", note)


def machines_table(points: Sequence[Point]) -> Table:
    """One row per load point and machine of a fleet; no rows without one."""
    columns = (
        Column("machine", "machine", value=lambda row: row[1].name), Column("workers", "workers", "count"), Column("requests", "requests", "count"),
        Column("errors", "errors", "count"), Column("throughput_per_s", "throughput", "rate_per_s"), *_part_percentiles(),
        Column("start_delay_p99_ns", "start delay p99", "duration_ns"), Column("cpu_share", "busiest core", "share"),
        Column("clock_bound_ns", "clock within", "duration_ns"),
    )  # fmt: skip
    note = f"What each machine of the fleet sent; {times_caption(points)}. Its clock: how far its arrivals can have been from the common schedule."
    return _parts_table("machines", "Machines", columns, points, "machines", note)


def connections_table(points: Sequence[Point]) -> Table:
    """The connections of load points that rotate them; no rows otherwise."""
    columns = (
        *load_columns(points),
        Column("opened", "opened", "count", lambda point: point.connections.opened),
        Column("rotated", "rotated", "count", lambda point: point.connections.rotated),
        Column("reconnects", "replaced after a loss", "count", lambda point: point.connections.reconnects),
        *percentile_columns(
            next(one for one in figures_of(Point, "connections") if one.kind is Distribution),
            "connect",
            ("p50", "p99"),
            few="",
            none="",
            joint=", ",
        ),
    )
    note = "Connections of the whole load point, with its warm-up. The time to connect is not part of a service time."
    return load_point_table(
        "connections", "Connections", columns, points if any(point.connections.rotated for point in points) else (), note
    )


def gpu_table(points: Sequence[Point]) -> Table:
    """One row per load point and GPU."""

    def figure(key: str, heading: str, kind: Kind, form: str) -> Column:
        return Column(key, heading, kind, lambda row: _cell(getattr(row[1], key), form))

    columns = (
        Column("gpu", "GPU", value=lambda row: f"{row[1].name or 'GPU'} {row[1].uuid[:12]}"),
        Column("source", "source", value=lambda row: {"nvml": "driver", "metrics": "metrics"}[row[1].source]),
        figure("utilization_mean", "busy", "share", "{:.0%}"),
        Column("memory_used_max_bytes", "memory", "number", _gpu_memory),
        figure("power_mean_w", "power", "power_w", "{:.0f} W"),
        Column("energy_j", "energy", "energy_j", _gpu_energy),
        figure("sm_clock_mean_mhz", "SM clock", "number", "{:,.0f} MHz"),
        figure("throttled_share", "throttled", "share", "{:.0%}"),
        Column("energy_per_inference_j", "energy per inference", "energy_j", lambda row: row[0].energy_per_inference_j),
    )
    return _parts_table("gpus", "GPUs", columns, points, "gpus")


def _parts_table(name: str, title: str, columns: Sequence[Column], points: Sequence[Point], parts: str, note: str = "") -> Table:
    """One row per load point and part of it, such as an address; a column's function gets both, one without is the part's attribute."""
    rows = tuple(
        (point.title, *(getattr(part, one.key) if one.value is None else one.value((point, part)) for one in columns))
        for point in points
        for part in value_at(point, parts) or ()
    )
    return Table(name, title, (Column("load_point", "load point"), *columns), rows, note)


_Row = tuple[Point, Any]
"""A load point and a part of it."""


def _part_percentiles() -> list[Column]:
    def cell(name: str, row: _Row) -> Cell:
        return interval_cell(getattr(row[1].times_ns, name), row[1].intervals.get(name))

    return [Column(f"{name}_ns", name, "duration_ns", functools.partial(cell, name)) for name in ("p50", "p99")]


def _part_time(key: str, row: _Row) -> Cell:
    return _time(getattr(row[1], key))


def _bucket(name: str, row: _Row) -> str:
    """The ends of a percentile's bucket: `5.00 to 10.0 ms`."""
    if name not in row[1].percentiles_ns:
        return MISSING
    low_ns, high_ns = row[1].percentiles_ns[name]
    if high_ns is None:
        return f"above {format_duration_ns(low_ns)}"
    return f"{format_duration_ns(low_ns)} to {format_duration_ns(high_ns)}" if low_ns else f"up to {format_duration_ns(high_ns)}"


def _share_of_requests(row: _Row) -> Cell:
    sent = row[0].requests.sent
    return _cell(row[1].requests / sent if sent else None, "{:.1%}")


def _gpu_memory(row: _Row) -> Cell:
    used = row[1].memory_used_max_bytes
    return _cell(None if used is None else used / _GIB, "{:.1f} GiB")


def _gpu_energy(row: _Row) -> Cell:
    return _cell(row[1].energy_j, "{:,.0f} J" + " (from power)" * (row[1].energy_source == "power"))


def _server_requests(point: Point) -> Cell:
    if point.server is None:
        return Cell(None, note="the server reported no statistics for this load point: the warnings say why")
    answers = f"perfkit counted {point.server.client_requests:,} answers"
    return Cell(
        point.server.requests,
        note=f"{answers}, including the warm-up's" if point.server.source == "statistics" else f"{answers} in the window",
    )


def _server_time(key: str, point: Point) -> Cell:
    return _time(getattr(point.server, key, None))


def _time(value_ns: float | None) -> Cell:
    return Cell(value_ns, "0" if value_ns == 0 else None)


def _cell(value: float | None, form: str) -> Cell:
    return Cell(value, MISSING if value is None else form.format(value))
