"""The only module that reads a clock, so that tests and simulations can replace it."""

import datetime
import heapq
import selectors
import time
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import asyncio

_T = TypeVar("_T")


class Clock(Protocol):
    """Monotonic time: reading it and waiting for an instant."""

    def now_ns(self) -> int:
        """Nanoseconds since an arbitrary instant; never decreases."""
        ...

    async def sleep_until_ns(self, instant_ns: int) -> None:
        """Returns at the instant, or immediately if it has passed."""
        ...


# uvloop rounds a shorter time to 0, and the rest of a timer that fired early would be waited for in a busy loop
_LEAST_SLEEP_NS = 1_000_000


class MonotonicClock:
    """The machine's monotonic clock, the same in every process of one boot."""

    now_ns = staticmethod(time.monotonic_ns)

    async def sleep_until_ns(self, instant_ns: int) -> None:
        """Returns at the instant; accurate to about 1 ms, as the event loop's timers are."""
        import asyncio  # only now, as below: processes without an event loop start in less time without it

        while (left_ns := instant_ns - time.monotonic_ns()) > 0:  # noqa: ASYNC110 - a timer may fire early, so the clock decides
            await asyncio.sleep(max(left_ns, _LEAST_SLEEP_NS) / 1e9)


def utc_now() -> datetime.datetime:
    """The wall clock in UTC, for names and records; never for measuring."""
    return datetime.datetime.now(datetime.UTC)


Date = datetime.date
"""A day, without a time."""


def parse_date(text: object) -> Date:
    """A day such as `2027-01-31`, as text or as YAML reads it; raises ValueError for anything else."""
    if isinstance(text, Date) and not isinstance(text, datetime.datetime):
        return text
    if not isinstance(text, str):
        raise ValueError(f"expected a date, found {text!r}")
    return Date.fromisoformat(text)


Instant = datetime.datetime
"""An instant of the wall clock, in UTC."""


def parse_instant(text: str) -> Instant:
    """An instant as results store it, such as `2027-01-31T12:00:00.000+00:00`; raises ValueError for anything else."""
    return Instant.fromisoformat(text)


def instant_at(since_epoch_ns: int) -> Instant:
    """The instant so many nanoseconds after the start of 1970; raises ValueError or OverflowError beyond the year 9999."""
    return datetime.datetime.fromtimestamp(since_epoch_ns / 1e9, datetime.UTC)


def wall_ns() -> int:
    """Nanoseconds since 1970 by the wall clock, to convert other programs' timestamps; never for measuring."""
    return time.time_ns()


def resolution_ns() -> float:
    """The resolution of the monotonic clock in nanoseconds, as the system reports it."""
    return time.get_clock_info("monotonic").resolution * 1e9


def cpu_ns() -> int:
    """User and system CPU time of all threads of this process, in nanoseconds."""
    return time.process_time_ns()


def thread_cpu_ns() -> int:
    """User and system CPU time of the calling thread, in nanoseconds."""
    return time.thread_time_ns()


_SCHEDULER_CLOCK = 2  # CPUCLOCK_SCHED of the kernel's posix-timers.h


def process_cpu_ns(pid: int) -> int:
    """User and system CPU time of another process with all its threads, also those that have ended; raises OSError if there is no such process.

    It is the clock of clock_getcpuclockid(3), which Linux's scheduler counts in nanoseconds; it goes on existing until a process that has
    ended is waited for.
    """
    return time.clock_gettime_ns(~pid << 3 | _SCHEDULER_CLOCK)


def suspended_ns() -> int:
    """How long the machine was suspended since it started, while the monotonic clock stood still; 0 where that is not known."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.clock_gettime_ns(boot) - time.monotonic_ns() if boot is not None else 0


class ManualClock:
    """Virtual time, which jumps to the next sleeper when nothing else can run: hours pass in milliseconds.

    Coroutines under `run` may wait only for this clock, or for futures that depend on it.
    """

    def __init__(self, start_ns: int = 0) -> None:
        self._now_ns = start_ns
        self._sleepers: list[tuple[int, int, asyncio.Future[None]]] = []
        self._sleeps = 0

    def now_ns(self) -> int:
        """The virtual time."""
        return self._now_ns

    async def sleep_until_ns(self, instant_ns: int) -> None:
        """Returns at the instant; those who sleep until the same instant wake in the order of their calls."""
        import asyncio

        if instant_ns <= self._now_ns:
            return
        wake: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleeps += 1
        heapq.heappush(self._sleepers, (instant_ns, self._sleeps, wake))
        await wake

    def run(self, main: Coroutine[Any, Any, _T]) -> _T:
        """Runs a coroutine to its end on an event loop in virtual time; raises RuntimeError if it would wait forever."""
        import asyncio

        with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(_JumpingSelector(self))) as runner:
            return runner.run(main)

    def jump(self) -> bool:
        """Moves to the instant of the next sleeper and wakes it; False if there is none."""
        while self._sleepers:
            instant_ns, _, wake = heapq.heappop(self._sleepers)
            if not wake.done():
                self._now_ns = instant_ns
                wake.set_result(None)
                return True
        return False


class _JumpingSelector(selectors.DefaultSelector):
    """A selector that moves a manual clock instead of waiting."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        events = super().select(0)
        if events or (timeout is not None and timeout <= 0) or self._clock.jump():
            return events
        if timeout is None:
            raise RuntimeError("the run would wait forever: no coroutine waits for an instant of this clock, so its time cannot move on")
        return super().select(timeout)
