"""The closed loop in virtual time, against closed forms."""

import asyncio

import pytest

from perfkit.clock import ManualClock
from perfkit.load.closed_loop import ClosedLoop
from perfkit.load.phases import Phases
from perfkit.transport.base import Outcome, Prepared, Reply
from perfkit.transport.scripted import ScriptedTransport

MS, S = 1_000_000, 1_000_000_000
POOL = [Prepared(())]


class Measured:
    """One loop run to its end: its replies, its ending, its transport."""

    def __init__(self, script, *, concurrency=1, warmup_ns=0, window_ns=10 * S, requests=None, drain_ns=S, think_time_ns=0, during=None):
        self.clock = ManualClock(start_ns=7 * S)
        self.replies: list[Reply] = []

        async def main():
            self.transport = ScriptedTransport(self.clock, script)
            self.phases = Phases.plan(self.clock.now_ns(), warmup_ns=warmup_ns, window_ns=window_ns, requests=requests, drain_ns=drain_ns)
            loop = ClosedLoop(
                self.transport, POOL, self.replies.append,
                concurrency=concurrency, phases=self.phases, clock=self.clock, think_time_ns=think_time_ns,
            )  # fmt: skip
            meddling = asyncio.ensure_future(during(loop, self.clock)) if during else None
            self.ending = await loop.run()
            self.ended_ns = self.clock.now_ns()
            if meddling:
                await meddling

        self.clock.run(main())

    def outcomes(self):
        return [reply.outcome for reply in self.replies]


def constant(service_time_ns, outcome=Outcome.OK):
    return lambda _: (service_time_ns, outcome)


