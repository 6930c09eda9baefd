"""The source of a run's load points, and the worker specification of each."""

import contextlib
import dataclasses
import math
from collections.abc import Collection, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from perfkit.calibration.model import Calibration, highest_rate_per_s, spin_ns_per_request, transport_ns, workers_needed
from perfkit.clock import Clock
from perfkit.load.load_plan import ClosedPlan, ColdStartPlan, IdlePlan, LoadPlan, OpenPlan
from perfkit.load.point import LoadPoint, PointPart, load_points
from perfkit.machine.limits import MemoryBudget, raise_open_file_limit
from perfkit.measurement.target_probe import ProbedWorkload, ProbeResult
from perfkit.override import override
from perfkit.recorder.window import Window
from perfkit.result.load import ClosedLoad, ColdStartLoad, IdleLoad, Load, MixedLoad, OpenLoad
from perfkit.result.model import Point
from perfkit.result.search import AddedTime, Search
from perfkit.scenario.file import LoadedScenario
from perfkit.scenario.load import ClosedLoadSpec, SearchLoadSpec, Slo
from perfkit.scenario.model import Scenario
from perfkit.target.address import Address, WireProtocol
from perfkit.target_client import Client, make_client
from perfkit.transport.options import FIRST_ANSWER_LIMIT, STATISTICS_LIMIT, AnswerLimit, Rotation, StreamOptions, TransportOptions
from perfkit.units import NS_PER_S, format_bytes
from perfkit.workers.messages import WorkerSpec, WorkloadSpec
from perfkit.workers.request_sampler import MOST_TRACED, REQUEST_ID, SamplingSpec, TraceIds

_STATISTICS_TIMEOUT_NS = 5 * NS_PER_S


# a worker's own memory, without what processes share
_WORKER_BYTES = 40 * 2**20
# of an open loop
_LEAST_CONNECTIONS = 4


class LoadPointSource(Protocol):
    """Chooses the next load point."""

    def next_point(self, probe_time_ns: int) -> LoadPoint | None:
        """The next load point, or None at the end; `probe_time_ns` is the service time of a single request on an idle target."""

    def record(self, window: Window, point: Point, took_s: float) -> None:
        """Takes the measurement of the last load point; `took_s` includes warm-up and drain."""

    def total(self) -> int:
        """The number of load points; for a search the maximum."""

    def outcome(self) -> Search | None:
        """The state of a search; None if the load points are fixed."""
        return None

    def add_time(self, added: Sequence[AddedTime]) -> None:
        """Takes over the times that a search was given after it had ended; nothing if the load points are fixed."""
        return


class FixedPoints(LoadPointSource):
    """Load points that are known before the run, and further repetitions of those whose SLO verdict is open.

    `points` hold all repetitions that there may be, of which the first `repetitions` are measured in any case.
    """

    def __init__(self, points: Sequence[LoadPoint], repetitions: int) -> None:
        self._points, self._repetitions = points, repetitions
        self._given = [point for point in points if point.repetition < repetitions]
        self._taken = 0

    @override
    def next_point(self, probe_time_ns: int) -> LoadPoint | None:
        self._taken += 1
        return self._given[self._taken - 1] if self._taken <= len(self._given) else None

    @override
    def record(self, window: Window, point: Point, took_s: float) -> None:
        pass

    def go_on(self, undecided: Collection[tuple[str, Load]]) -> int:
        """Doubles the repetitions of these protocols and loads, as long as there are points, and returns the number of load points added."""
        earlier, self._repetitions, self._taken = self._repetitions, 2 * self._repetitions, len(self._given)
        again = [
            point for point in self._points
            if earlier <= point.repetition < self._repetitions and not point.is_alone and protocol_and_load(point) in undecided
        ]  # fmt: skip
        self._given += (dataclasses.replace(point, number=number) for number, point in enumerate(again, len(self._given)))
        return len(again)

    @override
    def total(self) -> int:
        return len(self._given)


def load_point_source(loaded: LoadedScenario) -> LoadPointSource:
    """The source of a scenario's load points; raises ScenarioError if a trace cannot be used."""
    if isinstance(loaded.scenario.load, SearchLoadSpec):
        from perfkit.search.capacity_search import CapacitySearch  # whose fits other loads do without

        return CapacitySearch(loaded)
    measure = loaded.scenario.measure
    return FixedPoints(load_points(loaded, measure.most_times), measure.repetitions)


