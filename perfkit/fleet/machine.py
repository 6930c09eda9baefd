"""A machine of a fleet: it joins the driver of a run, and runs the worker processes that the driver asks for."""

import asyncio
import dataclasses
import functools
import importlib.metadata
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from perfkit.calibration.model import calibration_path, read_calibration
from perfkit.clock import Clock
from perfkit.errors import PerfkitError
from perfkit.fleet.connection import Connection, UnknownMessageError
from perfkit.fleet.dask_machine import DaskTask
from perfkit.fleet.machine_share import MachineShare
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
)
from perfkit.machine.cpus import usable_cpus
from perfkit.machine.description import describe_host
from perfkit.machine.limits import count_ephemeral_ports, raise_open_file_limit
from perfkit.target_client import make_client
from perfkit.units import NS_PER_S
from perfkit.workers.local import LocalWorkers
from perfkit.workers.messages import Progress, WorkerSpec

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
