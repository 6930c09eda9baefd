"""What both loops share: how they end, early or as planned, and how long they await answers."""

import abc
import asyncio
import contextlib
import dataclasses
import enum
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from perfkit.clock import Clock
from perfkit.transport.base import Outcome, Reply, Transport
from perfkit.units import NS_PER_S

_LOST_AFTER_NS = 3 * NS_PER_S
_NO_CONTACT = (Outcome.CONNECT_FAILED, Outcome.BROKEN)


@dataclasses.dataclass(frozen=True, slots=True)
class Phases:
    """The phases of one load point as instants of the monotonic clock.

    Load is sent from `start_ns` on. Requests belong to the window if they start, or are meant to, in `[window_start_ns, window_end_ns)`; what starts before is warm-up.
    With `requests` the window ends with the last of that many, and `window_end_ns` is None.
    """

    start_ns: int
    window_start_ns: int
    window_end_ns: int | None
    requests: int | None
    drain_ns: int

    @classmethod
    def plan(cls, now_ns: int, *, warmup_ns: int, window_ns: int | None, requests: int | None, drain_ns: int) -> "Phases":
        """Phases that begin now."""
        start_ns = now_ns + warmup_ns
        return cls(now_ns, start_ns, None if window_ns is None else start_ns + window_ns, requests, drain_ns)


class StopCause(enum.Enum):
    """Why a load point was ended early."""

    INTERRUPTED = enum.auto()
    TARGET_LOST = enum.auto()
    TOO_MANY_ERRORS = enum.auto()
    OVERLOADED = enum.auto()


@dataclasses.dataclass(slots=True)
class Ending:
    """How a loop ended: at `stopped_ns` no more requests were sent; `reason` is empty where that was the plan."""

    stopped_ns: int = 0
    reason: str = ""
    cause: StopCause | None = None
    """None for a load that ended as planned."""


class Loop(abc.ABC):
    """Runs one load point. `stop` ends it early, `stop(drain=False)` without awaiting the answers."""

    def __init__(self, transport: Transport, phases: Phases, clock: Clock) -> None:
        self.ending = Ending()
        self._transport = transport
        self._phases = phases
        self._clock = clock
        self._stopping = False
        self._draining = asyncio.Event()
        self._drain_at_once = asyncio.Event()
        self._unreached: tuple[int, str] | None = None

    async def run(self) -> Ending:
        """Sends until the window ends, then awaits the answers for as long as the phases allow."""
        window = asyncio.ensure_future(self._end_window())
        try:
            async with self._sending() as answered:
                await self._draining.wait()
                drained = self._clock.sleep_until_ns(self._clock.now_ns() + self._phases.drain_ns)
                await any_of(drained, self._drain_at_once.wait(), also=answered)
                if not answered.done():
                    self._transport.abandon()
                await answered
        finally:  # also when this is cancelled, or sending failed: nobody goes on
            self._stop_sending()
            window.cancel()
        if self._unreached and not self.ending.reason:  # the window was too short to be sure: its end is taken for it
            self.ending.reason, self.ending.cause = self._unreached[1], StopCause.TARGET_LOST
        return self.ending

    def stop(self, reason: str, cause: StopCause = StopCause.INTERRUPTED, *, drain: bool = True) -> None:
        """Ends the point now, for a reason in words."""
        if not self.ending.reason:  # also while it drains as planned
            self.ending = Ending(self.ending.stopped_ns, reason, cause)
        self._stop_sending()
        if not drain:
            self._drain_at_once.set()

    async def stopped(self) -> None:
        """Returns when no more requests are sent."""
        await self._draining.wait()

    @abc.abstractmethod
    def _sending(self) -> contextlib.AbstractAsyncContextManager["asyncio.Future[Any]"]:
        """Sends for the length of the block; its value is done when sending has stopped and all is answered."""

    def _stop_sending(self) -> None:
        if not self._stopping:
            self._stopping = True
            self.ending.stopped_ns = self._clock.now_ns()
        self._draining.set()

    def _note_contact(self, reply: Reply) -> bool:
        """Whether the server was there; gives the target up when nothing could be connected for a while."""
        if reply.outcome not in _NO_CONTACT:
            self._unreached = None
            return True
        if reply.outcome is Outcome.CONNECT_FAILED:
            now_ns = self._clock.now_ns()
            self._unreached = self._unreached or (now_ns, reply.error)
            if now_ns - self._unreached[0] >= _LOST_AFTER_NS:
                self.stop(reply.error, StopCause.TARGET_LOST)
        return False

    async def _end_window(self) -> None:
        if self._phases.window_end_ns is not None:
            await self._clock.sleep_until_ns(self._phases.window_end_ns)
            self._stop_sending()


@contextlib.asynccontextmanager
async def cancelled_at_the_end(tasks: "list[asyncio.Task[None]]", answered: "asyncio.Future[Any]") -> AsyncIterator["asyncio.Future[Any]"]:
    """Gives `answered`, and leaves no task running behind the block."""
    try:
        yield answered
    finally:
        for task in tasks:
            task.cancel()


async def any_of(*waits: Coroutine[Any, Any, object], also: "asyncio.Future[Any] | None" = None) -> None:
    """Returns when one is done; the coroutines, not `also`, are cancelled then."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait([*tasks, also] if also else tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
