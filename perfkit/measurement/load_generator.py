"""What sends the load of a run: worker processes of this machine, or the machines of a fleet; and whether they can open the files that they need."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from perfkit.calibration.model import Calibration
from perfkit.clock import Clock
from perfkit.errors import MeasurementError, UsageError
from perfkit.load.loop import Stoppable
from perfkit.load.point import LoadPoint
from perfkit.machine.cpus import usable_cpus
from perfkit.machine.limits import count_open_files, raise_open_file_limit
from perfkit.measurement.cold_start import StartTrial
from perfkit.measurement.load_points import count_workers, least_connections, make_worker_spec
from perfkit.measurement.observation import PointTelemetry
from perfkit.measurement.point_log import PointLog
from perfkit.measurement.target_probe import ProbedWorkload
from perfkit.override import override
from perfkit.recorder.recent import LiveFigures
from perfkit.scenario.model import Scenario
from perfkit.workers.group import GroupListener
from perfkit.workers.local import WORKER_FILES, LocalWorkers, Placement
from perfkit.workers.messages import Piece, Replied, WorkerSpec
from perfkit.workers.point_recording import PointRecording
from perfkit.workers.request_sampler import TraceIds

if TYPE_CHECKING:
    from perfkit.fleet.fleet import Fleet

# measured, with some to spare: reading and writing files, and starting a process; before that, the pipes of children that are still to start
_DRIVER_FILES, _FILES_OF_CHILDREN_TO_START = 8, 8
_FILES_PER_WORKER = 3
# the interpreter, the event loop, libraries, listening sockets; measured, with some to spare
_SERVER_FILES = 28


@dataclasses.dataclass(frozen=True, slots=True)
class FileNeed:
    """The files and sockets that one process of a run needs, with the arithmetic."""

    process: str
    files: int
    arithmetic: str


def file_needs(*, open_now: int, has_started: bool, connections: int, workers: int, has_server: bool) -> list[FileNeed]:
    """What each process of a run needs.

    `open_now` are the files that this process has open, `has_started` says whether they include the pipes of its children, and
    `connections` are those of all workers together. Pipes of workers that have stayed from an earlier load point count twice.
    """
    needs, spare = [], _DRIVER_FILES + (0 if has_started else _FILES_OF_CHILDREN_TO_START)
    own = f"{open_now} that are open, {spare} for its child processes and files"
    pipes, share = _FILES_PER_WORKER * workers, -(-connections // workers)
    needs.append(FileNeed("the load generator", open_now + spare + pipes, f"{own}, {pipes} for {workers} workers"))
    needs.append(FileNeed("each worker", WORKER_FILES + share, f"{WORKER_FILES} of its own, {share} for connections"))
    if has_server:
        needs.append(
            FileNeed("the bundled server", _SERVER_FILES + connections, f"{_SERVER_FILES} of its own, {connections} for connections")
        )
    return needs


def describe_shortage(needs: list[FileNeed], limit: int) -> str:
    """A sentence about the process that lacks most, with the remedy; empty if each has what it needs."""
    need = max(needs, key=lambda one: one.files)
    if need.files <= limit:
        return ""
    return (
        f"the file limit is too low: {need.process} needs {need.files} open files and sockets ({need.arithmetic}), and the limit is {limit}: "
        f"raise it, such as `ulimit -n {max(1024, 2 * need.files)}`, or lower the concurrency or target.max_connections"
    )


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
    """Sends the load points of a scenario; `plain` has the scenario of each workload."""

    def __init__(
        self, scenario: Scenario, plain: Mapping[str | None, Scenario], placement: Placement, calibration: Calibration | None, clock: Clock
    ) -> None:
        self._scenario, self._plain, self._placement, self._own_calibration, self._clock = scenario, plain, placement, calibration, clock
        self.fleet: Fleet | None = None
        """The machines that send the load; None for this one."""
        self.local: LocalWorkers | None = None
        """The worker processes of this machine, if it sends the load."""

    @property
    def calibration(self) -> Calibration | None:
        """This machine's calibration, if it sends the load."""
        return self._own_calibration if self.fleet is None else None

    def check_connections(self) -> None:
        """Raises UsageError if the scenario needs more connections than this process may open files; a fleet's machines open them themselves."""
        if self._scenario.fleet is None:
            least, workers = least_connections(self._scenario), self._scenario.measure.workers
            if shortage := self._shortage(least, 1 if workers == "auto" else min(workers, least), has_started=False):
                raise UsageError(shortage)

    async def plan(
        self, point: LoadPoint, workloads: Sequence[ProbedWorkload], trace_ids: TraceIds | None, *, is_first: bool
    ) -> tuple[WorkerSpec, int]:
        """The specification of a load point for a single worker, and the number of workers to divide it among.

        Raises UsageError, or MeasurementError after the first load point, if limits of files or ports are too low for it; TargetError for a
        machine of a fleet that cannot reach the target, and MeasurementError if no machine is left.
        """
        spec = make_worker_spec(self._scenario, point, workloads, trace_ids)
        if self.fleet is None:
            workers = count_workers(spec, workloads, self._own_calibration, len(self._placement.driver or usable_cpus()))
            fault = self._shortage(spec.connections, workers, has_started=True)
        else:
            if not (machines := len(self.fleet.machines)):
                raise MeasurementError(self.fleet.describe_losses())
            workers = count_workers(spec, workloads, self.fleet.calibration, self.fleet.cpus, machines=machines)
            fault = self.fleet.limit_fault(spec, workers)
        if fault:
            raise UsageError(fault) if is_first else MeasurementError(fault)
        if self.fleet is not None and is_first:
            await self.fleet.check_targets(spec)
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

        A cold start has one worker and a `start`.
        """
        spec = dataclasses.replace(spec, is_live=telemetry.show_live is not None, reports_replies=start is not None)
        listener = _PointListener(log, telemetry, start)
        if self.fleet is not None:
            telemetry.follow()
            return await self.fleet.run_point(spec, workers, listener, set_loop)
        assert self.local is not None

        async def begin_at() -> int:
            assert start is not None
            at_ns = await start.begin()
            set_loop(group)  # only now: until then an interrupt ends the start
            return at_ns

        specs = spec.split(workers, self._placement.driver)
        async with self.local.group(specs, listener, begin_at=None if start is None else begin_at) as group:
            if start is None:
                set_loop(group)
            telemetry.follow(group.pids)
            return await group.run()

    def _shortage(self, connections: int, workers: int, *, has_started: bool) -> str:
        """Why this many connections need more files than may be opened; empty if they do not."""
        targets = [one.target for one in self._plain.values()]
        has_server = any(target.is_started and target.command is None for target in targets)
        open_now = count_open_files()
        needs = file_needs(open_now=open_now, has_started=has_started, connections=connections, workers=workers, has_server=has_server)
        return describe_shortage(needs, raise_open_file_limit())
