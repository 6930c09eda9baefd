"""The machine's clock."""

import asyncio

from perfkit.clock import MonotonicClock


def test_the_rest_of_a_timer_that_fired_early_is_no_busy_loop(monkeypatch):
    asked_s, sleep = list[float](), asyncio.sleep

    async def fire_early(seconds):
        asked_s.append(seconds)
        await sleep(seconds * 0.9)

    monkeypatch.setattr(asyncio, "sleep", fire_early)
    clock = MonotonicClock()
    asyncio.run(clock.sleep_until_ns(clock.now_ns() + 5_000_000))
    assert min(asked_s) >= 0.001, "event loops round a shorter time to 0"
