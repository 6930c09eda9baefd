"""The run of one scenario: its load points, its result, and what ends it."""

import asyncio
import contextlib
import dataclasses
import pathlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import perfkit
from perfkit.calibration.model import calibration_path, read_calibration
from perfkit.clock import Clock, utc_now
from perfkit.errors import MeasurementError, MeasurementWarning, PerfkitError, StorageError, TargetError, UsageError
from perfkit.load.load_plan import ColdStartPlan
from perfkit.load.loop import StopCause, Stoppable
from perfkit.load.point import LoadPoint
from perfkit.machine.cpus import usable_cpus
from perfkit.machine.description import describe_host
from perfkit.machine.shared_memory import remove_abandoned
from perfkit.measurement.cold_start import StartTrial
from perfkit.measurement.control import Interruption, RunObserver
from perfkit.measurement.load_generator import LoadGenerator
from perfkit.measurement.load_points import calibrated_transport_ns, connect, describe_point, load_point_source
from perfkit.measurement.observation import Observation, PointTelemetry
from perfkit.measurement.point_log import PointHead, PointLog, log_lines
from perfkit.measurement.point_measurement import (
    ProbedFacts,
    cut_window,
    describe_workloads,
    is_open,
    measurements_of,
    named,
    point_lines,
    title_of,
)
from perfkit.measurement.reply_spool import ReplySpool, check_spooled
from perfkit.measurement.request_traces import SPANS_IN_HASTE_WITHIN_S, SPANS_WITHIN_S, RequestTraces, SpanSource
from perfkit.measurement.run_result import WHOLE_POINT, Continuation, RunResult, WholePoint
from perfkit.measurement.run_target import RunTarget, WorkloadKey
from perfkit.measurement.shared_memory import RunRegions, describe_abandoned, unregister_abandoned
from perfkit.measurement.target_probe import ProbedWorkload, describe_protocol, describe_target, probe
from perfkit.measurement.warm_up_extension import WarmUpExtension
from perfkit.points.measured import PointMeasurement
from perfkit.recorder.window import Window
from perfkit.result.file import SERVER_LOG, ResultWriter
from perfkit.result.model import METRIC_DEFINITIONS, Result, Status
from perfkit.result.provenance import describe_source
from perfkit.result.search import AddedTime
from perfkit.result.telemetry_file import SampledPoint
from perfkit.scenario.file import LoadedScenario
from perfkit.spans.split import PARTS
from perfkit.telemetry.messages import PointBegins
from perfkit.units import NS_PER_S
from perfkit.workers.local import place
from perfkit.workers.point_recording import PointRecording

if TYPE_CHECKING:
    from perfkit.fleet.fleet import Fleet


@dataclasses.dataclass(frozen=True, slots=True)
class MeasuredScenario:
    """The result of a run, and the folder in which it is stored; None if nothing was measured, or `not_stored` says why."""

    result: Result
    folder: pathlib.Path | None
    not_stored: str = ""


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


