"""Load points of several workloads: what the workers do, and the measurements of each workload and of the whole."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from perfkit.calibration.model import Calibration
from perfkit.errors import MeasurementWarning, PerfkitError
from perfkit.load.load_plan import LoadPoint, OpenPlan
from perfkit.load.mix_plan import MixPoint
from perfkit.measurement.load_points import calibrated_transport_ns, count_workers, describe_load, describe_point, make_worker_spec
from perfkit.measurement.observation import PointObservation
from perfkit.measurement.point_measurement import make_point_measurement
from perfkit.measurement.run_target import WorkloadKey
from perfkit.measurement.target_probe import ProbedWorkload
from perfkit.points.measured import PointMeasurement
from perfkit.recorder.window import Window, cut
from perfkit.result.load import OpenLoad
from perfkit.scenario.model import Scenario
from perfkit.workers.point_recording import PointRecording
from perfkit.workers.request_sampler import TraceIds
from perfkit.workers.worker_spec import MixSpec, WorkerSpec


def title_of(point: LoadPoint | MixPoint) -> str:
    """A load point in words, for progress."""
    if isinstance(point, MixPoint):
        return f"{' + '.join(str(part.workload) for part in point.parts)}, {describe_point(point).title}"
    workload = "" if point.workload is None else f"{point.workload} alone, "
    return f"{workload}{point.protocol}, {describe_load(point.load).title}"


def is_open(point: LoadPoint | MixPoint) -> bool:
    """Whether every request of a load point has an intended start, and so a response time."""
    return isinstance(describe_point(point), OpenLoad)


def make_mix_spec(scenario: Scenario, point: MixPoint, workloads: Sequence[ProbedWorkload], trace_ids: TraceIds | None = None) -> MixSpec:
    """What a single worker would do in a load point of several workloads."""
    specs, drain_ns = [], max(one.scenario.drain_ns for one in workloads)
    for part, one in zip(point.parts, workloads, strict=True):
        spec = make_worker_spec(one.scenario, part, one.address, one.probed, trace_ids)
        slo = one.scenario.slo or scenario.slo
        own = dataclasses.replace(
            spec.point,
            load=point.load or spec.point.load,
            warmup_ns=scenario.warmup_ns,
            window_ns=point.window_ns or scenario.window_ns,
            drain_ns=drain_ns,
            finds_warm_up=scenario.finds_warm_up,
            checkpoint_ns=scenario.measure.checkpoint_ns,
            timeout_ns=max(one.scenario.target.timeout_ns for one in workloads),
            good_within_ns=slo.good_within_ns if slo else None,
        )
        specs.append(dataclasses.replace(spec, point=own))
    samplings = [spec.sampling for spec in specs if spec.sampling]
    rates = [sampling.expected_per_s for sampling in samplings if sampling.expected_per_s is not None]
    if samplings:  # one share for all, so that the traced requests are a fair sample of the whole, too
        total_per_s = sum(rates) if len(rates) == len(samplings) else None
        together = [dataclasses.replace(sampling, expected_per_s=total_per_s) for sampling in samplings]
        specs = [dataclasses.replace(spec, sampling=sampling) for spec, sampling in zip(specs, together, strict=True)]
    return MixSpec(tuple(specs), scenario.weights, (scenario.workload.seed, point.number))


def count_mix_workers(
    point: MixPoint, workloads: Sequence[ProbedWorkload], spec: MixSpec, calibration: Calibration | None, cpus: int, machines: int = 1
) -> int:
    """The number of workers for a load point of several workloads: as many as they need together; see `count_workers`."""
    is_auto = workloads[0].scenario.measure.workers == "auto"
    counts = [  # of auto, what the rates need: there is a worker on each machine in any case
        count_workers(one.scenario, part, one.probed, own, calibration, cpus, machines=1 if is_auto else machines)
        for part, one, own in zip(point.parts, workloads, spec.workloads, strict=True)
    ]
    # each count is rounded up, from the busy share of a core
    wanted = max(counts) if not is_auto else max(machines, min(cpus, sum(counts) - len(counts) + 1))
    return min(wanted, spec.max_workers)


def mix_measurements(
    scenario: Scenario,
    point: MixPoint,
    workloads: Sequence[ProbedWorkload],
    recorded: PointRecording,
    window: Window,
    observed: PointObservation,
    workers: int,
    warnings: Sequence[MeasurementWarning],
) -> list[PointMeasurement]:
    """The measurement of the whole, then that of each workload. The windows of all begin and end together."""
    parts = list[PointMeasurement]()
    for number, (part, one, own) in enumerate(zip(point.parts, workloads, recorded.workloads, strict=True)):
        recording = dataclasses.replace(own.recording, end_ns=recorded.recording.end_ns)
        own_window = cut(recording, window.start_ns, is_open=isinstance(part.load, OpenPlan))
        own_recorded = dataclasses.replace(
            recorded, recording=recording, connections=own.connections, sampled=own.sampled, lost=(), machines=()
        )
        own_observed = observed.of_workload(number)
        measured = make_point_measurement(
            one.scenario, part, own_recorded, own_window, own_observed, workers, [*one.probed.warnings], batch_size=one.probed.batch_size
        )
        has_slo = one.scenario.slo is not None or scenario.slo is not None
        parts.append(dataclasses.replace(measured, shares_load=point.load is not None, has_slo=has_slo))
    finished = sum(part.window.count("finished") for part in parts)
    inferences = sum(part.window.count("finished") * part.batch_size for part in parts)
    protocols = {part.protocol for part in parts}
    think_times_ns = {part.think_time_ns for part in parts}
    whole = dataclasses.replace(
        make_point_measurement(scenario, point.parts[0], recorded, window, observed, workers, list(warnings), batch_size=1),
        workload=None,
        protocol=protocols.pop() if len(protocols) == 1 else "mixed",
        load=describe_point(point),
        batch_size=inferences / finished if finished else 1,
        think_time_ns=parts[0].think_time_ns,
        shares_load=len(think_times_ns) > 1,
        has_slo=any(part.has_slo for part in parts),
        is_streamed=any(part.is_streamed for part in parts),
        has_sequences=any(part.has_sequences for part in parts),
    )
    return [whole, *parts]


def describe_workloads(workloads: Mapping[WorkloadKey, ProbedWorkload]) -> dict[str, dict[str, object]]:
    """The targets of a mix's workloads as a result describes them."""
    return {
        str(name): {
            "model": one.scenario.target.model,
            "protocol": protocol,
            "url": str(one.address),
            "path": one.address.network_path,
            "payload_sha256": one.probed.payload_sha256,
            "model_config_sha256": one.probed.config_sha256,
        }
        for (name, protocol), one in workloads.items()
    }


