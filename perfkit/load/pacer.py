"""Waits for instants with an accuracy of tens of microseconds and little CPU time.

The timers of an event loop are accurate to a millisecond. Linux has timer files, which the loop watches like a socket;
the last microseconds are spent spinning, since waking up takes as long.
"""

import asyncio
import contextlib
import ctypes
import os

from perfkit.clock import Clock, MonotonicClock
from perfkit.override import override
from perfkit.units import NS_PER_S

_CLOCK_MONOTONIC, _TFD_TIMER_ABSTIME = 1, 1
_NONBLOCK_CLOEXEC = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)
# about the time that waking up takes; spinning longer would keep the core from others
SPIN_NS = 40_000


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
    """Waits with a timer file of the kernel, and spins for the last 40 µs."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._now_ns = clock.now_ns
        self._loop = asyncio.get_running_loop()
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._file = self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._woken: asyncio.Future[None] | None = None
        self._loop.add_reader(self._file, self._wake)

    @override
    async def wait_until_ns(self, instant_ns: int) -> None:
        while instant_ns - self._now_ns() > SPIN_NS:
            self._woken = self._loop.create_future()
            self._set(instant_ns - SPIN_NS)
            await self._woken
        while self._now_ns() < instant_ns:
            pass

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
