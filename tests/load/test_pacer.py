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


class SlowToWake(TimerPacer):
    """Wakes a fixed time after the instant that it sleeps until; each reading of its clock takes a microsecond, and nothing else any time."""

    def __init__(self, wakes_after_ns):
        super().__init__(MonotonicClock())
        self.time_ns, self.asked_ns, self._wakes_after_ns = 0, 0, wakes_after_ns
        self._now_ns = self._read

    def _read(self):
        self.time_ns += 1_000
        return self.time_ns

    async def _sleep_until(self, instant_ns):
        self.asked_ns, self.time_ns = instant_ns, instant_ns + self._wakes_after_ns


@pytest.mark.parametrize(
    ("wakes_after_us", "gap_ms", "lead_us"),
    [
        pytest.param(100, 10, (100, 110), id="as long as waking takes"),
        pytest.param(5, 10, (10, 12), id="a quick machine waits busily for less"),
        pytest.param(900, 10, (196, 204), id="bounded"),
        pytest.param(100, 0.2, (40, 61), id="at a high rate the core is not kept busy"),
    ],
)
def test_it_wakes_as_early_as_the_machine_needs(run, wakes_after_us, gap_ms, lead_us):
    async def main():
        with contextlib.closing(SlowToWake(wakes_after_us * 1000)) as pacer:
            for _ in range(600):
                instant_ns = pacer.time_ns + round(gap_ms * MS)
                await pacer.wait_until_ns(instant_ns)
                assert pacer.time_ns >= instant_ns
            return (instant_ns - pacer.asked_ns) / 1000

    assert lead_us[0] <= run(main()) <= lead_us[1]


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
