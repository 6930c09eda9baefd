"""The tables of a run: load points, repetitions, server, GPUs, warnings and failed requests."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence

from perfkit.report.table import MISSING, Cell, Column, Table
from perfkit.result.distribution import QUANTILES
from perfkit.result.model import Point, Requests
from perfkit.stats.sample_size import is_withheld
from perfkit.stats.validity import INVALIDATING
from perfkit.units import NS_PER_S, format_duration_ns

TIMES = {"service time": "service times, finished − started", "response time": "response times, finished − intended start"}
"""The definition of each kind of time, for captions."""
_GIB = 2.0**30
_OUTCOMES = tuple(name for name in Requests.model_fields if name not in ("scheduled", "sent", "ok"))
_NO_ANSWERS = "no request of this load point was answered"


REMEDIES = {
    "few_samples": "measure.duration or --duration, measure.repetitions",
    "no_samples": "measure.duration or --duration, target.timeout",
    "censored": "target.timeout, measure.drain",
    "not_steady": "measure.warmup, measure.duration or --duration",
    "littles_law": "measure.duration or --duration",
    "overloaded": "load.open.rate or --rate",
    "dropped": "load.open.max_in_flight",
    "generator_bound": "measure.workers, measure.cpus",
    "behind_schedule": "measure.workers, load.open.rate or --rate, load.open.max_in_flight",
    "late_starts": "measure.workers, measure.cpus, load.open.rate or --rate",
    "generator_stopped": "measure.cpus, measure.duration or --duration",
    "generator_paused": "measure.cpus",
    "burst": "measure.workers, measure.cpus",
    "shared_cpus": "measure.cpus, server.cpus",
    "busy_machine": "measure.cpus; perfkit doctor",
    "connections_limited": "target.max_connections",
    "file_limit": "ulimit -n, measure.workers",
    "cache_hits": "workload.variants",
    "imbalanced": "target.balance, target.resolve, target.connections",
    "no_metadata": "workload.inputs",
    "invalid_output": "check.share",
    "few_gaps": "measure.duration or --duration, measure.repetitions",
    "metrics_missing": "metrics.names",
}
"""The scenario keys and `perfkit run` options that remedy a warning, by its code."""


@dataclasses.dataclass(frozen=True, slots=True)
class GroupedWarning:
    """The warnings of one kind, with the load points that they concern, in words."""

    code: str
    message: str
    """The message of the first load point; if others differ, it ends with the load points that its figures are of."""
    load_points: str
    remedy: str
    """The keys or options that remedy it; empty if none does."""

    @property
    def sentences(self) -> str:
        """The message and the remedy."""
        return f"{self.message} Remedy: {self.remedy}." if self.remedy else self.message


def summary_table(points: Sequence[Point]) -> Table:
    """The pooled load points with their figures, as the report shows them."""
    figures = (
        _THROUGHPUT,
        _INFERENCES,
        *_goodput(points),
        *_PERCENTILES.values(),
        _MAXIMUM,
        _ERRORS,
        *_wrong_answers(points),
        _CPU,
        _VALID,
    )
    note = "repetitions pooled. – marks a percentile with too few samples"
    return _table("summary", "Summary", (*load_columns(points), *figures), points, f"p50 to max are {_times(points)}, {note}.")


def terminal_table(points: Sequence[Point]) -> Table:
    """The pooled load points with the figures that fit on a terminal."""
    inferences = (_INFERENCES,) if any(point.inferences_per_s != point.throughput_per_s for point in points) else ()
    state = () if all(_state(point) == "ok" for point in points) else (Column("state", "state", "text", _state),)
    rates, ending = (_THROUGHPUT, *inferences, *_goodput(points)), (_ERRORS, *_wrong_answers(points), _SAMPLES, *state)
    columns = (*load_columns(points), *rates, *_PERCENTILES.values(), _MAXIMUM, *ending)
    return _table("summary", "Summary", columns, points, f"{_times(points)}; – marks percentiles with too few samples")


def repetitions_table(points: Sequence[Point]) -> Table:
    """Each repetition of each load point."""
    percentiles = (_PERCENTILES[name] for name in ("p50", "p90", "p99"))
    columns = (*load_columns(points), _REPETITION, _WINDOW, _SENT, _THROUGHPUT, *percentiles, _MAXIMUM, _ERRORS, _CPU, _VALID)
    note = "Each repetition by itself. The summary adds up their histograms and counts; it averages no percentiles."
    return _table("repetitions", "Repetitions", columns, points, note)


def server_table(points: Sequence[Point]) -> Table:
    """The server's own figures, means per request; no rows where it reported none."""
    times = {
        "queue_ns": "queue", "compute_input_ns": "input", "compute_infer_ns": "infer", "compute_output_ns": "output",
        "success_ns": "server, total", "client_mean_ns": "client",
    }  # fmt: skip
    columns = (
        *load_columns(points),
        Column("requests", "requests", "count", _server_requests),
        *(Column(key, heading, "duration_ns", functools.partial(_server_time, key)) for key, heading in times.items()),
        Column("mean_batch", "mean batch", "number", lambda point: _cell(point.server and point.server.mean_batch, "{:.2f}")),
    )
    note = (
        "Means per request from the server's v2 statistics, over the whole load point with its warm-up. Client is the mean service time of "
        "the same requests; the difference is the network, parsing, and waiting before the server's own queue."
    )
    return _table("server", "Server", columns, points if any(point.server for point in points) else (), note)


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
            *(_interval_cell(getattr(one.times_ns, name), one.intervals.get(name)) for name in ("p50", "p99")),
            one.connections,
        )
        for point in points
        for one in point.replicas or ()
    )
    note = f"The requests of each address; {_times(points)}. Connections are those of the whole load point, with its warm-up."
    return Table("replicas", "Addresses", columns, rows, note)


