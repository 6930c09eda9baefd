"""The loads of a scenario, and the schedule of each: scenario keys to plans."""

import dataclasses
import pathlib
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from perfkit.errors import ScenarioError
from perfkit.load import arrivals
from perfkit.load.arrivals import Schedule, Segment, Trace
from perfkit.load.load_plan import ClosedPlan, ColdStartPlan, IdlePlan, LoadPlan, OpenPlan, RampPlan, SurgePlan
from perfkit.load.sequences import LengthLaw, SequencePlan, random_first_id
from perfkit.machine.limits import MemoryBudget
from perfkit.scenario.load import (
    SURGE_SLOT_NS,
    ClosedLoadSpec,
    ColdStartLoadSpec,
    IdleLoadSpec,
    OpenLoadSpec,
    OpenLoop,
    Replay,
    ReplayLoadSpec,
    SearchLoadSpec,
    SearchOptions,
    Surge,
    SurgeLoadSpec,
)
from perfkit.scenario.sequences import DEFAULT_LENGTH, GeometricLength, UniformLength
from perfkit.scenario.shape import SINE_PIECES, Shape
from perfkit.trace.recorded import MAX_INSTANT_NS, RecordedTrace
from perfkit.units import NS_PER_S, format_bytes

if TYPE_CHECKING:
    from perfkit.scenario.file import LoadedScenario
    from perfkit.scenario.model import Scenario

_MAX_TRACE_BYTES = 64 * 2**20
_TRACE_FACTOR = 30  # an arrival takes two bytes or more in a file, and about 60 in memory
_LENGTHS = 1  # sets the seeds of lengths apart from those of arrivals
_WARM_UP = 2**32 - 1  # the same for the arrivals of a warm-up, which is no load point
_MAX_INSTANT_S = 1e9  # about 30 years; a float is exact to about 0.1 us there


def plan_sequences(scenario: "Scenario", index: int = 0, repetition: int = 0) -> SequencePlan | None:
    """The sequences of a load point, if the scenario has any; each load point has others."""
    given = scenario.sequences
    if given is None:
        return None
    law: LengthLaw | None
    match given.length:
        case None:
            law = None if scenario.workload.data else LengthLaw(DEFAULT_LENGTH, DEFAULT_LENGTH)
        case UniformLength(uniform=(low, high)):
            law = LengthLaw(low, high)
        case GeometricLength(geometric=mean):
            law = LengthLaw(geometric_mean=mean)
        case int() as fixed:
            law = LengthLaw(fixed, fixed)
    live = None if isinstance(scenario.load, ClosedLoadSpec) else given.live
    seed = (scenario.workload.seed, index, repetition, _LENGTHS)
    return SequencePlan(law, given.first_id or random_first_id(), seed, live, given.ids, given.think_time_ns, id_count=given.id_count)


def own_window_ns(scenario: "Scenario", load: LoadPlan) -> int | None:
    """The window of a replay whose scenario gives none; None for the scenario's."""
    is_given = scenario.measure.duration_ns is not None or scenario.measure.requests is not None
    return load.length_ns if isinstance(load, OpenPlan) and not is_given else None


def repeated(load: LoadPlan, repetition: int) -> LoadPlan:
    """The load with other arrivals; a trace has none, and shapes are shared."""
    if isinstance(load, OpenPlan) and isinstance(load.schedule, Schedule):
        seed = (*load.schedule.seed[:-1], repetition)
        return dataclasses.replace(load, schedule=dataclasses.replace(load.schedule, seed=seed))
    return load


