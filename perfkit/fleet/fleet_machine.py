"""A machine of a fleet as its driver sees it: its connection, its clock, and its workers."""

import asyncio
import dataclasses
import itertools
from typing import Any

from perfkit.clock import Clock
from perfkit.fleet.clock_offset import ClockComparison, compare_clocks
from perfkit.fleet.connection import Connection, UnknownMessageError
from perfkit.fleet.messages import (
    CheckTarget,
    FromWorkers,
    Hello,
    Ping,
    Pong,
    ReleaseWorkers,
    StartWorkers,
    TargetChecked,
    ToWorkers,
    WorkersEnded,
)
from perfkit.stats.clock_offset import ClockReading
from perfkit.units import NS_PER_S
from perfkit.workers.messages import Begin, Piece, Progress, Stop, WorkerSpec

_ROUND_TRIPS = 16
_PING_EVERY_NS, _MAX_SILENCE_NS = NS_PER_S, 10 * NS_PER_S
_CHECK_WITHIN_S = 30


class FleetMachine:
    """A machine that has joined the fleet; `listen` must run as long as it belongs to it."""

    def __init__(self, connection: Connection, hello: Hello, name: str, clock: Clock) -> None:
        self.name, self.hello = name, hello
        self.lost = ""
        """Why the connection is gone; empty while it is open."""
        self.connect_ns: int | None = None
        """How long it took to connect to the target before the first load point; None before that."""
        self._connection, self._clock = connection, clock
        self._points: dict[int, asyncio.Queue[object]] = {}
        self._pings: dict[int, tuple[int, asyncio.Future[ClockReading]]] = {}
        self._ping_numbers = itertools.count()
        self._checked: asyncio.Future[TargetChecked] | None = None
        self._comparisons: list[ClockComparison] = []
        self._showed_progress_ns = clock.now_ns()

    async def listen(self) -> None:
        """Takes its messages until the connection ends; what waits for it is told then."""
        try:
            while True:
                self._take(await self._connection.receive(_MAX_SILENCE_NS / NS_PER_S, self._show_progress))
        except EOFError:
            self._lose("its connection broke")
        except UnknownMessageError as error:
            self._lose(f"it {error}")
        except TimeoutError:
            self._lose(f"it sent nothing for {_MAX_SILENCE_NS // NS_PER_S} s")

    async def ping(self) -> None:
        """Compares the clocks once a second, which also tells the machine that its driver is there."""
        while not self.lost:
            await self._clock.sleep_until_ns(self._clock.now_ns() + _PING_EVERY_NS)
            self._send_ping()

    def send(self, message: object) -> None:
        """Sends a message; discarded if the connection is lost."""
        self._connection.send(message)

    async def compare_clocks(self) -> ClockComparison | None:
        """Measures its clock's offset by several round trips, one after the other; None if the machine is lost."""
        trips = list[ClockReading]()
        for _ in range(_ROUND_TRIPS):
            if self.lost:
                return None
            done = self._send_ping()
            await asyncio.wait([done])
            if done.cancelled():
                return None
            trips.append(done.result())
        return compare_clocks(trips)

    def comparisons_since(self, at_ns: int) -> list[ClockComparison]:
        """The clock comparison of each ping since that instant."""
        return [one for one in self._comparisons if one.at_ns >= at_ns]

    def forget_comparisons(self) -> None:
        """Forgets the comparisons so far; called when a load point begins."""
        self._comparisons = []

    async def check_target(self, spec: WorkerSpec) -> TargetChecked:
        """Lets the machine connect to the target, without sending a request."""
        self._checked = asyncio.get_running_loop().create_future()
        self.send(CheckTarget(spec.without_requests()))
        try:
            return await asyncio.wait_for(self._checked, _CHECK_WITHIN_S)
        except TimeoutError:
            return TargetChecked(fault=f"it did not answer within {_CHECK_WITHIN_S} s")

    def start_workers(self, spec: WorkerSpec, workers: tuple[int, ...], of: int, number: int, offset_ns: int) -> "RemoteWorkers":
        """Starts these of `of` workers that share a load, called `number`; `offset_ns` is how much more the machine's clock shows."""
        self._points[number] = asyncio.Queue()
        self.send(StartWorkers(number, spec, workers, of))
        if self.lost:
            self._lose(self.lost)
        return RemoteWorkers(self.name, len(workers), self, number, self._points[number], offset_ns)

    def release_workers(self, number: int) -> None:
        """Ends what is left of these workers."""
        self.send(ReleaseWorkers(number))
        self._points.pop(number, None)

    async def close(self, last: object) -> None:
        """Sends a last message and closes the connection."""
        self.send(last)
        await self._connection.close()

    def _send_ping(self) -> "asyncio.Future[ClockReading]":
        number, done = next(self._ping_numbers), asyncio.get_running_loop().create_future()
        self._pings[number] = self._clock.now_ns(), done
        self.send(Ping(number))
        return done

    def _show_progress(self) -> None:
        """Notes once a second that a long message is coming in, behind which others wait."""
        if (now_ns := self._clock.now_ns()) - self._showed_progress_ns >= NS_PER_S:
            self._showed_progress_ns = now_ns
            for queue in self._points.values():
                queue.put_nowait(Progress())

    def _take(self, message: object) -> None:
        match message:
            case Pong(number, at_ns) if number in self._pings:
                sent_ns, done = self._pings.pop(number)
                trip = ClockReading(sent_ns, at_ns, self._clock.now_ns())
                self._comparisons.append(compare_clocks([trip]))
                if not done.done():
                    done.set_result(trip)
            case FromWorkers(number, messages) if number in self._points:
                for content in messages:
                    self._points[number].put_nowait(content)
            case TargetChecked() as checked if self._checked is not None and not self._checked.done():
                self._checked.set_result(checked)

    def _lose(self, reason: str) -> None:
        self.lost = reason
        for queue in self._points.values():
            queue.put_nowait(WorkersEnded(f"was lost: {reason}"))
        for _, done in self._pings.values():
            done.cancel()
        if self._checked is not None and not self._checked.done():
            self._checked.set_result(TargetChecked(fault=reason))
        self._connection.abort()


@dataclasses.dataclass
class RemoteWorkers:
    """The link to the workers of another machine, whose instants are translated to the driver's clock; see `WorkerLink`."""

    name: str
    workers: int
    _machine: FleetMachine
    _id: int
    _messages: "asyncio.Queue[object]"
    _offset_ns: int
    _end: str = ""

    @property
    def pids(self) -> tuple[int, ...]:
        """See `WorkerLink.pids`."""
        return ()

    def send(self, message: object) -> None:
        """See `WorkerLink.send`."""
        match message:
            case Begin(at_ns):
                self._machine.send(ToWorkers(self._id, Begin(at_ns + self._offset_ns)))
            case Stop():
                self._machine.send(ToWorkers(self._id, message))

    async def receive(self) -> Any:
        """See `WorkerLink.receive`."""
        match await self._messages.get():
            case WorkersEnded(how):
                self._end = how
                raise EOFError
            case Piece(at_ns, point, is_last):
                return Piece(at_ns - self._offset_ns, point.shifted(-self._offset_ns), is_last)
            case message:
                return message

    async def wait_for_end(self) -> str:
        """See `WorkerLink.wait_for_end`."""
        return self._end

    def kill(self) -> None:
        """See `WorkerLink.kill`."""
        self._machine.send(ToWorkers(self._id, None))