@pytest.mark.parametrize(("concurrency", "service_ms"), [(1, 10), (3, 7), (16, 40), (100, 250)])
def test_constant_service_times_give_the_throughput_of_the_closed_form(concurrency, service_ms):
    measured = Measured(constant(service_ms * MS), concurrency=concurrency)
    # a slot sends at 0, s, 2s, … below the window's end: ceil(T / s) requests each
    assert len(measured.replies) == concurrency * -(-10_000 // service_ms)
    assert measured.transport.in_flight_max == concurrency
    assert {reply.finished_ns - reply.started_ns for reply in measured.replies} == {service_ms * MS}


def test_concurrency_is_never_exceeded_whatever_the_service_times():
    measured = Measured(lambda index: ((index * 7919 % 50 + 1) * MS, Outcome.OK), concurrency=8)
    assert measured.transport.in_flight_max == 8
    edges = sorted([(reply.started_ns, 1) for reply in measured.replies] + [(reply.finished_ns, -1) for reply in measured.replies])
    in_flight = peak = 0
    for _, step in edges:
        in_flight += step
        peak = max(peak, in_flight)
    assert peak == 8


def test_littles_law_holds_between_throughput_and_service_time():
    measured = Measured(lambda index: ((20 + index % 11) * MS, Outcome.OK), concurrency=4, window_ns=1000 * S)
    mean_s = sum(reply.finished_ns - reply.started_ns for reply in measured.replies) / len(measured.replies) / S
    throughput_per_s = len(measured.replies) / 1000
    assert throughput_per_s * mean_s == pytest.approx(4, rel=1e-3)


def test_a_counted_window_sends_that_many_requests_after_the_warm_up():
    measured = Measured(constant(30 * MS), concurrency=4, warmup_ns=S, window_ns=None, requests=50)
    inside = [reply for reply in measured.replies if reply.started_ns >= measured.phases.window_start_ns]
    assert len(inside) == 50
    assert len(measured.replies) > 50
    assert measured.ending.reason == ""


def test_think_time_lies_between_an_answer_and_the_next_request():
    measured = Measured(constant(10 * MS), think_time_ns=90 * MS, window_ns=10 * S)
    gaps = {after.started_ns - before.finished_ns for before, after in zip(measured.replies, measured.replies[1:], strict=False)}
    assert gaps == {90 * MS}


def test_answers_within_the_drain_are_kept_and_later_ones_are_unfinished_at_their_age():
    early = Measured(constant(1500 * MS), window_ns=S, drain_ns=S)
    assert early.outcomes() == [Outcome.OK]
    late = Measured(constant(10 * S), concurrency=2, window_ns=S, drain_ns=3 * S)
    assert late.outcomes() == [Outcome.UNFINISHED] * 2
    assert {reply.finished_ns - reply.started_ns for reply in late.replies} == {4 * S}
    assert late.ended_ns - late.phases.window_start_ns == 4 * S


def test_a_stop_ends_the_sending_and_awaits_the_answers():
    async def stop(loop, clock):
        await clock.sleep_until_ns(clock.now_ns() + 2500 * MS)
        loop.stop("enough")

    measured = Measured(constant(S), window_ns=3600 * S, drain_ns=30 * S, during=stop)
    assert measured.outcomes() == [Outcome.OK] * 3
    assert measured.ending.reason == "enough"
    assert measured.ending.stopped_ns - measured.phases.window_start_ns == 2500 * MS
    assert not measured.ending.target_lost


def test_a_second_stop_abandons_what_is_in_flight():
    async def stop_twice(loop, clock):
        await clock.sleep_until_ns(clock.now_ns() + 500 * MS)
        loop.stop("first")
        await clock.sleep_until_ns(clock.now_ns() + 100 * MS)
        loop.stop("second", drain=False)

    measured = Measured(constant(3600 * S), window_ns=3600 * S, drain_ns=3600 * S, during=stop_twice)
    assert measured.outcomes() == [Outcome.UNFINISHED]
    assert measured.replies[0].finished_ns - measured.replies[0].started_ns == 600 * MS
    assert measured.ending.reason == "first"


def test_a_target_that_no_connection_reaches_is_given_up_after_three_seconds():
    measured = Measured(constant(0, Outcome.CONNECT_FAILED), concurrency=2, window_ns=3600 * S)
    assert measured.ending.target_lost
    assert measured.ending.reason == "connect_failed"
    assert 3 * S <= measured.ended_ns - measured.phases.window_start_ns < 5 * S
    assert len(measured.replies) < 40, "tries grow apart"


def test_a_short_outage_is_survived_and_counted():
    clock_free = iter(range(10**6))
    outcomes = [Outcome.OK] * 5 + [Outcome.CONNECT_FAILED] * 6
    measured = Measured(
        lambda _: (10 * MS, outcomes[index] if (index := next(clock_free)) < len(outcomes) else Outcome.OK), window_ns=10 * S
    )
    assert not measured.ending.target_lost
    assert measured.outcomes().count(Outcome.CONNECT_FAILED) == 6
    assert measured.outcomes()[-1] is Outcome.OK


def test_a_rejecting_server_is_reached_and_never_lost():
    measured = Measured(constant(10 * MS, Outcome.REJECTED), window_ns=20 * S)
    assert not measured.ending.target_lost
    assert len(measured.replies) == 2000


def test_requests_are_cycled_through_by_all_slots_together():
    sent = []

    class Noting(ScriptedTransport):
        def send(self, prepared):
            sent.append(prepared)
            return super().send(prepared)

    clock = ManualClock()
    pool = [Prepared((bytes([number]),)) for number in range(5)]

    async def main():
        phases = Phases.plan(0, warmup_ns=0, window_ns=S, requests=None, drain_ns=S)
        await ClosedLoop(Noting(clock, constant(10 * MS)), pool, lambda _: None, concurrency=2, phases=phases, clock=clock).run()

    clock.run(main())
    assert [prepared.buffers[0][0] for prepared in sent] == [number % 5 for number in range(200)]


def test_a_clock_without_sleepers_says_so_instead_of_waiting_for_ever():
    async def main():
        await asyncio.get_running_loop().create_future()

    with pytest.raises(RuntimeError, match="no sleeper is left"):
        ManualClock().run(main())
