"""A calibration as people read it: on the terminal, in a page's facts, and in a sentence."""

import sys
from collections.abc import Iterator, Mapping, Sequence

from perfkit.calibration.model import Calibration, Cost, parse_calibration
from perfkit.report.table import MISSING, Column, Table
from perfkit.report.terminal_table import fill, fitted_text, terminal_width
from perfkit.result.model import Point
from perfkit.text.terminal import write_styled
from perfkit.units import format_duration_ns, format_rate_per_s


def stored_calibration(generator: object) -> Calibration | None:
    """The calibration in a result's `environment.generator`; None without one that this perfkit can read."""
    try:
        return parse_calibration(generator.get("calibration")) if isinstance(generator, Mapping) else None
    except ValueError:
        return None


def calibration_table(calibration: Calibration) -> Table:
    """One row per protocol and tensor size."""
    columns = (
        Column("protocol", "protocol"),
        Column("tensors", "tensors", "figure", _size),
        Column("cpu_ns_per_request", "CPU per request", "duration_ns"),
        Column("ceiling_per_s", "ceiling of a worker", "rate_per_s"),
        Column("service_time_p50_ns", "p50", "duration_ns"),
        Column("bare_p50_ns", "bare p50", "duration_ns"),
        Column("overhead_p50_ns", "overhead", "duration_ns"),
    )
    note = "ceiling in a closed loop; overhead of p50 against a bare blocking socket, one request in flight"
    return Table.of("calibration", "Calibration", columns, calibration.costs, note)


def print_calibration(calibration: Calibration) -> None:
    """Prints the costs, the start delay and the timers' precision on stdout."""
    width = terminal_width()
    lines = [f"{name}: {percentiles}" for name, percentiles in _delays(calibration)]
    lines.append(f"resolution of the clock: {format_duration_ns(calibration.clock_resolution_ns)}")
    table = fitted_text(calibration_table(calibration), width, ("bare_p50_ns", "service_time_p50_ns"), "--format json has them")
    write_styled(sys.stdout, "\n".join(["", table, *(fill(line, width) for line in lines), ""]))
    sys.stdout.flush()


def calibration_facts(calibration: Calibration) -> Iterator[tuple[str, str]]:
    """Names and values for a page."""
    for cost in calibration.costs:
        cpu, overhead = format_duration_ns(cost.cpu_ns_per_request), format_duration_ns(cost.overhead_p50_ns)
        ceiling = f"at most {format_rate_per_s(cost.ceiling_per_s)} per worker"
        yield f"{cost.protocol}, {_size(cost)}", f"{ceiling}: {cpu} of CPU time per request; overhead of p50 {overhead}"
    yield from _delays(calibration)
    yield "measured at", calibration.measured_at


def ceilings_sentence(calibration: Calibration) -> str:
    """The ceiling of one worker for each protocol and tensor size."""
    ceilings = "; ".join(f"{cost.protocol}, {_size(cost)}: {format_rate_per_s(cost.ceiling_per_s)}" for cost in calibration.costs)
    return f"Calibrated ceiling of one worker in a closed loop: {ceilings}."


def transport_sentence(points: Sequence[Point]) -> str:
    """What transport and wake-up take of the service times, by protocol; empty if that is not known."""
    known = {point.protocol: point.generator.transport_ns for point in points if point.generator.transport_ns is not None}
    if not known:
        return ""
    shares = " and ".join(f"about {format_duration_ns(transport_ns)} ({protocol})" for protocol, transport_ns in known.items())
    return f"Of each service time, {shares} is transport and wake-up of both sides on this machine, as calibrated with a server that answers at once."


def _size(cost: Cost) -> str:
    return f"{cost.tensor_bytes:,} bytes"


def _delays(calibration: Calibration) -> Iterator[tuple[str, str]]:
    rate = format_rate_per_s(calibration.start_delay_rate_per_s)
    for name, distribution in ((f"start delay at {rate}", calibration.start_delay_ns), ("timers late by", calibration.timer_late_ns)):
        values = {percentile: getattr(distribution, percentile) for percentile in ("p50", "p99", "max")}
        texts = (f"{percentile} {MISSING if value is None else format_duration_ns(value)}" for percentile, value in values.items())
        yield name, ", ".join(texts)
