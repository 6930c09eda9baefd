"""A machine of a fleet as its driver sees it: its connection, its clock beside the driver's, and its workers.

The offset of a machine's clock comes from round trips, with the error of the offset that a load point used. Source: F. Cristian,
"Probabilistic clock synchronization" (1989), and with several round trips the intersection of their intervals, as in K. Marzullo &
S. Owicki, "Maintaining the time in a distributed system" (1983) and in NTP (RFC 5905, section 11.2.1).

Assumption: the two clocks drift apart by at most `MAX_DRIFT`. Nothing is assumed about the two ways of a round trip: they may be as
unequal as they like.
"""

import asyncio
import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Any

from perfkit.clock import Clock
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
from perfkit.workers.messages import Begin, Piece, Progress, RenewedAddresses, StopOrder, WorkerSpec

MAX_DRIFT = 100e-6
"""The largest drift between two clocks, as a fraction: that of two quartz clocks of 50 ppm each. NTP reduces it."""


@dataclasses.dataclass(frozen=True, slots=True)
class ClockComparison:
    """The machine's clock minus the driver's at one instant; the true offset is at most `bound_ns` from `offset_ns`."""

    at_ns: int
    """On the driver's clock."""
    offset_ns: int
    bound_ns: int


@dataclasses.dataclass(frozen=True, slots=True)
class ClockError:
    """How wrong the offset was that a load point used for a machine's clock."""

    drift_ppm: float
    """The mean drift of the machine's clock against the driver's, from the first comparison to the last; 0 for a single one."""
    bound_ns: int
    """The largest possible error of the offset, from the first comparison to the last."""


def compare_clocks(trips: Sequence[ClockReading]) -> ClockComparison:
    """The offset of the machine's clock at the middle of the shortest round trip, from several within a few seconds.

    Each trip is a reading of the machine's clock between two of the driver's: when the message was sent, and when the answer was received.
    So the offset at that instant lies between other - after and other - before; the drift until the comparison's instant widens this. The
    offset is the middle of what all trips allow, and the bound half of its width. If the trips contradict each other, because the machine's clock jumped or drifted faster than
    `MAX_DRIFT`, any of them may be right: offset and bound then cover all of their intervals. Raises ValueError without a trip.
    """
    if not trips:
        raise ValueError("clocks are compared by at least one round trip")
    shortest = min(trips, key=lambda trip: trip.after_ns - trip.before_ns)
    at_ns = (shortest.before_ns + shortest.after_ns) // 2
    lows, highs = [], []
    for trip in trips:
        drift_ns = _drift_ns(max(abs(trip.before_ns - at_ns), abs(trip.after_ns - at_ns)))
        lows.append(trip.other_ns - trip.after_ns - drift_ns)
        highs.append(trip.other_ns - trip.before_ns + drift_ns)
    low, high = max(lows), min(highs)
    if low > high:
        low, high = min(lows), max(highs)
    offset_ns = (low + high) // 2
    return ClockComparison(at_ns, offset_ns, high - offset_ns)


def clock_error(used_offset_ns: int, comparisons: Sequence[ClockComparison]) -> ClockError:
    """The largest error of one offset that was used for all instants from the first comparison to the last.

    A comparison also bounds the offset at every other instant, the wider the farther away, by the drift. What all of them allow is
    largest in the middle between two neighbours. So comparisons of single round trips, however long some of these took, give a bound
    as narrow as `compare_clocks` makes of several. If comparisons contradict each other, because the machine's clock jumped or
    drifted faster than `MAX_DRIFT`, only both neighbours bound the offset between them, and the wider of their bounds counts. The
    comparisons may come in any order. Raises ValueError without one.
    """
    if not comparisons:
        raise ValueError("the error of an offset is bounded by at least one comparison of the clocks")
    ordered = sorted(comparisons, key=lambda one: one.at_ns)
    lows, highs = _allowed_ns(ordered)
    is_contradiction = any(low > high for low, high in zip(lows, highs, strict=True))
    if is_contradiction:
        lows, highs = [one.offset_ns - one.bound_ns for one in ordered], [one.offset_ns + one.bound_ns for one in ordered]
    lowest, highest = min(lows), max(highs)
    for first, second in itertools.pairwise(range(len(ordered))):
        drift_ns = _drift_ns(ordered[second].at_ns - ordered[first].at_ns)
        if is_contradiction:
            low, high = min(lows[first], lows[second]) - drift_ns, max(highs[first], highs[second]) + drift_ns
        else:  # the bound that widens after the first and the one that narrows towards the second meet there
            low, high = (lows[first] + lows[second] - drift_ns) // 2, -((-highs[first] - highs[second] - drift_ns) // 2)
        lowest, highest = min(lowest, low), max(highest, high)
    length_ns = ordered[-1].at_ns - ordered[0].at_ns
    change_ns = (lows[-1] + highs[-1] - lows[0] - highs[0]) / 2
    return ClockError(
        drift_ppm=1e6 * change_ns / length_ns if length_ns else 0.0,
        bound_ns=max(highest - used_offset_ns, used_offset_ns - lowest),
    )


def _allowed_ns(ordered: Sequence[ClockComparison]) -> tuple[list[int], list[int]]:
    """For each comparison, the least and the largest offset then that no other comparison contradicts."""
    lows, highs = [one.offset_ns - one.bound_ns for one in ordered], [one.offset_ns + one.bound_ns for one in ordered]
    forwards = list(itertools.pairwise(range(len(ordered))))
    for near, far in (*forwards, *((far, near) for near, far in reversed(forwards))):
        drift_ns = _drift_ns(ordered[far].at_ns - ordered[near].at_ns)
        lows[far], highs[far] = max(lows[far], lows[near] - drift_ns), min(highs[far], highs[near] + drift_ns)
    return lows, highs


def _drift_ns(time_ns: int) -> int:
    """How far the clocks may drift apart in a time."""
    return math.ceil(abs(time_ns) * MAX_DRIFT)


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
            case StopOrder() | RenewedAddresses():
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
