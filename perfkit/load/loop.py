"""What closed and open loops share: the phases of a load point, and how it ends; loops that run concurrently and end together."""

import abc
import asyncio
import dataclasses
import enum
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

from perfkit.clock import Clock
from perfkit.override import override
from perfkit.transport.base import Outcome, Prepared, Reply, Sender
from perfkit.transport.connect import FILE_LIMIT
from perfkit.units import NS_PER_S

_T = TypeVar("_T")


async def run_with_side_tasks(main: Coroutine[Any, Any, _T], *side: "Coroutine[Any, Any, object] | asyncio.Task[Any]") -> _T:
    """Runs `main` to its end while the others run beside it; they are cancelled then.

    The first that fails, whichever it is, cancels all others, and its exception is raised.
    """
    main_task = asyncio.ensure_future(main)
    side_tasks = [asyncio.ensure_future(task) for task in side]
    try:
        running: set[asyncio.Task[Any]] = {main_task, *side_tasks}
        while not main_task.done():
            done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in done - {main_task}:
                task.result()
        return main_task.result()
    finally:
        for task in (main_task, *side_tasks):
            task.cancel()
        await asyncio.gather(main_task, *side_tasks, return_exceptions=True)


async def any_of(*waits: Coroutine[Any, Any, object], also: "asyncio.Future[Any] | None" = None) -> None:
    """Returns when one is done; the coroutines, but not `also`, are cancelled then."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait([*tasks, also] if also else tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


_LOST_AFTER_NS = 3 * NS_PER_S
_NO_CONTACT = (Outcome.CONNECT_FAILED, Outcome.BROKEN)


@dataclasses.dataclass(frozen=True, slots=True)
class Phases:
    """The phases of one load point as instants of the monotonic clock.

    A request belongs to the window if it starts, or is meant to start, in `[window_start_ns, window_end_ns)`; what starts
    earlier is warm-up. With `requests` the window ends with the last of that many, and `window_end_ns` is None.
    """

    start_ns: int
    window_start_ns: int
    window_end_ns: int | None
    requests: int | None
    drain_ns: int

    @classmethod
    def plan(cls, start_ns: int, *, warmup_ns: int, window_ns: int | None, requests: int | None, drain_ns: int) -> "Phases":
        """Phases from their lengths."""
        window_start_ns = start_ns + warmup_ns
        return cls(start_ns, window_start_ns, None if window_ns is None else window_start_ns + window_ns, requests, drain_ns)


class StopCause(enum.Enum):
    """Why a load point was ended early."""

    INTERRUPTED = enum.auto()
    TARGET_LOST = enum.auto()
    TOO_MANY_ERRORS = enum.auto()
    OVERLOADED = enum.auto()
    FILE_LIMIT = enum.auto()
    ANSWER_LIMIT = enum.auto()
    WORKER_LOST = enum.auto()


@dataclasses.dataclass(slots=True)
class Ending:
    """How a load point ended; if it ended as planned, `reason` is empty and `cause` None."""

    stopped_ns: int = 0
    """The instant at which the loop stopped sending; 0 before that."""
    reason: str = ""
    cause: StopCause | None = None


class Stoppable(Protocol):
    """A load point under way: a loop, or several."""

    def stop(self, reason: str, cause: StopCause = StopCause.INTERRUPTED, *, drain: bool = True) -> None:
        """Ends the point now; without `drain` the requests in flight are abandoned."""


@dataclasses.dataclass(slots=True)
class _Unreachable:
    """Connection attempts that failed since the target was last reached."""

    since_ns: int
    error: str
    attempts: int = 0


@dataclasses.dataclass(eq=False)
class Loop(abc.ABC):
    """Sends the requests of one load point in turn; `on_reply` gets each reply. Worker k of n sends those i ≡ k (mod n)."""

    transport: Sender
    requests: Sequence[Prepared]
    on_reply: Callable[[Reply], None]
    _: dataclasses.KW_ONLY
    phases: Phases
    clock: Clock
    worker: int = 0
    workers: int = 1
    may_abandon: bool = True
    """Whether its end abandons the requests in flight; not where another loop sends through the same transport."""

    def __post_init__(self) -> None:
        self.ending = Ending()
        self._stopping = False
        self._draining = asyncio.Event()
        self._drain_cut_short = asyncio.Event()
        self._unreachable: _Unreachable | None = None

    async def run(self) -> Ending:
        """Sends until the window ends, then awaits the answers for as long as the phases allow."""
        try:
            await run_with_side_tasks(self._send_and_drain(), self._end_window())
        finally:  # also where this is cancelled or sending failed
            self._stop_sending()
        if not self.ending.reason and (error := self._was_lost_in_the_end()):
            self.ending.reason, self.ending.cause = error, _cause_of(error)
        return self.ending

    def stop(self, reason: str, cause: StopCause = StopCause.INTERRUPTED, *, drain: bool = True) -> None:
        """Ends the point now; without `drain` the requests in flight are abandoned."""
        if not self.ending.reason:  # also while it drains as planned
            self.ending = Ending(self.ending.stopped_ns, reason, cause)
        self._stop_sending()
        if not drain:
            self._drain_cut_short.set()

    async def stopped(self) -> None:
        """Returns when no more requests are sent."""
        await self._draining.wait()

    @property
    @abc.abstractmethod
    def in_flight(self) -> int:
        """Requests that were sent and are not answered yet."""

    @property
    def unanswered(self) -> int:
        """At least the requests that were sent and are not answered yet; as far as the loop knows, without slots that wait to send."""
        return self.in_flight

    def report_drops(self) -> None:
        """Reports the arrivals dropped so far, which are otherwise reported many at a time."""
        return

    @abc.abstractmethod
    def _start(self) -> "tuple[list[asyncio.Task[None]], asyncio.Future[Any]]":
        """The tasks that send, and a future that is done when sending has stopped and every request is answered."""

    def _stop_sending(self) -> None:
        if not self._stopping:
            self._stopping = True
            self.ending.stopped_ns = self.clock.now_ns()
        self._draining.set()

    def _note_contact(self, reply: Reply) -> bool:
        """Whether a reply shows that the target can be reached; stops the point when it could not for three seconds.

        It is stopped, too, when perfkit refused an answer because of its size: further ones would be missing, and the server has not failed.
        Connections that fail in the drain say nothing: a server may well close when the load is over.
        """
        if reply.is_own_limit:
            self.stop(reply.error, StopCause.ANSWER_LIMIT, drain=False)
        if reply.outcome not in _NO_CONTACT:
            self._unreachable = None
            return True
        if reply.outcome is Outcome.CONNECT_FAILED and not self._stopping:
            now_ns = self.clock.now_ns()
            self._unreachable = lost = self._unreachable or _Unreachable(now_ns, reply.error)
            lost.attempts += 1
            if now_ns - lost.since_ns >= _LOST_AFTER_NS:
                self.stop(reply.error, _cause_of(reply.error))
        return False

    def _was_lost_in_the_end(self) -> str:
        """The error of a target that was not reached in the last tenth of the load, by two attempts or more; otherwise empty.

        The window of a short load ends before the three seconds have passed.
        """
        lost, load_ns = self._unreachable, self.ending.stopped_ns - self.phases.start_ns
        if lost is None or lost.attempts < 2 or self.ending.stopped_ns - lost.since_ns < min(_LOST_AFTER_NS, load_ns // 10):
            return ""
        return lost.error

    async def _send_and_drain(self) -> None:
        tasks, answered = self._start()
        try:
            await self._draining.wait()
            drained = self.clock.sleep_until_ns(self.clock.now_ns() + self.phases.drain_ns)
            await any_of(drained, self._drain_cut_short.wait(), also=answered)
            if self.may_abandon and not answered.done():
                self.transport.abandon()
            await answered
        finally:
            answered.add_done_callback(lambda future: future.cancelled() or future.exception())  # or asyncio logs that nobody read it
            for task in tasks:
                task.cancel()

    async def _end_window(self) -> None:
        if self.phases.window_end_ns is not None:
            await self.clock.sleep_until_ns(self.phases.window_end_ns)
            self._stop_sending()


def _cause_of(error: str) -> StopCause:
    """Whose fault it is that no connection could be opened."""
    return StopCause.FILE_LIMIT if error.startswith(FILE_LIMIT) else StopCause.TARGET_LOST


class LoopGroup(Stoppable):
    """One loop or several; one that ends early ends the others."""

    def __init__(self, loops: Sequence[Loop]) -> None:
        self._loops = loops

    @property
    def in_flight(self) -> int:
        """The sum of `Loop.in_flight` over the loops."""
        return sum(loop.in_flight for loop in self._loops)

    @property
    def unanswered(self) -> int:
        """The sum of `Loop.unanswered` over the loops."""
        return sum(loop.unanswered for loop in self._loops)

    @property
    def stopped_ns(self) -> int:
        """The instant at which the last of the loops stopped sending; 0 before any has."""
        return max(loop.ending.stopped_ns for loop in self._loops)

    @property
    def has_ended_early(self) -> bool:
        """Whether a loop was stopped, or stopped itself, other than as planned."""
        return any(loop.ending.reason for loop in self._loops)

    def report_drops(self) -> None:
        """Reports the arrivals dropped so far."""
        for loop in self._loops:
            loop.report_drops()

    async def run(self) -> Ending:
        """Runs all loops to their ends; the reason is that of a loop that ended early, if one did."""
        if len(self._loops) == 1:
            return await self._loops[0].run()
        endings = await run_with_side_tasks(self._run_all(), *(self._end_all_with(loop) for loop in self._loops))
        early = next((ending for ending in endings if ending.reason), endings[0])
        return dataclasses.replace(early, stopped_ns=self.stopped_ns)

    @override
    def stop(self, reason: str, cause: StopCause = StopCause.INTERRUPTED, *, drain: bool = True) -> None:
        for loop in self._loops:
            loop.stop(reason, cause, drain=drain)

    async def stopped(self) -> None:
        """Returns when all loops have stopped sending."""
        for loop in self._loops:
            await loop.stopped()

    async def _run_all(self) -> list[Ending]:
        tasks = [asyncio.ensure_future(loop.run()) for loop in self._loops]
        try:
            return await asyncio.gather(*tasks)
        finally:  # also where one of them failed
            for task in tasks:
                task.cancel()

    async def _end_all_with(self, loop: Loop) -> None:
        await loop.stopped()
        if loop.ending.reason:
            self.stop(loop.ending.reason, loop.ending.cause or StopCause.INTERRUPTED)
