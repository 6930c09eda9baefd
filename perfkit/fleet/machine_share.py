"""The workers of one machine in one load point: they run as on any machine, and answer the driver as one."""

import asyncio
import dataclasses
import traceback
from collections.abc import Callable, Sequence

import numpy as np

from perfkit.clock import Clock
from perfkit.errors import PerfkitError
from perfkit.fleet.messages import StartWorkers, WorkersEnded
from perfkit.load.loop import run_with_side_tasks
from perfkit.override import override
from perfkit.recorder.recent import LiveFigures
from perfkit.units import NS_PER_S
from perfkit.workers.group import GroupListener, NoWorkerLeftError, WorkerGroup
from perfkit.workers.local import LocalWorkers, Part
from perfkit.workers.messages import Begin, Crashed, PartLost, Piece, Progress, Ready, Stop, WorkerSpec
from perfkit.workers.point_recording import PointSum

_SENDS_EVERY_NS = NS_PER_S
_MOST_TIMES = 1024


class MachineShare(GroupListener):
    """Runs the workers that a driver orders; `post` sends it messages of what they answer together; see `perfkit.workers.messages`."""

    def __init__(
        self, order: StartWorkers, name: str, cpus: Sequence[int], clock: Clock, workers: LocalWorkers, post: Callable[..., None]
    ) -> None:
        self._order, self._name, self._cpus, self._clock, self._workers, self._post = order, name, cpus, clock, workers, post
        self._begin: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._group: WorkerGroup | None = None
        self._pieces = PointSum(NS_PER_S)
        self._reached_ns, self._sent_ns = dict.fromkeys(range(len(order.workers)), 0), 0
        self._live = LiveSum(order.workers[0])

    async def run(self) -> None:
        """Runs them to their end; nothing is sent if they are stopped before they have begun."""
        part = Part(self._order.workers, self._order.of, f" on {self._name}")
        try:
            # a long warm-up's arrivals are counted, which must not delay the clock's comparisons
            specs = await asyncio.to_thread(self._specs)
            async with self._workers.group(specs, self, part, self._begin_at) as self._group:
                recorded = await run_with_side_tasks(self._group.run(), self._send_progress())
                rest = self._pieces.take()
                assert rest is not None
                last = dataclasses.replace(recorded, workloads=rest.workloads)
                self._post(*self._figures(), Piece(recorded.end_ns, last, is_last=True))
        except NoWorkerLeftError as error:
            self._post(WorkersEnded(f"lost all its workers: {error}"))
        except OSError as error:  # such as too many processes or open files
            self._post(WorkersEnded(f"could not start its workers: {error.strerror or error}"))
        except PerfkitError as error:
            self._post(error)
        except Exception:  # noqa: BLE001 - whatever it is, the driver raises it with this traceback
            self._post(Crashed(traceback.format_exc()))

    def take(self, message: object) -> None:
        """Takes a message of the driver to its workers."""
        match message:
            case Begin(at_ns) if not self._begin.done():
                self._begin.set_result(at_ns)
            case Stop(reason, cause, drain):
                if self._group is not None and self._begin.done():
                    self._group.stop(reason, cause, drain=drain)
                else:  # they end when their input does
                    self._begin.cancel()

    def kill(self) -> None:
        """Ends them at once."""
        if self._group is not None:
            self._group.kill()

    def _specs(self) -> list[WorkerSpec]:
        order, cpus = self._order, self._cpus
        pinned = [(cpus[place % len(cpus)],) if len(order.workers) > 1 else () for place in range(len(order.workers))]
        return [order.spec.share(worker, order.of, own) for worker, own in zip(order.workers, pinned, strict=True)]

    async def _begin_at(self) -> int:
        self._post(Ready())
        return await self._begin

    async def _send_progress(self) -> None:
        while True:
            self._post(Progress(), *self._figures())
            await self._clock.sleep_until_ns(self._clock.now_ns() + _SENDS_EVERY_NS)

    def _send_piece(self) -> None:
        """Sends the sum of the workers' pieces, if all that are left have reached a later instant than at the last call."""
        reached_ns = min(self._reached_ns.values(), default=0)
        if reached_ns > self._sent_ns and (point := self._pieces.take()) is not None:
            self._sent_ns = reached_ns
            self._post(Piece(reached_ns, point))

    def _figures(self) -> list[LiveFigures]:
        figures = self._live.take()
        return [] if figures is None else [figures]

    @override
    def piece_came(self, worker: int, piece: Piece) -> None:
        self._pieces.add(worker, piece.point)
        if piece.is_last:
            del self._reached_ns[worker]
        else:
            self._reached_ns[worker] = piece.at_ns
            self._send_piece()

    @override
    def figures_came(self, figures: LiveFigures) -> None:
        self._live.add(figures)

    @override
    def stopped_early(self, stop: Stop) -> None:
        self._post(stop)

    @override
    def worker_lost(self, worker: int | None, reason: str) -> None:
        if worker is not None:
            self._reached_ns.pop(worker, None)
            self._send_piece()
        self._post(PartLost(reason))


class LiveSum:
    """The newest live figures of several workers, as those of one."""

    def __init__(self, worker: int) -> None:
        self._worker = worker
        self._newest: dict[int, LiveFigures] = {}
        self._new: list[LiveFigures] = []

    def add(self, figures: LiveFigures) -> None:
        """Adds a worker's newest."""
        self._newest[figures.worker] = figures
        self._new.append(figures)

    def take(self) -> LiveFigures | None:
        """Totals of all, and a sample of the times since the last call; None if no figures came since."""
        if not self._new:
            return None
        new, self._new = self._new, []
        totals = LiveFigures.added(list(self._newest.values()), sum(one.in_flight for one in self._newest.values()))
        times_ns, delays_ns = (np.concatenate([getattr(one, name) for one in new]) for name in ("times_ns", "delays_ns"))
        step = -(-times_ns.size // _MOST_TIMES) or 1
        return dataclasses.replace(totals, worker=self._worker, at_ns=new[-1].at_ns, times_ns=times_ns[::step], delays_ns=delays_ns[::step])
