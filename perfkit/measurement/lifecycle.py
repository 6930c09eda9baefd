"""Scenario to Result: the composition root. It prints nothing; an `RunObserver` is told what happens."""

import asyncio
import contextlib
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

from perfkit.calibration.model import Calibration, calibration_document
from perfkit.clock import Clock, MonotonicClock, utc_now
from perfkit.errors import MeasurementError, MeasurementWarning, TargetError
from perfkit.load.load_plan import LoadPoint
from perfkit.load.loop import Loop, StopCause
from perfkit.machine.host import describe_host, pinned, usable_cpus
from perfkit.measurement.control import Interruption, RunObserver
from perfkit.measurement.load_points import LoadPointSource, connected, count_workers, describe_load, load_point_source, make_worker_spec
from perfkit.measurement.observation import Observation, observing
from perfkit.measurement.point_measurement import held_s, measured_point, measured_window
from perfkit.measurement.summary import PointMeasurement, point, pooled
from perfkit.measurement.target import Probed, Target, describe_protocol, describe_target, open_target, probe
from perfkit.recorder.recording import Interval
from perfkit.result.distribution import QUANTILES
from perfkit.result.file import ResultWriter
from perfkit.result.model import METRIC_DEFINITIONS, Load, Point, Result, Status
from perfkit.result.provenance import describe_source
from perfkit.result.telemetry_file import SampledPoint
from perfkit.scenario.document import scenario_document
from perfkit.scenario.file import LoadedScenario
from perfkit.stats.slo import Slo
from perfkit.target.address import Address
from perfkit.target.address import Protocol as WireProtocol
from perfkit.target.bundled_server import BundledServer
from perfkit.transport.base import Transport
from perfkit.units import NS_PER_S
from perfkit.workers.cpu_placement import Placement, place
from perfkit.workers.local import LocalWorkers, local_workers
from perfkit.workers.worker_spec import execute


async def run_scenario(
    loaded: LoadedScenario,
    writer: ResultWriter,
    observer: RunObserver,
    interruption: Interruption,
    clock: Clock | None = None,
    calibration: Calibration | None = None,
    publish_at: tuple[str, int] | None = None,
) -> Result:
    """Measures every load point and writes the result as it grows; the caller commits it.

    `calibration` is this machine's, by which `measure.workers: auto` is decided; `publish_at` a host and a port at which the
    run is told to Prometheus while it goes on.

    Raises ModelMismatchError, ScenarioError, TargetError and UsageError as long as nothing was measured; later failures end in a
    result whose status says so.
    """
    scenario, clock = loaded.scenario, clock or MonotonicClock()
    task = asyncio.current_task()
    assert task is not None
    interruption.set_task(task)
    placement = place(scenario, usable_cpus())
    run = _Run(loaded, writer, observer, interruption, clock, placement, calibration, load_point_source(loaded))
    try:
        async with (
            open_target(loaded, placement.server, observer.server_output) as target,
            observing(scenario, target, run.connect, clock, publish_at) as observation,
        ):
            if observation.url:
                observer.metrics_published(observation.url)
            with pinned(placement.driver):  # not earlier: what is started here would inherit it
                await run.prepare(target, observation)
                await run.measure(target, observation)
    except (TargetError, MeasurementError, asyncio.CancelledError) as error:
        if isinstance(error, asyncio.CancelledError) and not interruption.count:
            if run.points:  # what is kept must not pass for a whole run
                run.end("interrupted", "cancelled")
                writer.save(run.result())
            raise
        if not run.points and not isinstance(error, asyncio.CancelledError):
            raise
        if interruption.count:
            run.end("interrupted", str(error))
        else:
            run.end("incomplete" if isinstance(error, TargetError) else "invalid", str(error))
    result = run.result()
    writer.save(result)
    return result


