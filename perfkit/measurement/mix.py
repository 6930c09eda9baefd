"""Load points of one workload or several in words, and the measurements of the whole and of each workload."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

from perfkit.errors import MeasurementWarning, PerfkitError
from perfkit.load.load_plan import OpenPlan
from perfkit.load.point import LoadPoint
from perfkit.measurement.load_points import describe_point
from perfkit.measurement.observation import PointObservation
from perfkit.measurement.point_measurement import ProbedFacts, make_point_measurement
from perfkit.measurement.run_target import WorkloadKey
from perfkit.measurement.target_probe import ProbedWorkload
from perfkit.points.measured import PointMeasurement
from perfkit.recorder.window import Window, cut
from perfkit.result.interval_log import PointLines
from perfkit.result.load import OpenLoad
from perfkit.scenario.model import Scenario
from perfkit.workers.point_recording import PointRecording


def title_of(point: LoadPoint) -> str:
    """A load point in words, for progress."""
    title = describe_point(point).title
    if point.is_mix:
        return f"{' + '.join(str(part.workload) for part in point.parts)}, {title}"
    workload = f"{point.parts[0].workload} alone, " if point.is_alone else ""
    return f"{workload}{point.parts[0].protocol}, {title}"


def point_lines(point: LoadPoint, log_started_ns: int) -> PointLines:
    """What makes the lines of a load point in the interval log."""
    return PointLines(point.tag, log_started_ns, point.part_tags, are_alike=describe_point(point).kind != "mixed")


def is_open(point: LoadPoint) -> bool:
    """Whether every request of a load point has an intended start, and so a response time."""
    return isinstance(describe_point(point), OpenLoad)


def measurements_of(
    scenario: Scenario,
    point: LoadPoint,
    workloads: Sequence[tuple[Scenario, ProbedFacts]],
    recorded: PointRecording,
    window: Window,
    observed: PointObservation,
    workers: int,
    warnings: Sequence[MeasurementWarning],
) -> list[PointMeasurement]:
    """The measurement of a load point; in a mix that of the whole, then those of its workloads. The windows of all begin and end together."""
    if not point.is_mix:
        ((own, probed),) = workloads
        own_warnings = [*warnings, *(probed.warnings if point.is_alone else ())]
        return [make_point_measurement(own, probed, point, 0, recorded, window, observed, workers, own_warnings)]
    parts = list[PointMeasurement]()
    for number, (own, probed) in enumerate(workloads):
        own_recorded, own_is_open = recorded.of_workload(number), isinstance(point.parts[number].load, OpenPlan)
        own_window = cut(own_recorded.recording, window.start_ns, is_open=own_is_open)
        own_observed = observed.of_workload(number)
        measured = make_point_measurement(own, probed, point, number, own_recorded, own_window, own_observed, workers, probed.warnings)
        has_slo = own.slo is not None or scenario.slo is not None
        parts.append(dataclasses.replace(measured, shares_load=point.shared is not None, has_slo=has_slo))
    finished = sum(part.window.count("finished") for part in parts)
    inferences = sum(part.window.count("finished") * part.batch_size for part in parts)
    protocols = {part.protocol for part in parts}
    think_times_ns = {part.think_time_ns for part in parts}
    whole = dataclasses.replace(
        make_point_measurement(scenario, ProbedFacts(), point, 0, recorded, window, observed, workers, warnings),
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


@contextlib.contextmanager
def named(workload: str | None) -> Iterator[None]:
    """Adds a workload's name to errors of its probe."""
    try:
        yield
    except PerfkitError as error:
        if workload is None:
            raise
        raise type(error)(f"workload '{workload}': {error}") from None
