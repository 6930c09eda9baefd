"""Pacers wait until the instant, never less, and leave nothing open."""

import asyncio
import os

import pytest

from perfkit.clock import ManualClock, MonotonicClock
from perfkit.load.pacer import ClockPacer, TimerPacer, make_pacer

MS = 1_000_000


@pytest.mark.parametrize("ahead_ns", [-MS, 0, 1_000, 30_000, 100_000, 2 * MS, 5 * MS])
def test_a_timer_never_wakes_before_its_instant(run, ahead_ns):
    clock = MonotonicClock()

    async def main():
        pacer = TimerPacer(clock)
        instant_ns = clock.now_ns() + ahead_ns
        await pacer.wait_until_ns(instant_ns)
        woken_ns = clock.now_ns()
        pacer.close()
        return woken_ns - instant_ns

    assert run(main()) >= 0


def test_instants_one_after_the_other_come_in_their_order(run):
    clock = MonotonicClock()

    async def main():
        pacer, seen = TimerPacer(clock), []
        begin_ns = clock.now_ns()
        for number in range(50):
            await pacer.wait_until_ns(begin_ns + number * 200_000)
            seen.append(clock.now_ns() - begin_ns)
        pacer.close()
        return seen

    seen = run(main())
    assert all(at_ns >= number * 200_000 for number, at_ns in enumerate(seen))
    assert seen == sorted(seen)


def test_other_tasks_run_while_it_waits(run):
    clock = MonotonicClock()

    async def main():
        pacer, ran = TimerPacer(clock), asyncio.Event()
        asyncio.get_running_loop().call_soon(ran.set)
        await pacer.wait_until_ns(clock.now_ns() + 20 * MS)
        pacer.close()
        return ran.is_set()

    assert run(main())


def test_its_file_is_closed(run):
    async def main():
        pacer = TimerPacer(MonotonicClock())
        number = pacer._file
        os.fstat(number)
        pacer.close()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(number)

    run(main())


def test_virtual_time_paces_itself():
    clock = ManualClock()

    async def main():
        pacer = make_pacer(clock)
        assert isinstance(pacer, ClockPacer)
        await pacer.wait_until_ns(5 * MS)
        pacer.close()
        return clock.now_ns()

    assert clock.run(main()) == 5 * MS


def test_a_system_without_timer_files_gets_plain_timers(monkeypatch):
    def refuse(_self, _clock):
        raise OSError(38, "timerfd_create")

    monkeypatch.setattr(TimerPacer, "__init__", refuse)

    async def main():
        return make_pacer(MonotonicClock())

    assert isinstance(asyncio.run(main()), ClockPacer)
