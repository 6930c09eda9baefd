"""One worker: takes one load point through its phases and returns what it recorded."""

import asyncio
import contextlib
import dataclasses
import functools
import gc
from collections.abc import Awaitable, Callable, Iterator, Sequence

from perfkit.clock import Clock
from perfkit.errors import ProtocolError
from perfkit.load.arrivals import Instants, first_chunk_ready, worker_arrivals
from perfkit.load.closed_loop import ClosedLoop
from perfkit.load.load_plan import ClosedPlan, OpenPlan
from perfkit.load.loop import Ending, Loop, Phases
from perfkit.load.open_loop import OpenLoop
from perfkit.load.pacer import make_pacer
from perfkit.load.tasks import run_with_side_tasks
from perfkit.machine.readings import BusyMeter, BusyShares
from perfkit.recorder.recent import LiveFigures
from perfkit.recorder.recorder import Recorder
from perfkit.recorder.recording import Interval
from perfkit.recorder.stops import StopDetector
from perfkit.target.address import Address
from perfkit.telemetry.host.event_loop import EventLoopMonitor
from perfkit.transport.base import Prepared, Reply, Transport
from perfkit.transport.factory import make_transport
from perfkit.units import NS_PER_S
from perfkit.workers.answer_check import AnswerCheck
from perfkit.workers.early_stop import stop_on_errors, stop_on_overload
from perfkit.workers.point_recording import PointRecording
from perfkit.workers.worker_spec import PointSpec, WorkerSpec

# the first arrival of an open loop may be due at once; what remains to be made ready takes some ms
_OPEN_LEAD_NS = 20_000_000


async def execute(
    spec: WorkerSpec,
    clock: Clock,
    *,
    on_loop: Callable[[Loop], None],
    on_interval: Callable[[int, Interval], None],
    on_live: Callable[[LiveFigures], None] | None = None,
    begin_at: Callable[[], Awaitable[int]] | None = None,
) -> PointRecording:
    """Connects to the target and runs the load point; see `run_point`."""
    transport = make_transport(spec.address, spec.transport, clock)
    check = AnswerCheck(transport, spec.expectation, share=spec.check_share, at_most_per_s=spec.check_at_most_per_s, seed=spec.seed)
    try:
        return await run_point(
            spec.point,
            transport,
            [transport.prepare(request) for request in spec.requests],
            clock=clock,
            address=spec.address,
            on_loop=on_loop,
            on_interval=on_interval,
            on_live=on_live,
            check=check,
            begin_at=begin_at,
        )
    finally:
        await transport.aclose()


