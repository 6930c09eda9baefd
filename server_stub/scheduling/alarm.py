"""A precise timer for event loops, set to an instant of the monotonic clock.

The loops' own timers are too coarse: uvloop rounds to milliseconds, and asyncio adds the slack of poll. A Linux timerfd
takes the exact instant and becomes readable when it is reached.
"""

import asyncio
import contextlib
import ctypes
import os
import sys
import time
from collections.abc import Callable
from typing import Protocol, TypeAlias

from perfkit.override import override

_CLOCK_MONOTONIC, _TFD_TIMER_ABSTIME = 1, 1
_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)  # as TFD_NONBLOCK and TFD_CLOEXEC are defined
_NS_PER_S = 1_000_000_000


class Alarm(Protocol):
    """Calls back once, at or shortly after the instant it was last set to. It may also call back too early."""

    def set(self, instant_ns: int) -> None:
        """Replace the previous instant. One in the past means now."""

    def close(self) -> None:
        """Release the timer. It does not call back any more."""


MakeAlarm: TypeAlias = Callable[[asyncio.AbstractEventLoop, Callable[[], None]], Alarm]


def make_alarm(loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> Alarm:
    """The most precise alarm available: a timerfd, or else the loop's own timer."""
    if sys.platform == "linux" and ctypes.sizeof(ctypes.c_long) == 8:  # _Itimerspec has the layout of 64-bit Linux
        with contextlib.suppress(OSError, AttributeError, NotImplementedError):
            return TimerfdAlarm(loop, ring)
    return LoopAlarm(loop, ring)


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval_s", ctypes.c_long), ("interval_ns", ctypes.c_long), ("value_s", ctypes.c_long), ("value_ns", ctypes.c_long))


class TimerfdAlarm(Alarm):
    """Linux's timerfd, called through libc because Python's own binding needs 3.13."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop, self._ring = loop, ring
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = _checked(self._libc.timerfd_create(_CLOCK_MONOTONIC, _FLAGS))
        try:
            loop.add_reader(self._fd, self._expire)
        except BaseException:
            os.close(self._fd)
            raise

    @override
    def set(self, instant_ns: int) -> None:
        value_s, value_ns = divmod(max(instant_ns, 1), _NS_PER_S)  # 0 would disarm the timer
        spec = _Itimerspec(0, 0, value_s, value_ns)
        _checked(self._libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None))

    @override
    def close(self) -> None:
        if not self._loop.is_closed():
            self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _expire(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it was set again after it became readable
            os.read(self._fd, 8)
            self._ring()


class LoopAlarm(Alarm):
    """The event loop's own timer."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop, self._ring = loop, ring
        self._handle: asyncio.TimerHandle | None = None

    @override
    def set(self, instant_ns: int) -> None:
        self.close()
        self._handle = self._loop.call_later(max(0.0, (instant_ns - time.monotonic_ns()) / _NS_PER_S), self._ring)

    @override
    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
