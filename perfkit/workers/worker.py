"""One worker: it takes one load point through its phases and gives back what it recorded."""

import asyncio
import contextlib
import dataclasses
import gc
from collections.abc import Awaitable, Callable, Iterator, Sequence

from perfkit.clock import Clock
from perfkit.errors import ProtocolError
from perfkit.load.arrivals import Instants, first_chunk_ready, worker_arrivals
from perfkit.load.backlog import is_overloaded
from perfkit.load.closed_loop import ClosedLoop
from perfkit.load.load_plan import ClosedPlan, OpenPlan
from perfkit.load.loop import Loop, Phases, StopCause
from perfkit.load.open_loop import OpenLoop
from perfkit.load.pacer import Pacer, make_pacer
from perfkit.machine.readings import BusyMeter, BusyShares
from perfkit.recorder.recording import Interval, Recorder
from perfkit.target.address import Address
from perfkit.telemetry.host.event_loop import EventLoopMonitor
from perfkit.transport.base import Prepared, Reply, Transport
from perfkit.units import NS_PER_S
from perfkit.workers.point import PointRecording, PointSpec

_LOOKS_EVERY_NS, _FEWEST_TAKEN = NS_PER_S // 10, 20

# an open loop's first arrival may be due at once: what is still to be made then takes some ms
_OPEN_LEAD_NS = 20_000_000


async def run_point(
    spec: PointSpec,
    transport: Transport,
    requests: Sequence[Prepared],
    *,
    clock: Clock,
    address: Address,
    on_loop: Callable[[Loop], None],
    on_interval: Callable[[int, Interval], None],
    check: Callable[[Reply], bool] | None = None,
    begin_at: Callable[[], Awaitable[int]] | None = None,
) -> PointRecording:
    """Opens the connections, loads, measures, drains.

    `on_loop` is given the loop before it starts, so that it can be stopped; `on_interval` the earliest start of the window,
    and an interval; `check` is a `Recorder`'s. `begin_at` is asked, once all is ready, when to begin: workers that share a point
    begin together. Raises TargetError where the connections cannot be opened.
    """
    await transport.open(spec.connections)
    arrivals: Iterator[Instants] = iter(())
    if isinstance(spec.load, OpenPlan):
        arrivals = first_chunk_ready(worker_arrivals(spec.load.schedule.chunks(), spec.worker, spec.workers))
    with _quiet_collector(), EventLoopMonitor(clock) as event_loop:  # before the start is fixed: collecting takes tens of milliseconds
        lead_ns = _OPEN_LEAD_NS if isinstance(spec.load, OpenPlan) else 0
        phases = Phases.plan(
            await begin_at() if begin_at else clock.now_ns() + lead_ns,
            warmup_ns=spec.warmup_ns,
            window_ns=spec.window_ns,
            requests=spec.requests,
            drain_ns=spec.drain_ns,
        )
        recorder = Recorder(
            lambda interval: on_interval(phases.window_start_ns, interval),
            lambda reply: address.sanitize(_failure(transport, reply)),
            window_start_ns=phases.window_start_ns,
            window_end_ns=phases.window_end_ns,
            series_start_ns=phases.start_ns if spec.finds_warm_up else phases.window_start_ns,
            is_open=isinstance(spec.load, OpenPlan),
            check=check,
            good_within_ns=spec.good_within_ns,
        )
        pacer = make_pacer(clock)
        loop = _make_loop(spec, arrivals, transport, requests, recorder, phases, clock, pacer)
        on_loop(loop)
        busy = asyncio.ensure_future(_busy_shares(loop, phases, clock))
        early = asyncio.ensure_future(_end_early(loop, phases, recorder))
        late = asyncio.ensure_future(event_loop.measure_lag(phases.start_ns))
        abort = asyncio.ensure_future(_abort(loop, recorder, clock, spec.abort_error_rate))
        hopeless = asyncio.ensure_future(_give_up(loop, recorder, phases, clock, spec))
        try:
            await clock.sleep_until_ns(phases.start_ns - lead_ns)
            ending = await loop.run()
            shares = await busy if clock.now_ns() >= phases.window_start_ns else BusyShares()
        finally:
            for task in (early, busy, late, abort, hopeless):
                task.cancel()
            pacer.close()
        recording = recorder.finish(None if phases.window_end_ns is None else min(ending.stopped_ns, phases.window_end_ns))
    counts = dataclasses.replace(transport.counts)  # closing it counts on
    return PointRecording(recording, phases.start_ns, ending, counts, shares, event_loop.series(spec.worker))


