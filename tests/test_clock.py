"""The machine's clock where timers are not exact."""

import asyncio
import types

from perfkit.clock import MonotonicClock


def test_the_rest_of_a_timer_that_fired_early_is_no_busy_loop(monkeypatch):
    now_ns, asked_s = [0], list[float]()

    async def fire_early(seconds):
        asked_s.append(seconds)
        now_ns[0] += int(seconds * 0.9e9)

    monkeypatch.setattr(asyncio, "sleep", fire_early)
    monkeypatch.setattr("perfkit.clock.time", types.SimpleNamespace(monotonic_ns=lambda: now_ns[0]))
    asyncio.run(MonotonicClock().sleep_until_ns(5_000_000))
    assert asked_s == [0.005, 0.001], "event loops round a shorter time to 0"
