"""A worker's loop in a load point: what it executes, the rules that end it early, and its recording, sent in pieces while load is sent."""

import asyncio
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, cast, overload

from perfkit.clock import Clock
from perfkit.load.abandonment import with_abandonment
from perfkit.load.arrivals import Instants
from perfkit.load.closed_loop import ClosedLoop, IdleLoop
from perfkit.load.listed_requests import ListedRequests, with_own_variant
from perfkit.load.load_plan import ClosedPlan, IdlePlan, LoadPlan, OpenPlan, RampPlan
from perfkit.load.loop import Loop, LoopGroup, Phases, StopCause
from perfkit.load.open_loop import OpenLoop, Pacer
from perfkit.load.retries import with_retries
from perfkit.load.sequence_loops import ClosedSequences, OpenSequences, SequenceListener, SequenceLoad
from perfkit.load.sequence_requests import SequenceRequests, StreamRequests
from perfkit.load.sequences import SequenceSource
from perfkit.override import override
from perfkit.recorder.recorder import Recorder
from perfkit.recorder.recording import Recording
from perfkit.target_client import Client
from perfkit.trace.recorded import Indices
from perfkit.transport.base import Prepared, Reply, Sender, Transport
from perfkit.units import NS_PER_S
from perfkit.workers.messages import WorkerSpec, WorkloadSpec
from perfkit.workers.mix import MixRecorder
from perfkit.workers.request_sampler import RequestSampler

_T = TypeVar("_T")


class ReplayedRequests(Sequence[_T]):
    """A sequence that stores each distinct item once: its i-th item is `items[indices[i]]`."""

    def __init__(self, items: Sequence[_T], indices: Indices) -> None:
        self.items = items
        self._indices: list[int] = indices.tolist()

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, place: int) -> _T: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[_T]: ...
    def __getitem__(self, place: int | slice) -> _T | Sequence[_T]:
        if isinstance(place, slice):
            return [self.items[index] for index in self._indices[place]]
        return self.items[self._indices[place]]


def prepare_requests(spec: WorkloadSpec, client: Client, worker: int, workers: int) -> Sequence[Prepared] | SequenceRequests:
    """The requests that the loop of one of several workers sends, with everything prepared that can be before the load."""
    requests = spec.requests
    if spec.load.sequences is None:
        prepared = [client.prepare(request) for request in requests]
        if spec.abandon is not None:
            return with_abandonment(prepared, spec.abandon)
        if spec.retry is not None:
            return with_retries(prepared, spec.retry)
        return prepared if spec.request_indices is None else ReplayedRequests(prepared, spec.request_indices)
    stream_lengths = spec.load.sequences.stream_lengths
    steps = StreamRequests(client.prepare, requests, stream_lengths) if stream_lengths else SequenceRequests(client.prepare, requests)
    steps.warm_up(SequenceSource(spec.load.sequences, worker, workers).next())
    return steps


def make_loop(
    spec: WorkerSpec,
    load: LoadPlan,
    transport: Sender,
    requests: Sequence[Prepared] | SequenceRequests,
    recorder: Recorder | MixRecorder,
    *,
    arrivals: Iterator[Instants],
    phases: Phases,
    clock: Clock,
    pacer: Pacer,
) -> Loop:
    """A worker's loop for one of its loads, of plain requests or of sequences, whose replies go to the recorder.

    `arrivals` are for an open loop. With a `MixRecorder` the loop sends the requests of several workloads in the order of their choices, whatever
    the times of their answers are.
    """
    drop = recorder.drop if isinstance(recorder, MixRecorder) else functools.partial(_drop, recorder)
    shared = dict[str, Any](phases=phases, clock=clock, worker=spec.worker, workers=spec.workers)
    if isinstance(load, ClosedPlan):
        shared |= {"concurrency": load.concurrency, "think_time_ns": load.think_time_ns}
        if isinstance(load, RampPlan):
            shared |= {"start": load.start, "ramp_ns": load.over_ns}
    else:
        shared |= {"arrivals": arrivals, "origin_ns": phases.start_ns, "pacer": pacer, "max_in_flight": load.max_in_flight}
    if not isinstance(requests, SequenceRequests):
        on_reply = with_own_variant(recorder.add, len(requests.items)) if isinstance(requests, ListedRequests) else recorder.add
        if isinstance(load, IdlePlan):
            assert isinstance(recorder, Recorder)
            on_reconnect = functools.partial(recorder.count, "gaps_reconnected")
            shared |= {"gap_ns": load.gap_ns, "then": load.then, "add_time": recorder.add_time, "on_reconnect": on_reconnect}
            return IdleLoop(cast(Transport, transport), requests, recorder.add, **shared)
        if isinstance(load, ClosedPlan):
            return ClosedLoop(transport, requests, on_reply, has_shared_queue=isinstance(recorder, MixRecorder), **shared)
        return OpenLoop(transport, requests, on_reply, drop, **shared)
    assert load.sequences is not None
    assert isinstance(recorder, Recorder)
    source = SequenceSource(load.sequences, spec.worker, spec.workers)
    sequences = SequenceLoad(
        source, requests, _SequenceRecorder(recorder), transport.untraced if isinstance(transport, RequestSampler) else None
    )
    if isinstance(load, ClosedPlan):
        return ClosedSequences(transport, (), recorder.add, sequences=sequences, **shared)
    live, think_time_ns = load.sequences.live, load.sequences.think_time_ns
    return OpenSequences(transport, (), recorder.add, drop, sequences=sequences, live=live, think_time_ns=think_time_ns, **shared)


