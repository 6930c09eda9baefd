"""The load points of a scenario's run, one after the other: sent, observed, logged, and added to its result."""

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Sequence

import perfkit
from perfkit.clock import utc_now
from perfkit.load.load_plan import ColdStartPlan
from perfkit.load.loop import StopCause, Stoppable
from perfkit.load.point import LoadPoint
from perfkit.measurement.cold_start import StartTrial
from perfkit.measurement.continuation import WHOLE_POINT, WholePoint
from perfkit.measurement.load_generator import LoadGenerator
from perfkit.measurement.load_points import describe_point
from perfkit.measurement.observation import Observation
from perfkit.measurement.point_log import PointHead, PointLog, log_lines
from perfkit.measurement.point_measurement import ProbedFacts, cut_window, is_open, measurements_of, point_lines, title_of
from perfkit.measurement.point_telemetry import PointTelemetry
from perfkit.measurement.run_target import RunTarget
from perfkit.measurement.scenario_run import ScenarioRun
from perfkit.measurement.secret_renewal import SecretRenewal
from perfkit.measurement.target_probe import ProbedWorkload
from perfkit.measurement.warm_up_extension import WarmUpExtension
from perfkit.measurement.worker_specs import calibrated_transport_ns
from perfkit.points.measured import PointMeasurement
from perfkit.recorder.window import Window
from perfkit.result.model import Point
from perfkit.result.telemetry_file import SampledPoint
from perfkit.telemetry.messages import EndedPoint, PointBegins
from perfkit.units import NS_PER_S
from perfkit.workers.point_recording import PointRecording

