"""Pacers wait until the instant, never less, and leave nothing open."""

import asyncio
import contextlib

import psutil
import pytest

from perfkit.clock import ManualClock, MonotonicClock
from perfkit.load.open_loop import Pacer, TimerPacer, make_pacer

MS = 1_000_000


@pytest.mark.parametrize("ahead_ns", [-MS, 0, 1_000, 30_000, 100_000, 2 * MS, 5 * MS])
def test_a_timer_never_wakes_before_its_instant(run, ahead_ns):
    clock = MonotonicClock()

    async def main():
        with contextlib.closing(TimerPacer(clock)) as pacer:
            instant_ns = clock.now_ns() + ahead_ns
            await pacer.wait_until_ns(instant_ns)
            return clock.now_ns() - instant_ns

    assert run(main()) >= 0


def test_instants_one_after_the_other_come_in_their_order(run):
    clock = MonotonicClock()

    async def main():
        seen, begin_ns = [], clock.now_ns()
        with contextlib.closing(TimerPacer(clock)) as pacer:
            for number in range(50):
                await pacer.wait_until_ns(begin_ns + number * 200_000)
                seen.append(clock.now_ns() - begin_ns)
        return seen

    seen = run(main())
    assert all(at_ns >= number * 200_000 for number, at_ns in enumerate(seen))
    assert seen == sorted(seen)


def test_other_tasks_run_while_it_waits(run):
    clock = MonotonicClock()

    async def main():
        ran = asyncio.Event()
        asyncio.get_running_loop().call_soon(ran.set)
        with contextlib.closing(TimerPacer(clock)) as pacer:
            await pacer.wait_until_ns(clock.now_ns() + 20 * MS)
        return ran.is_set()

    assert run(main())


def test_its_file_is_closed(run):
    async def main():
        process, counts = psutil.Process(), []
        counts.append(process.num_fds())
        with contextlib.closing(TimerPacer(MonotonicClock())):
            counts.append(process.num_fds())
        return [*counts, process.num_fds()]

    before, opened, after = run(main())
    assert (opened, after) == (before + 1, before)


def test_virtual_time_paces_itself():
    clock = ManualClock()

    async def main():
        pacer = make_pacer(clock)
        assert type(pacer) is Pacer
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

    assert type(asyncio.run(main())) is Pacer
