"""One worker: takes one load point through its phases and returns what it recorded."""

import asyncio
import contextlib
import dataclasses
import functools
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeAlias

from perfkit.clock import Clock
from perfkit.load.arrivals import Instants, first_chunk_ready, worker_arrivals
from perfkit.load.listed_requests import ListedRequests
from perfkit.load.load_plan import ClosedPlan, LoadPlan, OpenPlan
from perfkit.load.loop import Ending, Loop, LoopGroup, Phases, StopCause, Stoppable, any_of, run_with_side_tasks
from perfkit.load.open_loop import make_pacer
from perfkit.load.retries import RetryingSender
from perfkit.load.sequence_requests import SequenceRequests
from perfkit.machine.readings import BusyMeter, BusyShares
from perfkit.recorder.recent import LiveFigures
from perfkit.recorder.recorder import Recorder
from perfkit.recorder.recording import Recording
from perfkit.recorder.stops import StopDetector
from perfkit.telemetry.host.generator import EventLoopMonitor
from perfkit.transport.base import ConnectionCounts, Prepared, Reply, Sender
from perfkit.units import NS_PER_S
from perfkit.workers.loops import (
    make_loop,
    make_warm_up,
    send_pieces,
    stop_on_errors,
    stop_on_overload,
    too_many_errors,
)
from perfkit.workers.messages import Piece, WorkerSpec
from perfkit.workers.mix import MixedSender, MixRecorder, RoutedRequest, choices_of_worker, workload_choices
from perfkit.workers.point_recording import PointRecording, WorkloadRecording
from perfkit.workers.prepared_workload import PreparedWorkload, RenewedHeaders, prepare_workload
from perfkit.workers.request_sampler import follow_rate


async def execute(
    spec: WorkerSpec,
    clock: Clock,
    *,
    on_loop: Callable[[Stoppable], None],
    on_live: Callable[[LiveFigures], None] | None = None,
    begin_at: Callable[[], Awaitable[int]] | None = None,
    on_reply: Callable[[Reply], None] | None = None,
    on_piece: Callable[[Piece], None] | None = None,
    renewal: RenewedHeaders | None = None,
) -> PointRecording:
    """Connects to the targets and runs the load point; see `run_workloads`.

    `on_reply` gets each reply after its check. Requests have the headers of `renewal` from when they come.
    """
    workloads = [await prepare_workload(one, spec, clock) for one in spec.workloads]
    if on_reply is not None:
        workloads = [dataclasses.replace(one, check=functools.partial(_check_and_report, one.check, on_reply)) for one in workloads]
    try:
        sending = run_workloads(
            spec,
            workloads,
            clock=clock,
            on_loop=on_loop,
            on_live=on_live,
            begin_at=begin_at,
            on_piece=on_piece,
        )
        return await (sending if renewal is None else run_with_side_tasks(sending, renewal.follow(workloads)))
    finally:
        for workload in workloads:
            await workload.transport.aclose()


def _check_and_report(check: Callable[[Reply], bool] | None, on_reply: Callable[[Reply], None], reply: Reply) -> bool:
    is_checked = check is not None and check(reply)
    on_reply(reply)
    return is_checked