class ScenarioRun:
    """A scenario that is measured load point by load point, alone or interleaved with others, and its result so far."""

    def __init__(
        self,
        loaded: LoadedScenario,
        writer: ResultWriter,
        observer: RunObserver,
        interruption: Interruption,
        clock: Clock,
        title: str,
        spool: ReplySpool | None = None,
        added_ns: int | None = None,
    ) -> None:
        if spool is not None:
            check_spooled(loaded.scenario)
        self._spool = spool
        self.loaded, self.scenario = loaded, loaded.scenario
        self._writer, self.observer, self.interruption, self.clock, self._title = writer, observer, interruption, clock, title
        self.interleaved: Sequence[ScenarioRun] = (self,)
        """The runs that are measured interleaved, this one included."""
        self._traces: RequestTraces | None = None
        self.failure: BaseException | None = None
        """What ended the run without a result."""
        self._has_ended = False
        host = describe_host()
        calibration = read_calibration(calibration_path(), host).calibration
        self.placement = place(self.scenario, usable_cpus())
        self._source = load_point_source(loaded)
        self._is_search = self._source.outcome() is not None
        self.plain = loaded.by_workload()
        """The scenario of each workload by its name, None for a scenario that is no mix."""
        scenarios = {name: one.scenario for name, one in self.plain.items()}
        self.generator = LoadGenerator(self.scenario, scenarios, self.placement, calibration, clock)
        """What sends its load."""
        has_conflict = bool(self.placement.conflict) and self.scenario.fleet is None
        self._warnings = [MeasurementWarning(code="shared_cpus", message=self.placement.conflict)] if has_conflict else []
        environment: dict[str, Any] = {
            "generator": {**host, "calibration": None if calibration is None else calibration.document()},
            "source": describe_source(loaded.folder),
            "metric_definitions": METRIC_DEFINITIONS,
        }
        self._so_far = RunResult(loaded, self.plain, environment, is_search=self._is_search)
        self._workloads: dict[WorkloadKey, ProbedWorkload] = {}
        self.measured = 0
        """The number of measured load points."""
        self.extends_in_doubt = True
        """See `InterleavedCase`."""
        self._started_ns = clock.now_ns()
        self._probe_time_ns = 0
        self._continuation = None if writer.continued is None else Continuation(writer.continued)
        if self._continuation is not None:
            self._continue(added_ns)
        self._abandoned = remove_abandoned()

    def use_fleet(self, fleet: "Fleet") -> None:
        """Sets the machines that send the load, and describes them; called before the first load point."""
        self.generator.fleet = fleet
        self._so_far.environment["fleet"] = fleet.describe()

    def _continue(self, added_ns: int | None) -> None:
        """Takes over the load points of an unfinished result, and gives its search more time; raises ResultError."""
        assert self._continuation is not None
        self.observer.note_added(f"{self._title and f'{self._title}: '}{self._continuation.sentence}")
        self._started_ns -= round(self._continuation.log_elapsed_s * NS_PER_S)
        self.measured = self._continuation.restore(self._source, self._so_far)
        if added_ns is not None:
            self._source.add_time((AddedTime(after_probes=self.measured, budget_s=added_ns / NS_PER_S),))
        # a run that was killed between its last load point and its end has nothing left to measure
        is_fixed = not self.scenario.measure.until_decided
        if self.measured == self.total and is_fixed and self._source.next_point(0) is None:
            self._has_ended = True
            self._continuation.keep_environment(self._so_far)

    def follow(self, interleaved: "Sequence[ScenarioRun]", source: SpanSource | None) -> None:
        """Sets the runs that are measured in turn with this one, and the source of traced requests' spans; called before the first load point."""
        self.interleaved = interleaved
        if self.scenario.traces is not None and source is not None:
            self._traces = RequestTraces(source, self._title, self.clock)

    @property
    def server_log(self) -> pathlib.Path:
        """The file for the output of a server that a command starts."""
        return self._writer.partial / SERVER_LOG

    @property
    def is_active(self) -> bool:
        """Whether it has load points left to measure."""
        return self.failure is None and self._so_far.status == "complete" and not self._has_ended

    def repetition_after(self, measured: int) -> int:
        """The number of complete repetitions after this many load points."""
        return measured * self.scenario.measure.repetitions // max(self.total, 1)

    @contextlib.contextmanager
    def ending(self) -> Iterator[None]:
        """Ends this run if the block raises an error; the other runs go on."""
        try:
            yield
        except PerfkitError as error:
            self.end_by(error)

    def end_by(self, error: PerfkitError) -> None:
        """Ends the run: with a status if it has measured something that can be stored, and with the error otherwise."""
        if not self._so_far.points or isinstance(error, StorageError) or not isinstance(error, TargetError | MeasurementError):
            self.failure = self.failure or error
        elif self._so_far.status == "complete":
            failure: Status = "incomplete" if isinstance(error, TargetError) else "invalid"
            self._so_far.end("interrupted" if self.interruption.count else failure, str(error))

    def cancel(self, error: asyncio.CancelledError) -> None:
        """Ends the run, because it was interrupted while no load was sent, or its task was cancelled."""
        if self.failure is None and not self._has_ended:  # a partial result must not look like a complete one
            self._so_far.end("interrupted", str(error) if self.interruption.count else "cancelled")
        elif self.failure is None and self._traces is not None and not self._traces.breakdowns:
            self.observer.note_added("The wait for the server's spans was interrupted: the result lacks those that had not come yet.")
        if self.failure is None and self.interruption.count < 2:
            with self.ending():
                self._split_traces()

    def save(self) -> None:
        """Saves the result so far, unless the run has failed or measured nothing."""
        if self.failure is None and self._so_far.points:
            self._writer.save(self.result())

    def conclude(self) -> MeasuredScenario:
        """Stores what was measured, once the run has ended; raises its failure."""
        try:
            result = self._ended()
            if result.points:
                can_continue = result.search is not None and result.search.can_continue
                is_finished = (self._has_ended and not can_continue) or self._traces is not None
                folder = self._writer.commit(in_haste=self.interruption.count > 1, is_finished=is_finished)
                return MeasuredScenario(result, folder)
        except BaseException as error:
            if (partial := self._writer.abort()) is not None:
                self.observer.partial_result_kept(partial)
            if not (isinstance(error, StorageError) and (result := self.result()).points):
                raise
            result = result.model_copy(update={"status": "invalid", "status_reason": str(error)})
            return MeasuredScenario(result, None, not_stored=str(error))
        self._writer.discard()
        return MeasuredScenario(result, None)

    async def probe_target(self, target: RunTarget, regions: Mapping[str | None, RunRegions | None]) -> None:
        """Reads the description of each workload's target over each protocol, makes the requests and sends the first."""
        if self._abandoned:
            self.observer.note_added(describe_abandoned(self._abandoned))
        for (name, protocol), address in target.addresses.items():
            plain = self.plain[name]
            async with connect(plain.scenario, address, self.clock) as transport:
                if self._abandoned and address.is_local:
                    await unregister_abandoned(self._abandoned, transport)
                with named(name):
                    probed = await probe(transport, address, plain, self.clock, regions[name])
            self._workloads[name, protocol] = ProbedWorkload(plain.scenario, address, probed)
            self._warnings += () if name else probed.warnings
            if probed.note:
                self.observer.note_added(f"{name}: {probed.note}" if name else probed.note)
            engine = plain.scenario.target.engine
            description = self._so_far.environment.setdefault("target", describe_target(probed, address, engine, target.server))
            description["protocols"].setdefault(protocol, describe_protocol(probed, address))
            if self is self.interleaved[0]:
                workload = f"{name}: " if name else ""
                self.observer.target_ready(f"{workload}{protocol} {address}, model {plain.scenario.target.model}")
        if self.scenario.workloads is not None:
            self._so_far.environment["workloads"] = describe_workloads(self._workloads)
        if self._continuation is not None and (warning := self._continuation.compare(self._so_far)) is not None:
            self._warnings = [*self._warnings, warning]

    async def measure_next_point(self, target: RunTarget, observation: Observation) -> None:
        """Measures one load point; all of a repetition come before the next, so that slow drift affects all load points alike."""
        probe_time_ns = max(one.probed.probe_time_ns for one in self._workloads.values())
        self._probe_time_ns = probe_time_ns
        load_point, added = self._so_far.next_point(self._source, probe_time_ns)
        if load_point is None:
            self._has_ended = True
            return
        if added:
            more = f"{added:,} more measurement{'s' * (added > 1)}"
            self.observer.note_added(f"{self._title and f'{self._title}: '}The SLO's verdict is still open: {more}.")
        number, total = self._number
        window_ns = load_point.window_ns or self.scenario.window_ns
        seconds = None if window_ns is None else (self.scenario.warmup_ns + window_ns) / NS_PER_S
        # a search may end before its maximum, and its probes differ in length
        left_s = None if seconds is None or self._is_search else seconds * (total - number + 1)
        title = f"{self._title and f'{self._title}: '}{title_of(load_point)}"
        self.observer.case_begins(self._title)
        self.observer.point_started(number - 1, total, title, seconds, left_s)
        times_name = "response time" if is_open(load_point) else "service time"
        measured, begins = self.measured, PointBegins(number, total, title, times_name, seconds, left_s)
        await self._measure_point(load_point, target, observation, begins)
        if self._so_far.status == "complete" and self.interruption.count:
            for run in self.interleaved:
                run.stop_early(f"after load point {number} of {total}")
        elif self._so_far.status == "complete" and self.measured == measured:
            self._so_far.end("invalid", f"load point {number} of {total} has no window: no request was answered after the warm-up")

    @property
    def _number(self) -> tuple[int, int]:
        """The number of the next load point among those of all runs, from 1, and their total."""
        return sum(run.measured for run in self.interleaved) + 1, sum(run.total for run in self.interleaved)

    @property
    def total(self) -> int:
        """The number of load points; for a search the maximum."""
        return self._source.total()

    def stop_early(self, reason: str) -> None:
        """Ends the run because it was interrupted."""
        if self.is_active:
            self._so_far.end("interrupted", reason)

    async def _measure_point(self, load_point: LoadPoint, target: RunTarget, observation: Observation, begins: PointBegins) -> None:
        workloads = [self._workloads[part.workload, part.protocol] for part in load_point.parts]
        began_ns, attempts = self.clock.now_ns(), list[_Attempt]()
        number, total = self._number
        observation.point_started(number, total, load_point)
        part = load_point.parts[0]
        key = (part.protocol, part.workload, load_point.repetition)
        alike = [one for one in self._so_far.points if one.valid and (one.protocol, one.workload, one.repetition) == key]
        extension = WarmUpExtension(describe_point(load_point), () if load_point.is_mix else alike, in_doubt=self.extends_in_doubt)
        with self.interruption.stopping(target.server) as set_loop:
            while not attempts or (reason := self._repeats(extension, attempts[-1])):
                if attempts:
                    self.observer.note_added(f"{self._title and f'{self._title}: '}{title_of(load_point)}: {reason}.")
                observation.point_begins(begins)
                attempts.append(await self._send_point(load_point, workloads, target, observation, set_loop, len(attempts)))
            if number == total and not (self._is_search or self.scenario.measure.until_decided):
                self.observer.all_answered()
            sent = attempts[-1]
            recorded, window = sent.recorded, sent.window
            if self._spool is not None:
                self._spool.end(window)
            # an interrupt of these waits does not discard the measured load point
            observed = await sent.telemetry.finish(recorded, window)
            first_s = (window.start_ns - recorded.recording.origin_ns) // NS_PER_S
            # in a thread: an hour of many workers takes seconds, in which a fleet's machines must hear of this one
            lines = log_lines(sent.log.file, point_lines(load_point, self._started_ns), first_s)
            await asyncio.to_thread(self._writer.log_point, lines, sent.log.failure)
        self._so_far.end_early(recorded.ending)
        if recorded.ending.cause is StopCause.INTERRUPTED:
            for run in self.interleaved:
                run.stop_early(f"in load point {number} of {total}")
        if window.length_ns:  # otherwise the load ended during the warm-up
            for run in self.interleaved:
                run.add_notes(observation)
            measurements = measurements_of(
                self.scenario,
                load_point,
                list(zip((one.scenario for one in workloads), sent.facts, strict=True)),
                recorded,
                window,
                observed,
                sent.workers,
                self._warnings,
            )
            discarded_ns = recorded.start_ns - attempts[0].recorded.start_ns
            measurements = [dataclasses.replace(one, warmup_ns=one.warmup_ns + discarded_ns) for one in measurements]
            if sent.start is not None:
                measurements = [dataclasses.replace(measurements[0], cold_start=sent.start.result(load_point.repetition))]
            whole = measurements[0]
            sampled = SampledPoint(load_point.index, load_point.repetition, whole.protocol, whole.load.title, window.start_ns)
            self._writer.log_series(sampled, self._started_ns, observed.series)
            if self._traces is not None:
                self._traces.add(measurements)
            self._add_points(measurements, (self.clock.now_ns() - began_ns) / NS_PER_S, load_point.tag)
            observation.point_finished(number, self._so_far.points[-len(measurements)])
            if self._traces is not None:  # last, because an interrupt of this wait must not discard the measured load point
                await self._traces.collect(observation)

    async def join_traces(self, observation: Observation) -> None:
        """Takes the server's spans of the traced requests, once all load points are measured, and splits their time."""
        if self._traces is None or self.interruption.count > 1:
            return
        try:
            await self._traces.collect(observation, SPANS_WITHIN_S if not self.interruption.count else SPANS_IN_HASTE_WITHIN_S)
        except UsageError as error:  # what was measured stays
            self.observer.note_added(f"traces.files: {error}")
        self._split_traces()

    def _split_traces(self) -> None:
        """Splits the time of the traced requests, as far as their spans were collected."""
        if self._traces is not None and self._so_far.points and not self._traces.breakdowns:
            self._writer.write_traces(PARTS, self._traces.split([one.address for one in self._workloads.values()]))

    def _point_log(self, workers: int, workloads: tuple[ProbedFacts, ...]) -> PointLog:
        """The log of the load point that is about to be measured."""
        if not self.measured:
            self._writer.begin(self.result())
        file, log_bytes, telemetry_bytes = self._writer.begin_point(self.measured)
        head = PointHead(
            version=perfkit.__version__,
            folder=str(self.loaded.folder.resolve()),
            log_started_ns=self._started_ns,
            log_bytes=log_bytes,
            telemetry_bytes=telemetry_bytes,
            probe_time_ns=self._probe_time_ns,
            workers=workers,
            warnings=tuple(self._warnings),
            workloads=workloads,
        )
        return PointLog(file, head, self.clock, self.scenario.measure.checkpoint_ns)

    def _repeats(self, extension: WarmUpExtension, attempt: "_Attempt") -> str:
        """Why a load point is measured again after an attempt; empty if it is not."""
        if not self.scenario.finds_warm_up or not attempt.window.length_ns or attempt.recorded.ending.reason or self.interruption.count:
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
        trace_ids = None if self._traces is None else self._traces.ids
        if self._traces is not None:
            self._traces.read_clocks()
        if trace_ids is not None and number:
            trace_ids = trace_ids.of_point(f"again {number}")
        spec, workers = await self.generator.plan(load_point, workloads, trace_ids, is_first=not self._so_far.points)
        telemetry = observation.point(self._number[0], workloads, is_mix=load_point.is_mix)
        await telemetry.begin()
        start = None
        if isinstance(load := load_point.parts[0].load, ColdStartPlan):
            start = StartTrial(self.scenario, load, workloads[0].address, target.server, self.clock)
        facts = tuple(
            ProbedFacts(one.probed.batch_size, calibrated_transport_ns(one, self.generator.calibration), one.probed.warnings)
            for one in workloads
        )
        if self._spool is not None:
            spec, workers = self._spool.begin(spec, self.clock), 1
        async with contextlib.aclosing(self._point_log(workers, facts)) as log:
            recorded = await self.generator.send(spec, workers, log, telemetry, start, set_loop)
        window = cut_window(self.scenario, recorded, is_open=is_open(load_point))
        return _Attempt(recorded, window, telemetry, log, workers, facts, start)

    def add_notes(self, observation: Observation) -> None:
        """Adds the notes of telemetry to the result; the first of the runs passes them on."""
        known: list[str] = self._so_far.environment.get("telemetry", {}).get("notes", [])
        new = [note for note in observation.notes if note not in known]
        for note in new if self is self.interleaved[0] else ():
            self.observer.note_added(note)
        self._so_far.environment["telemetry"] = {"notes": [*known, *new]}

    def _add_points(self, measurements: Sequence[PointMeasurement], took_s: float, tag: str) -> None:
        """Adds the points of one measurement; the first is that of the whole."""
        whole = self._so_far.add(measurements)
        self.measured += 1
        if self._so_far.status == "complete":
            self._source.record(measurements[0].window, whole, took_s)
        self._writer.save(self.result())
        if self._so_far.status == "complete":  # otherwise another run measures it again
            log_end_s = (self.clock.now_ns() - self._started_ns) / NS_PER_S
            stored = WholePoint(tag, self._probe_time_ns, took_s, utc_now().timestamp(), log_end_s, tuple(measurements))
            self._writer.store_point(self.measured - 1, WHOLE_POINT.encoded(stored))
        self.observer.point_finished(whole)

    def _ended(self) -> Result:
        if self.failure is not None:
            raise self.failure
        return self.result()

    def result(self) -> Result:
        """The result with all load points so far."""
        if self.generator.fleet is not None:
            self.use_fleet(self.generator.fleet)  # with the machines that were lost
        return self._so_far.document(self._source.outcome(), {} if self._traces is None else self._traces.breakdowns)

    @contextlib.asynccontextmanager
    async def screen(self, observation: Observation) -> AsyncIterator[None]:
        """Routes the observer's lines through the live view, if there is one, for the length of the block."""
        if observation.has_screen:
            self.observer.screen_opened(observation.show_line)
        try:
            yield
        finally:
            await observation.close_screen()
            self.observer.screen_closed()
