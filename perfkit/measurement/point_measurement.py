"""From what workers recorded of a load point to what its figures are made of."""

from perfkit.errors import MeasurementWarning
from perfkit.load.load_plan import ClosedPlan, LoadPoint
from perfkit.load.loop import StopCause
from perfkit.measurement.load_points import describe_load, max_connections, streams_per_connection
from perfkit.measurement.observation import PointObservation
from perfkit.measurement.summary import PointMeasurement
from perfkit.measurement.window_course import warm_up_ns
from perfkit.recorder.batches import batch_length_ns
from perfkit.recorder.window import Window, cut, cut_step_ns
from perfkit.result.model import Connections, Generator
from perfkit.scenario.model import Scenario
from perfkit.units import NS_PER_S
from perfkit.workers.point import PointRecording


def measured_window(scenario: Scenario, plan: LoadPoint, recorded: PointRecording) -> Window:
    """What was recorded without its warm-up, which is looked for where the scenario leaves it open."""
    recording, is_open = recorded.recording, not isinstance(plan.load, ClosedPlan)
    whole = recording.series.between(recording.series.origin_ns, recording.end_ns)
    steady_from_ns = whole.origin_ns + (warm_up_ns(whole, is_open=is_open) if scenario.finds_warm_up else 0)
    return cut(recording, steady_from_ns, is_open=is_open)


def held_s(scenario: Scenario, plan: LoadPoint) -> int:
    """In so many seconds of a window the end of the warm-up may turn out to lie."""
    window_ns = plan.window_ns or scenario.window_ns
    if window_ns is None or not scenario.finds_warm_up:
        return 0
    return (window_ns // 3 + cut_step_ns(batch_length_ns(window_ns))) // NS_PER_S


def measured_point(
    scenario: Scenario,
    plan: LoadPoint,
    recorded: PointRecording,
    window: Window,
    observed: PointObservation,
    workers: int,
    warnings: list[MeasurementWarning],
) -> PointMeasurement:
    """Everything that is known of a load point; `warnings` are those of the run as a whole."""
    warnings, most = [*warnings, *observed.warnings], max_connections(scenario)
    if isinstance(plan.load, ClosedPlan) and plan.load.concurrency > most * streams_per_connection(scenario, plan.protocol):
        message = f"Only {most} connections are allowed, so the rest of the {plan.load.concurrency} requests waited for one."
        warnings.append(MeasurementWarning(code="connections_limited", message=message))
    if recorded.ending.cause is StopCause.OVERLOADED:
        message = f"The target was overloaded, and the probe ended early: {recorded.ending.reason}."
        warnings.append(MeasurementWarning(code="hopeless", message=message))
    return PointMeasurement(
        protocol=plan.protocol,
        load=describe_load(plan.load),
        batch_size=scenario.workload.batch_size,
        repetition=plan.repetition,
        window=window,
        warmup_ns=window.start_ns - recorded.start_ns,
        connections=Connections(
            opened=recorded.connections.opened, reconnects=recorded.connections.reconnects, retried=recorded.connections.retried
        ),
        generator=Generator(
            workers=workers,
            cpu_share=recorded.shares.cpu,
            steal_share=recorded.shares.steal,
            throttled_share=recorded.shares.throttled,
        ),
        warnings=tuple(warnings),
        think_time_ns=plan.load.think_time_ns if isinstance(plan.load, ClosedPlan) else 0,
        has_slo=scenario.objective is not None,
        resources=observed.resources,
        faults=tuple(
            MeasurementWarning(code="worker_lost", message=f"{lost}: its share of the load is missing.") for lost in recorded.lost
        ),
    )
