"""Virtual time: who wakes when, and in which order."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.clock import ManualClock
from tests.conditions import passes

MS, S = 1_000_000, 1_000_000_000


@given(st.lists(st.integers(0, 20), max_size=30))
def test_sleepers_wake_at_their_instants_in_order(instants):
    clock = ManualClock()
    woken: list[tuple[int, int]] = []

    async def sleep(number, instant):
        await clock.sleep_until_ns(instant)
        woken.append((clock.now_ns(), number))

    async def main():
        await asyncio.gather(*(sleep(number, instant) for number, instant in enumerate(instants)))

    clock.run(main())
    # by instant, and within one by who lay down first
    assert woken == sorted((instant, number) for number, instant in enumerate(instants))
    assert clock.now_ns() == max(instants, default=0)


def test_time_stands_still_while_anything_else_is_ready():
    clock = ManualClock(5 * S)

    async def main():
        sleeper = asyncio.ensure_future(clock.sleep_until_ns(6 * S))
        for _ in range(1000):
            await asyncio.sleep(0)
            assert clock.now_ns() == 5 * S
        assert not sleeper.done()
        await sleeper
        assert clock.now_ns() == 6 * S

    clock.run(main())


def test_an_instant_that_has_passed_is_not_slept_for():
    clock = ManualClock(5 * S)

    async def main():
        for instant in (0, 4 * S, 5 * S):
            await clock.sleep_until_ns(instant)

    clock.run(main())
    assert clock.now_ns() == 5 * S


def test_a_sleeper_that_is_cancelled_moves_no_time():
    clock = ManualClock()

    async def main():
        cancelled = asyncio.ensure_future(clock.sleep_until_ns(MS))
        await passes(1)
        cancelled.cancel()
        await clock.sleep_until_ns(S)
        return cancelled.cancelled()

    assert clock.run(main())
    assert clock.now_ns() == S


def test_time_goes_on_from_one_run_to_the_next():
    clock = ManualClock()
    for second in (1, 2, 3):
        clock.run(clock.sleep_until_ns(second * S))
        assert clock.now_ns() == second * S


def test_a_clock_without_sleepers_says_so_instead_of_waiting_for_ever():
    async def main():
        await asyncio.get_running_loop().create_future()

    with pytest.raises(RuntimeError, match="would wait forever"):
        ManualClock().run(main())
