"""One worker through its phases, in virtual time."""

import asyncio
import dataclasses
import functools
import types
from typing import Any

import numpy as np
import pytest

from perfkit.clock import ManualClock
from perfkit.errors import TargetError
from perfkit.load.arrivals import Schedule, Trace, constant_rate
from perfkit.load.closed_loop import ClosedLoop
from perfkit.load.load_plan import ClosedPlan, OpenPlan
from perfkit.load.loop import StopCause
from perfkit.load.retries import RetryingSender, RetryPlan, with_retries
from perfkit.recorder.window import cut
from perfkit.target.address import Address
from perfkit.transport.base import Outcome, Prepared
from perfkit.transport.scripted import ScriptedTransport
from perfkit.workers import worker_process
from perfkit.workers.prepared_workload import PreparedWorkload
from perfkit.workers.worker import run_workloads
from tests.measured_points import ADDRESS, point_spec, run_point

MS, S = 1_000_000, 1_000_000_000


def run(script, *, on_loop=lambda _: None, clock=None, **changes):
    clock = clock or ManualClock(5 * S)
    fields: dict[str, Any] = {
        "load": ClosedPlan(4, 0),
        "warmup_ns": S,
        "window_ns": 10 * S,
        "requests": None,
        "drain_ns": 30 * S,
        "connections": 4,
    }
    fields.update(changes)

    async def main():
        transport = ScriptedTransport(clock, script)
        return await run_point(
            point_spec(**fields), transport, [Prepared(())], clock=clock, address=Address("http", "h", 1), on_loop=on_loop
        )

    point = clock.run(main())
    return point, cut(point.recording, 0, is_open=not isinstance(fields["load"], ClosedPlan)), dict(point.recording.times_by_second())


def test_a_window_holds_what_the_closed_form_says():
    point, window, seconds = run(lambda _: (20 * MS, Outcome.OK))
    assert window.length_ns == 10 * S
    assert window.outcomes[Outcome.OK] == 4 * 10_000 // 20
    # the answers of what starts at 9.98 s finish at the window's very end, which is outside
    assert window.count("finished") == 4 * 10_000 // 20
    assert {second: times["service_time"].count for second, times in seconds.items()} == dict.fromkeys(range(10), 200)
    assert point.connections.opened == 4