_MOST_ENDED = 60
"""More lines than a terminal has."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Attempt:
    """What one attempt at a load point recorded, and how; further ones follow while the target is cold."""

    recorded: PointRecording
    window: Window
    telemetry: PointTelemetry
    log: PointLog
    workers: int
    facts: tuple[ProbedFacts, ...]
    start: StartTrial | None


def ended_points(repetitions: Iterable[tuple[str, Point]]) -> tuple[EndedPoint, ...]:
    """The newest of the load points that have ended, of repetitions with titles in the order of time: the newest figures, and the worst of the rest."""
    ended = dict[str, EndedPoint]()
    for title, point in repetitions:
        before = ended.get(title)
        codes = (*(before.codes if before else ()), *(warning.code for warning in point.warnings))
        ended[title] = EndedPoint(
            title,
            before.repetitions + 1 if before else 1,
            point.throughput_per_s,
            point.times.p50,
            point.times.p99,
            max(point.failed_share.estimate, before.failed_share if before else 0.0),
            point.valid and (before is None or before.is_valid),
            tuple(dict.fromkeys(codes)),
        )
    return tuple(ended.values())[-_MOST_ENDED:]


class PointRun:
    """Measures the load points of a `ScenarioRun` whose target was probed."""

    def __init__(self, run: ScenarioRun) -> None:
        self._run = run
        self._generator = LoadGenerator(run.scenario, run.placement, run.calibration, run.fleet, run.local, run.clock)
        self._probe_time_ns = 0

    async def measure_next(self, target: RunTarget, observation: Observation, renewal: SecretRenewal) -> None:
        """Measures one load point; all of a repetition come before the next, so that slow drift affects all load points alike."""
        run = self._run
        self._probe_time_ns = max(one.probed.answer_gap_ns for one in run.workloads.values())
        load_point, added = run.so_far.next_point(run.source, self._probe_time_ns)
        if load_point is None:
            run.has_ended = True
            return
        if added:
            more = f"{added:,} more measurement{'s' * (added > 1)}"
            run.observer.note_added(f"{run.title and f'{run.title}: '}The SLO's verdict is still open: {more}.")
        number, total = self._number
        window_ns = load_point.window_ns or run.scenario.window_ns
        seconds = None if window_ns is None else (run.scenario.warmup_ns + window_ns) / NS_PER_S
        # a search may end before its maximum, and its probes differ in length
        left_s = None if seconds is None or run.is_search else seconds * (total - number + 1)
        title = f"{run.title and f'{run.title}: '}{title_of(load_point)}"
        run.observer.case_begins(run.title)
        run.observer.point_started(number - 1, total, title, seconds, left_s)
        times_name = "response time" if is_open(load_point) else "service time"
        measured, begins = run.measured, PointBegins(number, total, title, times_name, seconds, left_s, self._ended())
        await self._measure_point(load_point, target, observation, begins, renewal)
        if run.so_far.status == "complete" and run.interruption.count:
            for each in run.interleaved:
                each.stop_early(f"after load point {number} of {total}")
        elif run.so_far.status == "complete" and run.measured == measured:
            run.so_far.end("invalid", f"load point {number} of {total} has no window: no request was answered after the warm-up")

    @property
    def _number(self) -> tuple[int, int]:
        """The number of the next load point among those of all runs, from 1, and their total."""
        run = self._run
        return sum(each.measured for each in run.interleaved) + 1, sum(each.total for each in run.interleaved)

    def _ended(self) -> tuple[EndedPoint, ...]:
        """The load points that were measured before, of all runs."""
        points = ((run, point) for run in self._run.interleaved for point in run.so_far.points)
        return ended_points(
            (f"{run.title and f'{run.title}: '}{point.title}", point) for run, point in points if point.workload is None or point.alone
        )

    async def _measure_point(
        self, load_point: LoadPoint, target: RunTarget, observation: Observation, begins: PointBegins, renewal: SecretRenewal
    ) -> None:
        run, keys = self._run, [(part.workload, part.protocol) for part in load_point.parts]
        began_ns, attempts = run.clock.now_ns(), list[_Attempt]()
        number, total = self._number
        observation.point_started(number, total, load_point)
        part = load_point.parts[0]
        key = (part.protocol, part.workload, load_point.repetition)
        alike = [one for one in run.so_far.points if one.valid and (one.protocol, one.workload, one.repetition) == key]
        extension = WarmUpExtension(describe_point(load_point), () if load_point.is_mix else alike, in_doubt=run.extends_in_doubt)
        with run.interruption.stopping(target.server) as set_stopped, renewal.telling(keys) as set_told:

            def set_loop(group: Stoppable) -> None:
                set_told(group)
                set_stopped(group)

            while not attempts or (reason := self._repeats(extension, attempts[-1])):
                if attempts:
                    run.interruption.loop = None  # that of the attempt before
                    run.observer.note_added(f"{run.title and f'{run.title}: '}{title_of(load_point)}: {reason}.")
                observation.point_begins(begins)
                workloads = [run.workloads[key] for key in keys]  # again, since secrets may have changed
                attempts.append(await self._send_point(load_point, workloads, target, observation, set_loop, len(attempts)))
            sent = attempts[-1]
            recorded, window = sent.recorded, sent.window
            if run.spool is not None:
                run.spool.end(window)
            # an interrupt of these waits does not discard the measured load point
            observed = await sent.telemetry.finish(recorded, window)
            first_s = (window.start_ns - recorded.recording.origin_ns) // NS_PER_S
            # in a thread: an hour of many workers takes seconds, in which a fleet's machines must hear of this one
            lines = log_lines(sent.log.file, point_lines(load_point, run.started_ns), first_s)
            await asyncio.to_thread(run.writer.log_point, lines, sent.log.failure)
        run.so_far.end_early(recorded.ending)
        if recorded.ending.cause is StopCause.INTERRUPTED:
            for each in run.interleaved:
                each.stop_early(f"in load point {number} of {total}")
        if window.length_ns:  # otherwise the load ended during the warm-up
            for each in run.interleaved:
                each.add_notes(observation)
            measurements = measurements_of(
                run.scenario,
                load_point,
                list(zip((one.scenario for one in workloads), sent.facts, strict=True)),
                recorded,
                window,
                observed,
                sent.workers,
                run.warnings,
            )
            discarded_ns = recorded.start_ns - attempts[0].recorded.start_ns
            measurements = [dataclasses.replace(one, warmup_ns=one.warmup_ns + discarded_ns) for one in measurements]
            if sent.start is not None:
                measurements = [dataclasses.replace(measurements[0], cold_start=sent.start.result(load_point.repetition))]
            whole = measurements[0]
            sampled = SampledPoint(load_point.index, load_point.repetition, whole.protocol, whole.load.title, window.start_ns)
            run.writer.log_series(sampled, run.started_ns, observed.series)
            if run.traces is not None:
                run.traces.add(measurements)
            self._add_points(measurements, (run.clock.now_ns() - began_ns) / NS_PER_S, load_point.tag)
            observation.point_finished(number, run.so_far.points[-len(measurements)])
            if run.traces is not None:  # last, because an interrupt of this wait must not discard the measured load point
                await run.traces.collect(observation)

    def _point_log(self, workers: int, workloads: tuple[ProbedFacts, ...]) -> PointLog:
        """The log of the load point that is about to be measured."""
        run = self._run
        if not run.measured:
            run.writer.begin(run.result())
        file, log_bytes, telemetry_bytes = run.writer.begin_point(run.measured)
        head = PointHead(
            version=perfkit.__version__,
            folder=str(run.loaded.folder.resolve()),
            log_started_ns=run.started_ns,
            log_bytes=log_bytes,
            telemetry_bytes=telemetry_bytes,
            probe_time_ns=self._probe_time_ns,
            workers=workers,
            warnings=tuple(run.warnings),
            workloads=workloads,
        )
        return PointLog(file, head, run.clock, run.scenario.measure.checkpoint_ns)

    def _repeats(self, extension: WarmUpExtension, attempt: "_Attempt") -> str:
        """Why a load point is measured again after an attempt; empty if it is not."""
        run = self._run
        if not run.scenario.finds_warm_up or not attempt.window.length_ns or attempt.recorded.ending.reason or run.interruption.count:
            return ""
        return extension.reason(attempt.recorded.start_ns, attempt.window)

    async def _send_point(
        self,
        load_point: LoadPoint,
        workloads: Sequence[ProbedWorkload],
        target: RunTarget,
        observation: Observation,
        set_loop: Callable[[Stoppable], None],
        number: int,
    ) -> "_Attempt":
        """Sends the requests of a load point, as its attempt `number`, counted from 0."""
        run = self._run
        trace_ids = None if run.traces is None else run.traces.ids
        if run.traces is not None:
            run.traces.read_clocks()
        if trace_ids is not None and number:
            trace_ids = trace_ids.of_point(f"again {number}")
        spec, workers = await self._generator.plan(load_point, workloads, trace_ids, is_first=not run.so_far.points)
        telemetry = observation.point(self._number[0], workloads, is_mix=load_point.is_mix)
        start = None
        if isinstance(load := load_point.parts[0].load, ColdStartPlan):
            start = StartTrial(run.scenario, load, workloads[0].address, target.server, run.clock)
        facts = tuple(
            ProbedFacts(one.probed.batch_size, calibrated_transport_ns(one, self._generator.calibration), one.probed.warnings)
            for one in workloads
        )
        if run.spool is not None:
            spec, workers = run.spool.begin(spec, run.clock), 1
        async with contextlib.aclosing(self._point_log(workers, facts)) as log:
            recorded = await self._generator.send(spec, workers, log, telemetry, start, set_loop)
        window = cut_window(run.scenario, recorded, is_open=is_open(load_point))
        return _Attempt(recorded, window, telemetry, log, workers, facts, start)

    def _add_points(self, measurements: Sequence[PointMeasurement], took_s: float, tag: str) -> None:
        """Adds the points of one measurement; the first is that of the whole."""
        run = self._run
        whole = run.so_far.add(measurements)
        run.measured += 1
        if run.so_far.status == "complete":
            run.source.record(measurements[0].window, whole, took_s)
        run.writer.save(run.result(), goes_on=True)
        if run.so_far.status == "complete":  # otherwise another run measures it again
            log_end_s = (run.clock.now_ns() - run.started_ns) / NS_PER_S
            stored = WholePoint(tag, self._probe_time_ns, took_s, utc_now().timestamp(), log_end_s, tuple(measurements))
            run.writer.store_point(run.measured - 1, WHOLE_POINT.encoded(stored))
        run.observer.point_finished(whole)
