"""An alarm at an instant of the monotonic clock, through an event loop.

Loops count in milliseconds (uvloop) or sleep relative times through poll's slack (asyncio). A timerfd is set to the
instant itself, and to a loop it is a file that becomes readable.
"""

import asyncio
import contextlib
import ctypes
import os
import sys
import time
from collections.abc import Callable
from typing import Protocol, TypeAlias

_CLOCK_MONOTONIC, _TFD_TIMER_ABSTIME = 1, 1
_FLAGS = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)  # as TFD_NONBLOCK and TFD_CLOEXEC are defined
_NS_PER_S = 1_000_000_000


class Alarm(Protocol):
    """Calls back once at, or shortly after, the instant it was last set to; perhaps early as well."""

    def set(self, instant_ns: int) -> None:
        """Takes the place of what was set before; an instant that has passed is now."""
        ...

    def close(self) -> None:
        """Ends it; it does not call back again."""
        ...


MakeAlarm: TypeAlias = Callable[[asyncio.AbstractEventLoop, Callable[[], None]], Alarm]


def make_alarm(loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> Alarm:
    """The most precise alarm that this machine and this loop have."""
    if sys.platform == "linux" and ctypes.sizeof(ctypes.c_long) == 8:  # elsewhere a timespec is laid out otherwise
        with contextlib.suppress(OSError, AttributeError, NotImplementedError):
            return TimerfdAlarm(loop, ring)
    return LoopAlarm(loop, ring)


class _Itimerspec(ctypes.Structure):
    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("value_s", ctypes.c_long),
        ("value_ns", ctypes.c_long),
    )


class TimerfdAlarm:
    """Linux's timerfd, from libc since Python's own came with 3.13."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop, self._ring = loop, ring
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = _checked(self._libc.timerfd_create(_CLOCK_MONOTONIC, _FLAGS))
        try:
            loop.add_reader(self._fd, self._expire)
        except BaseException:
            os.close(self._fd)
            raise

    def set(self, instant_ns: int) -> None:
        """See `Alarm.set`."""
        value_s, value_ns = divmod(max(instant_ns, 1), _NS_PER_S)  # 0 would disarm it
        spec = _Itimerspec(0, 0, value_s, value_ns)
        _checked(self._libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None))

    def close(self) -> None:
        """See `Alarm.close`."""
        if not self._loop.is_closed():
            self._loop.remove_reader(self._fd)
        os.close(self._fd)

    def _expire(self) -> None:
        with contextlib.suppress(BlockingIOError):  # set anew since it became readable
            os.read(self._fd, 8)
            self._ring()


class LoopAlarm:
    """The loop's own timer, as fine as that is."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop, self._ring = loop, ring
        self._handle: asyncio.TimerHandle | None = None

    def set(self, instant_ns: int) -> None:
        """See `Alarm.set`."""
        self.close()
        self._handle = self._loop.call_later(max(0.0, (instant_ns - time.monotonic_ns()) / _NS_PER_S), self._ring)

    def close(self) -> None:
        """See `Alarm.close`."""
        if self._handle is not None:
            self._handle.cancel()


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