def protocol_and_load(point: LoadPoint) -> tuple[str, Load]:
    """What tells a load point from the others of its repetition, as a result describes it."""
    protocols = {part.protocol for part in point.parts}
    return protocols.pop() if len(protocols) == 1 else "mixed", describe_point(point)


def describe_load(load: LoadPlan) -> Load:
    """A load as a result describes it."""
    if isinstance(load, IdlePlan):
        return IdleLoad(gap_s=load.gap_ns / NS_PER_S, then=load.then)
    if isinstance(load, ColdStartPlan):
        return ColdStartLoad(by=load.by, requests=load.requests)
    if isinstance(load, ClosedPlan):
        return ClosedLoad(concurrency=load.concurrency)
    return OpenLoad(
        rate_per_s=load.rate_per_s, arrivals=load.law, burstiness=load.burstiness, max_in_flight=load.max_in_flight, speed=load.speed
    )


def describe_point(point: LoadPoint) -> Load:
    """The load of a load point as a result describes it; of several loads side by side, the sum."""
    loads = point.loads
    if len(loads) == 1:
        return describe_load(loads[0])
    concurrency = sum(load.concurrency for load in loads if isinstance(load, ClosedPlan))
    rate_per_s = sum(load.rate_per_s for load in loads if isinstance(load, OpenPlan))
    if not rate_per_s:
        return ClosedLoad(concurrency=concurrency)
    if concurrency:
        return MixedLoad(concurrency=concurrency, rate_per_s=rate_per_s)
    laws = {load.law for load in loads if isinstance(load, OpenPlan)}
    return OpenLoad(rate_per_s=rate_per_s, arrivals=laws.pop() if laws == {"poisson"} else "mixed")


