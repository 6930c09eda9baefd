"""The execution of a load point, in this process or in several of their own."""

from collections.abc import Callable

from perfkit.clock import Clock
from perfkit.fleet.fleet import Fleet
from perfkit.load.loop import Stoppable
from perfkit.measurement.cold_start import StartTrial
from perfkit.measurement.observation import PointTelemetry
from perfkit.measurement.reply_spool import ReplySpool
from perfkit.recorder.recording import Interval
from perfkit.result.interval_log import IntervalLog, MixLog
from perfkit.workers.group import GroupListener
from perfkit.workers.local import local_workers
from perfkit.workers.point_recording import PointRecording
from perfkit.workers.worker import execute
from perfkit.workers.worker_spec import MixSpec, WorkerSpec


async def send_load(
    spec: WorkerSpec | MixSpec,
    workers: int,
    cpus: tuple[int, ...],
    clock: Clock,
    log: IntervalLog | MixLog,
    telemetry: PointTelemetry,
    start: StartTrial | None,
    spool: ReplySpool | None,
    fleet: Fleet | None,
    set_loop: Callable[[Stoppable], None],
) -> PointRecording:
    """Sends a load point's requests; its intervals go to `log` and `telemetry`, and `set_loop` gets what can be stopped.

    Several workers are processes, placed on `cpus`; one worker is this process. A cold start has one worker and a `start`; a load point
    with one worker may have a `spool`, which gets its replies. The workers of a `fleet` are on its machines.
    """
    if workers == 1 and fleet is None:
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
    show_live = telemetry.show_live
    spec = spec.live(is_live=show_live is not None)
    listener = GroupListener(log.add, log.add_lost, telemetry.publish_interval, show_live or (lambda _: None))
    if fleet is not None:
        telemetry.follow()
        return await fleet.run_point(spec, workers, listener, set_loop)
    async with local_workers(spec.split(workers, cpus), clock, listener) as group:
        set_loop(group)
        telemetry.follow(group.pids)
        return await group.run()
