"""The tables of a run's load points: the summary, the repetitions and the failed requests."""

import dataclasses
import functools
from collections.abc import Sequence

from perfkit.report.load_points import interval_cell, load_columns, load_point_table, times_caption
from perfkit.report.point_state import OK, point_state
from perfkit.report.table import Cell, Column, Table, range_cell
from perfkit.result.counts import Requests
from perfkit.result.distribution import QUANTILES
from perfkit.result.model import Point
from perfkit.stats.percentiles import is_withheld
from perfkit.units import NS_PER_S, format_duration_ns

_OUTCOMES = tuple(name for name in Requests.model_fields if name not in ("scheduled", "sent", "ok", "abandoned", "answered_early"))
_NO_ANSWERS = "no request of this load point was answered"


def summary_table(points: Sequence[Point], *, has_gpu: bool = False) -> Table:
    """The pooled load points with their figures, as the report shows them; `has_gpu` adds those of GPUs, as far as there are any."""
    percentiles = [dataclasses.replace(column, is_minor=name not in ("p50", "p99")) for name, column in _PERCENTILES.items()]
    figures = (
        _THROUGHPUT,
        *(_gpu_figures(points) if has_gpu else _own_inferences(points)),
        *_goodput(points),
        *percentiles,
        dataclasses.replace(_MAXIMUM, is_minor=True),
        _ERRORS,
        *_given_up(points),
        *_retried(points),
        *_wrong_answers(points),
        dataclasses.replace(_CPU, is_minor=True),
        *_states(points),
    )
    note = "repetitions pooled. – marks a percentile with too few samples"
    return load_point_table(
        "summary", "Summary", (*load_columns(points), *figures), points, f"p50 to max are {times_caption(points)}, {note}."
    )


def terminal_table(points: Sequence[Point]) -> Table:
    """The pooled load points with the figures that fit on a terminal, the server's own means among them."""
    rates = (_THROUGHPUT, *_own_inferences(points), *_goodput(points))
    server = [column for column in _SERVER_MEANS if any(column.value_of(point) is not None for point in points)]
    ending = (_ERRORS, *_given_up(points), *_retried(points), *_wrong_answers(points), *server, _SAMPLES, *_states(points))
    columns = (*load_columns(points), *rates, *_PERCENTILES.values(), _MAXIMUM, *ending)
    withheld = any(getattr(point.times, name) is None for point in points for name in _PERCENTILES)
    notes = [times_caption(points), *(["server: its own means"] if server else []), *(["–: too few samples"] if withheld else [])]
    return load_point_table("summary", "Summary", columns, points, "; ".join(notes))


def repetitions_table(points: Sequence[Point]) -> Table:
    """Each repetition of each load point."""
    percentiles = (_PERCENTILES[name] for name in ("p50", "p90", "p99"))
    columns = (*load_columns(points), _REPETITION, _WINDOW, _SENT, _THROUGHPUT, *percentiles, _MAXIMUM, _ERRORS, _CPU, _VALID)
    note = "Each repetition by itself. The summary adds up their histograms and counts; it averages no percentiles."
    return load_point_table("repetitions", "Repetitions", columns, points, note)


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
            if (count := getattr(point.requests, outcome)) and not failures:  # dropped arrivals
                rows.append((point.title, name, None, count, None, None))
    return Table("failures", "Failed requests", columns, tuple(rows))


def _gpu_figures(points: Sequence[Point]) -> tuple[Column, ...]:
    """What stands beside throughput where a GPU served; inferences only if they differ, since the table is wide."""
    busy = (_GPU_BUSY,) if any(map(_gpu_busy, points)) else ()
    energy = (_ENERGY,) if any(point.energy_per_inference_j is not None for point in points) else ()
    return (*_own_inferences(points), *busy, *energy)


def _own_inferences(points: Sequence[Point]) -> tuple[Column, ...]:
    return (_INFERENCES,) if any(point.inferences_per_s != point.throughput_per_s for point in points) else ()


def _gpu_busy(point: Point) -> Cell | None:
    """The utilisation of the GPUs that the target may use, from the least to the most busy one."""
    shares = [gpu.utilization_mean for gpu in point.server_gpus if gpu.utilization_mean is not None]
    return range_cell(shares) if shares else None


