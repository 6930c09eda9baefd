"""One worker through its phases, in virtual time."""

import pytest

from perfkit.clock import ManualClock
from perfkit.fleet.worker import PointSpec, run_point
from perfkit.load.closed_loop import ClosedLoop
from perfkit.recorder.recording import Interval
from perfkit.transport.base import Outcome, Prepared
from perfkit.transport.scripted import ScriptedTransport

MS, S = 1_000_000, 1_000_000_000


def run(script, *, on_loop=lambda _: None, clock=None, **changes):
    clock = clock or ManualClock(5 * S)
    fields = {
        "concurrency": 4, "think_time_ns": 0, "warmup_ns": S, "window_ns": 10 * S, "requests": None, "drain_ns": 30 * S, "connections": 4,
        **changes,
    }  # fmt: skip
    intervals: list[Interval] = []

    async def main():
        transport = ScriptedTransport(clock, script)
        return await run_point(
            PointSpec(**fields),
            transport,
            [Prepared(())],
            clock=clock,
            on_loop=on_loop,
            on_interval=lambda _, interval: intervals.append(interval),
        )

    return clock.run(main()), intervals


def test_a_window_holds_what_the_closed_form_says():
    point, intervals = run(lambda _: (20 * MS, Outcome.OK))
    assert point.window_ns == 10 * S
    assert point.recording.outcomes[Outcome.OK] == 4 * 10_000 // 20
    # the answers of what starts at 9.98 s finish at the window's very end, which is outside
    assert point.recording.finished_in_window == 4 * 10_000 // 20
    assert sum(interval.service_time.count for interval in intervals) == 2000
    assert point.connections.opened == 4


def test_a_counted_window_ends_with_its_last_answer():
    point, _ = run(lambda _: (20 * MS, Outcome.OK), window_ns=None, requests=100)
    assert point.recording.outcomes[Outcome.OK] == 100
    assert point.window_ns == pytest.approx(100 / 4 * 20 * MS, rel=0.05)
    assert point.recording.finished_in_window >= 100


def test_a_point_that_is_stopped_has_the_window_it_reached():
    clock = ManualClock(5 * S)
    loops: list[ClosedLoop] = []
    count = iter(range(10**6))

    def script(_):
        if next(count) == 1000:
            loops[0].stop("enough")
        return 20 * MS, Outcome.OK

    point, _ = run(script, on_loop=loops.append, clock=clock)
    assert point.ending.reason == "enough"
    assert point.window_ns == (1000 // 4) * 20 * MS - S
