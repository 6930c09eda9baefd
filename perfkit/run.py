"""Scenario to Result: the composition root. It prints nothing; an `Observer` is told what happens."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any, Protocol

from perfkit.address import Address
from perfkit.address import Protocol as WireProtocol
from perfkit.bundled_server import BundledServer
from perfkit.calibration.model import Calibration, calibration_document
from perfkit.clock import Clock, MonotonicClock, utc_now
from perfkit.errors import MeasurementError, TargetError
from perfkit.fleet.local import LocalFleet, local_fleet
from perfkit.fleet.order import carry_out
from perfkit.fleet.placement import Placement, place
from perfkit.load.interruption import Interruption
from perfkit.load.loop import Loop
from perfkit.load_point import LoadPoint, count_workers, load_points, make_order, max_connections
from perfkit.measured_point import held_s, measured_point, measured_window
from perfkit.observation import Observation, observing
from perfkit.recorder.recording import Interval
from perfkit.result.file import ResultWriter
from perfkit.result.model import METRIC_DEFINITIONS, Load, Point, Result, RunWarning, Search, Status
from perfkit.result.telemetry_file import SampledPoint
from perfkit.scenario.document import scenario_document
from perfkit.scenario.file import LoadedScenario
from perfkit.stats.slo import Slo
from perfkit.stats.summary import QUANTILES, Measured, point, pooled
from perfkit.target import Probed, Target, describe_protocol, describe_target, open_target, probe
from perfkit.telemetry.host import describe_host, pinned, usable_cpus
from perfkit.telemetry.source import describe_source
from perfkit.transport.base import Transport
from perfkit.transport.engine import make_transport
from perfkit.units import NS_PER_S


class Observer(Protocol):
    """Who is told how a run goes on."""

    def server_line(self, line: str) -> None:
        """The bundled server said something."""

    def published(self, url: str) -> None:
        """The run is told to Prometheus there."""

    def target_ready(self, description: str) -> None:
        """The target answers, and knows the model."""

    def noted(self, note: str) -> None:
        """Something of the run as a whole, each once, such as that there is no GPU to sample."""

    def point_started(self, index: int, total: int, description: str, seconds: float | None, seconds_left: float | None) -> None:
        """A load point starts; its length and what is left of the run with it, None where a number of requests ends it."""

    def point_finished(self, finished: Point) -> None:
        """A load point of one repetition was measured."""


class Steering(Protocol):
    """Who decides the load points while they are measured; asked where the scenario's load does not say them."""

    def next_point(self, try_ns: int) -> LoadPoint | None:
        """The next one, None for the end; `try_ns` is how long one request took by itself."""

    def measured(self, measured: Measured, found: Point, took_s: float) -> None:
        """What the last one came to."""

    def total(self) -> int:
        """How many there will be at most."""

    def outcome(self) -> Search:
        """What is known so far."""


