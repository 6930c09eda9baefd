"""The environment of a run as groups of facts, with the calibration of its machine, which `perfkit calibrate` prints, too."""

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from perfkit.calibration.model import Calibration, Cost, parse_calibration
from perfkit.report.table import MISSING, Column, Table
from perfkit.report.terminal import fill, fitted_text, terminal_width
from perfkit.result.json_file import as_mapping
from perfkit.result.model import Point
from perfkit.text import write_styled
from perfkit.units import NS_PER_S, format_bytes, format_duration_ns, format_rate_per_s

_Group = tuple[str, tuple[tuple[str, str], ...]]
_TITLES = {
    "generator": "Load generator",
    "target": "Target",
    "bundled_server": "Bundled server",
    "command_server": "Server, started by a command",
    "telemetry": "Telemetry",
    "gpus": "GPUs",
}
_SERVERS = ("bundled_server", "command_server")


def environment_groups(environment: Mapping[str, Any]) -> Iterator[_Group]:
    """Each group's title, and its names and values in words; whatever a result stores is shown, known or not."""
    for key, value in environment.items():
        facts = value if isinstance(value, Mapping) else {key: value}
        own = {name: fact for name, fact in facts.items() if name not in (*_SERVERS, "calibration")}
        yield _TITLES.get(key, key), tuple(_facts(own))
        if calibration := stored_calibration(facts):
            yield "Calibration", tuple(calibration_facts(calibration))
        for kind in _SERVERS:
            if server := facts.get(kind):
                yield from _server_groups(_TITLES[kind], server if isinstance(server, Mapping) else {"description": server})


def _server_groups(title: str, server: Mapping[str, Any]) -> Iterator[_Group]:
    """The server, how it executes ONNX models, and what it chose and prepared for each of them."""
    onnx = as_mapping(server.get("onnx"))
    models = as_mapping(onnx.get("models"))
    shown = {name: fact for name, fact in server.items() if name != "event" and not (name == "onnx" and onnx)}
    yield title, tuple(_facts(shown))
    if options := {name: fact for name, fact in onnx.items() if not (name == "models" and models)}:
        yield "Execution of ONNX models", tuple(_facts(options))
    for name, chosen in models.items():
        yield f"Execution of {name}", tuple(_facts(chosen if isinstance(chosen, Mapping) else {"description": chosen}))


def _facts(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, value in facts.items():
        label, text = _fact(name, value)
        yield label.replace("_", " "), text


def _fact(name: str, value: object) -> tuple[str, str]:
    """The name without its unit, and the value with it."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        if name.endswith("_bytes"):
            return name.removesuffix("_bytes"), format_bytes(value)
        if name.endswith("_s") and not name.endswith("_per_s"):
            return name.removesuffix("_s"), format_duration_ns(value * NS_PER_S)
    return name, _in_words(value)


def _in_words(value: object, *, is_nested: bool = False) -> str:
    if isinstance(value, Mapping):
        parts = (
            _fact(str(name), part) if not isinstance(part, Mapping) else (name, _in_words(part, is_nested=True))
            for name, part in value.items()
        )
        text = ", ".join(f"{name} {part}" for name, part in parts)
        return f"({text})" if is_nested else text or MISSING
    if isinstance(value, list | tuple):
        if value and all(isinstance(part, int) and not isinstance(part, bool) for part in value):
            return _ranges(value)
        separator = "; " if any(isinstance(part, Mapping) for part in value) else ", "
        return separator.join(map(_in_words, value)) or MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    return MISSING if value in (None, "") else str(value)


def _ranges(numbers: Sequence[int]) -> str:
    """Whole numbers in their order, such as those of CPUs: `0–3, 8`."""
    grouped = itertools.groupby(enumerate(numbers), lambda numbered: numbered[1] - numbered[0])
    runs = [[number for _, number in group] for _, group in grouped]
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


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
        yield name, ", ".join(f"{percentile} {format_duration_ns(value)}" for percentile, value in values.items() if value is not None)
