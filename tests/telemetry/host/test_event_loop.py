import gc

from perfkit.clock import ManualClock
from perfkit.telemetry.host.event_loop import EVENT_LOOP_LAG, GC_PAUSE, EventLoopMonitor

MS = 1_000_000


def test_the_lag_of_each_timer_is_recorded():
    clock = ManualClock()
    late_ms = iter([0, 3, 0, 7])

    class LateClock:
        """Wakes sleepers as late as the list says."""

        now_ns = staticmethod(clock.now_ns)

        async def sleep_until_ns(self, instant_ns):
            await clock.sleep_until_ns(instant_ns + next(late_ms) * MS)

    async def go():
        with EventLoopMonitor(LateClock()) as monitor:
            try:
                await monitor.measure_lag(10 * MS)
            except (StopIteration, RuntimeError):  # the list has ended
                return monitor.series(1)

    (lag,) = [series for series in clock.run(go()) if series.name == EVENT_LOOP_LAG]
    assert lag.times_ns == (10 * MS, 63 * MS, 113 * MS, 170 * MS)
    assert (lag.values, lag.unit, lag.labels) == ((0, 3 * MS, 0, 7 * MS), "ns", {"worker": "2"})


def test_garbage_collections_are_recorded_while_the_block_lasts():
    clock = ManualClock()
    ticks = iter(range(0, 10**9, 5 * MS))

    class TickingClock:
        """Advances by 5 ms at each reading."""

        sleep_until_ns = clock.sleep_until_ns

        def now_ns(self):
            return next(ticks)

    was_enabled, before = gc.isenabled(), list(gc.callbacks)
    gc.disable()
    try:
        with EventLoopMonitor(TickingClock()) as monitor:
            gc.collect()
            gc.collect()
        gc.collect()
    finally:
        if was_enabled:
            gc.enable()
    (pauses,) = monitor.series(0)
    assert (pauses.name, pauses.values) == (GC_PAUSE, (5 * MS, 5 * MS))
    assert gc.callbacks == before