def test_a_point_that_is_stopped_has_the_window_it_reached():
    clock = ManualClock(5 * S)
    loops: list[ClosedLoop] = []

    def script(index):
        if index == 1000:
            loops[0].stop("enough")
        return 20 * MS, Outcome.OK

    point, window, _ = run(script, on_loop=loops.append, clock=clock)
    assert point.ending.reason == "enough"
    assert window.length_ns == (1000 // 4) * 20 * MS - S


def test_a_counted_window_holds_its_requests_and_what_the_warm_up_left_in_flight():
    _point, window, _ = run(lambda _: (30 * MS, Outcome.OK), load=ClosedPlan(1, 0), window_ns=None, requests=50)
    assert window.outcomes[Outcome.OK] == 50
    # the warm-up's last request starts at 990 ms and is answered at 1020 ms
    assert window.length_ns == 20 * MS + 50 * 30 * MS


def stopped_at(instant_ns, script, **changes):
    """A point that is stopped at an instant after its start."""
    clock = ManualClock(5 * S)

    async def stop(loop):
        await clock.sleep_until_ns(5 * S + instant_ns)
        loop.stop("enough")

    stops = []
    return run(script, on_loop=lambda loop: stops.append(asyncio.ensure_future(stop(loop))), clock=clock, **changes)


def test_a_point_that_is_stopped_in_its_warm_up_has_no_window():
    point, window, seconds = stopped_at(500 * MS, lambda _: (900 * MS, Outcome.OK))
    assert window.length_ns == 0
    assert sum(window.outcomes.values()) == window.count("finished") == 0
    assert seconds == {}
    assert (point.ending.reason, point.ending.cause) == ("enough", StopCause.INTERRUPTED)


WARM_UPS = [ClosedPlan(8, 0), OpenPlan(400.0, "constant", Schedule("constant", constant_rate(400.0), (0, 0, 0)), None, None)]


@pytest.mark.parametrize("warm_up", WARM_UPS)
def test_a_warm_up_with_a_load_of_its_own_is_sent_first_and_leaves_the_window_alone(warm_up):
    sent = []

    def script(index):
        sent.append(index)
        return 20 * MS, Outcome.OK

    point, window, _ = run(script, warm_up=warm_up, warm_up_ns=2 * S, warmup_ns=3 * S)
    assert (window.start_ns - point.start_ns, window.length_ns) == (3 * S, 10 * S)
    assert window.outcomes[Outcome.OK] == window.count("finished") == 4 * 10_000 // 20
    # 400 a second for 2 s, then those of the load point's own second of warm-up
    assert len(sent) == pytest.approx(800 + 4 * 11_000 // 20, abs=1)


@pytest.mark.parametrize("warm_up", WARM_UPS)
def test_requests_of_a_warm_up_that_are_not_answered_in_time_do_not_end_the_load(warm_up):
    """And what the server counted is compared with all that were sent."""
    sent = []

    def script(index):
        sent.append(index)
        return (10 * S if index < 8 else 20 * MS), Outcome.OK

    point, window, _ = run(script, warm_up=warm_up, warm_up_ns=2 * S, warmup_ns=3 * S, drain_ns=0)
    totals = point.recording.answer_totals
    assert point.ending.reason == ""
    assert window.outcomes[Outcome.OK] + window.outcomes[Outcome.UNFINISHED] == 4 * 10_000 // 20
    assert totals.answered + totals.perhaps_answered == len(sent)
    assert totals.answered >= len(sent) - 4


def test_the_time_of_a_warm_up_with_its_own_load_is_not_that_in_which_a_backlog_grew():
    schedule = Schedule("constant", constant_rate(100.0), (0, 0, 0))
    load, warm_up = (OpenPlan(100.0, "constant", schedule, None, None) for _ in range(2))
    changes = {"load": load, "warm_up": warm_up, "warm_up_ns": 20 * S, "warmup_ns": 21 * S, "overload_abort_after_ns": S}
    point, window, _ = run(lambda _: (1200 * MS, Outcome.OK), **changes)  # it keeps up, with 120 in flight from the start
    assert (point.ending.cause, window.length_ns) == (None, 10 * S)


def test_a_point_that_is_stopped_while_its_warm_up_has_the_load_ends_at_once():
    point, window, _ = stopped_at(500 * MS, lambda _: (20 * MS, Outcome.OK), warm_up=ClosedPlan(8, 0), warm_up_ns=20 * S, warmup_ns=21 * S)
    assert (point.ending.reason, window.length_ns) == ("enough", 0)
    assert point.ending.stopped_ns == 5 * S + 500 * MS


def test_a_point_that_is_stopped_early_sends_no_request_again():
    """It is stopped in the pause after the first attempt, and would drain for half a minute."""
    clock, plan = ManualClock(5 * S), RetryPlan(3, 2 * S, 2 * S, False, ("timeout",), None, 0)
    transport = ScriptedTransport(clock, lambda _: (10 * MS, Outcome.TIMED_OUT))
    spec = point_spec(ClosedPlan(1, 0), warmup_ns=0, window_ns=10 * S, requests=None, drain_ns=30 * S, connections=1)
    own = dataclasses.replace(spec.workloads[0], retry=plan)

    async def stop(loops):
        await clock.sleep_until_ns(5 * S + 500 * MS)
        loops.stop("enough")

    async def main():
        stops = []
        sender = RetryingSender(transport, plan, clock)
        workload = PreparedWorkload(own, transport, with_retries([Prepared(())], plan), ADDRESS, retrying=sender)
        return await run_workloads(spec, [workload], clock=clock, on_loop=lambda loops: stops.append(asyncio.ensure_future(stop(loops))))

    point = clock.run(main())
    window = cut(point.recording, 0, is_open=False)
    assert (transport.sent, window.outcomes[Outcome.UNFINISHED], clock.now_ns()) == (1, 1, 5 * S + 500 * MS)


def test_answers_of_the_drain_are_samples_but_no_throughput_of_a_point_that_is_stopped():
    slots = 3000  # more than a batch of replies comes in the drain
    _point, window, _ = stopped_at(2500 * MS, lambda _: (S, Outcome.OK), load=ClosedPlan(slots, 0))
    assert window.length_ns == 1500 * MS
    assert window.outcomes[Outcome.OK] == 2 * slots
    # at the window's start, and a second later; those of 3 s came in the drain
    assert window.count("finished") == 2 * slots
    assert sum(window.finished_per_s) == 2 * slots


def test_a_lost_target_ends_the_point_early():
    point, window, _ = run(lambda index: (20 * MS, Outcome.OK if index < 400 else Outcome.CONNECT_FAILED), window_ns=60 * S)
    assert point.ending.cause is StopCause.TARGET_LOST
    # 400 requests are 2 s, one of them warm-up; 3 s later the target is given up
    assert 4 * S <= window.length_ns < 6 * S
    assert window.outcomes[Outcome.OK] == 200
    assert [kind.message for kind in window.failures] == ["connect_failed"]


def test_a_request_that_is_unfinished_after_the_drain_is_counted_at_its_age():
    _point, window, _ = run(lambda index: (3600 * S if index == 700 else 20 * MS, Outcome.OK))
    assert window.outcomes[Outcome.UNFINISHED] == 1
    # the 701st request starts at 3.5 s, the drain ends at 1 + 10 + 30 s
    assert window.times["service_time"].max_ns == pytest.approx(37.5 * S, rel=1e-3)


def test_think_time_and_connections_reach_the_loop_and_the_transport():
    point, window, _ = run(lambda _: (20 * MS, Outcome.OK), load=ClosedPlan(4, 80 * MS), connections=2)
    assert window.outcomes[Outcome.OK] == 4 * 10_000 // 100
    assert point.connections.opened == 2


def test_a_point_whose_requests_fail_is_ended_where_a_limit_is_set():
    failing = lambda index: (20 * MS, Outcome.REJECTED if index % 2 else Outcome.OK)  # noqa: E731 - a script in a line
    point, window, _ = run(failing, abort_error_rate=0.4)
    assert point.ending.cause is StopCause.TOO_MANY_ERRORS
    assert "50% of" in point.ending.reason
    assert window.length_ns == 0, "20 requests are there after 100 ms of the warm-up"
    point, window, _ = run(failing, abort_error_rate=0.6)
    assert (point.ending.cause, point.ending.reason, window.length_ns) == (None, "", 10 * S)
    point, _, _ = run(lambda _: (S, Outcome.REJECTED), abort_error_rate=0.1, load=ClosedPlan(1, 0))
    assert point.ending.cause is not StopCause.TOO_MANY_ERRORS, "eleven failed, and twenty are looked at"
    requests = {"warmup_ns": 0, "window_ns": None, "requests": 40}
    point, _, _ = run(lambda _: (MS, Outcome.REJECTED), abort_error_rate=0.1, **requests)
    assert point.ending.reason == "100% of 40 requests failed, above measure.abort_error_rate: 10%", "all answered in 10 ms"


def test_little_s_law_holds_in_a_closed_loop():
    """Acceptance: |1 - X(R+Z)/C| within 1 %."""
    random = np.random.default_rng(5)
    for concurrency, think_ms in ((1, 0), (8, 0), (4, 30)):
        services = random.exponential(20 * MS, 20_000).astype(np.int64).tolist()
        _, window, _ = run(lambda index, s=services: (s[index], Outcome.OK), load=ClosedPlan(concurrency, think_ms * MS), window_ns=30 * S)
        mean_s = window.times["service_time"].mean_and_stddev_ns()[0] / S
        assert abs(1 - window.count("ended") / 30 * (mean_s + think_ms / 1000) / concurrency) < 0.01


def test_answers_within_the_limit_are_good():
    _, window, _ = run(
        lambda index: (10 * MS if index % 4 else 30 * MS, Outcome.OK), load=ClosedPlan(1, 0), good_within_ns={"waited": 20 * MS}
    )
    assert window.count("good") == pytest.approx(0.75 * window.count("finished"), abs=1)
    assert window.count("finished") == pytest.approx(10_000 / 15, abs=2)


def test_an_arrival_at_the_very_start_is_not_late_however_long_its_schedule_took_to_make():
    clock = ManualClock(5 * S)

    class Long(Trace):
        def chunks(self):
            sleep = clock.sleep_until_ns(clock.now_ns() + 700 * MS)
            sleep.send(None)
            clock.jump()  # as long as the first instants take to compute
            sleep.close()
            yield from super().chunks()

    plan = OpenPlan(2.0, "trace", Long(np.array([0, 10 * MS])), None, None)
    _, window, _ = run(lambda _: (MS, Outcome.OK), clock=clock, load=plan, warmup_ns=0, window_ns=S)
    assert window.outcomes[Outcome.OK] == 2
    assert window.times["pacing_delay"].max_ns == 0


def test_a_rule_that_fails_beside_the_load_fails_the_point():
    class BrokenLimit(float):
        def __mul__(self, _):
            raise RuntimeError("the limit cannot be computed")

    clock = ManualClock(5 * S)
    with pytest.raises(RuntimeError, match="the limit cannot be computed"):
        run(lambda _: (20 * MS, Outcome.OK), clock=clock, abort_error_rate=BrokenLimit(0.5))
    assert clock.now_ns() < 7 * S, "the load is not sent to its end"


def test_what_was_made_is_left_out_of_garbage_collection_before_the_load_begins(monkeypatch):
    calls = list[str]()
    steps = {name: functools.partial(calls.append, name) for name in ("unfreeze", "collect", "freeze")}
    monkeypatch.setattr(worker_process, "gc", types.SimpleNamespace(**steps))

    async def load(*_, begin_at, **__):
        calls.append(f"begins at {await begin_at()}")
        raise TargetError("it is gone")

    monkeypatch.setattr(worker_process, "execute", load)
    spec = types.SimpleNamespace(replies_file=None, is_live=False, reports_replies=False, cpus=None)

    async def main():
        worker = worker_process.Worker(lambda _: None, ManualClock())
        worker._begin.set_result(5 * S)
        await worker._execute(spec)  # type: ignore[arg-type] # what it reads of one

    asyncio.run(main())
    assert calls == ["collect", "freeze", f"begins at {5 * S}", "unfreeze"], "what the load point leaves is collected before the next"
