"""The tables of what served a run: the server's own figures, its models, addresses and connections, and GPUs."""

import functools
from collections.abc import Sequence

from perfkit.figures.declaration import figures_of, value_at
from perfkit.report.figure_tables import figure_column, percentile_columns
from perfkit.report.load_points import interval_cell, load_columns, load_point_table, times_caption
from perfkit.report.table import MISSING, Cell, Column, Table
from perfkit.result.distribution import Distribution
from perfkit.result.model import Point

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
    note = (
        "Means per request from the server's v2 statistics, over the whole load point with its warm-up. Client is the mean service time of "
        "the same requests; the difference is the network, parsing, and waiting before the server's own queue."
    )
    if has_cpu_time:
        note += " CPU time is that of all the server's processes in the window for each ok answer, and CPUs how many they kept busy."
    return load_point_table("server", "Server", columns, points if has_cpu_time or any(point.server for point in points) else (), note)


def composing_models_table(points: Sequence[Point]) -> Table:
    """One row per load point and model of an ensemble's steps; no rows for other models."""
    times = {"queue_ns": "queue", "compute_input_ns": "input", "compute_infer_ns": "infer", "compute_output_ns": "output"}
    columns = (
        Column("load_point", "load point"), Column("model", "model"), Column("versions", "version"), Column("requests", "requests", "count"),
        *(Column(key, heading, "duration_ns") for key, heading in times.items()), Column("mean_batch", "mean batch", "number"),
    )  # fmt: skip
    rows = tuple(
        (
            point.title,
            model.name,
            ", ".join(model.versions),
            model.requests,
            *(_time(getattr(model, key)) for key in times),
            _cell(model.mean_batch, "{:.2f}"),
        )
        for point in points
        if point.server
        for model in point.server.composing_models
    )
    note = "Means per request of the models that the ensemble runs, from their v2 statistics; other requests for them count, too."
    return Table("composing_models", "Composing models", columns, rows, note)


def replicas_table(points: Sequence[Point]) -> Table:
    """One row per load point and address; no rows for a target with a single one."""
    columns = (
        Column("load_point", "load point"), Column("address", "address"), Column("requests", "requests", "count"),
        Column("share", "share", "share"), Column("errors", "errors", "count"), Column("throughput_per_s", "throughput", "rate_per_s"),
        Column("p50_ns", "p50", "duration_ns"), Column("p99_ns", "p99", "duration_ns"), Column("connections", "connections", "count"),
    )  # fmt: skip
    rows = tuple(
        (
            point.title,
            one.address,
            one.requests,
            _cell(one.requests / point.requests.sent if point.requests.sent else None, "{:.1%}"),
            one.errors,
            one.throughput_per_s,
            *(interval_cell(getattr(one.times_ns, name), one.intervals.get(name)) for name in ("p50", "p99")),
            one.connections,
        )
        for point in points
        for one in point.replicas or ()
    )
    note = f"The requests of each address; {times_caption(points)}. Connections are those of the whole load point, with its warm-up."
    return Table("replicas", "Addresses", columns, rows, note)


def machines_table(points: Sequence[Point]) -> Table:
    """One row per load point and machine of a fleet; no rows without one."""
    columns = (
        Column("load_point", "load point"), Column("machine", "machine"), Column("workers", "workers", "count"), Column("requests", "requests", "count"),
        Column("errors", "errors", "count"), Column("throughput_per_s", "throughput", "rate_per_s"), Column("p50_ns", "p50", "duration_ns"),
        Column("p99_ns", "p99", "duration_ns"), Column("start_delay_p99_ns", "start delay p99", "duration_ns"), Column("cpu_share", "busiest core", "share"),
        Column("clock_bound_ns", "clock within", "duration_ns"),
    )  # fmt: skip
    rows = tuple(
        (
            point.title,
            one.name,
            one.workers,
            one.requests,
            one.errors,
            one.throughput_per_s,
            *(interval_cell(getattr(one.times_ns, name), one.intervals.get(name)) for name in ("p50", "p99")),
            one.start_delay_p99_ns,
            one.cpu_share,
            one.clock_bound_ns,
        )
        for point in points
        for one in point.machines or ()
    )
    note = f"What each machine of the fleet sent; {times_caption(points)}. Its clock: how far its arrivals can have been from the common schedule."
    return Table("machines", "Machines", columns, rows, note)


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
    columns = (
        Column("load_point", "load point"), Column("gpu", "GPU"), Column("source", "source"), Column("utilization_mean", "busy", "share"),
        Column("memory_used_max_bytes", "memory", "number"), Column("power_mean_w", "power", "power_w"),
        Column("energy_j", "energy", "energy_j"), Column("sm_clock_mean_mhz", "SM clock", "number"),
        Column("throttled_share", "throttled", "share"), Column("energy_per_inference_j", "energy per inference", "energy_j"),
    )  # fmt: skip
    rows = tuple(
        (
            point.title,
            f"{gpu.name or 'GPU'} {gpu.uuid[:12]}",
            {"nvml": "driver", "metrics": "metrics"}[gpu.source],
            _cell(gpu.utilization_mean, "{:.0%}"),
            _cell(None if gpu.memory_used_max_bytes is None else gpu.memory_used_max_bytes / _GIB, "{:.1f} GiB"),
            _cell(gpu.power_mean_w, "{:.0f} W"),
            _cell(gpu.energy_j, "{:,.0f} J" + (" (from power)" if gpu.energy_source == "power" else "")),
            _cell(gpu.sm_clock_mean_mhz, "{:,.0f} MHz"),
            _cell(gpu.throttled_share, "{:.0%}"),
            point.energy_per_inference_j,
        )
        for point in points
        for gpu in point.gpus
    )
    return Table("gpus", "GPUs", columns, rows)


def _server_requests(point: Point) -> Cell:
    if point.server is None:
        return Cell(None, note="the server reported no statistics for this load point: the warnings say why")
    return Cell(point.server.requests, note=f"perfkit counted {point.server.client_requests:,} answers, including the warm-up's")


def _server_time(key: str, point: Point) -> Cell:
    return _time(getattr(point.server, key, None))


def _time(value_ns: float | None) -> Cell:
    return Cell(value_ns, "0" if value_ns == 0 else None)


def _cell(value: float | None, form: str) -> Cell:
    return Cell(value, MISSING if value is None else form.format(value))
