"""From the recording of a load point to the measurements from which its figures are computed: of the whole and of each workload."""

import dataclasses
from collections.abc import Iterator, Sequence

from perfkit.errors import MeasurementWarning
from perfkit.load.load_plan import ClosedPlan, OpenPlan
from perfkit.load.loop import StopCause
from perfkit.load.point import LoadPoint
from perfkit.measurement.connections import max_connections, requests_per_connection
from perfkit.measurement.load_points import describe_load, describe_point
from perfkit.measurement.point_telemetry import PointObservation
from perfkit.points.behaviour import warm_up_ns
from perfkit.points.measured import MachineMeasurement, PointMeasurement
from perfkit.recorder.window import Window, cut
from perfkit.result.counts import Connections
from perfkit.result.generator import Generator
from perfkit.result.interval_log import PointLines
from perfkit.result.load import OpenLoad
from perfkit.scenario.model import Scenario
from perfkit.scenario.target import Target
from perfkit.target.address import WireProtocol
from perfkit.telemetry.series import Series
from perfkit.transport.connect import FILE_LIMIT_REMEDY
from perfkit.transport.options import Balance
from perfkit.workers.point_recording import PointRecording


def cut_window(scenario: Scenario, recorded: PointRecording, *, is_open: bool) -> Window:
    """The recording without its warm-up, whose end is estimated if the scenario has `measure.warmup: auto`."""
    recording = recorded.recording
    whole = recording.series.between(recording.series.origin_ns, recording.end_ns)
    steady_from_ns = whole.origin_ns + (warm_up_ns(whole, is_open=is_open) if scenario.finds_warm_up else 0)
    return cut(recording, steady_from_ns, is_open=is_open)


@dataclasses.dataclass(frozen=True)
class ProbedFacts:
    """What of a workload's probe belongs to its measurement."""

    batch_size: float = 1
    """The inferences of a request; of a replay, the mean."""
    transport_ns: int | None = None
    """What a request costs this machine, from its calibration; None if unknown."""
    warnings: tuple[MeasurementWarning, ...] = ()


def make_point_measurement(
    scenario: Scenario,
    probed: ProbedFacts,
    load_point: LoadPoint,
    number: int,
    recorded: PointRecording,
    window: Window,
    observed: PointObservation,
    workers: int,
    warnings: Sequence[MeasurementWarning],
) -> PointMeasurement:
    """Puts together what is known about workload `number` of a load point; `warnings` are those of the run as a whole."""
    own_warnings, limit, part = [*warnings, *observed.warnings], max_connections(scenario), load_point.parts[number]
    slots, load = limit * requests_per_connection(scenario, part.protocol), part.load
    if isinstance(load, ClosedPlan) and load.concurrency > slots:
        waited = f"{load.concurrency - slots:,} of the {load.concurrency:,} concurrent requests waited for a free one"
        own_warnings.append(MeasurementWarning("connections_limited", f"target.max_connections allows {limit} connections, so {waited}."))
    if recorded.ending.cause is StopCause.OVERLOADED:
        message = f"The target was overloaded, so the probe ended early: {recorded.ending.reason}."
        own_warnings.append(MeasurementWarning("hopeless", message))
    return PointMeasurement(
        workload=part.workload,
        is_alone=load_point.is_alone,
        protocol=part.protocol,
        load=describe_load(load),
        batch_size=probed.batch_size,
        repetition=load_point.repetition,
        window=window,
        warmup_ns=window.start_ns - recorded.start_ns,
        connections=Connections.model_validate(recorded.connections, from_attributes=True),
        connect_times=recorded.connections.connect_times.counts(),
        connections_by_address=recorded.connections.by_address,
        balance=_balance(scenario.target, part.protocol),
        generator=Generator(
            workers=workers,
            cpu_share=recorded.shares.cpu,
            steal_share=recorded.shares.steal,
            throttled_share=recorded.shares.throttled,
            suspended_ns=recorded.shares.suspended_ns,
            transport_ns=None if load_point.is_mix else probed.transport_ns,
        ),
        warnings=tuple(own_warnings),
        think_time_ns=load.think_time_ns if isinstance(load, ClosedPlan) else 0,
        has_slo=scenario.objective is not None,
        beyond_share=scenario.objective.beyond_share if scenario.objective is not None else 0.0,
        has_token_slo=scenario.objective is not None and scenario.objective.per_token is not None,
        load_varies=scenario.load_varies,
        has_sequences=scenario.sequences is not None,
        is_streamed=scenario.stream is not None,
        has_retries=scenario.has_retries,
        executed_late_per_s=_executed_late_per_s(window, observed.series),
        resources=observed.resources,
        machines=tuple(
            MachineMeasurement(
                one, None if one.recording is None else cut(one.recording, window.start_ns, is_open=isinstance(load, OpenPlan))
            )
            for one in recorded.machines
        ),
        sampled=tuple(one for one in recorded.sampled if window.start_ns <= one.intended_ns < window.end_ns),
        faults=tuple(_faults(recorded)),
    )


def _executed_late_per_s(window: Window, series: Sequence[Series]) -> float | None:
    """The mean of the server's answers a second in the last third of the window."""
    own = next((one for one in series if one.name == "server_answers_per_s"), None)
    return None if own is None else own.between(window.end_ns - window.length_ns // 3, window.end_ns).mean


def _balance(target: Target, protocol: WireProtocol) -> Balance | None:
    if target.resolve == "all" or len(target.urls_by_protocol.get(protocol, ())) > 1:
        return target.balance or "round_robin"
    return None


def _faults(recorded: PointRecording) -> Iterator[MeasurementWarning]:
    for lost in recorded.lost:
        yield MeasurementWarning("worker_lost", f"{lost}.")
    if failed := recorded.connections.failed_by_file_limit:
        attempts = f"{failed} attempt{'s' * (failed > 1)} to open a connection failed"
        message = (
            f"{attempts} at the load generator's limit of open files: requests waited for that, not for the target. {FILE_LIMIT_REMEDY}"
        )
        yield MeasurementWarning("file_limit", message)


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
        has_token_slo=any(part.has_token_slo for part in parts),
        load_varies=any(part.load_varies for part in parts),
        is_streamed=any(part.is_streamed for part in parts),
        has_sequences=any(part.has_sequences for part in parts),
    )
    return [whole, *parts]
