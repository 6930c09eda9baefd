"""A machine of a fleet: it joins the driver of a run, and runs the worker processes that the driver asks for.

In a load point they run as on any machine, and answer the driver as one.
"""

import asyncio
import dataclasses
import functools
import importlib.metadata
import traceback
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import numpy as np

from perfkit.calibration.model import calibration_path, read_calibration
from perfkit.clock import Clock
from perfkit.errors import PerfkitError
from perfkit.fleet.connection import Connection, UnknownMessageError
from perfkit.fleet.dask_machine import DaskTask
from perfkit.fleet.messages import (
    Accepted,
    CheckTarget,
    FromWorkers,
    Hello,
    OfWorkers,
    Ping,
    Pong,
    Refused,
    ReleaseWorkers,
    RunEnds,
    StartWorkers,
    TargetChecked,
    ToWorkers,
    WorkersEnded,
)
from perfkit.load.loop import run_with_side_tasks
from perfkit.machine.cpus import usable_cpus
from perfkit.machine.description import describe_host
from perfkit.machine.limits import count_ephemeral_ports, raise_open_file_limit
from perfkit.override import override
from perfkit.recorder.recent import LiveFigures
from perfkit.target.address import Address
from perfkit.target_client import make_client
from perfkit.units import NS_PER_S
from perfkit.workers.group import GroupListener, NoWorkerLeftError, WorkerGroup
from perfkit.workers.local import LocalWorkers, Part
from perfkit.workers.messages import Begin, Crashed, PartLost, Piece, Progress, Ready, RenewedAddresses, StopOrder, WorkerSpec
from perfkit.workers.point_recording import PointRecording, PointSum

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
        self._renewed: tuple[Address, ...] = ()
        self._pieces = PointSum(NS_PER_S)
        self._reached_ns, self._sent_ns = dict.fromkeys(range(len(order.workers)), 0), 0
        self._live = LiveSum(order.workers[0])

    async def run(self) -> None:
        """Runs them to their end; nothing is sent if they are stopped before they have begun."""
        part = Part(self._order.workers, self._order.of, f" on {self._name}")
        try:
            # a long warm-up's arrivals are counted, which must not delay the clock's comparisons
            specs = await asyncio.to_thread(self._specs)
            async with self._workers.group(specs, self, part, begin_at=self._begin_at) as self._group:
                if self._renewed:  # before they were started
                    self._group.renew(self._renewed)
                recorded = await run_with_side_tasks(self._group.run(), self._send_progress())
                self._post(*self._figures(), self._last_piece(recorded))
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
            case RenewedAddresses(addresses):
                self._renewed = addresses
                if self._group is not None:
                    self._group.renew(addresses)
            case StopOrder(reason, cause, drain):
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

    def _last_piece(self, recorded: PointRecording) -> Piece:
        """The rest of the recording; raises NoWorkerLeftError if all of it has been sent, because the last worker is lost."""
        if (rest := self._pieces.take()) is None:
            raise NoWorkerLeftError("; ".join(recorded.lost))
        return Piece(recorded.end_ns, dataclasses.replace(recorded, workloads=rest.workloads), is_last=True)

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
    def stopped_early(self, stop: StopOrder) -> None:
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


_SHOWS_PROGRESS_EVERY_NS = NS_PER_S
# the driver sends a ping every second
_MAX_SILENCE_NS = 10 * NS_PER_S


class DriverLostError(PerfkitError):
    """The connection to the driver broke before the end of the run."""


class RefusedError(PerfkitError):
    """The driver does not take this machine."""


def describe_machine(name: str, task: str = "") -> Hello:
    """What this machine says of itself; `task` is the text of its `DaskTask` if it has one. Raises ValueError for another text."""
    return Hello(
        name=name,
        version=importlib.metadata.version("perfkit"),
        cpus=tuple(usable_cpus()),
        open_files=raise_open_file_limit(),
        ports=count_ephemeral_ports(),
        calibration=read_calibration(calibration_path(), describe_host()).calibration,
        task=DaskTask.parse(task) if task else None,
    )