def connections_table(points: Sequence[Point]) -> Table:
    """The connections of load points that rotate them; no rows otherwise."""
    columns = (
        *load_columns(points),
        Column("opened", "opened", "count", lambda point: point.connections.opened),
        Column("rotated", "rotated", "count", lambda point: point.connections.rotated),
        Column("reconnects", "replaced after a loss", "count", lambda point: point.connections.reconnects),
        *(
            Column(f"connect_{name}_ns", f"connect time, {name}", "duration_ns", functools.partial(_connect_time, name))
            for name in ("p50", "p99")
        ),
    )
    note = "Connections of the whole load point, with its warm-up. The time to connect is not part of a service time."
    return _table("connections", "Connections", columns, points if any(point.connections.rotated for point in points) else (), note)


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


def warnings_table(points: Sequence[Point]) -> Table:
    """The warnings of each kind, with the load points that they concern."""
    texts = {"message": "message", "load_points": "load points", "remedy": "remedy"}
    columns = (Column("code", "warning", "code"), *(Column(key, heading, "prose") for key, heading in texts.items()))
    return Table.of("warnings", "Warnings", columns, grouped_warnings(points))


def failures_table(points: Sequence[Point]) -> Table:
    """Failed requests by load point, outcome, status and message."""
    columns = (
        Column("load_point", "load point"), Column("outcome", "outcome"), Column("status", "status"),
        Column("requests", "requests", "count"), Column("cause", "cause"), Column("message", "message", "prose"),
    )  # fmt: skip
    rows = []
    for point in points:
        for outcome in _OUTCOMES:
            failures, name = [one for one in point.failures if one.outcome == outcome], outcome.replace("_", " ")
            for one in failures:
                message = "other messages" if one.message is None else one.message or None
                rows.append((point.title, name, one.status, one.count, one.cause and one.cause.replace("_", " "), message))
            if (count := getattr(point.requests, outcome)) and not failures:  # dropped arrivals, and results of earlier versions
                rows.append((point.title, name, None, count, None, None))
    return Table("failures", "Failed requests", columns, tuple(rows))


def grouped_warnings(points: Sequence[Point]) -> list[GroupedWarning]:
    """The warnings of each kind, with the load points that they concern.

    `busy_machine` comes first, then what makes a point invalid, then the others.
    """
    grouped: dict[str, dict[str, list[Point]]] = {}
    for point in points:
        for warning in dict.fromkeys(point.warnings):
            grouped.setdefault(warning.code, {}).setdefault(warning.message, []).append(point)
    ordered = sorted(grouped.items(), key=lambda item: 0 if item[0] == "busy_machine" else 1 if item[0] in INVALIDATING else 2)
    return [_grouped_warning(code, messages, points) for code, messages in ordered]


def _grouped_warning(code: str, messages: Mapping[str, Sequence[Point]], points: Sequence[Point]) -> GroupedWarning:
    concerned = [point for point in points if any(point in those for those in messages.values())]
    message, example = next(iter(messages)), next(iter(messages.values()))
    if len(messages) > 1:
        message = f"{message} (These are the figures of {_load_points(example, points)}; those of the others differ.)"
    return GroupedWarning(code, message, _load_points(concerned, points), REMEDIES.get(code, ""))


def _load_points(concerned: Sequence[Point], points: Sequence[Point]) -> str:
    """Load points by protocol: `http, concurrency 1, 4; grpc, concurrency 8`."""
    if len(concerned) == len(points) > 1:
        return "all load points"
    by_protocol: dict[str, list[str]] = {}
    is_mix = any(point.workload is not None for point in points)
    for point in concerned:
        by_protocol.setdefault(_workload(point) if is_mix else point.protocol, []).append(point.load.amount)
    kind = "" if points[0].load.kind == "open" else f"{points[0].load.quantity} "
    return "; ".join(f"{protocol}, {kind}{', '.join(amounts)}" for protocol, amounts in by_protocol.items())


def _table(name: str, title: str, columns: Sequence[Column], points: Sequence[Point], note: str) -> Table:
    return Table.of(name, title, columns, points, note, ("" if point.valid else "invalid" for point in points))


