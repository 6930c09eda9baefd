"""An open loop: requests start on schedule, independently of the completion of earlier ones.

Response time is counted from the intended start, so that it includes the delay of a request that is sent late. No request
is held back to spare the server: an arrival that would exceed `max_in_flight` is dropped and counted.
"""

import asyncio
import contextlib
import ctypes
import dataclasses
import functools
import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import numpy as np

from perfkit.clock import Clock, MonotonicClock
from perfkit.load.arrivals import Instants
from perfkit.load.load_plan import MAX_IN_FLIGHT
from perfkit.load.loop import Loop, any_of
from perfkit.override import override
from perfkit.transport.base import Outcome, Reply
from perfkit.units import NS_PER_S

_CLOCK_MONOTONIC, _TFD_TIMER_ABSTIME = 1, 1
_NONBLOCK_CLOEXEC = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)
# the longest busy wait: answers come in meanwhile
SPIN_NS = 40_000
# The timer is set so long before an instant that all but 5 % of the wake-ups are in time: an idle virtual machine takes 100 µs, a busy one 20.
_IN_TIME, _LEAD_STEP_NS = 0.95, 4_000
_LEAST_LEAD_NS, _MOST_LEAD_NS = 10_000, 200_000


class Pacer:
    """Waits for instants with a clock's own means: for virtual time, and for systems without timer files."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    async def wait_until_ns(self, instant_ns: int) -> None:
        """Returns at the instant, or immediately if it has passed."""
        await self._clock.sleep_until_ns(instant_ns)

    def close(self) -> None:
        """Releases its resources."""


class TimerPacer(Pacer):
    """Waits with a timer file of the kernel, and busily for the rest.

    It wakes as long before the instant as this machine's wake-ups lately took. What is left of that is spent in turns of the event loop, and
    the last 40 µs at most without it.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._now_ns = clock.now_ns
        self._loop = asyncio.get_running_loop()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._file = self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._woken: asyncio.Future[None] | None = None
        self._lead_ns = SPIN_NS
        self._loop.add_reader(self._file, self._wake)

    @override
    async def wait_until_ns(self, instant_ns: int) -> None:
        left_ns = instant_ns - self._now_ns()
        lead_ns = min(self._lead_ns, left_ns // 4)  # at high rates a busy wait before each instant would take the core
        if left_ns > lead_ns:
            await self._sleep_until(instant_ns - lead_ns)
            if lead_ns == self._lead_ns:
                step_ns = _LEAD_STEP_NS * (_IN_TIME if self._now_ns() >= instant_ns else _IN_TIME - 1)
                self._lead_ns = min(max(lead_ns + round(step_ns), _LEAST_LEAD_NS), _MOST_LEAD_NS)
        while instant_ns - self._now_ns() > SPIN_NS:  # noqa: ASYNC110 - answers are taken meanwhile
            await asyncio.sleep(0)
        while self._now_ns() < instant_ns:
            pass

    async def _sleep_until(self, instant_ns: int) -> None:
        while instant_ns > self._now_ns():
            self._woken = self._loop.create_future()
            self._set(instant_ns)
            await self._woken

    @override
    def close(self) -> None:
        self._loop.remove_reader(self._file)
        os.close(self._file)

    def _set(self, instant_ns: int) -> None:
        # struct itimerspec: no interval, then the instant
        when = (ctypes.c_long * 4)(0, 0, *divmod(instant_ns, NS_PER_S))
        if self._libc.timerfd_settime(self._file, _TFD_TIMER_ABSTIME, when, None) < 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def _wake(self) -> None:
        try:
            os.read(self._file, 8)
        except BlockingIOError:
            return  # it was set again after it fired
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)


def make_pacer(clock: Clock) -> Pacer:
    """The most accurate pacer for a clock on this system."""
    if isinstance(clock, MonotonicClock):
        with contextlib.suppress(OSError, AttributeError, NotImplementedError):
            return TimerPacer(clock)
    return Pacer(clock)


_Index = TypeVar("_Index", int, Instants)
# late arrivals that are sent in a row before answers are processed
_LATE_BURST = 4
_GRACE_NS = 100_000_000
_PIECE = 4096