def plan_loads(loaded: "LoadedScenario") -> Sequence[LoadPlan]:
    """The loads of the first repetition."""
    scenario, load = loaded.scenario, loaded.scenario.load
    window_ns, warmup_ns, requests = scenario.window_ns, scenario.own_warmup_ns, scenario.measure.requests
    if isinstance(load, ClosedLoadSpec):
        if (ramp := load.closed.ramp) is not None:
            return [RampPlan(ramp.to, load.closed.think_time_ns, start=ramp.start, over_ns=ramp.over_ns)]
        return [ClosedPlan(concurrency, load.closed.think_time_ns) for concurrency in load.closed.levels]
    if isinstance(load, IdleLoadSpec):
        return [IdlePlan(concurrency=1, think_time_ns=0, gap_ns=gap_ns, then=load.idle.then) for gap_ns in load.idle.gaps_ns]
    if isinstance(load, ColdStartLoadSpec):
        given_start = load.cold_start
        return [
            ColdStartPlan(
                concurrency=1, think_time_ns=0, by=given_start.by, requests=given_start.requests, timeout_ns=given_start.timeout_ns
            )
        ]
    if isinstance(load, SearchLoadSpec):
        return []  # the rates depend on the measurements
    if isinstance(load, ReplayLoadSpec):
        assert loaded.trace is not None
        return [_plan_replay(load.replay, loaded.trace, warmup_ns, requests)]
    if isinstance(load, SurgeLoadSpec):
        return [_plan_surge(load.surge, warmup_ns, scenario.workload.seed)]
    given = load.open
    if given.trace is not None:
        return [_plan_trace(given, loaded.folder / given.trace, warmup_ns, requests)]

    def length_s(rate_per_s: float) -> float:
        """The window's length, or an upper bound if a number of requests ends it."""
        return 2 * (requests or 0) / rate_per_s if window_ns is None else window_ns / NS_PER_S

    plans = []
    for index, rate_per_s in enumerate(given.rates_per_s):
        segments = arrivals.lead_in(_shape_segments(given.shape, rate_per_s, length_s(rate_per_s)), warmup_ns / NS_PER_S)
        plans.append(_plan_random(given, rate_per_s, segments, (scenario.workload.seed, index, 0)))
    return plans


def plan_warm_up(scenario: "Scenario") -> LoadPlan | None:
    """The load that is sent first, before that of a load point; None if the warm-up has none of its own."""
    given = scenario.measure.warmup.load
    if isinstance(given, ClosedLoadSpec):
        return ClosedPlan(given.closed.levels[0], given.closed.think_time_ns)
    if not isinstance(given, OpenLoadSpec):
        return None
    rate_per_s = given.open.rates_per_s[0]
    return _plan_random(given.open, rate_per_s, arrivals.constant_rate(rate_per_s), (scenario.workload.seed, _WARM_UP, 0))


def plan_probe(
    search: SearchOptions, rate_per_s: float, *, seed: int, number: int, warmup_ns: int, sequences: SequencePlan | None = None
) -> OpenPlan:
    """The load of one probe of a search; every `number` has other arrivals."""
    segments = arrivals.lead_in(arrivals.constant_rate(rate_per_s), warmup_ns / NS_PER_S)
    return _plan_random(search, rate_per_s, segments, (seed, number, 0), sequences)


def _plan_random(
    given: OpenLoop | SearchOptions,
    rate_per_s: float,
    segments: tuple[Segment, ...],
    seed: tuple[int, ...],
    sequences: SequencePlan | None = None,
) -> OpenPlan:
    """Arrivals by a law; the plan's `burstiness` is that of their gaps, whatever the law's own parameter."""
    assert given.arrivals != "trace"
    schedule = Schedule(given.arrivals, segments, seed, given.burstiness or 1.0)
    return OpenPlan(rate_per_s, given.arrivals, schedule, given.burstiness, given.max_in_flight, sequences)


def _plan_surge(given: Surge, warmup_ns: int, seed: int) -> OpenPlan:
    start_ns, factor = given.lead_ns, given.surge_per_s / given.base_per_s
    segments = arrivals.spike(given.base_per_s, factor, start_ns / NS_PER_S, given.for_ns / NS_PER_S)
    schedule = Schedule(given.arrivals, arrivals.lead_in(segments, warmup_ns / NS_PER_S), (seed, 0, 0))
    surge = SurgePlan(given.surge_per_s, start_ns, start_ns + given.for_ns, given.window_ns, SURGE_SLOT_NS)
    return OpenPlan(given.base_per_s, given.arrivals, schedule, None, given.max_in_flight, surge=surge)