def load_columns(points: Sequence[Point]) -> tuple[Column, ...]:
    """The columns that name a load point."""
    quantities = {point.load.quantity for point in points} or {"concurrency"}
    level = Column(
        "level", quantities.pop() if len(quantities) == 1 else "load", "figure", lambda point: Cell(point.load.level, point.load.amount)
    )
    workload = (Column("workload", "workload", value=_workload),) if any(point.workload is not None for point in points) else ()
    return (*workload, Column("protocol", "protocol"), level)


def _workload(point: Point) -> str:
    return "all" if point.workload is None else f"{point.workload}{', alone' * point.alone}"


def _goodput(points: Sequence[Point]) -> tuple[Column, ...]:
    return (_GOODPUT,) if any(point.goodput_per_s is not None for point in points) else ()


def _wrong_answers(points: Sequence[Point]) -> tuple[Column, ...]:
    return (_WRONG_ANSWERS,) if any(point.wrong_answer_rate for point in points) else ()


def _wrong_answer_cell(point: Point) -> Cell:
    if point.wrong_answer_interval is None:
        return Cell(None, note="no answer was checked")
    low, high = point.wrong_answer_interval
    return Cell(point.wrong_answer_rate, note=f"of {point.checked:,} checked answers; 95% interval: {low:.2%} to {high:.2%}")


def _percentile(name: str, point: Point) -> Cell:
    """The percentile with its interval, or the reason why it is withheld."""
    times, quantile = point.times, QUANTILES[name]
    value_ns = getattr(times, name)
    if not times.count:
        return Cell(None, note=_NO_ANSWERS)
    if value_ns is None:
        needs = f": needs at least {round(1 / (1 - quantile)):,} samples, this point has {times.count:,}"
        return Cell(None, note=f"withheld{needs if is_withheld(quantile, times.count) else ''}")
    return _interval_cell(value_ns, point.intervals.get(name))


def _interval_cell(value_ns: int | None, interval: tuple[float, float | None] | None) -> Cell:
    """A percentile with its interval as a note."""
    low_ns, high_ns = interval or (None, None)
    high = "above" if high_ns is None else format_duration_ns(high_ns)
    return Cell(value_ns, note="" if low_ns is None else f"95% interval: {format_duration_ns(low_ns)} to {high}")


def _connect_time(name: str, point: Point) -> int | None:
    value_ns: int | None = getattr(point.connections.connect_time_ns, name, None)
    return value_ns


def _state(point: Point) -> str:
    """A load point's state in one or two words, such as `ok`, `overloaded` or `NOT VALID`."""
    codes = {warning.code for warning in point.warnings}
    if not point.valid:
        return "NOT VALID"
    if "overloaded" in codes or "not_steady" in codes:
        return "overloaded" if "overloaded" in codes else "not steady"
    return {"violated": "SLO missed", "inconclusive": "SLO unclear"}.get(point.slo.verdict, "ok") if point.slo else "ok"


def _errors(point: Point) -> Cell:
    failed, scheduled = point.requests.scheduled - point.requests.ok, point.requests.scheduled
    return Cell(point.error_rate, note=f"{failed:,} of {scheduled:,} requests")


def _cpu(point: Point) -> Cell:
    share = point.generator.cpu_share
    return Cell(share, f"{share:.{0 if share >= 0.1 else 1}%}", "of one core")


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


def _times(points: Sequence[Point]) -> str:
    return TIMES[points[0].times_name] if points else ""


_THROUGHPUT = Column("throughput_per_s", "throughput", "rate_per_s")
_INFERENCES = Column("inferences_per_s", "inferences", "rate_per_s")
_GOODPUT = Column(
    "goodput_per_s", "goodput", "rate_per_s", lambda point: Cell(point.goodput_per_s, note="ok answers per second within the SLO's limit on times")
)  # fmt: skip
_PERCENTILES = {
    name: Column(f"{name}_ns", name.replace("_", "."), "duration_ns", functools.partial(_percentile, name))
    for name in ("p50", "p90", "p95", "p99", "p99_9")
}
_MAXIMUM = Column(
    "max_ns", "max", "duration_ns", lambda point: Cell(point.times.max) if point.times.count else Cell(None, note=_NO_ANSWERS)
)
_ERRORS = Column("error_rate", "errors", "error_rate", _errors)
_WRONG_ANSWERS = Column("wrong_answer_rate", "wrong answers", "error_rate", _wrong_answer_cell)
_CPU = Column("cpu_share", "generator CPU", "share", _cpu)
_VALID = Column("valid", "valid", "yes_no")
_SAMPLES = Column("samples", "samples", "count", lambda point: point.times.count)
_REPETITION = Column("repetition", "repetition", "count", lambda point: None if point.repetition is None else point.repetition + 1)
_WINDOW = Column("duration_ns", "window", "duration_ns", lambda point: point.duration_s * NS_PER_S)
_SENT = Column("sent", "sent", "count", lambda point: point.requests.sent)