def make_warm_up(
    spec: WorkerSpec,
    load: LoadPlan,
    transport: Sender,
    requests: Sequence[Prepared],
    on_reply: Callable[[Reply], None],
    *,
    arrivals: Iterator[Instants],
    phases: Phases,
    clock: Clock,
    pacer: Pacer,
) -> Loop:
    """A worker's loop for the load of a warm-up, which ends when that of the load point begins, and shares its sender."""
    own = Phases(phases.start_ns, phases.start_ns, phases.start_ns + spec.warm_up_ns, None, phases.drain_ns)
    shared = dict[str, Any](phases=own, clock=clock, worker=spec.worker, workers=spec.workers, may_abandon=False)
    if isinstance(load, ClosedPlan):
        return ClosedLoop(transport, requests, on_reply, concurrency=load.concurrency, think_time_ns=load.think_time_ns, **shared)
    return OpenLoop(
        transport,
        requests,
        on_reply,
        _ignore,
        arrivals=arrivals,
        origin_ns=own.start_ns,
        pacer=pacer,
        max_in_flight=load.max_in_flight,
        **shared,
    )


def _ignore(*_: object) -> None:
    """For drops of a warm-up."""


def _drop(recorder: Recorder, intended_ns: Instants, _: Instants, is_late: bool) -> None:
    """Counts dropped arrivals of a single workload."""
    recorder.drop(intended_ns, is_late)


