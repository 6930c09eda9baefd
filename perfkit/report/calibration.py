"""A calibration as people read it."""

from collections.abc import Iterator, Mapping
from typing import Any

from perfkit.calibration.model import Calibration, Cost, parse_calibration
from perfkit.result.model import Distribution
from perfkit.units import format_duration_ns, format_rate_per_s


def read_kept(generator: Mapping[str, Any]) -> Calibration | None:
    """The calibration in a result's `environment.generator`; None without one, and where this perfkit cannot read it."""
    try:
        return parse_calibration(generator.get("calibration"))
    except ValueError:
        return None


def calibration_facts(calibration: Calibration) -> Iterator[tuple[str, str]]:
    """Names and values, for a page."""
    for cost in calibration.costs:
        cpu, overhead = format_duration_ns(cost.cpu_ns_per_request), format_duration_ns(cost.overhead_p50_ns)
        ceiling = format_rate_per_s(cost.ceiling_per_s)
        yield f"{cost.protocol}, {size(cost)}", f"at most {ceiling} a worker: {cpu} of CPU time a request; overhead in p50 {overhead}"
    yield f"start delay at {format_rate_per_s(calibration.start_delay_rate_per_s)}", spread(calibration.start_delay_ns)
    yield "timer late by", spread(calibration.timer_late_ns)
    yield "measured at", calibration.measured_at


def ceilings(calibration: Calibration) -> str:
    """The ceilings in a sentence."""
    listed = "; ".join(f"{cost.protocol}, {size(cost)}: {format_rate_per_s(cost.ceiling_per_s)}" for cost in calibration.costs)
    return f"Calibrated ceiling of one worker in a closed loop: {listed}."


def size(cost: Cost) -> str:
    """The tensors' size."""
    return f"{cost.tensor_bytes:,} bytes"


def spread(found: Distribution) -> str:
    """A distribution in a few figures."""
    shown = (("p50", found.p50), ("p99", found.p99), ("max", found.max))
    return ", ".join(f"{name} {'–' if value is None else format_duration_ns(value)}" for name, value in shown)