def max_connections(scenario: Scenario) -> int:
    """The scenario's limit of connections; by default 1,024, or less if this process may open fewer files."""
    return scenario.target.max_connections or min(1024, raise_open_file_limit() * 4 // 5)


def transport_options(scenario: Scenario, protocol: WireProtocol) -> TransportOptions:
    """The transport options for one of the scenario's protocols."""
    target = scenario.target
    return TransportOptions(
        timeout_ns=target.timeout_ns,
        engine=target.engine,
        max_connections=max_connections(scenario),
        streams_per_connection=streams_per_connection(scenario, protocol),
        answer_limit=AnswerLimit(target.max_answer_bytes) if target.max_answer_bytes else FIRST_ANSWER_LIMIT,
        stream=None if scenario.stream is None else StreamOptions(scenario.stream.requests_per_stream, scenario.stream.in_flight),
        compression=target.compression,
        has_output_slots=scenario.shared_memory is not None and scenario.shared_memory.outputs,
        rotation=None if target.connections is None else Rotation(target.connections.max_requests, target.connections.max_age_ns),
        balance=target.balance or "round_robin",
        resolve=target.resolve or "first",
    )


def connect(scenario: Scenario, address: Address, clock: Clock) -> AbstractAsyncContextManager[Client]:
    """A client with the scenario's options to an address of its target, closed at the end of the block."""
    return contextlib.aclosing(make_client(address, transport_options(scenario, address.protocol), clock))


def connect_for_statistics(scenario: Scenario, address: Address, clock: Clock) -> AbstractAsyncContextManager[Client]:
    """A client like `connect`'s, with the limits of statistics."""
    options = transport_options(scenario, address.protocol)
    options = dataclasses.replace(options, timeout_ns=min(options.timeout_ns, _STATISTICS_TIMEOUT_NS), answer_limit=STATISTICS_LIMIT)
    return contextlib.aclosing(make_client(address, options, clock))


def streams_per_connection(scenario: Scenario, protocol: WireProtocol) -> int:
    """The number of HTTP/2 streams that share a connection at a time."""
    return (scenario.target.streams_per_connection or 1) if protocol == "grpc" else 1


def requests_per_connection(scenario: Scenario, protocol: WireProtocol) -> int:
    """The number of requests that share a connection at a time."""
    return streams_per_connection(scenario, protocol) * (1 if scenario.stream is None else scenario.stream.in_flight)


def make_worker_spec(
    scenario: Scenario, point: LoadPoint, workloads: Sequence[ProbedWorkload], trace_ids: TraceIds | None = None
) -> WorkerSpec:
    """What a single worker would do in a load point; `WorkerSpec.split` divides it among several.

    `trace_ids` are those of the run; None if it traces no requests.
    """
    slo = scenario.slo if point.is_mix else None
    scenario = scenario if point.is_mix else workloads[0].scenario
    tags = point.part_tags or (point.tag,)
    specs = [
        _workload_spec(
            part,
            one,
            one.scenario.objective or slo,
            point.number,
            _sampling(one.scenario, point, part, trace_ids and trace_ids.of_point(tag)),
        )
        for part, one, tag in zip(point.parts, workloads, tags, strict=True)
    ]
    return WorkerSpec(
        workloads=tuple(_sampled_together(specs)),
        warmup_ns=scenario.warmup_ns,
        window_ns=point.window_ns or scenario.window_ns,
        requests=scenario.requests,
        drain_ns=max(one.scenario.drain_ns for one in workloads),
        shared=point.shared,
        weights=() if point.shared is None else scenario.weights,
        choices_seed=(scenario.workload.seed, point.number),
        finds_warm_up=scenario.finds_warm_up,
        abort_error_rate=scenario.measure.abort_error_rate,
        overload_abort_after_ns=point.overload_abort_after_ns,
        timeout_ns=max(one.scenario.target.timeout_ns for one in workloads),
    )


def _workload_spec(part: PointPart, one: ProbedWorkload, slo: Slo | None, seed: int, sampling: SamplingSpec | None) -> WorkloadSpec:
    own, probed, load = one.scenario, one.probed, part.load
    options = dataclasses.replace(transport_options(own, part.protocol), answer_limit=probed.answer_limit, seed=seed)
    if load.sequences is not None:
        sequences = dataclasses.replace(load.sequences, stream_lengths=probed.stream_lengths)
        load = dataclasses.replace(load, sequences=sequences.within(probed.highest_sequence_id))
    requests = probed.requests if probed.shared is None else probed.shared.requests_for(load)
    if sampling is not None and sampling.sets_request_id:
        requests = tuple(dataclasses.replace(request, id=REQUEST_ID) for request in requests)
    return WorkloadSpec(
        load=load,
        connections=min(_connections(own, load, part.protocol, probed), options.max_connections),
        address=one.address,
        transport=options,
        requests=requests,
        request_indices=probed.request_indices,
        expectation=probed.expectation,
        check_share=own.check.share,
        check_at_most_per_s=own.check.at_most_per_s,
        seed=seed,
        sampling=sampling,
        good_within_ns=slo.good_within_ns if slo else None,
        is_streamed=own.stream is not None,
    )


def _sampled_together(specs: Sequence[WorkloadSpec]) -> Iterator[WorkloadSpec]:
    """The workloads traced by one share for all, so that the traced requests are a fair sample of the whole, too."""
    rates = [spec.sampling.expected_per_s for spec in specs if spec.sampling]
    known = [rate for rate in rates if rate is not None]
    total_per_s = sum(known) if len(known) == len(rates) else None
    for spec in specs:
        yield dataclasses.replace(spec, sampling=spec.sampling and dataclasses.replace(spec.sampling, expected_per_s=total_per_s))


def _sampling(scenario: Scenario, point: LoadPoint, part: PointPart, trace_ids: TraceIds | None) -> SamplingSpec | None:
    if (traces := scenario.traces) is None or trace_ids is None:
        return None
    expected_per_s = part.load.rate_per_s if isinstance(part.load, OpenPlan) else None
    window_ns, per_s = point.window_ns or scenario.window_ns, traces.rate_per_s
    share, most_per_s = traces.share, None if window_ns is None else MOST_TRACED * NS_PER_S / window_ns
    if per_s is not None and most_per_s is not None:
        per_s = min(per_s, most_per_s)
    if share is not None and most_per_s is not None and expected_per_s:  # a fair sample of the window, and not its first requests
        share = min(share, most_per_s / expected_per_s)
    return SamplingSpec(trace_ids, per_s, share, expected_per_s, sets_request_id=bool(traces.files))


def count_workers(
    spec: WorkerSpec,
    workloads: Sequence[ProbedWorkload],
    calibration: Calibration | None,
    cpus: int,
    budget: MemoryBudget | None = None,
    *,
    machines: int = 1,
) -> int:
    """The number of workers for a load point, at most as many as have work to do; `machines` have those of `measure.workers` each.

    With `measure.workers: auto` it is the number that the rates require together by the calibration of this machine, at most one per CPU;
    without a calibration it is 1. Raises ScenarioError if the processes need more than the budget, by default a quarter of the available
    memory.
    """
    requested = workloads[0].scenario.measure.workers
    if requested == "auto":
        counts = [
            _needed_workers(spec.shared or own.load, one, calibration, cpus) for own, one in zip(spec.workloads, workloads, strict=True)
        ]
        # each count is rounded up, from the busy share of a core; there is a worker on each machine in any case
        return min(max(machines, min(cpus, sum(counts) - len(counts) + 1)), spec.max_workers)
    workers = min(requested * machines, spec.max_workers)
    if workers > machines:
        tensors_bytes = sum(len(tensor.raw) for one in workloads for request in one.probed.requests for tensor in request.inputs)
        each_bytes = _WORKER_BYTES + tensors_bytes
        budget = MemoryBudget() if budget is None else budget
        own = -(-workers // machines)
        arithmetic = f"{own:,} processes × {format_bytes(each_bytes)}"
        budget.reserve("measure.workers", own * each_bytes, arithmetic, "measure.workers, or the requests' tensors")
    return workers


def _needed_workers(load: LoadPlan, one: ProbedWorkload, calibration: Calibration | None, cpus: int) -> int:
    """The workers that a load needs by the calibration; 1 without one that holds for its requests."""
    if calibration is None or not _is_calibrated(one.scenario):
        return 1
    return workers_needed(
        calibration.costs,
        protocol=one.address.protocol,
        tensor_bytes=_tensor_bytes(one.probed),
        rate_per_s=highest_rate_per_s(load, one.probed.probe_time_ns),
        max_workers=cpus,
        spin_ns=spin_ns_per_request(load),
    )


def calibrated_transport_ns(one: ProbedWorkload, calibration: Calibration | None) -> int | None:
    """See `transport_ns`; None without a calibration of this machine, for another machine's server, and for the reference engine."""
    if calibration is None or not one.address.is_local or not _is_calibrated(one.scenario):
        return None
    return transport_ns(calibration.costs, one.address.protocol, _tensor_bytes(one.probed))


def _is_calibrated(scenario: Scenario) -> bool:
    """Whether the calibration covers such requests: plain ones of the wire engine."""
    return scenario.target.engine == "wire" and scenario.stream is None


def _tensor_bytes(probed: ProbeResult) -> int:
    """The size of the largest request's inputs."""
    return max(sum(len(tensor.raw) for tensor in request.inputs) for request in probed.requests)


def least_connections(scenario: Scenario) -> int:
    """The connections that the scenario needs at least, as far as that is known before the target has answered."""
    if scenario.workloads is not None:
        return sum(map(least_connections, scenario.plain_scenarios()))
    load = scenario.load
    in_flight = max(load.closed.concurrency) if isinstance(load, ClosedLoadSpec) else _LEAST_CONNECTIONS
    shared = max(requests_per_connection(scenario, protocol) for protocol in scenario.target.load_protocols)
    return min(math.ceil(in_flight / shared), max_connections(scenario))


def _connections(scenario: Scenario, load: LoadPlan, protocol: WireProtocol, probed: ProbeResult) -> int:
    """Connections to open ahead: for an open loop twice the requests in flight that Little's law gives for the probe's time."""
    if isinstance(load, ColdStartPlan):
        return 0  # the first request after a start opens its connection
    if isinstance(load, ClosedPlan):
        in_flight = load.concurrency
    else:
        rate_per_s = load.rate_per_s * (load.sequences.requests_per_arrival if load.sequences else 1)
        in_flight = max(_LEAST_CONNECTIONS, math.ceil(2 * rate_per_s * probed.probe_time_ns / NS_PER_S))
    return math.ceil(in_flight / requests_per_connection(scenario, protocol))
