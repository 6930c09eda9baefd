"""What the workers of a load point are told, and how many they are."""

import dataclasses
import math
import sys
from collections.abc import Iterator, Sequence

from perfkit.calibration.model import Calibration, highest_rate_per_s, spin_ns_per_request, transport_ns, workers_needed
from perfkit.load.abandonment import AbandonPlan
from perfkit.load.load_plan import ClosedPlan, ColdStartPlan, LoadPlan, OpenPlan
from perfkit.load.planned_loads import plan_warm_up
from perfkit.load.point import LoadPoint, PointPart
from perfkit.load.retries import RetryPlan
from perfkit.machine.limits import MemoryBudget
from perfkit.measurement.connections import LEAST_CONNECTIONS, requests_per_connection, transport_options
from perfkit.measurement.target_probe import ProbedWorkload, ProbeResult
from perfkit.scenario.load import ClosedLoadSpec, OpenLoadSpec
from perfkit.scenario.model import Scenario
from perfkit.scenario.slo import Slo
from perfkit.target.address import WireProtocol
from perfkit.transport.options import limit_for_load
from perfkit.units import NS_PER_S, format_bytes
from perfkit.workers.messages import WorkerSpec, WorkloadSpec
from perfkit.workers.request_sampler import MOST_TRACED, REQUEST_ID, SamplingSpec, TraceIds

# a worker's own memory, without what processes share
_WORKER_BYTES = 40 * 2**20


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
            len(point.parts),
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
        warm_up=plan_warm_up(scenario),
        warm_up_ns=scenario.warm_load_ns,
        abort_error_rate=scenario.measure.abort_error_rate,
        overload_abort_after_ns=point.overload_abort_after_ns,
        timeout_ns=max(one.scenario.longest_request_ns for one in workloads),
    )


def _workload_spec(
    part: PointPart, one: ProbedWorkload, slo: Slo | None, seed: int, sampling: SamplingSpec | None, workloads: int
) -> WorkloadSpec:
    own, probed, load = one.scenario, one.probed, part.load
    options = dataclasses.replace(transport_options(own, part.protocol), seed=seed)
    if own.target.max_answer_bytes is None:
        in_flight = _most_in_flight(own, load, part.protocol, options.max_connections)
        options = dataclasses.replace(options, answer_limit=limit_for_load(probed.largest_bytes, workloads * in_flight))
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
        good_within_ns=slo.good_within_ns if slo else {},
        is_streamed=own.stream is not None,
        abandon=_abandon_plan(own),
        retry=_retry_plan(own),
    )


def _abandon_plan(scenario: Scenario) -> AbandonPlan | None:
    if not isinstance(scenario.load, ClosedLoadSpec | OpenLoadSpec) or (given := scenario.load.abandon) is None:
        return None
    after = given.after
    return AbandonPlan(
        share=given.share,
        seed=scenario.workload.seed,
        uniform_ns=after.uniform_ns or (None if after.time_ns is None else (after.time_ns, after.time_ns)),
        lognormal_ns=None if after.lognormal_ns is None else (after.lognormal_ns, after.sigma),
        after_responses=after.events or 0,
    )


def _retry_plan(scenario: Scenario) -> RetryPlan | None:
    if (given := scenario.retry) is None:
        return None
    return RetryPlan(given.attempts, *given.backoff_ns, given.jitter == "full", given.on, given.budget, scenario.workload.seed)


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
    """Whether the calibration covers such requests: plain ones with tensors, sent by the wire engine."""
    return scenario.target.engine == "wire" and not scenario.target.spoken_api.takes_prompts and scenario.stream is None


def _tensor_bytes(probed: ProbeResult) -> int:
    """The size of the largest request's inputs."""
    return max(sum(len(tensor.raw) for tensor in request.inputs) for request in probed.requests)


def _most_in_flight(scenario: Scenario, load: LoadPlan, protocol: WireProtocol, max_connections: int) -> int:
    """The most requests in flight at a time."""
    if isinstance(load, ClosedPlan):
        return load.concurrency
    return min(load.max_in_flight or sys.maxsize, max_connections * requests_per_connection(scenario, protocol))


def _connections(scenario: Scenario, load: LoadPlan, protocol: WireProtocol, probed: ProbeResult) -> int:
    """Connections to open ahead: for an open loop twice the requests in flight that Little's law gives for the probe's time."""
    if isinstance(load, ColdStartPlan):
        return 0  # the first request after a start opens its connection
    if isinstance(load, ClosedPlan):
        in_flight = load.concurrency
    else:
        rate_per_s = load.rate_per_s * (load.sequences.requests_per_arrival if load.sequences else 1)
        in_flight = max(LEAST_CONNECTIONS, math.ceil(2 * rate_per_s * probed.probe_time_ns / NS_PER_S))
    return math.ceil(in_flight / requests_per_connection(scenario, protocol))
