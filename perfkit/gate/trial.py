"""Before the pairs: both arms are tried once, and what holds for all runs is settled: warm-up, concurrency, rate."""

import dataclasses
import math
from collections.abc import Awaitable, Callable, Mapping

from perfkit.errors import MeasurementError
from perfkit.gate.arm import Arm, GateContext, RunningTarget, RunSpec, run_once, running_target
from perfkit.gate.folder import FixedSettings
from perfkit.gate.pairs import ArmName
from perfkit.measurement.load_points import max_connections
from perfkit.result.model import Result
from perfkit.scenario.load import ClosedLoadSpec, LoadSpec, closed_loop, poisson
from perfkit.scenario.model import Scenario
from perfkit.units import NS_PER_S, format_duration_ns, format_rate_per_s

STANDARD_WINDOW_NS = 20 * NS_PER_S
SHARE_OF_CAPACITY = 0.7
_GAIN, _MOST_CONCURRENCY = 1.05, 1024
_SEARCH_NS = 2 * NS_PER_S
_SAID = {"json_tensors", "connections_limited"}
_WARMUP_STEP_NS = NS_PER_S // 10


@dataclasses.dataclass(frozen=True, slots=True)
class Trial:
    """What was settled, and a result of each arm."""

    fixed: FixedSettings
    results: Mapping[ArmName, Result]
    notes: tuple[str, ...]
    """Sentences for what both trials say of the machine."""


def window_ns(scenario: Scenario) -> int | None:
    """The length of every run's window: what the scenario says, or twenty seconds."""
    if scenario.measure.requests is not None:
        return None
    return scenario.measure.duration_ns or STANDARD_WINDOW_NS


async def try_arms(arms: Mapping[ArmName, Arm], bench: GateContext, message: Callable[[str], None]) -> Trial:
    """Tries the baseline, then the candidate, each with the closed loop that saturates it, or the scenario's own load.

    A warm-up that the scenario leaves to be found is found here, in both arms, and the longer one is then used in every run:
    warm-ups of different lengths would favour an arm. Raises MeasurementError where the load generator cannot keep up.
    """
    scenario = bench.loaded.scenario
    is_standard = scenario.gate is not None and scenario.gate.profile == "standard"
    length_ns, load, concurrency = window_ns(scenario), scenario.load, None
    results: dict[ArmName, Result] = {}
    notes: list[str] = []
    for name in ("baseline", "candidate"):
        message(f"trial: {name}, {arms[name]}")
        async with running_target(arms[name], bench) as at:
            if is_standard and concurrency is None:
                concurrency = await _saturating(scenario, at, bench, message)
                load = closed_loop(concurrency)
            results[name] = await _tried(load, length_ns, at, bench, name)
        said = [warning for point in results[name].points for warning in point.warnings]
        notes += [warning.message for warning in said if warning.code in _SAID]
        notes += [warning.message for warning in said if warning.code == "shared_cpus" and arms[name].command is None]
        notes += [at.conflict] if at.conflict else []
    capacity_per_s = results["baseline"].points[0].throughput_per_s if is_standard else None
    rate_per_s = float(f"{SHARE_OF_CAPACITY * capacity_per_s:.3g}") if capacity_per_s else None
    fixed = FixedSettings(
        warmup_ns=_warmup_ns(scenario, results),
        window_ns=length_ns,
        concurrency=concurrency,
        rate_per_s=rate_per_s,
        capacity_per_s=capacity_per_s,
    )
    if capacity_per_s is not None and rate_per_s is not None:
        message(
            f"capacity of the baseline: {format_rate_per_s(capacity_per_s)} with {concurrency} in flight; rate {format_rate_per_s(rate_per_s)}"
        )
    message(f"warm-up of every run: {format_duration_ns(fixed.warmup_ns)}")
    return Trial(fixed, results, tuple(dict.fromkeys(notes)))


def run_specs(scenario: Scenario, fixed: FixedSettings, seed: int) -> tuple[RunSpec, ...]:
    """What every run of an arm does, one after the other. Raises MeasurementError where the baseline's capacity is not known."""
    loads: tuple[LoadSpec, ...] = (scenario.load,)
    if fixed.concurrency is not None:
        if fixed.rate_per_s is None:
            raise MeasurementError("the baseline answered nothing in its trial: measure longer (measure.duration)")
        loads = (closed_loop(fixed.concurrency), poisson(fixed.rate_per_s))
    return tuple(RunSpec(load, seed, fixed.warmup_ns, fixed.window_ns) for load in loads)


async def _saturating(scenario: Scenario, at: RunningTarget, bench: GateContext, message: Callable[[str], None]) -> int:
    """The scenario's highest concurrency, or what is found by doubling."""
    if isinstance(scenario.load, ClosedLoadSpec):
        return max(scenario.load.closed.concurrency)
    length_ns = window_ns(scenario)
    warmup_ns = min(scenario.warmup_ns, (length_ns or _SEARCH_NS) // 4)

    async def throughput_per_s(concurrency: int) -> float:
        stint = RunSpec(closed_loop(concurrency), warmup_ns=warmup_ns, window_ns=None if length_ns is None else min(_SEARCH_NS, length_ns))
        result = await run_once(stint, at, bench, f"trial-concurrency-{concurrency}")
        found = result.points[0].throughput_per_s
        message(f"trial: {concurrency} in flight, {format_rate_per_s(found)}")
        return found

    return await find_saturating(throughput_per_s, min(_MOST_CONCURRENCY, max_connections(scenario)))


async def find_saturating(throughput_per_s: Callable[[int], Awaitable[float]], most: int) -> int:
    """The first concurrency whose doubling from the one before brought less than 5 % more throughput; `most` at most."""
    concurrency, before_per_s = 1, 0.0
    while (found_per_s := await throughput_per_s(concurrency)) >= _GAIN * before_per_s and 2 * concurrency <= most:
        concurrency, before_per_s = 2 * concurrency, found_per_s
    return concurrency


async def _tried(load: LoadSpec, length_ns: int | None, at: RunningTarget, bench: GateContext, name: ArmName) -> Result:
    """One run; a second one where the load generator could not keep up in the first."""
    for attempt in range(2):
        result = await run_once(RunSpec(load, window_ns=length_ns), at, bench, f"trial-{name}-{attempt}")
        invalid = next((point for point in result.points if not point.valid), None)
        if invalid is None:
            return result
    messages = [warning.message for warning in invalid.warnings] if invalid else []
    raise MeasurementError(f"the {name}'s trial is not valid, twice, at {invalid.load.title if invalid else ''}: {' '.join(messages)}")


def _warmup_ns(scenario: Scenario, results: Mapping[ArmName, Result]) -> int:
    if scenario.measure.warmup_ns != "auto":
        return scenario.measure.warmup_ns
    longest_s = max(point.warmup_s for result in results.values() for point in result.points)
    return math.ceil(longest_s * NS_PER_S / _WARMUP_STEP_NS) * _WARMUP_STEP_NS