class _SequenceRecorder(SequenceListener):
    """Counts and times sequences in the recorder of their requests.

    A sequence belongs to the part of the load in which it ends: in a steady state those that end in a window are a fair sample, while of
    those that start in it the long ones would be cut off.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    @override
    def sequence_started(self, start_ns: int) -> None:
        self._recorder.count("sequences_started", start_ns)

    @override
    def sequence_ended(self, start_ns: int, end_ns: int, *, is_ok: bool) -> None:
        self._recorder.count("sequences_ended" if is_ok else "sequences_failed", end_ns)
        if is_ok:
            self._recorder.add_time("sequence_time", end_ns, end_ns - start_ns)

    @override
    def untimed(self, reply: Reply) -> None:
        self._recorder.add_untimed(reply)


_CHECK_EVERY_NS = NS_PER_S // 10
_MIN_REPLIES = 20
_BACKLOG_Z = 4.5
_BACKLOG_LIMITS = 3


async def stop_on_errors(loop: Loop, recorder: Recorder | MixRecorder, clock: Clock, max_error_rate: float | None) -> None:
    """Stops a loop when more than that share of its requests has failed, of 20 or more."""
    while max_error_rate is not None and not loop.ending.stopped_ns:
        await clock.sleep_until_ns(clock.now_ns() + _CHECK_EVERY_NS)
        if reason := too_many_errors(recorder, max_error_rate):
            loop.stop(reason, StopCause.TOO_MANY_ERRORS)


def too_many_errors(recorder: Recorder | MixRecorder, max_error_rate: float | None) -> str:
    """The reason to stop if more than this share of the requests has failed, from 20 requests on; otherwise empty."""
    replies, failed = recorder.replies, recorder.failed
    if max_error_rate is None or replies < _MIN_REPLIES or failed <= max_error_rate * replies:
        return ""
    return f"{failed / replies:.0%} of {replies:,} requests failed, above measure.abort_error_rate: {max_error_rate:.0%}"


async def stop_on_overload(
    loop: Loop, recorder: Recorder | MixRecorder, phases: Phases, clock: Clock, load: LoadPlan, limit_ns: int | None
) -> None:
    """Stops an open loop whose backlog only grows; see `is_overloaded`. `phases` are those of its own load, without that of a warm-up."""
    if limit_ns is None or not isinstance(load, OpenPlan) or not isinstance(loop, OpenLoop):
        return
    dispersion = 1 + (load.burstiness or 1.0) ** 2
    await clock.sleep_until_ns(phases.window_start_ns + NS_PER_S)
    while not loop.ending.stopped_ns:
        elapsed_ns = clock.now_ns() - phases.start_ns
        if is_overloaded(recorder.replies + loop.in_flight, loop.in_flight, elapsed_ns, limit_ns, dispersion):
            seconds = f"after {elapsed_ns / NS_PER_S:.1f} s of load"
            loop.stop(f"{seconds} {loop.in_flight:,} requests were queued and the backlog grew", StopCause.OVERLOADED)
            return
        await clock.sleep_until_ns(clock.now_ns() + _CHECK_EVERY_NS)


def is_overloaded(sent: int, in_flight: int, elapsed_ns: int, limit_ns: int, dispersion: float = 2.0) -> bool:
    """Whether the backlog is beyond chance, and a new request would wait for more than three times the longest limit of the SLO.

    `sent` requests since the load began `elapsed_ns` ago, of which `in_flight` are not answered. Beyond chance, as in
    `stats.overload.judge_overload`: a queue that starts empty, at a utilisation of up to 1, holds more than z √(D·N) requests
    after N arrivals with a probability of at most 2Φ(-z), 7 in a million for z = 4.5; D is `dispersion`. The wait follows
    from Little's law: the requests in flight over the answers per second. A target that is slow but keeps up has as many in
    flight from the start; it passes, since nothing is judged before three times the limit has elapsed.
    """
    answered = sent - in_flight
    if elapsed_ns <= _BACKLOG_LIMITS * limit_ns or in_flight <= _BACKLOG_Z * math.sqrt(dispersion * sent):
        return False
    return in_flight * elapsed_ns > _BACKLOG_LIMITS * limit_ns * answered


# an instant is taken this much later, because an open loop may be late
_SENT_WITHIN_NS = NS_PER_S
_LOOK_EVERY_NS = NS_PER_S // 10


async def send_pieces(
    timeout_ns: int,
    phases: Phases,
    clock: Clock,
    unanswered: Callable[[], int],
    loops: LoopGroup,
    recorders: Sequence[Recorder],
    send: Callable[[int, list[Recording]], None],
) -> None:
    """Calls `send` with the pieces of all recorders and the instant before which they lie, about once a second until the window's end.

    A piece is sent when all requests before its instant are answered, or after the timeout of a request, so that all pieces so far hold
    what a run that ended there would hold. Slow answers make pieces longer than a second. `unanswered` counts the requests that are sent and
    not answered.
    """
    begun_ns = at_ns = phases.window_start_ns
    while True:
        await clock.sleep_until_ns(at_ns + NS_PER_S + _SENT_WITHIN_NS)
        at_ns = begun_ns + (clock.now_ns() - _SENT_WITHIN_NS - begun_ns) // NS_PER_S * NS_PER_S
        if phases.window_end_ns is not None and at_ns >= phases.window_end_ns:
            return
        await _record_pending(recorders)
        awaited = unanswered()
        for recorder in recorders:
            recorder.await_sent_until(clock.now_ns())
        latest_ns = clock.now_ns() + timeout_ns + _LOOK_EVERY_NS
        while sum(recorder.answered_awaited for recorder in recorders) < awaited and clock.now_ns() < latest_ns:
            await clock.sleep_until_ns(clock.now_ns() + _LOOK_EVERY_NS)
            await _record_pending(recorders)
        if loops.stopped_ns:
            return  # the rest is about to come
        loops.report_drops()
        send(at_ns, [recorder.take_before(at_ns) for recorder in recorders])  # at once: what is taken out must not be lost


async def _record_pending(recorders: Sequence[Recorder]) -> None:
    """Records all replies so far; between the steps requests that are due are sent, and answers are received and timed."""
    for recorder in recorders:
        for _ in recorder.record_pending():
            await asyncio.sleep(0)