def plan_workers(
    scenario: Scenario,
    point: LoadPoint | MixPoint,
    workloads: Sequence[ProbedWorkload],
    calibration: Calibration | None,
    cpus: int,
    trace_ids: TraceIds | None = None,
    *,
    machines: int = 1,
) -> tuple[WorkerSpec | MixSpec, int]:
    """What a single worker would do in a load point, and the number of workers on so many machines."""
    if isinstance(point, MixPoint):
        mix_spec = make_mix_spec(scenario, point, workloads, trace_ids)
        return mix_spec, count_mix_workers(point, workloads, mix_spec, calibration, cpus, machines)
    (one,) = workloads
    spec = make_worker_spec(one.scenario, point, one.address, one.probed, trace_ids)
    return spec, count_workers(one.scenario, point, one.probed, spec, calibration, cpus, machines=machines)


def measurements_of(
    scenario: Scenario,
    point: LoadPoint | MixPoint,
    workloads: Sequence[ProbedWorkload],
    recorded: PointRecording,
    window: Window,
    observed: PointObservation,
    workers: int,
    warnings: Sequence[MeasurementWarning],
    calibration: Calibration | None,
) -> list[PointMeasurement]:
    """The measurement of a load point; in a mix that of the whole, then those of its workloads."""
    if isinstance(point, MixPoint):
        return mix_measurements(scenario, point, workloads, recorded, window, observed, workers, warnings)
    (one,) = workloads
    own = [*warnings, *(one.probed.warnings if point.workload else ())]
    transport_ns = calibrated_transport_ns(one.scenario, point, one.address, one.probed, calibration)
    batch_size = one.probed.batch_size
    return [
        make_point_measurement(
            one.scenario, point, recorded, window, observed, workers, own, batch_size=batch_size, transport_ns=transport_ns
        )
    ]


@contextlib.contextmanager
def named(workload: str | None) -> Iterator[None]:
    """Adds a workload's name to errors of its probe."""
    try:
        yield
    except PerfkitError as error:
        if workload is None:
            raise
        raise type(error)(f"workload '{workload}': {error}") from None
