"""The trial of a gate: measures both arms once, and fixes warm-up, concurrency and rate for all pairs."""

import dataclasses
import math
from collections.abc import Awaitable, Callable, Mapping

from perfkit.errors import MeasurementError
from perfkit.gate.arm import Arm, GateContext, RunningTarget, RunSpec, measure_load, running_target
from perfkit.gate.folder import FixedSettings
from perfkit.gate.pairs import ARMS, ArmName
from perfkit.measurement.load_points import max_connections
from perfkit.result.model import Result
from perfkit.scenario.load import ClosedLoadSpec, LoadSpec, closed_loop, poisson
from perfkit.scenario.model import Scenario
from perfkit.units import NS_PER_S, format_duration_ns, format_rate_per_s

STANDARD_WINDOW_NS = 20 * NS_PER_S
SHARE_OF_CAPACITY = 0.7
_MINIMUM_GAIN, _MAXIMUM_CONCURRENCY = 1.05, 1024
_SEARCH_WINDOW_NS = 2 * NS_PER_S
_NOTED_WARNINGS = {"json_tensors", "connections_limited"}
_WARMUP_STEP_NS = NS_PER_S // 10


@dataclasses.dataclass(frozen=True, slots=True)
class Trial:
    """The outcome of a trial: the settings of all pairs, and one result per arm."""

    settings: FixedSettings
    results: Mapping[ArmName, Result]
    notes: tuple[str, ...]
    """The trial's warnings that hold for every run, as sentences."""


def window_ns(scenario: Scenario) -> int | None:
    """The length of every run's window: the scenario's, or 20 s; None if the scenario counts requests instead."""
    if scenario.measure.requests is not None:
        return None
    return scenario.measure.duration_ns or STANDARD_WINDOW_NS


async def run_trial(arms: Mapping[ArmName, Arm], context: GateContext, message: Callable[[str], None]) -> Trial:
    """Measure the baseline, then the candidate, each with the closed loop that saturates the baseline, or with the scenario's load.

    With `warmup: auto` each arm's warm-up is detected here, and the longer one is used in every run, since warm-ups of different
    lengths would favour one arm. Raises MeasurementError if the load generator cannot keep up.
    """
    scenario = context.loaded.scenario
    is_standard = scenario.gate is not None and scenario.gate.profile == "standard"
    length_ns, load, concurrency = window_ns(scenario), scenario.load, None
    results: dict[ArmName, Result] = {}
    notes: list[str] = []
    for name in ARMS:
        message(f"trial: {name}, {arms[name]}")
        async with running_target(arms[name], context) as target:
            if is_standard and concurrency is None:
                concurrency = await _saturating_concurrency(scenario, target, context, message)
                load = closed_loop(concurrency)
            results[name] = await _measure_valid(RunSpec(load, window_ns=length_ns), target, context, name)
        noted = _NOTED_WARNINGS if arms[name].command is not None else {*_NOTED_WARNINGS, "shared_cpus"}
        notes += [warning.message for point in results[name].points for warning in point.warnings if warning.code in noted]
        notes += [target.conflict] if target.conflict else []
    capacity_per_s = results["baseline"].points[0].throughput_per_s if is_standard else None
    rate_per_s = float(f"{SHARE_OF_CAPACITY * capacity_per_s:.3g}") if capacity_per_s else None
    if capacity_per_s is not None and rate_per_s is not None:
        capacity = f"{format_rate_per_s(capacity_per_s)} with {concurrency} requests in flight"
        message(f"capacity of the baseline: {capacity}; rate of the open loop: {format_rate_per_s(rate_per_s)}")
    warmup_ns = common_warmup_ns(scenario, results)
    message(f"warm-up of every run: {format_duration_ns(warmup_ns)}")
    settings = FixedSettings(
        warmup_ns=warmup_ns, window_ns=length_ns, concurrency=concurrency, rate_per_s=rate_per_s, capacity_per_s=capacity_per_s
    )
    return Trial(settings, results, tuple(dict.fromkeys(notes)))


def run_specs(scenario: Scenario, settings: FixedSettings, seed: int) -> tuple[RunSpec, ...]:
    """The loads of every run, in order. Raises MeasurementError if the baseline's capacity is unknown."""
    loads: tuple[LoadSpec, ...] = (scenario.load,)
    if settings.concurrency is not None:
        if settings.rate_per_s is None:
            raise MeasurementError("the baseline completed no request in its trial: measure longer (measure.duration)")
        loads = (closed_loop(settings.concurrency), poisson(settings.rate_per_s))
    return tuple(RunSpec(load, seed, settings.warmup_ns, settings.window_ns) for load in loads)


async def _saturating_concurrency(scenario: Scenario, target: RunningTarget, context: GateContext, message: Callable[[str], None]) -> int:
    """The scenario's highest concurrency, or for other loads the one that `find_saturating_concurrency` returns."""
    if isinstance(scenario.load, ClosedLoadSpec):
        return max(scenario.load.closed.concurrency)
    length_ns = window_ns(scenario)
    warmup_ns = min(scenario.warmup_ns, (length_ns or _SEARCH_WINDOW_NS) // 4)
    search_ns = None if length_ns is None else min(_SEARCH_WINDOW_NS, length_ns)

    async def throughput_per_s(concurrency: int) -> float:
        spec = RunSpec(closed_loop(concurrency), warmup_ns=warmup_ns, window_ns=search_ns)
        result = await measure_load(spec, target, context, f"trial-concurrency-{concurrency}")
        measured_per_s = result.points[0].throughput_per_s
        message(f"trial: {concurrency} in flight, {format_rate_per_s(measured_per_s)}")
        return measured_per_s

    return await find_saturating_concurrency(throughput_per_s, min(_MAXIMUM_CONCURRENCY, max_connections(scenario)))


async def find_saturating_concurrency(throughput_per_s: Callable[[int], Awaitable[float]], maximum: int) -> int:
    """Double the concurrency from 1 until the throughput rises by less than 5 %, or the next step exceeds `maximum`."""
    concurrency, previous_per_s = 1, 0.0
    while (measured_per_s := await throughput_per_s(concurrency)) >= _MINIMUM_GAIN * previous_per_s and 2 * concurrency <= maximum:
        concurrency, previous_per_s = 2 * concurrency, measured_per_s
    return concurrency


async def _measure_valid(spec: RunSpec, target: RunningTarget, context: GateContext, name: ArmName) -> Result:
    """One run; repeated once if the load generator could not keep up."""
    for attempt in range(2):
        result = await measure_load(spec, target, context, f"trial-{name}-{attempt}")
        invalid = next((point for point in result.points if not point.valid), None)
        if invalid is None:
            return result
    assert invalid is not None
    messages = " ".join(warning.message for warning in invalid.warnings)
    raise MeasurementError(f"the {name}'s trial was not valid in two attempts, at {invalid.load.title}: {messages}")


def common_warmup_ns(scenario: Scenario, results: Mapping[ArmName, Result]) -> int:
    """The warm-up of every run: the scenario's, or with `auto` the longer one of the arms, rounded up to 0.1 s."""
    if scenario.measure.warmup_ns != "auto":
        return scenario.measure.warmup_ns
    longest_s = max(point.warmup_s for result in results.values() for point in result.points)
    return math.ceil(longest_s * NS_PER_S / _WARMUP_STEP_NS) * _WARMUP_STEP_NS
