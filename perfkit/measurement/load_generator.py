"""What sends the load of a run: worker processes of this machine, or the machines of a fleet."""

import asyncio
import dataclasses
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from perfkit.calibration.model import Calibration
from perfkit.clock import Clock
from perfkit.errors import MeasurementError, UsageError
from perfkit.load.loop import Stoppable
from perfkit.load.point import LoadPoint
from perfkit.machine.cpus import usable_cpus
from perfkit.measurement.cold_start import StartTrial
from perfkit.measurement.connections import file_shortage
from perfkit.measurement.point_log import PointLog
from perfkit.measurement.point_telemetry import PointTelemetry
from perfkit.measurement.target_probe import ProbedWorkload
from perfkit.measurement.worker_specs import count_workers, make_worker_spec
from perfkit.override import override
from perfkit.recorder.recent import LiveFigures
from perfkit.scenario.model import Scenario
from perfkit.workers.group import GroupListener
from perfkit.workers.local import LocalWorkers, Placement
from perfkit.workers.messages import Piece, Replied, WorkerSpec
from perfkit.workers.point_recording import PointRecording
from perfkit.workers.request_sampler import TraceIds

if TYPE_CHECKING:
    from perfkit.fleet.fleet import Fleet


class _PointListener(GroupListener):
    """Logs and publishes the pieces that worker processes send, and shows their figures."""

    def __init__(self, log: PointLog, telemetry: PointTelemetry, start: StartTrial | None) -> None:
        self._log, self._telemetry, self._start = log, telemetry, start
        self._show_live = telemetry.show_live

    @override
    def workers_start(self, workers: int) -> None:
        self._log.expect(workers)

    @override
    def piece_came(self, worker: int, piece: Piece) -> None:
        self._log.add(worker, piece)
        for one in piece.point.workloads:
            self._telemetry.publish_times(one.recording)

    @override
    def reply_came(self, reply: Replied) -> None:
        if self._start is not None:
            self._start.take(reply)

    @override
    def worker_lost(self, worker: int | None, reason: str) -> None:
        self._log.lose(worker, reason)

    @override
    def figures_came(self, figures: LiveFigures) -> None:
        if self._show_live is not None:
            self._show_live(figures)


class LoadGenerator:
    """Sends the load points of a scenario: from the machines of `fleet`, otherwise from the worker processes of this machine, `local`."""

    def __init__(
        self,
        scenario: Scenario,
        placement: Placement,
        calibration: Calibration | None,
        fleet: "Fleet | None",
        local: LocalWorkers | None,
        clock: Clock,
    ) -> None:
        self._scenario, self._placement, self._own_calibration, self._clock = scenario, placement, calibration, clock
        self._fleet, self._local = fleet, local

    @property
    def calibration(self) -> Calibration | None:
        """This machine's calibration, if it sends the load."""
        return self._own_calibration if self._fleet is None else None

    async def plan(
        self, point: LoadPoint, workloads: Sequence[ProbedWorkload], trace_ids: TraceIds | None, *, is_first: bool
    ) -> tuple[WorkerSpec, int]:
        """The specification of a load point for a single worker, and the number of workers to divide it among.

        Raises UsageError, or MeasurementError after the first load point, if limits of files or ports are too low for it; TargetError for a
        machine of a fleet that cannot reach the target, and MeasurementError if no machine is left.
        """
        spec = make_worker_spec(self._scenario, point, workloads, trace_ids)
        if self._fleet is None:
            shares_machine = any(one.address.is_local for one in workloads)
            most = self._placement.most_workers(len(usable_cpus()), shares_machine=shares_machine)
            workers = count_workers(spec, workloads, self._own_calibration, most)
            fault = file_shortage(self._scenario, spec.connections, workers, has_started=True)
        else:
            if not (machines := len(self._fleet.machines)):
                raise MeasurementError(self._fleet.describe_losses())
            workers = count_workers(spec, workloads, self._fleet.calibration, self._fleet.cpus, machines=machines)
            fault = self._fleet.limit_fault(spec, workers)
        if fault:
            raise UsageError(fault) if is_first else MeasurementError(fault)
        if self._fleet is not None and is_first:
            await self._fleet.check_targets(spec)
        return spec, workers

    async def send(
        self,
        spec: WorkerSpec,
        workers: int,
        log: PointLog,
        telemetry: PointTelemetry,
        start: StartTrial | None,
        set_loop: Callable[[Stoppable], None],
    ) -> PointRecording:
        """Sends a load point's requests; the pieces of its recording go to `log` and `telemetry`, and `set_loop` gets what can be stopped.

        `telemetry` takes its first readings while the workers get ready. A cold start has one worker and a `start`.
        """
        spec = dataclasses.replace(spec, is_live=telemetry.show_live is not None, reports_replies=start is not None)
        listener = _PointListener(log, telemetry, start)
        if self._fleet is not None:
            await telemetry.begin()
            telemetry.follow()
            return await self._fleet.run_point(spec, workers, listener, set_loop)
        assert self._local is not None

        async def begin_at() -> int:
            assert start is not None
            at_ns = await start.begin()
            set_loop(group)  # only now: until then an interrupt ends the start
            return at_ns

        specs = spec.split(workers, self._placement.driver)
        readings = asyncio.ensure_future(telemetry.begin())
        try:
            async with self._local.group(specs, listener, begins_after=readings, begin_at=None if start is None else begin_at) as group:
                if start is None:
                    set_loop(group)
                telemetry.follow(group.pids)
                return await group.run()
        finally:
            readings.cancel()
