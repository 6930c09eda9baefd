"""The only place that reads a clock, so that tests and simulations can put their own in its place."""

import asyncio
import datetime
import time
from typing import Protocol


class Clock(Protocol):
    """Monotonic time for measuring, and waiting on it."""

    def now_ns(self) -> int:
        """Nanoseconds since an arbitrary instant; never goes back."""
        ...

    async def sleep_until_ns(self, instant_ns: int) -> None:
        """Returns at the instant, or at once if it has passed."""
        ...


class MonotonicClock:
    """The machine's monotonic clock, the same in every process of one boot."""

    now_ns = staticmethod(time.monotonic_ns)

    async def sleep_until_ns(self, instant_ns: int) -> None:
        """See `Clock.sleep_until_ns`; right to the event loop's timer, some 1 ms."""
        while (left_ns := instant_ns - time.monotonic_ns()) > 0:  # noqa: ASYNC110 - a timer may fire early: the clock says when it is over
            await asyncio.sleep(left_ns / 1e9)


def utc_now() -> datetime.datetime:
    """The wall clock, in UTC: for names and records, never for measuring."""
    return datetime.datetime.now(datetime.UTC)


def cpu_ns() -> int:
    """User and system CPU time of this process, all threads, in nanoseconds."""
    return time.process_time_ns()
