"""The lifecycle of a run, from a scenario to a stored result. It prints nothing; a `RunObserver` receives its progress."""

import asyncio
import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

from perfkit.calibration.cache import calibration_path, read_calibration
from perfkit.calibration.model import calibration_document
from perfkit.clock import Clock, MonotonicClock, utc_now
from perfkit.errors import MeasurementError, MeasurementWarning, StorageError, TargetError, UsageError
from perfkit.load.load_plan import ClosedPlan, LoadPoint
from perfkit.load.loop import Loop, StopCause
from perfkit.machine.cpus import pinned, usable_cpus
from perfkit.machine.description import describe_host
from perfkit.machine.limits import count_open_files, raise_open_file_limit
from perfkit.measurement.control import Interruption, RunObserver
from perfkit.measurement.file_limit import describe_shortage, file_needs
from perfkit.measurement.load_points import (
    calibrated_transport_ns,
    connect,
    connect_for_statistics,
    count_workers,
    describe_load,
    least_connections,
    load_point_source,
    make_worker_spec,
)
from perfkit.measurement.observation import Observation, observe
from perfkit.measurement.point_measurement import PointMeasurement, cut_window, make_point_measurement, undecided_warmup_s
from perfkit.measurement.summary import LoadSummary
from perfkit.measurement.target_probe import ProbeResult, Target, describe_protocol, describe_target, open_target, probe
from perfkit.recorder.recording import Interval
from perfkit.result.distribution import QUANTILES
from perfkit.result.file import ResultWriter
from perfkit.result.model import METRIC_DEFINITIONS, Load, Point, Result, Status
from perfkit.result.output_folder import locked
from perfkit.result.provenance import describe_source
from perfkit.result.telemetry_file import SampledPoint
from perfkit.scenario.file import LoadedScenario, scenario_document
from perfkit.stats.slo import SloLimits
from perfkit.target.address import WireProtocol
from perfkit.target.bundled_server import BundledServer
from perfkit.telemetry.client import sampler_process
from perfkit.telemetry.messages import PointBegins
from perfkit.units import NS_PER_S
from perfkit.workers.cpu_placement import place
from perfkit.workers.local import LocalWorkers, local_workers
from perfkit.workers.worker import execute


@dataclasses.dataclass(frozen=True, slots=True)
class MeasuredScenario:
    """The result of a run, and the folder in which it is stored; None if nothing was measured, or `not_stored` says why."""

    result: Result
    folder: pathlib.Path | None
    not_stored: str = ""


async def measure_scenario(
    loaded: LoadedScenario,
    folder: pathlib.Path,
    observer: RunObserver,
    interruption: Interruption,
    *,
    clock: Clock | None = None,
    publish_at: tuple[str, int] | None = None,
    keep_incomplete: bool = True,
) -> MeasuredScenario:
    """Measures every load point of a scenario, or searches its capacity, and stores the result in a folder.

    `publish_at` is a host and port at which live metrics are served. A result without any load point is not stored; nor is one that
    was interrupted or lost its target, if `keep_incomplete` is false.

    Raises ModelMismatchError, ScenarioError, TargetError and UsageError if nothing was measured, also because the folder cannot be
    written or another process writes to it; a failure after the first load point ends in a result whose status says so, and which is
    not stored if the disk is full. If an error is raised after something was measured, the partial result stays in
    `<folder>.partial`, unless `keep_incomplete` is false.
    """
    with locked(folder):
        writer = ResultWriter(folder, utc_now().timestamp())
        try:
            run = _Run(loaded, writer, observer, interruption, clock or MonotonicClock())
        except BaseException:
            writer.discard()
            raise
        try:
            result = await run.execute(publish_at)
            is_incomplete = result.status in ("interrupted", "incomplete") or interruption.count > 0
            if result.points and (keep_incomplete or not is_incomplete):
                return MeasuredScenario(result, writer.commit(in_haste=interruption.count > 1))
        except BaseException as error:
            if not keep_incomplete:
                writer.discard()
            elif (partial := writer.abort()) is not None:
                observer.partial_result_kept(partial)
            if not (isinstance(error, StorageError) and keep_incomplete and (result := run.result()).points):
                raise
            result = result.model_copy(update={"status": "invalid", "status_reason": str(error)})
            return MeasuredScenario(result, None, not_stored=str(error))
        writer.discard()
        return MeasuredScenario(result, None)