async def run_point(
    spec: PointSpec,
    transport: Transport,
    requests: Sequence[Prepared],
    *,
    clock: Clock,
    address: Address,
    on_loop: Callable[[Loop], None],
    on_interval: Callable[[int, Interval], None],
    on_live: Callable[[LiveFigures], None] | None = None,
    check: Callable[[Reply], bool] | None = None,
    begin_at: Callable[[], Awaitable[int]] | None = None,
) -> PointRecording:
    """Opens the connections, sends the load and awaits the answers.

    `on_loop` gets the loop before it starts, so that it can be stopped. `on_interval` gets the earliest start of the window and an
    interval. `on_live` gets figures once a second while requests are in flight. `check` is that of `Recorder`. `begin_at` is called when
    everything is ready, and returns the instant at which to begin, because workers that share a point begin together. Raises TargetError
    if the connections cannot be opened.
    """
    await transport.open(spec.connections)
    load, lead_ns = spec.load, 0
    arrivals: Iterator[Instants] = iter(())
    if isinstance(load, OpenPlan):
        arrivals, lead_ns = first_chunk_ready(worker_arrivals(load.schedule.chunks(), spec.worker, spec.workers)), _OPEN_LEAD_NS
    # frozen before the start is fixed: collecting takes tens of milliseconds
    with _garbage_frozen(), EventLoopMonitor(clock) as event_loop, contextlib.closing(make_pacer(clock)) as pacer:
        start_ns = await begin_at() if begin_at else clock.now_ns() + lead_ns
        stops = StopDetector(clock)
        phases = Phases.plan(start_ns, warmup_ns=spec.warmup_ns, window_ns=spec.window_ns, requests=spec.requests, drain_ns=spec.drain_ns)
        recorder = Recorder(
            lambda interval: on_interval(phases.window_start_ns, interval),
            lambda reply: address.sanitize(_failure(transport, reply)),
            transport.raw_failure,
            window_start_ns=phases.window_start_ns,
            window_end_ns=phases.window_end_ns,
            series_start_ns=phases.start_ns if spec.finds_warm_up else phases.window_start_ns,
            is_open=isinstance(load, OpenPlan),
            check=check,
            good_within_ns=spec.good_within_ns,
            stops=stops,
            is_live=on_live is not None,
        )
        make_loop: Callable[..., Loop] = (
            functools.partial(ClosedLoop, concurrency=load.concurrency, think_time_ns=load.think_time_ns)
            if isinstance(load, ClosedPlan)
            else functools.partial(
                OpenLoop, on_drop=recorder.drop, arrivals=arrivals, origin_ns=phases.start_ns, pacer=pacer, max_in_flight=load.max_in_flight
            )
        )
        loop = make_loop(transport, requests, recorder.add, phases=phases, clock=clock, worker=spec.worker, workers=spec.workers)
        on_loop(loop)
        busy_shares = asyncio.ensure_future(_busy_shares(loop, phases, clock))

        async def send_load() -> tuple[Ending, BusyShares]:
            await clock.sleep_until_ns(phases.start_ns - lead_ns)
            ending = await loop.run()
            return ending, await busy_shares if clock.now_ns() >= phases.window_start_ns else BusyShares()

        ending, shares = await run_with_side_tasks(
            send_load(),
            busy_shares,
            _end_window(loop, phases, recorder),
            _report_live(on_live, spec.worker, loop, recorder, phases, clock),
            event_loop.measure_lag(phases.start_ns),
            stops.watch(phases.start_ns, lambda: loop.in_flight),
            stop_on_errors(loop, recorder, clock, spec.abort_error_rate),
            stop_on_overload(loop, recorder, phases, clock, load, spec.overload_abort_after_ns),
        )
        recording = recorder.finish(None if phases.window_end_ns is None else min(ending.stopped_ns, phases.window_end_ns))
    counts = dataclasses.replace(transport.counts)  # a copy: closing the transport changes them
    return PointRecording(recording, phases.start_ns, ending, counts, shares, event_loop.series(spec.worker))


async def _busy_shares(loop: Loop, phases: Phases, clock: Clock) -> BusyShares:
    """The CPU use in the window only, because a long drain would hide a busy generator."""
    await clock.sleep_until_ns(phases.window_start_ns)
    meter = BusyMeter(clock)
    await loop.stopped()
    return meter.read()


async def _end_window(loop: Loop, phases: Phases, recorder: Recorder) -> None:
    """Ends the recorder's window where the loop stops, before answers of the drain are recorded."""
    await loop.stopped()
    if phases.window_end_ns is not None:
        recorder.end_window(min(loop.ending.stopped_ns, phases.window_end_ns))


async def _report_live(
    on_live: Callable[[LiveFigures], None] | None, worker: int, loop: Loop, recorder: Recorder, phases: Phases, clock: Clock
) -> None:
    due_ns = phases.start_ns
    while on_live is not None:
        due_ns = max(due_ns, clock.now_ns()) + NS_PER_S
        await clock.sleep_until_ns(due_ns)
        on_live(recorder.live_figures(worker, clock.now_ns(), loop.in_flight))


def _failure(transport: Transport, reply: Reply) -> str:
    """The message of a failed reply, without its status."""
    message = reply.error
    if not message:
        try:
            transport.decode(reply)
        except ProtocolError as error:
            message = str(error)
    return message.removeprefix(f"HTTP {reply.status}: ").removeprefix(f"{reply.status}: ")


@contextlib.contextmanager
def _garbage_frozen() -> Iterator[None]:
    """Leaves everything made so far out of garbage collection, so that it stays short while load is sent."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
