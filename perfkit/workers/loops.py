"""The loop that executes a worker's part of a load point."""

import functools
from collections.abc import Iterator, Sequence
from typing import Any, cast

from perfkit.clock import Clock
from perfkit.load.arrivals import Instants
from perfkit.load.closed_loop import ClosedLoop
from perfkit.load.idle_loop import IdleLoop
from perfkit.load.load_plan import ClosedPlan, IdlePlan, LoadPlan
from perfkit.load.loop import Loop, Phases
from perfkit.load.open_loop import OpenLoop
from perfkit.load.pacer import Pacer
from perfkit.load.replayed_requests import ReplayedRequests
from perfkit.load.sequence_loops import ClosedSequences, OpenSequences, SequenceListener, SequenceLoad
from perfkit.load.sequence_requests import SequenceRequests, StreamRequests
from perfkit.load.sequences import SequenceSource
from perfkit.override import override
from perfkit.recorder.mix_recorder import MixRecorder
from perfkit.recorder.recorder import Recorder
from perfkit.target_client import Client
from perfkit.transport.base import Prepared, Reply, Sender, Transport
from perfkit.workers.request_sampler import RequestSampler
from perfkit.workers.worker_spec import WorkerSpec, WorkloadSpec


def prepare_requests(spec: WorkloadSpec, client: Client, worker: int, workers: int) -> Sequence[Prepared] | SequenceRequests:
    """The requests that the loop of one of several workers sends, with everything prepared that can be before the load."""
    requests = spec.requests
    if spec.load.sequences is None:
        prepared = [client.prepare(request) for request in requests]
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
    else:
        shared |= {"arrivals": arrivals, "origin_ns": phases.start_ns, "pacer": pacer, "max_in_flight": load.max_in_flight}
    if not isinstance(requests, SequenceRequests):
        if isinstance(load, IdlePlan):
            assert isinstance(recorder, Recorder)
            on_reconnect = functools.partial(recorder.count, "gaps_reconnected")
            shared |= {"gap_ns": load.gap_ns, "then": load.then, "add_time": recorder.add_time, "on_reconnect": on_reconnect}
            return IdleLoop(cast(Transport, transport), requests, recorder.add, **shared)
        if isinstance(load, ClosedPlan):
            return ClosedLoop(transport, requests, recorder.add, has_shared_queue=isinstance(recorder, MixRecorder), **shared)
        return OpenLoop(transport, requests, recorder.add, drop, **shared)
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