class _Run:
    """The state of one run: what was planned, what was measured, how it ends."""

    def __init__(
        self,
        loaded: LoadedScenario,
        writer: ResultWriter,
        observer: RunObserver,
        interruption: Interruption,
        clock: Clock,
        placement: Placement,
        calibration: Calibration | None,
        source: LoadPointSource,
    ) -> None:
        self.points: list[Point] = []
        self._loaded, self._scenario = loaded, loaded.scenario
        self._writer, self._observer, self._interruption, self._clock = writer, observer, interruption, clock
        self._placement, self._calibration, self._source = placement, calibration, source
        self._warnings = [MeasurementWarning(code="shared_cpus", message=placement.conflict)] if placement.conflict else []
        self._probed: dict[WireProtocol, Probed] = {}
        self._measured: dict[tuple[str, Load], list[PointMeasurement]] = {}
        self._summary: dict[tuple[str, Load], Point] = {}
        self._environment: dict[str, Any] = {}
        self._host, self._code = describe_host(), describe_source(loaded.folder)
        self._status: tuple[Status, str] = ("complete", "")
        self._is_search = source.outcome() is not None
        self._started_at, self._started_ns = utc_now(), clock.now_ns()

    async def prepare(self, target: Target, observation: Observation) -> None:
        """Asks the target for the model over each protocol, makes the requests, and sends one."""
        engine = self._scenario.target.engine
        calibration = None if self._calibration is None else calibration_document(self._calibration)
        self._environment = {
            "generator": {**self._host, "calibration": calibration},
            "source": self._code,
            "metric_definitions": METRIC_DEFINITIONS,
        }
        for protocol, address in target.addresses.items():
            async with self.connect(address) as transport:
                probed = await probe(transport, address, self._loaded)
            self._probed[protocol] = probed
            if probed.note:
                self._warnings.append(MeasurementWarning(code="json_tensors", message=probed.note))
            described = self._environment.setdefault("target", describe_target(probed, address, engine, target.server))
            described["protocols"][protocol] = describe_protocol(probed, address)
            self._observer.target_ready(f"{protocol} {address}, model {self._scenario.target.model}")
        self._tell(observation)

    async def measure(self, target: Target, observation: Observation) -> None:
        """Runs the load points, one repetition after the other, so that slow drift falls on all of them alike."""
        probe_time_ns = max(probed.probe_time_ns for probed in self._probed.values())
        while self._status[0] == "complete" and (plan := self._source.next_point(probe_time_ns)) is not None:
            number, total, seconds = len(self.points) + 1, self._source.total(), self._point_s(plan)
            # a search may end sooner, and its probes are not all alike
            left_s = None if seconds is None or self._is_search else seconds * (total - number + 1)
            self._observer.point_started(number - 1, total, f"{plan.protocol}, {describe_load(plan.load).title}", seconds, left_s)
            await self._measure_one(plan, target, observation)
            if self._status[0] == "complete" and self._interruption.count:
                self.end("interrupted", f"after load point {number} of {total}")
            elif self._status[0] == "complete" and len(self.points) < number:
                self.end("invalid", f"load point {number} of {total} has no window: none of its requests was answered in it")

    def end(self, status: Status, reason: str) -> None:
        """Says how the run ended, where it is not complete."""
        self._status = (status, reason)

    def result(self) -> Result:
        """The result as far as the run has come."""
        status, reason = self._status
        search = self._source.outcome()
        if search is not None and search.stopped_because == "generator":
            status, reason = "invalid", search.reason
        if status == "complete" and search is None and not all(one.valid for one in self.points):
            status, reason = "invalid", "some points are not valid: their warnings say why"
        return Result(
            scenario=scenario_document(self._scenario),
            overrides=self._loaded.overrides,
            environment=self._environment,
            status=status,
            status_reason=reason,
            started_at=self._started_at.isoformat(timespec="milliseconds"),
            points=tuple(self.points),
            summary=tuple(self._summary.values()),
            search=search,
        )

    async def _measure_one(self, planned: LoadPoint, target: Target, observation: Observation) -> None:
        probed = self._probed[planned.protocol]
        order = make_worker_spec(self._scenario, planned, target.addresses[planned.protocol], probed)
        cpus = self._placement.driver
        workers = count_workers(self._scenario, planned, probed, order, self._calibration, len(cpus or usable_cpus()))
        begun_ns = self._clock.now_ns()
        log = self._writer.interval_log(planned.tag, self._started_ns, held_s(self._scenario, planned))
        number = len(self.points) + 1
        observation.point_started(number, self._source.total(), planned)
        telemetry = observation.point(number, target.addresses[planned.protocol])
        await telemetry.before()
        with self._watched(target.server) as on_loop:
            if workers == 1:
                telemetry.follow()

                def on_interval(start_ns: int, interval: Interval) -> None:
                    log.add(start_ns, interval)
                    telemetry.interval(interval)

                recorded = await execute(order, self._clock, on_loop=on_loop, on_interval=on_interval)
            else:
                async with local_workers(order.shared(workers, cpus), self._clock, log.add, log.add_lost, telemetry.interval) as group:
                    on_loop(group)
                    telemetry.follow(group.pids)
                    recorded = await group.run()
            window = measured_window(self._scenario, planned, recorded)
            observed = await telemetry.after(recorded, window)  # still watched: a point that was measured is kept
        if recorded.ending.cause is StopCause.TARGET_LOST:
            self.end("incomplete", f"the target was lost: {recorded.ending.reason}")
        elif recorded.ending.cause is StopCause.TOO_MANY_ERRORS:
            self.end("incomplete", f"aborted: {recorded.ending.reason}")
        elif recorded.ending.cause is StopCause.INTERRUPTED:
            self.end("interrupted", f"in load point {number} of {self._source.total()}")
        log.settle((window.start_ns - recorded.recording.origin_ns) // NS_PER_S)
        if window.length_ns:  # otherwise it ended in the warm-up: there is nothing to keep
            self._tell(observation)
            sampled = SampledPoint(planned.index, planned.repetition, planned.protocol, describe_load(planned.load).title, window.start_ns)
            self._writer.log_series(sampled, self._started_ns, observed.series)
            measured = measured_point(self._scenario, planned, recorded, window, observed, workers, self._warnings)
            self._keep(measured, (self._clock.now_ns() - begun_ns) / NS_PER_S)
            observation.point_finished(number, self.points[-1])

    def _tell(self, observation: Observation) -> None:
        """Hands on what telemetry has said since it was asked last."""
        notes = list(observation.notes)
        told: list[str] = self._environment.get("telemetry", {}).get("notes", [])
        for note in notes[len(told) :]:
            self._observer.note_added(note)
        self._environment["telemetry"] = {"notes": notes}

    def _keep(self, measured: PointMeasurement, took_s: float) -> None:
        """Adds a point to the result, and writes that."""
        group = self._measured.setdefault((measured.protocol, measured.load), [])
        group.append(measured)
        self.points.append(point(measured))
        self._summary[measured.protocol, measured.load] = pooled(group, self._slo())
        if self._status[0] == "complete":
            self._source.record(measured.window, self.points[-1], took_s)
        self._writer.save(self.result())
        self._observer.point_finished(self.points[-1])

    def _slo(self) -> Slo | None:
        given = self._scenario.slo
        if given is None or self._is_search:  # a search has its own verdict
            return None
        return Slo({QUANTILES[name]: limit_ns for name, limit_ns in given.percentiles_ns.items()}, given.error_rate)

    def _point_s(self, plan: LoadPoint) -> float | None:
        window_ns = plan.window_ns or self._scenario.window_ns
        return None if window_ns is None else (self._scenario.warmup_ns + window_ns) / NS_PER_S

    def connect(self, address: Address) -> AbstractAsyncContextManager[Transport]:
        """A transport to an address of the target, for the length of a block."""
        return connected(self._scenario, address, self._clock)

    @contextlib.contextmanager
    def _watched(self, server: BundledServer | None) -> Iterator[Any]:
        """While a loop runs, an interruption or the bundled server's end stops it."""
        loops: list[Loop | LocalWorkers] = []

        def on_loop(loop: Loop | LocalWorkers) -> None:
            loops.append(loop)
            self._interruption.set_loop(loop)

        def on_end(ended: "asyncio.Task[str]") -> None:
            if loops and not ended.cancelled():
                loops[0].stop(f"the bundled server is gone: {ended.result()}", StopCause.TARGET_LOST)

        if server is not None:
            server.ended.add_done_callback(on_end)
        try:
            yield on_loop
        finally:
            self._interruption.set_loop(None)
            if server is not None:
                server.ended.remove_done_callback(on_end)
