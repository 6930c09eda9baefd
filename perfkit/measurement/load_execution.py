"""The execution of a load point, in this process or in several of their own."""

from collections.abc import Callable

from perfkit.clock import Clock
from perfkit.fleet.fleet import Fleet
from perfkit.load.loop import Stoppable
from perfkit.measurement.checkpoints import PointCheckpoints
from perfkit.measurement.cold_start import StartTrial
from perfkit.measurement.observation import PointTelemetry
from perfkit.measurement.reply_spool import ReplySpool
from perfkit.recorder.recent import LiveFigures
from perfkit.recorder.recording import Interval
from perfkit.result.interval_log import IntervalLog
from perfkit.result.interval_spool import IntervalSpool
from perfkit.workers.group import GroupListener
from perfkit.workers.local import local_workers
from perfkit.workers.messages import Checkpoint
from perfkit.workers.point_recording import PointRecording
from perfkit.workers.worker import execute
from perfkit.workers.worker_spec import MixSpec, WorkerSpec


class _PointListener(GroupListener):
    """Puts the intervals of worker processes on disk, shows their figures, and passes their checkpoints on."""

    def __init__(self, spool: IntervalSpool, telemetry: PointTelemetry, checkpoints: PointCheckpoints) -> None:
        self._spool, self._telemetry, self._checkpoints = spool, telemetry, checkpoints
        self._show_live = telemetry.show_live

    def interval_came(self, worker: int, window_start_ns: int, interval: Interval) -> None:
        """See `GroupListener`."""
        self._spool.add(worker, window_start_ns, interval)
        self._telemetry.publish_interval(interval)

    def checkpoint_came(self, worker: int, checkpoint: Checkpoint) -> None:
        """See `GroupListener`."""
        self._spool.mark(worker, checkpoint.at_ns)
        self._checkpoints.add(worker, checkpoint)

    def worker_lost(self, worker: int, reason: str) -> None:
        """See `GroupListener`."""
        self._spool.lost.add(worker)
        self._checkpoints.lose(worker, reason)

    def figures_came(self, figures: LiveFigures) -> None:
        """See `GroupListener`."""
        if self._show_live is not None:
            self._show_live(figures)


async def send_load(
    spec: WorkerSpec | MixSpec,
    workers: int,
    cpus: tuple[int, ...],
    clock: Clock,
    log: IntervalLog | IntervalSpool,
    checkpoints: PointCheckpoints,
    telemetry: PointTelemetry,
    start: StartTrial | None,
    spool: ReplySpool | None,
    fleet: Fleet | None,
    set_loop: Callable[[Stoppable], None],
) -> PointRecording:
    """Sends a load point's requests; its intervals go to `log` and `telemetry`, and `set_loop` gets what can be stopped.

    With an `IntervalLog` one worker is this process; with an `IntervalSpool` each is one of its own, placed on `cpus`. A cold start has one worker and a `start`; a load point
    with one worker may have a `spool`, which gets its replies. The workers of a `fleet` are on its machines.
    """
    if isinstance(log, IntervalLog):
        telemetry.follow()

        def on_interval(start_ns: int, interval: Interval) -> None:
            log.add(start_ns, interval)
            telemetry.publish_interval(interval)

        return await execute(
            spec,
            clock,
            on_loop=set_loop,
            on_interval=on_interval,
            on_live=telemetry.show_live,
            begin_at=None if start is None else start.begin,
            on_reply=spool.take if spool is not None else None if start is None else start.take,
        )
    spec = spec.live(is_live=telemetry.show_live is not None)
    listener = _PointListener(log, telemetry, checkpoints)
    if fleet is not None:
        telemetry.follow()
        return await fleet.run_point(spec, workers, listener, set_loop)
    async with local_workers(spec.split(workers, cpus), clock, listener) as group:
        set_loop(group)
        telemetry.follow(group.pids)
        return await group.run()