async def serve_driver(connection: Connection, hello: Hello, clock: Clock, on_accepted: Callable[[str], None] = lambda _: None) -> None:
    """Joins a fleet, and runs workers until the driver ends the run; they are ended with it.

    `on_accepted` gets the name of this machine in the fleet. Raises RefusedError and DriverLostError.
    """
    connection.send(hello)
    match await _receive(connection):
        case Refused(reason):
            raise RefusedError(f"the driver refused this machine: {reason}")
        case Accepted(name):
            on_accepted(name)
            await _Machine(connection, name, hello.cpus, clock).run()
        case _:
            raise DriverLostError("the driver sent something that this version of perfkit does not know")


async def _receive(connection: Connection, on_part: Callable[[], None] = lambda: None) -> object:
    try:
        return await connection.receive(_MAX_SILENCE_NS / NS_PER_S, on_part)
    except UnknownMessageError as error:
        raise DriverLostError(f"the driver {error}") from None
    except TimeoutError:
        raise DriverLostError(f"the driver sent nothing for {_MAX_SILENCE_NS // NS_PER_S} s") from None
    except EOFError:
        raise DriverLostError("the connection to the driver broke") from None


class _Machine:
    """The workers of this machine, and the driver's orders to them."""

    def __init__(self, connection: Connection, name: str, cpus: Sequence[int], clock: Clock) -> None:
        self._connection, self._name, self._cpus, self._clock = connection, name, cpus, clock
        self._tasks, self._workers = set[asyncio.Task[None]](), LocalWorkers(clock)
        self._shares: dict[int, tuple[MachineShare, asyncio.Task[None]]] = {}
        self._showed_progress_ns = clock.now_ns()

    async def run(self) -> None:
        """Follows orders to the end of the run."""
        async with self._workers:
            try:
                await self._follow_orders()
            finally:
                for task in self._tasks:
                    task.cancel()
                await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow_orders(self) -> None:
        while True:
            match await _receive(self._connection, self._show_progress):
                case Ping(number):
                    self._connection.send(Pong(number, self._clock.now_ns()))
                case CheckTarget(spec):
                    self._start(self._check_target(spec))
                case StartWorkers() as order:
                    post = functools.partial(self._post, order.id)
                    share = MachineShare(order, self._name, self._cpus, self._clock, self._workers, post)
                    self._shares[order.id] = share, self._start(share.run())
                case ToWorkers(number, message) if number in self._shares:
                    share, _ = self._shares[number]
                    share.kill() if message is None else share.take(message)
                case ReleaseWorkers(number) if number in self._shares:
                    self._shares.pop(number)[1].cancel()
                case RunEnds():
                    return
                case _:
                    pass  # an order to workers that have ended

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _show_progress(self) -> None:
        """Tells the driver once a second that its long message is coming in, behind which its pings wait."""
        if (now_ns := self._clock.now_ns()) - self._showed_progress_ns >= _SHOWS_PROGRESS_EVERY_NS:
            self._showed_progress_ns = now_ns
            self._connection.send(Progress())

    def _post(self, number: int, *messages: OfWorkers) -> None:
        self._connection.send(FromWorkers(number, messages))

    async def _check_target(self, spec: WorkerSpec) -> None:
        longest_ns = 0
        for one in spec.workloads:
            client = make_client(one.address, dataclasses.replace(one.transport, max_connections=1), self._clock)
            started_ns = self._clock.now_ns()
            try:
                await client.transport.open(1)
            except PerfkitError as error:
                self._connection.send(TargetChecked(fault=str(error)))
                return
            finally:
                await client.aclose()
            longest_ns = max(longest_ns, self._clock.now_ns() - started_ns)
        self._connection.send(TargetChecked(longest_ns))