def _shape_segments(shape: Shape | None, rate_per_s: float, length_s: float) -> tuple[Segment, ...]:
    if shape is None:
        return arrivals.constant_rate(rate_per_s)
    if shape.ramp is not None:
        return arrivals.ramp(rate_per_s, shape.ramp.to, shape.ramp.over_ns / NS_PER_S)
    if shape.steps is not None:
        return arrivals.steps(rate_per_s, shape.steps.levels, shape.steps.each_ns / NS_PER_S)
    if shape.spike is not None:
        return arrivals.spike(rate_per_s, shape.spike.to, shape.spike.at_ns / NS_PER_S, shape.spike.length_ns / NS_PER_S)
    assert shape.sine is not None
    return arrivals.sine(rate_per_s, shape.sine.amplitude, shape.sine.period_ns / NS_PER_S, length_s, SINE_PIECES)


def _plan_trace(given: OpenLoop, file: pathlib.Path, warmup_ns: int, requests: int | None) -> OpenPlan:
    if warmup_ns:
        raise ScenarioError("load.open.trace: a trace has no arrivals for a warm-up: set measure.warmup to 0s or auto, or give it a load")
    try:
        size_bytes = file.stat().st_size
        if not file.is_file() or size_bytes > _MAX_TRACE_BYTES:
            raise ScenarioError(f"load.open.trace: {file} is not a file of at most {format_bytes(_MAX_TRACE_BYTES)}")
        arithmetic = f"{size_bytes:,} bytes × {_TRACE_FACTOR}"
        MemoryBudget().reserve("load.open.trace", size_bytes * _TRACE_FACTOR, arithmetic, "the number of arrivals in the file")
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # NumPy's warning about an empty file, which is an error below
            seconds = np.loadtxt(file, dtype=np.float64, comments="#", ndmin=2, encoding="utf-8-sig")
        if seconds.size and (seconds.shape[1] != 1 or not (np.abs(seconds) <= _MAX_INSTANT_S).all()):
            raise ValueError(f"expected one number per line, between -{_MAX_INSTANT_S:g} and {_MAX_INSTANT_S:g}")  # noqa: TRY301 - reported with the file's name below, as NumPy's own errors are
        seconds = seconds.ravel()
        trace = (arrivals.from_timestamps if given.trace_holds == "timestamps" else arrivals.from_intervals)(seconds)
    except FileNotFoundError:
        raise ScenarioError(f"load.open.trace: the file {file} does not exist") from None
    except (OSError, ValueError) as error:
        raise ScenarioError(f"load.open.trace: {file} is not a list of seconds, one per line: {error}") from None
    if not trace.instants_ns.size:
        raise ScenarioError(f"load.open.trace: {file} contains no arrivals")
    _check_count(requests, trace, str(file))
    return OpenPlan(_mean_rate_per_s(trace), "trace", trace, None, given.max_in_flight)


def _plan_replay(given: Replay, recorded: RecordedTrace, warmup_ns: int, requests: int | None) -> OpenPlan:
    if warmup_ns:
        raise ScenarioError("load.replay: a trace has no arrivals for a warm-up: set measure.warmup to 0s or auto, or give it a load")
    period_ns = max(1, round(recorded.period_ns / given.speed))
    if max(recorded.span_ns, recorded.period_ns) / given.speed > MAX_INSTANT_NS:
        raise ScenarioError(
            f"load.replay.speed: at {given.speed:g} times its speed the trace takes more than 30 years: give a higher speed"
        )
    instants_ns = np.rint(recorded.instants_ns / given.speed).astype(np.int64)
    trace = Trace(instants_ns, period_ns if given.loop else 0)
    if not given.loop:
        _check_count(requests, trace, given.trace)
    # the last request of the trace is inside the window, too
    length_ns = None if given.loop else max(period_ns, trace.last_ns + 1)
    rate_per_s = instants_ns.size * NS_PER_S / period_ns
    return OpenPlan(rate_per_s, "trace", trace, None, given.max_in_flight, speed=given.speed, length_ns=length_ns)


def _check_count(requests: int | None, trace: Trace, file: str) -> None:
    if requests is not None and requests > trace.instants_ns.size:
        raise ScenarioError(f"measure.requests: {requests} requests need as many arrivals, and {file} contains {trace.instants_ns.size}")


def _mean_rate_per_s(trace: Trace) -> float:
    length_s = trace.last_ns / NS_PER_S
    return trace.instants_ns.size / length_s if length_s else 0.0
