"""`warmup: auto` from end to end in virtual time: load on a target that warms up, what is cut, and what is left."""

import numpy as np
import pytest

from perfkit.clock import ManualClock
from perfkit.load import arrivals
from perfkit.load.arrivals import Schedule
from perfkit.load.load_plan import ClosedPlan, OpenPlan
from perfkit.points.behaviour import warm_up_ns
from perfkit.recorder.series import Series
from perfkit.recorder.window import cut
from perfkit.target.address import Address
from perfkit.transport.base import Outcome, Prepared
from perfkit.transport.scripted import ScriptedTransport
from tests.measured_points import point_spec, run_point

MS, S = 1_000_000, 1_000_000_000
POISSON = OpenPlan(100.0, "poisson", Schedule("poisson", arrivals.constant_rate(100), (3,)), None, None)


def measure(load, service_ns, *, window_s=60):
    """The window and its warm-up in seconds; `service_ns` gives a service time from the seconds since the load's start."""
    clock = ManualClock(7 * S)

    async def main():
        transport = ScriptedTransport(clock, lambda _: (int(service_ns(clock.now_ns() / S - 7)), Outcome.OK))
        spec = point_spec(load, S, window_s * S, None, S, 4, finds_warm_up=True)
        return await run_point(
            spec,
            transport,
            [Prepared(())],
            clock=clock,
            address=Address("http", "h", 1),
            on_loop=lambda _: None,
        )

    point = clock.run(main())
    is_open = isinstance(load, OpenPlan)
    series = point.recording.series.between(0, point.recording.end_ns)
    window = cut(point.recording, series.origin_ns + warm_up_ns(series, is_open=is_open), is_open=is_open)
    return window, (window.start_ns - point.start_ns) / S


@pytest.mark.parametrize("load", [ClosedPlan(2, 0), POISSON], ids=["closed", "open"])
def test_a_slow_start_is_cut_down_to_a_hundredth(load):
    """Acceptance E6: service times that begin half as long again, and come down with τ = 10 s."""
    random = np.random.default_rng(1)
    window, warmup_s = measure(load, lambda at_s: 20 * MS * (1 + 0.5 * np.exp(-at_s / 10)) * random.uniform(0.8, 1.2), window_s=120)
    mean_ns, _ = window.times["service_time"].mean_and_stddev_ns()
    assert mean_ns == pytest.approx(20 * MS, rel=0.01)
    assert 10 <= warmup_s <= 41
    assert window.length_ns == round((121 - warmup_s) * S)


@pytest.mark.parametrize("load", [ClosedPlan(2, 0), POISSON], ids=["closed", "open"])
def test_a_steady_target_loses_only_the_first_second(load):
    random = np.random.default_rng(2)
    _, warmup_s = measure(load, lambda _: 20 * MS * random.uniform(0.8, 1.2))
    assert warmup_s == 1


def test_a_target_that_never_gets_steady_is_not_cut():
    random = np.random.default_rng(3)
    _, warmup_s = measure(ClosedPlan(2, 0), lambda at_s: MS * (20 - at_s / 5) * random.uniform(0.8, 1.2))
    assert warmup_s <= 21


@pytest.mark.parametrize("silent_s", [3, 15])
def test_an_initial_time_without_answers_is_cut(silent_s):
    """All requests of the first seconds wait until it is there."""
    random = np.random.default_rng(4)
    window, warmup_s = measure(ClosedPlan(4, 0), lambda at_s: max(silent_s - at_s, 0) * S + 20 * MS * random.uniform(0.8, 1.2))
    assert silent_s <= warmup_s <= silent_s + 8
    assert window.count("finished") / window.length_ns * S == pytest.approx(200, rel=0.02)


@pytest.mark.parametrize(("intervals", "requests"), [(59, 100), (200, 1), (200, 0)])
def test_few_intervals_or_requests_are_not_cut(intervals, requests):
    falling = np.linspace(90, 10, intervals).astype(np.int64) * MS
    each = np.full(intervals, requests)
    series = Series(0, S, each, each, falling * requests, each, *[0 * each] * 3)
    assert warm_up_ns(series, is_open=False) == 0