async def run_workloads(
    spec: WorkerSpec,
    workloads: Sequence[PreparedWorkload],
    *,
    clock: Clock,
    on_loop: Callable[[Stoppable], None],
    on_live: Callable[[LiveFigures], None] | None = None,
    begin_at: Callable[[], Awaitable[int]] | None = None,
    on_piece: Callable[[Piece], None] | None = None,
) -> PointRecording:
    """Opens the connections, sends the load of each workload and awaits the answers.

    Workloads that share a load have one loop, which takes their requests as `workload_choices` says; otherwise each has its own. `workloads`
    are those of `spec`. `on_loop` gets the loops before they start, so that they can be stopped. `on_live` gets figures once a second while requests are in flight. `begin_at` is called when everything is ready, and returns the
    instant at which to begin, because workers that share a point begin together. With `on_piece` the recording is taken out piece by
    piece, about once a second, and what is returned is the rest. Raises TargetError if the
    connections cannot be opened.
    """
    for workload in workloads:
        await workload.transport.open(workload.spec.connections)
    arrivals = [_first_arrivals(load, spec) for load in spec.loads]
    start_ns = await begin_at() if begin_at else clock.now_ns() + spec.lead_ns
    with EventLoopMonitor(clock) as event_loop, contextlib.ExitStack() as closing:
        stops = StopDetector(clock)
        phases = Phases.plan(start_ns, warmup_ns=spec.warmup_ns, window_ns=spec.window_ns, requests=spec.requests, drain_ns=spec.drain_ns)
        recorders = [_make_recorder(spec, workload, phases, stops, is_live=on_live is not None) for workload in workloads]
        sources: list[_Source] = [(one.sender, one.requests, recorder) for one, recorder in zip(workloads, recorders, strict=True)]
        if spec.shared is not None:
            sources = [_shared_source(spec, workloads, recorders)]
        own_phases = dataclasses.replace(phases, start_ns=start_ns + spec.warm_up_ns)
        sendings = list[_Sending]()
        for load, (sender, requests, recorder), own_arrivals in zip(spec.loads, sources, arrivals, strict=True):
            pacer = closing.enter_context(contextlib.closing(make_pacer(clock)))
            loop = make_loop(spec, load, sender, requests, recorder, arrivals=own_arrivals, phases=own_phases, clock=clock, pacer=pacer)
            sendings.append(_Sending(loop, recorder, load))
        warm_up = None
        if spec.warm_up is not None:
            sender, requests, _ = sources[0]
            assert not isinstance(requests, SequenceRequests)
            pacer = closing.enter_context(contextlib.closing(make_pacer(clock)))
            warm_up = make_warm_up(
                spec,
                spec.warm_up,
                sender,
                requests,
                recorders[0].add_untimed,
                arrivals=_first_arrivals(spec.warm_up, spec),
                phases=phases,
                clock=clock,
                pacer=pacer,
            )
        loops = LoopGroup([sending.loop for sending in sendings])
        on_loop(loops)
        meter = _WindowMeter(clock)
        busy_shares = asyncio.ensure_future(meter.measure(loops, phases))
        are_alike = len({workload.spec.is_open for workload in workloads}) == 1

        async def own_load() -> Ending:
            await any_of(clock.sleep_until_ns(own_phases.start_ns - spec.lead_ns), loops.stopped())
            return await loops.run()

        async def send_load() -> tuple[Ending, BusyShares]:
            await clock.sleep_until_ns(phases.start_ns - spec.lead_ns)
            ending = await (loops.run() if warm_up is None else run_with_side_tasks(own_load(), warm_up.run()))
            return ending, await busy_shares if clock.now_ns() >= phases.window_start_ns else BusyShares()

        def unanswered() -> int:
            # a request of a closed loop is sent when it has a connection
            queued = sum(one.transport.queued for one in workloads if not one.spec.is_open)
            return loops.unanswered - queued

        def send_piece(at_ns: int, pieces: Sequence[Recording]) -> None:
            assert on_piece is not None
            found = stops.take_settled()
            parts = tuple(
                WorkloadRecording(dataclasses.replace(piece, stops=found), ConnectionCounts.added([one.transport.counts]))
                for piece, one in zip(pieces, workloads, strict=True)
            )
            on_piece(Piece(at_ns, PointRecording(parts, phases.start_ns, Ending(stopped_ns=at_ns), meter.read(), are_alike=are_alike)))

        ending, shares = await run_with_side_tasks(
            send_load(),
            busy_shares,
            _end_window(loops, phases, recorders, [one.retrying for one in workloads if one.retrying]),
            _report_live(on_live, spec.worker, loops, recorders, phases, clock),
            event_loop.measure_lag(phases.start_ns),
            stops.watch(phases.start_ns, lambda: loops.in_flight),
            *((send_pieces(spec.timeout_ns, phases, clock, unanswered, loops, recorders, send_piece),) if on_piece is not None else ()),
            follow_rate([one.sampler for one in workloads if one.sampler], own_phases, clock),
            *(stop_on_errors(one.loop, one.recorder, clock, spec.abort_error_rate) for one in sendings),
            *(stop_on_overload(one.loop, one.recorder, own_phases, clock, one.load, spec.overload_abort_after_ns) for one in sendings),
        )
        if ending.cause is None:  # those since the last check, too
            for one in sendings:
                if reason := too_many_errors(one.recorder, spec.abort_error_rate):
                    ending = dataclasses.replace(ending, reason=reason, cause=StopCause.TOO_MANY_ERRORS)
        end_ns = None if phases.window_end_ns is None else min(ending.stopped_ns, phases.window_end_ns)
        recordings = [recorder.finish(end_ns) for recorder in recorders]
        found = stops.finish()
        recordings = [dataclasses.replace(recording, stops=found) for recording in recordings]
    # copies: closing the transports changes them
    sampled = [workload.sampled for workload in workloads]
    counts = [ConnectionCounts.added([workload.transport.counts]) for workload in workloads]
    return PointRecording(
        tuple(WorkloadRecording(*one) for one in zip(recordings, counts, sampled, strict=True)),
        phases.start_ns,
        ending,
        shares,
        event_loop.series(spec.worker),
        are_alike,
    )


