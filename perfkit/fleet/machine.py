"""A machine of a fleet: it joins the driver of a run, and runs the worker processes that the driver asks for."""

import asyncio
import dataclasses
import importlib.metadata
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from perfkit.calibration.cache import calibration_path, read_calibration
from perfkit.clock import Clock
from perfkit.errors import PerfkitError
from perfkit.fleet.connection import Connection, UnknownMessageError
from perfkit.fleet.messages import (
    Accepted,
    CheckTarget,
    FromWorkers,
    Hello,
    Ping,
    Pong,
    Refused,
    ReleaseWorkers,
    RunEnds,
    StartWorkers,
    TargetChecked,
    ToWorker,
    WorkerEnded,
)
from perfkit.load.tasks import run_with_side_tasks
from perfkit.machine.cpus import usable_cpus
from perfkit.machine.description import describe_host
from perfkit.machine.limits import count_ephemeral_ports, raise_open_file_limit
from perfkit.process.child import Child
from perfkit.process.start_module import start_module
from perfkit.recorder.recent import LiveFigures
from perfkit.transport.factory import make_transport
from perfkit.units import NS_PER_S
from perfkit.workers.local import ENDS_WITHIN_S, MODULE
from perfkit.workers.messages import Logged, Progress
from perfkit.workers.worker_spec import MixSpec, WorkerSpec

_COLLECTED = (Logged, Progress, LiveFigures)
"""Messages that can wait for others, so that a driver with many machines reads few frames."""
_SENDS_EVERY_NS = NS_PER_S
# the driver sends a ping every second
_MAX_SILENCE_NS = 10 * NS_PER_S


class DriverLostError(PerfkitError):
    """The connection to the driver broke before the end of the run."""


class RefusedError(PerfkitError):
    """The driver does not take this machine."""


def describe_machine(name: str) -> Hello:
    """What this machine says of itself."""
    return Hello(
        name=name,
        version=importlib.metadata.version("perfkit"),
        cpus=tuple(usable_cpus()),
        open_files=raise_open_file_limit(),
        ports=count_ephemeral_ports(),
        calibration=read_calibration(calibration_path(), describe_host()).calibration,
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
            await _Machine(connection, hello.cpus, clock).run()
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

    def __init__(self, connection: Connection, cpus: Sequence[int], clock: Clock) -> None:
        self._connection, self._cpus, self._clock = connection, cpus, clock
        self._tasks = set[asyncio.Task[None]]()
        self._children: dict[int, Child] = {}
        self._ended = set[int]()
        """Workers that are not wanted any more, perhaps before their process has started."""
        self._outbox: list[tuple[int, object]] = []
        self._showed_progress_ns = clock.now_ns()

    async def run(self) -> None:
        """Follows orders to the end of the run."""
        try:
            await run_with_side_tasks(self._follow_orders(), self._send_collected())
        finally:
            for child in self._children.values():  # all at once, before the first is waited for
                child.close_stdin()
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
                    for place, (number, worker) in enumerate(zip(order.ids, order.workers, strict=True)):
                        cpus = (self._cpus[place % len(self._cpus)],) if len(order.ids) > 1 else ()
                        self._start(self._run_worker(number, order.spec, worker, order.of, cpus))
                case ToWorker(number, None):
                    self._end(number, at_once=True)
                case ToWorker(number, message) if number in self._children:
                    self._children[number].send(message)
                case ReleaseWorkers(ids):
                    for number in ids:
                        self._end(number, at_once=False)
                case RunEnds():
                    return
                case _:
                    pass  # an order to a worker that has ended

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _end(self, number: int, *, at_once: bool) -> None:
        self._ended.add(number)
        if (child := self._children.get(number)) is not None:
            child.kill() if at_once else child.close_stdin()

    async def _run_worker(self, number: int, spec: WorkerSpec | MixSpec, worker: int, workers: int, cpus: tuple[int, ...]) -> None:
        """Runs one worker process, and passes its messages on, until its last: how it ended."""
        try:
            # a long warm-up's arrivals are counted, which must not delay the clock's comparisons
            await self._run_process(number, await asyncio.to_thread(lambda: spec.share(worker, workers, cpus)))
        except OSError as error:  # such as too many processes or open files
            self._post(number, WorkerEnded(f"could not be started: {error.strerror or error}"))

    async def _run_process(self, number: int, spec: WorkerSpec | MixSpec) -> None:
        async with start_module(MODULE, stop_within_s=ENDS_WITHIN_S) as child:
            if number in self._ended:
                return
            self._children[number] = child
            child.send(spec)
            try:
                while True:
                    self._post(number, await child.receive())
            except EOFError:
                self._post(number, WorkerEnded(f"{await child.wait_for_end(ENDS_WITHIN_S)}"))
            finally:
                del self._children[number]

    def _show_progress(self) -> None:
        """Tells the driver once a second that its long message is coming in, behind which its pings wait."""
        if (now_ns := self._clock.now_ns()) - self._showed_progress_ns >= _SENDS_EVERY_NS:
            self._showed_progress_ns = now_ns
            self._connection.send(FromWorkers(()))

    def _post(self, number: int, message: object) -> None:
        self._outbox.append((number, message))
        if not isinstance(message, _COLLECTED):
            self._flush()

    def _flush(self) -> None:
        if self._outbox:
            self._connection.send(FromWorkers(tuple(self._outbox)))
            self._outbox = []

    async def _send_collected(self) -> None:
        while True:
            await self._clock.sleep_until_ns(self._clock.now_ns() + _SENDS_EVERY_NS)
            self._flush()

    async def _check_target(self, spec: WorkerSpec | MixSpec) -> None:
        longest_ns = 0
        for one in spec.workloads if isinstance(spec, MixSpec) else (spec,):
            transport = make_transport(one.address, dataclasses.replace(one.transport, max_connections=1), self._clock)
            started_ns = self._clock.now_ns()
            try:
                await transport.open(1)
            except PerfkitError as error:
                self._connection.send(TargetChecked(fault=str(error)))
                return
            finally:
                await transport.aclose()
            longest_ns = max(longest_ns, self._clock.now_ns() - started_ns)
        self._connection.send(TargetChecked(longest_ns))
