"""The run of one scenario: the probe of its target, its result, and what ends it."""

import asyncio
import contextlib
import dataclasses
import pathlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from perfkit.clock import Clock
from perfkit.errors import MeasurementError, MeasurementWarning, PerfkitError, StorageError, TargetError, UsageError
from perfkit.machine.cpus import usable_cpus
from perfkit.machine.shared_memory import remove_abandoned
from perfkit.measurement.connections import connect
from perfkit.measurement.control import Interruption, RunObserver
from perfkit.measurement.load_points import load_point_source
from perfkit.measurement.run_result import RunResult
from perfkit.measurement.run_target import RunTarget, WorkloadKey
from perfkit.measurement.shared_memory import RunRegions, describe_abandoned, unregister_abandoned
from perfkit.measurement.target_probe import ProbedWorkload, describe_protocol, describe_target, describe_workloads, named, probe
from perfkit.result.file import SERVER_LOG, ResultWriter
from perfkit.scenario.file import LoadedScenario
from perfkit.target.changed_model import changed_model_warnings
from perfkit.units import NS_PER_S
from perfkit.workers.local import LocalWorkers, place

if TYPE_CHECKING:
    from perfkit.calibration.model import Calibration
    from perfkit.fleet.fleet import Fleet
    from perfkit.measurement.observation import Observation
    from perfkit.measurement.reply_spool import ReplySpool
    from perfkit.measurement.request_traces import RequestTraces, SpanSource
    from perfkit.result.model import Result, Status