def _goodput(points: Sequence[Point]) -> tuple[Column, ...]:
    return (_GOODPUT,) if any(point.goodput_per_s is not None for point in points) else ()


def _given_up(points: Sequence[Point]) -> tuple[Column, ...]:
    """Where requests were given up: how many, and the share of the server's work that nobody took the answers of."""
    return (_GIVEN_UP, _WASTED) if any(point.abandonment is not None for point in points) else ()


def _retried(points: Sequence[Point]) -> tuple[Column, ...]:
    return (_AMPLIFICATION,) if any(point.retries is not None for point in points) else ()


def _amplification_cell(point: Point) -> Cell:
    if (one := point.retries) is None:
        return Cell(None, note="failed requests were not sent again")
    causes = ", ".join(f"{count:,} after {cause}" for cause, count in one.by_cause.items())
    over = f"; the budget refused {one.over_budget:,} further ones" if one.over_budget else ""
    return Cell(
        one.amplification, note=f"{one.attempts:,} attempts, {one.retries:,} of them retries{f': {causes}' if causes else ''}{over}"
    )


def _wasted_cell(point: Point) -> Cell:
    one = point.abandonment
    if one is None:
        return Cell(None, note="no request was given up")
    if one.held_ns is None:
        return Cell(None, note=f"not known: {one.unknown}")
    what = "streams that were given up" if one.executed is None else f"{one.executed:,} requests whose answer nobody took"
    return Cell(
        one.wasted_share, note=f"the server worked on {what} for {format_duration_ns(one.held_ns)} after the client had left, on average"
    )


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
    return interval_cell(value_ns, point.intervals.get(name))


def _states(points: Sequence[Point]) -> tuple[Column, ...]:
    """The column of the load points' states, unless all are ok."""
    return () if all(_state(point) == OK for point in points) else (Column("state", "state", "text", _state),)


def _state(point: Point) -> str:
    codes = {warning.code for warning in point.warnings}
    return point_state(is_valid=point.valid, codes=codes, verdict=None if point.slo is None else point.slo.verdict)


def _errors(point: Point) -> Cell:
    failed, scheduled = point.requests.failed, point.requests.judged
    return Cell(point.error_rate, note=f"{failed:,} of {scheduled:,} requests")


def _server_mean(key: str, point: Point) -> Cell | None:
    value_ns = getattr(point.server, key, None)
    return None if value_ns is None else Cell(value_ns, "0" if value_ns == 0 else None)


def _cpu(point: Point) -> Cell:
    share = point.generator.cpu_share
    return Cell(share, f"{share:.{0 if share >= 0.1 else 1}%}", "of one core")


_THROUGHPUT = Column("throughput_per_s", "throughput", "rate_per_s")
_INFERENCES = Column("inferences_per_s", "inferences", "rate_per_s")
_GPU_BUSY = Column("gpu_busy", "GPU busy", "share", _gpu_busy)
_ENERGY = Column("energy_per_inference_j", "energy per inference", "energy_j")
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
_GIVEN_UP = Column("abandoned", "given up", "count", lambda point: point.requests.abandoned)
_WASTED = Column("wasted_share", "wasted", "error_rate", _wasted_cell)
_AMPLIFICATION = Column("amplification", "attempts per request", "number", _amplification_cell)
_WRONG_ANSWERS = Column("wrong_answer_rate", "wrong answers", "error_rate", _wrong_answer_cell)
_SERVER_MEANS = tuple(
    Column(f"server_{key}", f"server {name}", "duration_ns", functools.partial(_server_mean, key))
    for key, name in (("queue_ns", "queue"), ("compute_infer_ns", "infer"))
)
_CPU = Column("cpu_share", "generator CPU", "share", _cpu)
_VALID = Column("valid", "valid", "yes_no")
_SAMPLES = Column("samples", "samples", "count", lambda point: point.times.count)
_REPETITION = Column("repetition", "repetition", "count", lambda point: None if point.repetition is None else point.repetition + 1)
_WINDOW = Column("duration_ns", "window", "duration_ns", lambda point: point.duration_s * NS_PER_S)
_SENT = Column("sent", "sent", "count", lambda point: point.requests.sent)