_Source: TypeAlias = tuple[Sender, Sequence[Prepared] | SequenceRequests, Recorder | MixRecorder]
"""What a loop sends with, what it sends, and what records the replies."""


@dataclasses.dataclass(frozen=True)
class _Sending:
    """A loop, its load, and what records its replies."""

    loop: Loop
    recorder: Recorder | MixRecorder
    load: LoadPlan


def _shared_source(spec: WorkerSpec, workloads: Sequence[PreparedWorkload], recorders: Sequence[Recorder]) -> _Source:
    """What workloads send together: one sender, and the requests in the order in which they are chosen."""
    requests = [[RoutedRequest.of(one.sender, request) for request in one.prepared] for one in workloads]
    choices = choices_of_worker(workload_choices(spec.weights, [len(own) for own in requests], spec.choices_seed), spec.workers)
    chosen = [requests[number][variant] for number, variant in choices]
    own = [len(one.prepared.items) if isinstance(one.prepared, ListedRequests) else len(one.prepared) for one in workloads]
    recorded = [(number, variant % own[number]) for number, variant in choices]
    return MixedSender([one.sender for one in workloads]), chosen, MixRecorder(recorders, recorded)


def _first_arrivals(load: LoadPlan, spec: WorkerSpec) -> Iterator[Instants]:
    if isinstance(load, ClosedPlan):
        return iter(())
    return first_chunk_ready(worker_arrivals(load.schedule.chunks(), spec.worker, spec.workers))


def _make_recorder(spec: WorkerSpec, workload: PreparedWorkload, phases: Phases, stops: StopDetector, *, is_live: bool) -> Recorder:
    return Recorder(
        workload.failure,
        workload.transport.raw_failure,
        window_start_ns=phases.window_start_ns,
        window_end_ns=phases.window_end_ns,
        series_start_ns=phases.start_ns if spec.finds_warm_up else phases.window_start_ns,
        surge_slot_ns=load.surge.slot_ns if isinstance(load := workload.spec.load, OpenPlan) and load.surge is not None else None,
        some_leave=workload.spec.abandon is not None,
        some_retry=workload.spec.retry is not None,
        is_open=workload.spec.is_open,
        check=workload.check,
        good_within_ns=workload.spec.good_within_ns,
        count_tokens=workload.count_tokens,
        stops=stops,
        is_live=is_live,
        is_streamed=workload.spec.is_streamed,
        labels=(lambda: tuple(workload.transport.counts.by_address)) if workload.transport.counts.by_address else None,
    )


class _WindowMeter:
    """The CPU use in the window only, because a long drain would hide a busy generator."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._meter: BusyMeter | None = None

    async def measure(self, loop: LoopGroup, phases: Phases) -> BusyShares:
        """The CPU use from the window's start until sending has stopped."""
        await self._clock.sleep_until_ns(phases.window_start_ns)
        self._meter = BusyMeter(self._clock)
        await loop.stopped()
        return self._meter.read()

    def read(self) -> BusyShares:
        """The CPU use so far."""
        return BusyShares() if self._meter is None else self._meter.read()


async def _end_window(loop: LoopGroup, phases: Phases, recorders: Sequence[Recorder], retrying: Sequence[RetryingSender]) -> None:
    """Ends the recorders' windows where the loops stop, before answers of the drain are recorded, and the retries where they stop early."""
    await loop.stopped()
    for recorder in recorders if phases.window_end_ns is not None else ():
        recorder.end_window(min(loop.stopped_ns, phases.window_end_ns or 0))
    for sender in retrying if loop.has_ended_early else ():
        sender.stop_retrying()


async def _report_live(
    on_live: Callable[[LiveFigures], None] | None,
    worker: int,
    loop: LoopGroup,
    recorders: Sequence[Recorder],
    phases: Phases,
    clock: Clock,
) -> None:
    due_ns = phases.start_ns
    while on_live is not None:
        due_ns = max(due_ns, clock.now_ns()) + NS_PER_S
        await clock.sleep_until_ns(due_ns)
        now_ns, in_flight = clock.now_ns(), loop.in_flight
        on_live(LiveFigures.added([recorder.live_figures(worker, now_ns, in_flight) for recorder in recorders], in_flight))