@dataclasses.dataclass(frozen=True, slots=True)
class MeasuredScenario:
    """The result of a run, and the folder in which it is stored; None if nothing was measured, or `not_stored` says why."""

    result: "Result"
    folder: pathlib.Path | None
    not_stored: str = ""


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
        spool: "ReplySpool | None" = None,
        added_ns: int | None = None,
    ) -> None:
        if spool is not None:
            from perfkit.measurement.reply_spool import check_spooled

            check_spooled(loaded.scenario)
        self.spool = spool
        self.loaded, self.scenario = loaded, loaded.scenario
        self.writer, self.observer, self.interruption, self.clock, self.title = writer, observer, interruption, clock, title
        self.interleaved: Sequence[ScenarioRun] = (self,)
        """The runs that are measured interleaved, this one included."""
        self.traces: RequestTraces | None = None
        self.failure: BaseException | None = None
        """What ended the run without a result."""
        self.has_ended = False
        """Whether all load points are measured."""
        self.placement = place(self.scenario, usable_cpus())
        self.source = load_point_source(loaded)
        self.is_search = self.source.outcome() is not None
        self._planned = self.source.total()
        self.plain = loaded.by_workload()
        """The scenario of each workload by its name, None for a scenario that is no mix."""
        self.fleet: Fleet | None = None
        """The machines that send its load; None for this one."""
        self.local: LocalWorkers | None = None
        """The worker processes of this machine, if it sends the load."""
        has_conflict = bool(self.placement.conflict) and self.scenario.fleet is None
        self.warnings = [MeasurementWarning(code="shared_cpus", message=self.placement.conflict)] if has_conflict else []
        self.so_far = RunResult(loaded, self.plain, {}, is_search=self.is_search)
        self.workloads: dict[WorkloadKey, ProbedWorkload] = {}
        self.calibration: Calibration | None = None
        """This machine's, once the target was probed."""
        self.measured = 0
        """The number of measured load points."""
        self.extends_in_doubt = True
        """See `InterleavedCase`."""
        self.started_ns = clock.now_ns()
        self._continuation, self._is_compared = None, False
        if writer.continued is not None:
            from perfkit.measurement.continuation import Continuation

            self._continuation = Continuation(writer.continued)
            self._continue(added_ns)
        self._abandoned = remove_abandoned()

    def use_fleet(self, fleet: "Fleet") -> None:
        """Sets the machines that send the load, and describes them; called before the first load point."""
        self.fleet = fleet
        self.so_far.environment["fleet"] = fleet.describe()

    def _continue(self, added_ns: int | None) -> None:
        """Takes over the load points of an unfinished result, and gives its search more time; raises ResultError."""
        assert self._continuation is not None
        self.observer.note_added(f"{self.title and f'{self.title}: '}{self._continuation.sentence}")
        self.started_ns -= round(self._continuation.log_elapsed_s * NS_PER_S)
        self.measured = self._continuation.restore(self.source, self.so_far)
        if added_ns is not None:
            from perfkit.result.search import AddedTime

            self.source.add_time((AddedTime(after_probes=self.measured, budget_s=added_ns / NS_PER_S),))
            self.save()  # if it is killed before its next probe, it has been given this time
            self.so_far.environment = {}
        # a run that was killed between its last load point and its end has nothing left to measure
        if self.measured == self.total and not self.so_far.undecided() and self.source.next_point(0) is None:
            self.has_ended = True
            self._continuation.keep_environment(self.so_far)

    def follow(self, interleaved: "Sequence[ScenarioRun]", source: "SpanSource | None") -> None:
        """Sets the runs that are measured in turn with this one, and the source of traced requests' spans; called before the first load point."""
        self.interleaved = interleaved
        if self.scenario.traces is not None and source is not None:
            from perfkit.measurement.request_traces import RequestTraces

            self.traces = RequestTraces(source, self.title, self.clock)

    @property
    def server_log(self) -> pathlib.Path:
        """The file for the output of a server that a command starts."""
        return self.writer.partial / SERVER_LOG

    @property
    def is_active(self) -> bool:
        """Whether it has load points left to measure."""
        return self.failure is None and self.so_far.status == "complete" and not self.has_ended

    def repetition_after(self, measured: int) -> int:
        """The number of complete repetitions after this many load points."""
        return measured * self.scenario.measure.repetitions // max(self._planned, 1)

    @contextlib.contextmanager
    def ending(self) -> Iterator[None]:
        """Ends this run if the block raises an error; the other runs go on."""
        try:
            yield
        except PerfkitError as error:
            self.end_by(error)

    def end_by(self, error: PerfkitError) -> None:
        """Ends the run: with a status if it has measured something that can be stored, and with the error otherwise."""
        if not self.so_far.points or isinstance(error, StorageError) or not isinstance(error, TargetError | MeasurementError):
            self.failure = self.failure or error
        elif self.so_far.status == "complete":
            failure: Status = "incomplete" if isinstance(error, TargetError) else "invalid"
            self.so_far.end("interrupted" if self.interruption.count else failure, str(error))

    def cancel(self, error: asyncio.CancelledError) -> None:
        """Ends the run, because it was interrupted while no load was sent, or its task was cancelled."""
        if self.failure is None and not self.has_ended:  # a partial result must not look like a complete one
            self.so_far.end("interrupted", str(error) if self.interruption.count else "cancelled")
        elif self.failure is None and self.traces is not None and not self.traces.breakdowns:
            self.observer.note_added("The wait for the server's spans was interrupted: the result lacks those that had not come yet.")
        if self.failure is None and self.interruption.count < 2:
            with self.ending():
                self._split_traces()

    def save(self) -> None:
        """Saves the result so far, unless the run has failed or measured nothing."""
        if self.failure is None and self.so_far.points:
            self.writer.save(self.result())

    def conclude(self) -> MeasuredScenario:
        """Stores what was measured, once the run has ended; raises its failure."""
        try:
            result = self._ended()
            if result.points:
                can_continue = result.search is not None and result.search.can_continue
                is_finished = (self.has_ended and not can_continue) or self.traces is not None
                folder = self.writer.commit(in_haste=self.interruption.count > 1, is_finished=is_finished)
                return MeasuredScenario(result, folder)
        except BaseException as error:
            if (partial := self.writer.abort()) is not None:
                self.observer.partial_result_kept(partial)
            if not (isinstance(error, StorageError) and (result := self.result()).points):
                raise
            result = result.model_copy(update={"status": "invalid", "status_reason": str(error)})
            return MeasuredScenario(result, None, not_stored=str(error))
        self.writer.discard()
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
            self.workloads[name, protocol] = ProbedWorkload(plain.scenario, address, probed)
            self.warnings += () if name else probed.warnings
            if probed.note:
                self.observer.note_added(f"{name}: {probed.note}" if name else probed.note)
            engine = plain.scenario.target.engine
            description = self.so_far.environment.setdefault("target", describe_target(probed, address, engine, target.server))
            description["protocols"].setdefault(protocol, describe_protocol(probed, address))
            if self is self.interleaved[0]:
                workload = f"{name}: " if name else ""
                self.observer.target_ready(f"{workload}{protocol} {address}, model {plain.scenario.target.model}")
        if self.scenario.workloads is not None:
            self.so_far.environment["workloads"] = describe_workloads(self.workloads)

    def describe_environment(self) -> None:
        """Adds where the load comes from, and what differs from the beginning of a run that is continued; called on all CPUs, once the target is probed."""
        self._describe_generator()
        targets = {(str(one.address), one.scenario.target.model): one.address for one in self.workloads.values()}
        self.warnings = [*self.warnings, *changed_model_warnings((address, model) for (_, model), address in targets.items())]
        if self._continuation is not None:
            warning, self._is_compared = self._continuation.compare(self.so_far), True
            self.warnings = [*self.warnings, warning] if warning is not None else self.warnings

    def _describe_generator(self) -> None:
        """Adds this machine, its calibration and the commit to the environment, unless they are there; the first request does not wait for them."""
        if "generator" in self.so_far.environment:
            return
        from perfkit.calibration.model import calibration_path, read_calibration
        from perfkit.machine.description import describe_host
        from perfkit.result.model import METRIC_DEFINITIONS
        from perfkit.result.provenance import describe_source

        host = describe_host()
        self.calibration = read_calibration(calibration_path(), host).calibration
        self.so_far.environment = {
            "generator": {**host, "calibration": None if self.calibration is None else self.calibration.document()},
            "source": describe_source(self.loaded.folder),
            "metric_definitions": METRIC_DEFINITIONS,
            **self.so_far.environment,
        }

    @property
    def total(self) -> int:
        """The number of load points; for a search the maximum."""
        return self.source.total()

    def stop_early(self, reason: str) -> None:
        """Ends the run because it was interrupted."""
        if self.is_active:
            self.so_far.end("interrupted", reason)

    async def join_traces(self, observation: "Observation") -> None:
        """Takes the server's spans of the traced requests, once all load points are measured, and splits their time."""
        if self.traces is None or self.interruption.count > 1:
            return
        from perfkit.measurement.request_traces import SPANS_IN_HASTE_WITHIN_S, SPANS_WITHIN_S

        try:
            await self.traces.collect(observation, SPANS_WITHIN_S if not self.interruption.count else SPANS_IN_HASTE_WITHIN_S)
        except UsageError as error:  # what was measured stays
            self.observer.note_added(f"traces.files: {error}")
        self._split_traces()

    def _split_traces(self) -> None:
        """Splits the time of the traced requests, as far as their spans were collected."""
        if self.traces is not None and self.so_far.points and not self.traces.breakdowns:
            from perfkit.spans.split import PARTS

            self.writer.write_traces(PARTS, self.traces.split([one.address for one in self.workloads.values()]))

    def add_notes(self, observation: "Observation") -> None:
        """Adds the notes of telemetry to the result; the first of the runs passes them on, but that a machine has no GPU."""
        from perfkit.telemetry.messages import NO_GPU_NOTE  # later than the first request

        known: list[str] = self.so_far.environment.get("telemetry", {}).get("notes", [])
        new = [note for note in observation.notes if note not in known]
        for note in new if self is self.interleaved[0] else ():
            if not note.startswith(NO_GPU_NOTE):
                self.observer.note_added(note)
        self.so_far.environment["telemetry"] = {"notes": [*known, *new]}

    def _ended(self) -> "Result":
        if self.failure is not None:
            raise self.failure
        return self.result()

    def result(self) -> "Result":
        """The result with all load points so far."""
        if self._continuation is not None and not self._is_compared:  # the target was not reached: what is known of it stays
            self._continuation.keep_environment(self.so_far)
        self._describe_generator()
        if self.fleet is not None:
            self.use_fleet(self.fleet)  # with the machines that were lost
        return self.so_far.document(self.source.outcome(), {} if self.traces is None else self.traces.breakdowns)

    @contextlib.asynccontextmanager
    async def screen(self, observation: "Observation") -> AsyncIterator[None]:
        """Routes the observer's lines through the live view, if there is one, for the length of the block."""
        if observation.has_screen:
            self.observer.screen_opened(observation.show_line)
        try:
            yield
        finally:
            await observation.close_screen()
            self.observer.screen_closed()