async def run_scenario(
    loaded: LoadedScenario,
    writer: ResultWriter,
    observer: Observer,
    interruption: Interruption,
    clock: Clock | None = None,
    calibration: Calibration | None = None,
    publish_at: tuple[str, int] | None = None,
    steering: Steering | None = None,
) -> Result:
    """Measures every load point and writes the result as it grows; the caller commits it.

    `calibration` is this machine's, by which `measure.workers: auto` is decided; `publish_at` a host and a port at which the
    run is told to Prometheus while it goes on; `steering` decides the load points of a search.

    Raises ModelMismatchError, ScenarioError, TargetError and UsageError as long as nothing was measured; later failures end in a
    result whose status says so.
    """
    scenario, clock = loaded.scenario, clock or MonotonicClock()
    task = asyncio.current_task()
    assert task is not None
    interruption.cancel_between_points(task)
    placement = place(scenario, usable_cpus())
    run = _Run(loaded, writer, observer, interruption, clock, placement, calibration, steering)
    try:
        async with (
            open_target(loaded, placement.server, observer.server_line) as target,
            observing(scenario, target, run.connect, clock, publish_at) as observation,
        ):
            if observation.url:
                observer.published(observation.url)
            with pinned(placement.driver):  # not earlier: what is started here would inherit it
                await run.prepare(target, observation)
                await run.measure(target, observation)
    except (TargetError, MeasurementError, asyncio.CancelledError) as error:
        if isinstance(error, asyncio.CancelledError) and not interruption.count:
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
        observer: Observer,
        interruption: Interruption,
        clock: Clock,
        placement: Placement,
        calibration: Calibration | None,
        steering: Steering | None = None,
    ) -> None:
        self.points: list[Point] = []
        self._last: Measured
        self._loaded, self._scenario = loaded, loaded.scenario
        self._writer, self._observer, self._interruption, self._clock = writer, observer, interruption, clock
        self._placement, self._calibration, self._steering = placement, calibration, steering
        self._warnings = [RunWarning(code="shared_cpus", message=placement.conflict)] if placement.conflict else []
        self._probed: dict[WireProtocol, Probed] = {}
        self._measured: dict[tuple[str, Load], list[Measured]] = {}
        self._summary: dict[tuple[str, Load], Point] = {}
        self._environment: dict[str, Any] = {}
        self._host, self._source = describe_host(), describe_source(loaded.folder)
        self._status: tuple[Status, str] = ("complete", "")
        self._plans = load_points(loaded)
        self._started_at, self._started_ns = utc_now(), clock.now_ns()

    async def prepare(self, target: Target, observation: Observation) -> None:
        """Asks the target for the model over each protocol, makes the requests, and sends one."""
        engine = self._scenario.target.engine
        calibration = None if self._calibration is None else calibration_document(self._calibration)
        self._environment = {
            "generator": {**self._host, "calibration": calibration},
            "source": self._source,
            "metric_definitions": METRIC_DEFINITIONS,
        }
        for protocol, address in target.addresses.items():
            async with self.connect(address) as transport:
                probed = await probe(transport, address, self._loaded)
            self._probed[protocol] = probed
            if probed.note:
                self._warnings.append(RunWarning(code="json_tensors", message=probed.note))
            described = self._environment.setdefault("target", describe_target(probed, address, engine, target.server))
            described["protocols"][protocol] = describe_protocol(probed, address)
            self._observer.target_ready(f"{protocol} {address}, model {self._scenario.target.model}")
        self._tell(observation)

    async def measure(self, target: Target, observation: Observation) -> None:
        """Runs the load points, one repetition after the other, so that slow drift falls on all of them alike."""
        if self._steering is not None:
            await self._measure_steered(self._steering, target, observation)
            return
        plans = self._plans
        spec_s = [self._point_s() for _ in plans]
        for index, plan in enumerate(plans):
            left_s = None if None in spec_s else sum(seconds or 0.0 for seconds in spec_s[index:])
            self._observer.point_started(index, len(plans), f"{plan.protocol}, {plan.described.title}", spec_s[index], left_s)
            await self._measure_one(plan, target, observation)
            if self._status[0] == "complete" and self._interruption.count:
                self.end("interrupted", f"after load point {index + 1} of {len(plans)}")
            if self._status[0] != "complete":
                return

    async def _measure_steered(self, steering: Steering, target: Target, observation: Observation) -> None:
        """Runs one load point after the other, as what was measured before them asks for."""
        (probed,) = self._probed.values()
        while self._status[0] == "complete" and (plan := steering.next_point(probed.try_ns)) is not None:
            self._plans.append(plan)
            seconds = (self._scenario.warmup_ns + (plan.window_ns or self._scenario.window_ns or 0)) / NS_PER_S
            self._observer.point_started(len(self.points), steering.total(), f"{plan.protocol}, {plan.described.title}", seconds, None)
            begun_ns, before = self._clock.now_ns(), len(self.points)
            await self._measure_one(plan, target, observation)
            if len(self.points) > before and self._status[0] == "complete":
                steering.measured(self._last, self.points[-1], (self._clock.now_ns() - begun_ns) / NS_PER_S)
                self._writer.save(self.result())
            if self._status[0] == "complete" and self._interruption.count:
                self.end("interrupted", f"after {len(self.points)} probes")

    def end(self, status: Status, reason: str) -> None:
        """Says how the run ended, where it is not complete."""
        self._status = (status, reason)

    def result(self) -> Result:
        """The result as far as the run has come."""
        status, reason = self._status
        search = None if self._steering is None else self._steering.outcome()
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
        order = make_order(self._scenario, planned, target.addresses[planned.protocol], probed)
        cpus = self._placement.driver
        workers = count_workers(self._scenario, planned, probed, order, self._calibration, len(cpus or usable_cpus()))
        log = self._writer.interval_log(planned.tag, self._started_ns, held_s(self._scenario, planned))
        number = len(self.points) + 1
        observation.point_started(number, self._steering.total() if self._steering else len(self._plans), planned)
        telemetry = observation.point(number, target.addresses[planned.protocol])
        await telemetry.before()
        with self._watched(target.server) as on_loop:
            if workers == 1:
                telemetry.follow()

                def on_interval(start_ns: int, interval: Interval) -> None:
                    log.add(start_ns, interval)
                    telemetry.interval(interval)

                recorded = await carry_out(order, self._clock, on_loop=on_loop, on_interval=on_interval)
            else:
                async with local_fleet(order.shared(workers, cpus), self._clock, log.add, log.add_lost, telemetry.interval) as fleet:
                    on_loop(fleet)
                    telemetry.follow(fleet.pids)
                    recorded = await fleet.run()
            window = measured_window(self._scenario, planned, recorded)
            observed = await telemetry.after(recorded, window)  # still watched: a point that was measured is kept
        if recorded.ending.target_lost:
            self.end("incomplete", f"the target was lost: {recorded.ending.reason}")
        elif recorded.ending.aborted:
            self.end("incomplete", f"aborted: {recorded.ending.reason}")
        elif recorded.ending.reason and not recorded.ending.hopeless:
            self.end("interrupted", f"in load point {len(self.points) + 1} of {len(self._plans)}")
        log.settle((window.start_ns - recorded.recording.origin_ns) // NS_PER_S)
        if window.length_ns:  # otherwise it ended in the warm-up: there is nothing to keep
            self._tell(observation)
            sampled = SampledPoint(planned.index, planned.repetition, planned.protocol, planned.described.title, window.start_ns)
            self._writer.log_series(sampled, self._started_ns, observed.series)
            self._keep(measured_point(self._scenario, planned, recorded, window, observed, workers, self._warnings))
            observation.point_finished(number, self.points[-1])

    def _tell(self, observation: Observation) -> None:
        """Hands on what telemetry has said since it was asked last."""
        notes = list(observation.notes)
        told: list[str] = self._environment.get("telemetry", {}).get("notes", [])
        for note in notes[len(told) :]:
            self._observer.noted(note)
        self._environment["telemetry"] = {"notes": notes}

    def _keep(self, measured: Measured) -> None:
        """Adds a point to the result, and writes that."""
        self._last = measured
        group = self._measured.setdefault((measured.protocol, measured.load), [])
        group.append(measured)
        self.points.append(point(measured))
        self._summary[measured.protocol, measured.load] = pooled(group, self._slo())
        self._writer.save(self.result())
        self._observer.point_finished(self.points[-1])

    def _slo(self) -> Slo | None:
        given = self._scenario.slo
        if given is None or self._steering is not None:  # a search has its own verdict
            return None
        return Slo({QUANTILES[name]: limit_ns for name, limit_ns in given.percentiles_ns.items()}, given.error_rate)

    def _point_s(self) -> float | None:
        window_ns = self._scenario.window_ns
        return None if window_ns is None else (self._scenario.warmup_ns + window_ns) / 1e9

    @contextlib.asynccontextmanager
    async def connect(self, address: Address) -> AsyncIterator[Transport]:
        """A transport to an address of the target, for the length of a block."""
        target = self._scenario.target
        transport = make_transport(
            address,
            target.engine,
            max_connections=max_connections(self._scenario),
            timeout_ns=target.timeout_ns,
            clock=self._clock,
            compression=target.compression,
            streams_per_connection=target.streams_per_connection or 1,
        )
        try:
            yield transport
        finally:
            await transport.aclose()

    @contextlib.contextmanager
    def _watched(self, server: BundledServer | None) -> Iterator[Any]:
        """While a loop runs, an interruption or the bundled server's end stops it."""
        loops: list[Loop | LocalFleet] = []

        def on_loop(loop: Loop | LocalFleet) -> None:
            loops.append(loop)
            self._interruption.watch(loop)

        def on_end(ended: "asyncio.Task[str]") -> None:
            if loops and not ended.cancelled():
                loops[0].stop(f"the bundled server is gone: {ended.result()}", target_lost=True)

        if server is not None:
            server.ended.add_done_callback(on_end)
        try:
            yield on_loop
        finally:
            self._interruption.watch(None)
            if server is not None:
                server.ended.remove_done_callback(on_end)