@dataclasses.dataclass(eq=False)
class OpenLoop(Loop):
    """A `Loop` on schedule: `arrivals` are instants relative to `origin_ns`; worker k of n gets the arrivals i ≡ k (mod n) of a schedule.

    `on_drop` gets the intended instants of requests that are not sent, many at a time, their variants, and whether that is due to
    the load generator: it was late, or reached `MAX_IN_FLIGHT` while no `max_in_flight` was set.
    """

    on_drop: Callable[[Instants, Instants, bool], None]
    _: dataclasses.KW_ONLY
    arrivals: Iterator[Instants]
    origin_ns: int
    pacer: Pacer
    max_in_flight: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        self._in_flight = 0
        self._limit = MAX_IN_FLIGHT if self.max_in_flight is None else self.max_in_flight
        self._pieces = (chunk[at : at + _PIECE] + self.origin_ns for chunk in self.arrivals for at in range(0, chunk.size, _PIECE))
        self._piece: Instants = np.empty(0, dtype=np.int64)
        self._position = 0  # of the next arrival in the piece
        self._earlier = 0  # arrivals in earlier pieces
        self._over_limit: list[tuple[int, int]] = []
        self._all_sent = False
        self._answered: asyncio.Future[None] | None = None

    @property
    @override
    def in_flight(self) -> int:
        return self._in_flight

    def _start(self) -> "tuple[list[asyncio.Task[None]], asyncio.Future[Any]]":
        self._answered = asyncio.get_running_loop().create_future()
        return [asyncio.ensure_future(self._send_all())], self._answered

    async def _end_window(self) -> None:
        """Sending ends by itself with the last arrival; a loop that is late gets a short grace period."""
        if self.phases.window_end_ns is not None:
            await self.clock.sleep_until_ns(self.phases.window_end_ns + _GRACE_NS)
            self._stop_sending()

    async def _send_all(self) -> None:
        sending = asyncio.ensure_future(self._send_on_time())
        try:
            await any_of(self._draining.wait(), also=sending)
            if sending.done():
                await sending  # raises its error
            sending.cancel()
            self._stop_sending()
            await self._drop_unsent()
        except Exception as error:  # noqa: BLE001 - `run` raises it
            self._fail(error)
        finally:
            sending.cancel()
            self._stop_sending()
            self._all_sent = True
            self._check_answered()

    async def _send_on_time(self) -> None:
        end_ns, now_ns, wait = self.phases.window_end_ns, self.clock.now_ns, self.pacer.wait_until_ns
        send, left, late_in_a_row, index = self._send, self.phases.requests, 0, self.worker
        for piece in self._pieces:
            self._earlier += self._piece.size
            self._piece, self._position = piece, 0
            for instant_ns in piece.tolist():
                if (end_ns is not None and instant_ns >= end_ns) or left == 0:
                    await self.clock.sleep_until_ns(instant_ns if end_ns is None else end_ns)
                    return
                if left is not None and instant_ns >= self.phases.window_start_ns:
                    left -= 1
                if instant_ns > now_ns():
                    await wait(instant_ns)
                    late_in_a_row = 0
                elif (late_in_a_row := late_in_a_row + 1) >= _LATE_BURST:
                    late_in_a_row = 0
                    await asyncio.sleep(0)
                if self._stopping:
                    return
                self._position += 1
                send(instant_ns, index)
                index += self.workers
        if end_ns is not None:  # a trace that ends before the window
            await self.clock.sleep_until_ns(end_ns)

    def _send(self, intended_ns: int, index: int) -> None:
        if self._in_flight >= self._limit:
            self._note_over_limit(intended_ns, index)
            return
        self._in_flight += 1
        paced_ns = self.clock.now_ns()
        variant = index % len(self.requests)
        reply = asyncio.ensure_future(self.transport.send(self.requests[variant]))
        reply.add_done_callback(functools.partial(self._take, intended_ns, paced_ns, variant))

    def _variant(self, index: _Index) -> _Index:
        """The variants of arrivals that are not sent; those of sequences have none."""
        return index % max(len(self.requests), 1)

    def _note_over_limit(self, intended_ns: int, index: int) -> None:
        self._over_limit.append((intended_ns, self._variant(index)))
        if len(self._over_limit) >= _PIECE:
            self.report_drops()

    @override
    def report_drops(self) -> None:
        dropped, self._over_limit = self._over_limit, []
        if dropped:
            instants, variants = np.array(dropped, dtype=np.int64).T
            self.on_drop(instants, variants, self.max_in_flight is None)

    async def _drop_unsent(self) -> None:
        """Counts the arrivals of the window, perhaps millions, that a late loop did not reach."""
        self.report_drops()
        if self.phases.window_end_ns is None:
            return
        end_ns, number = min(self.phases.window_end_ns, self.ending.stopped_ns), self._earlier + self._position
        for piece in itertools.chain([self._piece[self._position :]], self._pieces):
            late = piece[: int(np.searchsorted(piece, end_ns))]
            if late.size:
                indices = self.worker + self.workers * (number + np.arange(late.size))
                self.on_drop(late, self._variant(indices), True)
            number += piece.size
            if late.size < piece.size:
                return
            await asyncio.sleep(0)  # an interruption is handled in between

    def _take(self, intended_ns: int, paced_ns: int, variant: int, done: "asyncio.Future[Reply]") -> None:
        self._in_flight -= 1
        if done.cancelled():
            return
        if error := done.exception():
            self._fail(error)
            return
        reply = done.result()
        reply.intended_ns, reply.paced_ns, reply.variant = intended_ns, paced_ns, variant
        try:
            self.on_reply(reply)  # which may find that the answer is wrong, or too large to decode
        except Exception as error:  # noqa: BLE001 - raised in a callback it would be lost: `run` raises it
            self._fail(error)
        if reply.outcome is Outcome.OK:
            self._unreachable = None
        else:
            self._note_contact(reply)
        self._check_answered()

    def _fail(self, error: BaseException) -> None:
        if self._answered is not None and not self._answered.done():
            self._answered.set_exception(error)
        self._stop_sending()

    def _check_answered(self) -> None:
        if self._all_sent and not self._in_flight and self._answered is not None and not self._answered.done():
            self._answered.set_result(None)