class _Run:
    def __init__(
        self, loaded: LoadedScenario, writer: ResultWriter, observer: RunObserver, interruption: Interruption, clock: Clock
    ) -> None:
        self._loaded, self._scenario = loaded, loaded.scenario
        self._writer, self._observer, self._interruption, self._clock = writer, observer, interruption, clock
        self._connect = functools.partial(connect, self._scenario, clock=clock)
        host = describe_host()
        self._calibration = calibration = read_calibration(calibration_path(), host).calibration
        self._placement = place(self._scenario, usable_cpus())
        self._source = load_point_source(loaded)
        self._is_search = self._source.outcome() is not None
        slo = None if self._is_search else self._scenario.slo  # a search has its own verdict
        limits = {QUANTILES[name]: limit_ns for name, limit_ns in slo.percentiles_ns.items()} if slo else {}
        self._slo = SloLimits(limits, slo.error_rate) if slo else None
        self._warnings = [MeasurementWarning(code="shared_cpus", message=self._placement.conflict)] if self._placement.conflict else []
        self._environment: dict[str, Any] = {
            "generator": {**host, "calibration": None if calibration is None else calibration_document(calibration)},
            "source": describe_source(loaded.folder),
            "metric_definitions": METRIC_DEFINITIONS,
        }
        self._probes: dict[WireProtocol, ProbeResult] = {}
        self._points: list[Point] = []
        self._summaries: dict[tuple[str, Load], LoadSummary] = {}
        self._status: Status = "complete"
        self._status_reason = ""
        self._started_at, self._started_ns = utc_now(), clock.now_ns()

    async def execute(self, publish_at: tuple[str, int] | None) -> Result:
        """Measures all load points and saves the result after each; see `measure_scenario`."""
        self._interruption.task = asyncio.current_task()
        least = least_connections(self._scenario)
        self._check_file_limit(least, 1 if self._scenario.measure.workers == "auto" else min(self._scenario.measure.workers, least))
        connect_to_read = functools.partial(connect_for_statistics, self._scenario, clock=self._clock)
        try:
            async with (
                open_target(self._loaded, self._placement.server, self._observer.server_output, self._clock) as target,
                sampler_process(is_wanted=self._scenario.telemetry) as client,
            ):
                with pinned(self._placement.driver):  # after server and samplers have started, which would inherit it
                    await self._probe_target(target)  # before the samplers are waited for, so that a wrong target is reported at once
                screen = self._observer.screen
                observation = await observe(self._scenario, target, client, connect_to_read, self._clock, publish_at, screen)
                async with self._screen(observation):
                    if observation.url:
                        self._observer.metrics_published(observation.url)
                    self._add_notes(observation)
                    with pinned(self._placement.driver):
                        await self._measure_points(target, observation)
        except asyncio.CancelledError as error:
            if not self._interruption.count:
                if self._points:  # a partial result must not look like a complete one
                    self._end("interrupted", "cancelled")
                    self._writer.save(self.result())
                raise
            self._end("interrupted", str(error))
        except (TargetError, MeasurementError) as error:
            if not self._points:
                raise
            failure: Status = "incomplete" if isinstance(error, TargetError) else "invalid"
            self._end("interrupted" if self._interruption.count else failure, str(error))
        result = self.result()
        self._writer.save(result)
        return result

    async def _probe_target(self, target: Target) -> None:
        for protocol, address in target.addresses.items():
            async with self._connect(address) as transport:
                probed = await probe(transport, address, self._loaded, self._clock)
            self._probes[protocol] = probed
            self._warnings += probed.warnings
            engine = self._scenario.target.engine
            description = self._environment.setdefault("target", describe_target(probed, address, engine, target.server))
            description["protocols"][protocol] = describe_protocol(probed, address)
            self._observer.target_ready(f"{protocol} {address}, model {self._scenario.target.model}")

    async def _measure_points(self, target: Target, observation: Observation) -> None:
        """Measures the load points, one repetition after the other, so that slow drift affects all load points alike."""
        probe_time_ns = max(probed.probe_time_ns for probed in self._probes.values())
        while self._status == "complete" and (load_point := self._source.next_point(probe_time_ns)) is not None:
            number, total = len(self._points) + 1, self._source.total()
            window_ns = load_point.window_ns or self._scenario.window_ns
            seconds = None if window_ns is None else (self._scenario.warmup_ns + window_ns) / NS_PER_S
            # a search may end before its maximum, and its probes differ in length
            left_s = None if seconds is None or self._is_search else seconds * (total - number + 1)
            title = f"{load_point.protocol}, {describe_load(load_point.load).title}"
            self._observer.point_started(number - 1, total, title, seconds, left_s)
            times_name = "service time" if isinstance(load_point.load, ClosedPlan) else "response time"
            observation.point_begins(PointBegins(number, total, title, times_name, seconds, left_s))
            await self._measure_point(load_point, target, observation)
            if self._status == "complete" and self._interruption.count:
                self._end("interrupted", f"after load point {number} of {total}")
            elif self._status == "complete" and len(self._points) < number:
                self._end("invalid", f"load point {number} of {total} has no window: no request was answered after the warm-up")

    async def _measure_point(self, load_point: LoadPoint, target: Target, observation: Observation) -> None:
        probed, cpus = self._probes[load_point.protocol], self._placement.driver
        spec = make_worker_spec(self._scenario, load_point, target.addresses[load_point.protocol], probed)
        workers = count_workers(self._scenario, load_point, probed, spec, self._calibration, len(cpus or usable_cpus()))
        self._check_file_limit(spec.point.connections, workers)
        began_ns = self._clock.now_ns()
        log = self._writer.interval_log(load_point.tag, self._started_ns, undecided_warmup_s(self._scenario, load_point))
        number = len(self._points) + 1
        observation.point_started(number, self._source.total(), load_point)
        telemetry = observation.point(number, target.addresses[load_point.protocol], probed.composing_models)
        await telemetry.begin()
        with self._stoppable(target.server) as set_loop:
            if workers == 1:
                telemetry.follow()

                def on_interval(start_ns: int, interval: Interval) -> None:
                    log.add(start_ns, interval)
                    telemetry.publish_interval(interval)

                recorded = await execute(spec, self._clock, on_loop=set_loop, on_interval=on_interval, on_live=telemetry.show_live)
            else:
                show_live = telemetry.show_live
                shares = dataclasses.replace(spec, is_live=show_live is not None).split(workers, cpus)
                receivers = (log.add, log.add_lost, telemetry.publish_interval, show_live or (lambda _: None))
                async with local_workers(shares, self._clock, *receivers) as group:
                    set_loop(group)
                    telemetry.follow(group.pids)
                    recorded = await group.run()
            window = cut_window(self._scenario, load_point, recorded)
            observed = await telemetry.finish(recorded, window)  # an interrupt here does not discard the measured load point
        if recorded.ending.cause is StopCause.FILE_LIMIT:
            self._end("invalid", recorded.ending.reason)
        elif recorded.ending.cause is StopCause.TARGET_LOST:
            self._end("incomplete", f"the target was lost: {recorded.ending.reason}")
        elif recorded.ending.cause is StopCause.TOO_MANY_ERRORS:
            self._end("incomplete", f"aborted: {recorded.ending.reason}")
        elif recorded.ending.cause is StopCause.INTERRUPTED:
            self._end("interrupted", f"in load point {number} of {self._source.total()}")
        log.settle((window.start_ns - recorded.recording.origin_ns) // NS_PER_S)
        if window.length_ns:  # otherwise the load ended during the warm-up
            self._add_notes(observation)
            title = describe_load(load_point.load).title
            sampled = SampledPoint(load_point.index, load_point.repetition, load_point.protocol, title, window.start_ns)
            self._writer.log_series(sampled, self._started_ns, observed.series)
            address = target.addresses[load_point.protocol]
            transport_ns = calibrated_transport_ns(self._scenario, load_point, address, probed, self._calibration)
            measurement = make_point_measurement(
                self._scenario, load_point, recorded, window, observed, workers, self._warnings, transport_ns=transport_ns
            )
            self._add_point(measurement, (self._clock.now_ns() - began_ns) / NS_PER_S)
            observation.point_finished(number, self._points[-1])

    def _check_file_limit(self, connections: int, workers: int) -> None:
        """Raises UsageError if this many connections need more files than may be opened; MeasurementError after the first load point."""
        has_server = not self._scenario.target.urls_by_protocol
        needs = file_needs(
            open_now=count_open_files(), has_started=bool(self._probes), connections=connections, workers=workers, has_server=has_server
        )
        if shortage := describe_shortage(needs, raise_open_file_limit()):
            raise MeasurementError(shortage) if self._points else UsageError(shortage)

    def _add_notes(self, observation: Observation) -> None:
        notes = list(observation.notes)
        known: list[str] = self._environment.get("telemetry", {}).get("notes", [])
        for note in notes[len(known) :]:
            self._observer.note_added(note)
        self._environment["telemetry"] = {"notes": notes}

    def _add_point(self, measurement: PointMeasurement, took_s: float) -> None:
        summary = self._summaries.setdefault((measurement.protocol, measurement.load), LoadSummary(slo=self._slo))
        self._points.append(summary.add(measurement))
        if self._status == "complete":
            self._source.record(measurement.window, self._points[-1], took_s)
        self._writer.save(self.result())
        self._observer.point_finished(self._points[-1])

    def _end(self, status: Status, reason: str) -> None:
        self._status, self._status_reason = status, reason

    def result(self) -> Result:
        """The result with all load points so far."""
        status, reason, search = self._status, self._status_reason, self._source.outcome()
        if search is not None and search.stopped_because == "generator":
            status, reason = "invalid", search.reason
        if status == "complete" and search is None and not all(one.valid for one in self._points):
            status, reason = "invalid", "some load points are not valid; their warnings say why"
        return Result(
            scenario=scenario_document(self._scenario),
            overrides=self._loaded.overrides,
            environment=self._environment,
            status=status,
            status_reason=reason,
            started_at=self._started_at.isoformat(timespec="milliseconds"),
            points=tuple(self._points),
            summary=tuple(summary.pooled() for summary in self._summaries.values()),
            search=search,
        )

    @contextlib.asynccontextmanager
    async def _screen(self, observation: Observation) -> AsyncIterator[None]:
        """Routes the observer's lines through the live view, if there is one, for the length of the block."""
        if observation.has_screen:
            self._observer.screen_opened(observation.show_line)
        try:
            yield
        finally:
            await observation.close_screen()
            self._observer.screen_closed()

    @contextlib.contextmanager
    def _stoppable(self, server: BundledServer | None) -> Iterator[Callable[[Loop | LocalWorkers], None]]:
        """Gives a setter for the loop, which an interruption or the end of the bundled server then stops."""
        loops: list[Loop | LocalWorkers] = []

        def set_loop(loop: Loop | LocalWorkers) -> None:
            loops.append(loop)
            self._interruption.loop = loop

        def on_end(ended: "asyncio.Task[str]") -> None:
            if loops and not ended.cancelled():
                loops[0].stop(f"the bundled server is gone: {ended.result()}", StopCause.TARGET_LOST)

        if server is not None:
            server.ended.add_done_callback(on_end)
        try:
            yield set_loop
        finally:
            self._interruption.loop = None
            if server is not None:
                server.ended.remove_done_callback(on_end)