def _make_loop(
    spec: PointSpec,
    arrivals: Iterator[Instants],
    transport: Transport,
    requests: Sequence[Prepared],
    recorder: Recorder,
    phases: Phases,
    clock: Clock,
    pacer: Pacer,
) -> Loop:
    load = spec.load
    if isinstance(load, ClosedPlan):
        return ClosedLoop(
            transport,
            requests,
            recorder.add,
            concurrency=load.concurrency,
            phases=phases,
            clock=clock,
            think_time_ns=load.think_time_ns,
            worker=spec.worker,
            workers=spec.workers,
        )
    return OpenLoop(
        transport,
        requests,
        recorder.add,
        recorder.drop,
        arrivals=arrivals,
        origin_ns=phases.start_ns,
        phases=phases,
        clock=clock,
        pacer=pacer,
        max_in_flight=load.max_in_flight,
        worker=spec.worker,
        workers=spec.workers,
    )


async def _busy_shares(loop: Loop, phases: Phases, clock: Clock) -> BusyShares:
    """Over the window alone: a long drain would hide a busy generator."""
    await clock.sleep_until_ns(phases.window_start_ns)
    meter = BusyMeter(clock)
    await loop.stopped()
    return meter.read()


async def _end_early(loop: Loop, phases: Phases, recorder: Recorder) -> None:
    """Before the answers of the drain are recorded."""
    await loop.stopped()
    if phases.window_end_ns is not None:
        recorder.end_window(min(loop.ending.stopped_ns, phases.window_end_ns))


async def _abort(loop: Loop, recorder: Recorder, clock: Clock, limit: float | None) -> None:
    """Ends a point whose requests fail, instead of measuring that for its whole length."""
    while limit is not None and not loop.ending.stopped_ns:
        await clock.sleep_until_ns(clock.now_ns() + _LOOKS_EVERY_NS)
        if recorder.taken >= _FEWEST_TAKEN and recorder.failed > limit * recorder.taken:
            share = recorder.failed / recorder.taken
            loop.stop(
                f"{share:.0%} of {recorder.taken:,} requests failed, above measure.abort_error_rate: {limit:.0%}", StopCause.TOO_MANY_ERRORS
            )


async def _give_up(loop: Loop, recorder: Recorder, phases: Phases, clock: Clock, spec: PointSpec) -> None:
    """Ends a point whose backlog grows and grows, instead of waiting out its duration."""
    load = spec.load
    if spec.overload_abort_after_ns is None or not isinstance(load, OpenPlan) or not isinstance(loop, OpenLoop):
        return
    dispersion = 1 + (load.burstiness or 1.0) ** 2
    await clock.sleep_until_ns(phases.window_start_ns + NS_PER_S)
    while not loop.ending.stopped_ns:
        elapsed_ns = clock.now_ns() - phases.start_ns
        if is_overloaded(recorder.taken + loop.in_flight, loop.in_flight, elapsed_ns, spec.overload_abort_after_ns, dispersion):
            loop.stop(
                f"after {elapsed_ns / NS_PER_S:.1f} s of load {loop.in_flight:,} requests waited, and more and more", StopCause.OVERLOADED
            )
            return
        await clock.sleep_until_ns(clock.now_ns() + _LOOKS_EVERY_NS)


def _failure(transport: Transport, reply: Reply) -> str:
    """The sentence that a failed reply carries."""
    try:
        transport.decode(reply)
    except ProtocolError as error:
        return str(error)
    return reply.error


@contextlib.contextmanager
def _quiet_collector() -> Iterator[None]:
    """Everything made so far is left out of garbage collections, so that they stay short while load is sent."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
