"""The closed loop in virtual time, against closed forms."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.load.loop import StopCause
from perfkit.transport.base import Outcome, Prepared
from perfkit.transport.scripted import ScriptedTransport
from tests.load.loops import MS, Measured, S, closed, constant


@pytest.mark.parametrize(("concurrency", "service_ms"), [(1, 10), (3, 7), (16, 40), (100, 250)])
def test_constant_service_times_give_the_throughput_of_the_closed_form(concurrency, service_ms):
    measured = closed(constant(service_ms * MS), concurrency=concurrency)
    # a slot sends at 0, s, 2s, … below the window's end: ceil(T / s) requests each
    assert len(measured.replies) == concurrency * -(-10_000 // service_ms)
    assert measured.transport.in_flight_max == concurrency
    assert {reply.finished_ns - reply.started_ns for reply in measured.replies} == {service_ms * MS}


def test_concurrency_is_never_exceeded_whatever_the_service_times():
    measured = closed(lambda index: ((index * 7919 % 50 + 1) * MS, Outcome.OK), concurrency=8)
    assert measured.transport.in_flight_max == 8
    edges = sorted([(reply.started_ns, 1) for reply in measured.replies] + [(reply.finished_ns, -1) for reply in measured.replies])
    assert max(itertools.accumulate(step for _, step in edges)) == 8


@given(st.integers(1, 6), st.lists(st.integers(1, 400), min_size=1, max_size=7), st.integers(0, 50))
def test_every_slot_is_always_either_in_flight_or_thinking(concurrency, service_ms, think_ms):
    script = lambda index: (service_ms[index % len(service_ms)] * MS, Outcome.OK)  # noqa: E731 - a script in a line
    measured = closed(script, concurrency=concurrency, window_ns=S, think_time_ns=think_ms * MS)
    start_ns, end_ns = measured.phases.window_start_ns, measured.phases.window_start_ns + S
    assert all(start_ns <= reply.started_ns < end_ns for reply in measured.replies)
    assert measured.transport.sent == len(measured.replies)
    assert measured.transport.in_flight_max <= concurrency
    # each answer before the window's end is followed by one request, a think time later: a closed loop neither lags nor doubles
    follow = sorted(after for reply in measured.replies if (after := reply.finished_ns + think_ms * MS) < end_ns)
    first = start_ns + think_ms * MS
    assert sorted(reply.started_ns for reply in measured.replies) == [first] * concurrency + follow


def test_littles_law_holds_between_throughput_and_service_time():
    measured = closed(lambda index: ((20 + index % 11) * MS, Outcome.OK), concurrency=4, window_ns=100 * S)
    mean_s = sum(reply.finished_ns - reply.started_ns for reply in measured.replies) / len(measured.replies) / S
    throughput_per_s = len(measured.replies) / 100
    assert throughput_per_s * mean_s == pytest.approx(4, rel=1e-3)


def test_requests_start_from_the_warm_up_to_the_windows_end_and_not_at_it():
    measured = closed(constant(250 * MS), warmup_ns=S, window_ns=2 * S)
    starts_ms = [(reply.started_ns - measured.phases.window_start_ns) // MS for reply in measured.replies]
    assert starts_ms == list(range(-1000, 2000, 250))
    assert measured.ending.stopped_ns == measured.phases.window_end_ns


def test_a_counted_window_sends_that_many_requests_after_the_warm_up():
    measured = closed(constant(30 * MS), concurrency=4, warmup_ns=S, window_ns=None, count=50)
    inside = [reply for reply in measured.replies if reply.started_ns >= measured.phases.window_start_ns]
    assert len(inside) == 50
    assert len(measured.replies) > 50
    assert measured.ending.reason == ""
    assert measured.transport.sent == len(measured.replies)


def test_a_request_that_waits_across_the_windows_start_is_one_of_those_counted():
    class Connecting(ScriptedTransport):
        def __init__(self, clock):
            super().__init__(clock, constant(30 * MS))
            self.clock = clock

        async def send(self, prepared):
            await self.clock.sleep_until_ns(self.clock.now_ns() + 7 * MS)
            return await super().send(prepared)

    measured = Measured(Connecting, concurrency=4, warmup_ns=S, window_ns=None, count=50)
    # 27 × 37 ms = 999 ms: four requests are permitted just before the window, and start in it
    assert sum(reply.started_ns >= measured.phases.window_start_ns for reply in measured.replies) == 50


def test_a_counted_window_may_have_fewer_requests_than_slots():
    measured = closed(constant(30 * MS), concurrency=8, window_ns=None, count=3)
    assert measured.outcomes() == [Outcome.OK] * 3


def test_the_last_of_a_counted_window_is_awaited_as_long_as_the_drain():
    measured = closed(lambda index: ((5 if index == 2 else 1) * S, Outcome.OK), concurrency=2, window_ns=None, count=3, drain_ns=2 * S)
    assert measured.outcomes() == [Outcome.OK, Outcome.OK, Outcome.UNFINISHED]
    assert measured.replies[-1].finished_ns - measured.replies[-1].started_ns == 2 * S


def test_think_time_lies_between_an_answer_and_the_next_request():
    measured = closed(constant(10 * MS), think_time_ns=90 * MS, window_ns=10 * S)
    gaps = {after.started_ns - before.finished_ns for before, after in zip(measured.replies, measured.replies[1:], strict=False)}
    assert gaps == {90 * MS}


def test_a_slot_that_thinks_when_the_window_ends_is_not_awaited():
    measured = closed(constant(10 * MS), think_time_ns=600 * MS, window_ns=S)
    assert len(measured.replies) == 1
    assert measured.ended_ns == measured.phases.window_end_ns


def test_answers_within_the_drain_are_kept_and_later_ones_are_unfinished_at_their_age():
    early = closed(constant(1500 * MS), window_ns=S, drain_ns=S)
    assert early.outcomes() == [Outcome.OK]
    late = closed(constant(10 * S), concurrency=2, window_ns=S, drain_ns=3 * S)
    assert late.outcomes() == [Outcome.UNFINISHED] * 2
    assert {reply.finished_ns - reply.started_ns for reply in late.replies} == {4 * S}
    assert late.ended_ns - late.phases.window_start_ns == 4 * S


def test_a_stop_ends_the_sending_and_awaits_the_answers():
    async def stop(loop, clock):
        await clock.sleep_until_ns(clock.now_ns() + 2500 * MS)
        loop.stop("enough")

    measured = closed(constant(S), window_ns=3600 * S, drain_ns=30 * S, during=stop)
    assert measured.outcomes() == [Outcome.OK] * 3
    assert measured.ending.reason == "enough"
    assert measured.ending.stopped_ns - measured.phases.window_start_ns == 2500 * MS
    assert measured.ending.cause is not StopCause.TARGET_LOST


def test_a_second_stop_abandons_what_is_in_flight():
    async def stop_twice(loop, clock):
        await clock.sleep_until_ns(clock.now_ns() + 500 * MS)
        loop.stop("first")
        await clock.sleep_until_ns(clock.now_ns() + 100 * MS)
        loop.stop("second", drain=False)

    measured = closed(constant(3600 * S), window_ns=7200 * S, drain_ns=3600 * S, during=stop_twice)
    assert measured.outcomes() == [Outcome.UNFINISHED]
    assert measured.replies[0].finished_ns - measured.replies[0].started_ns == 600 * MS
    assert measured.ending.reason == "first"


def test_a_target_that_no_connection_reaches_is_lost_after_three_seconds():
    measured = closed(constant(0, Outcome.CONNECT_FAILED), concurrency=2, window_ns=3600 * S)
    assert measured.ending.cause is StopCause.TARGET_LOST
    assert measured.ending.reason == "connect_failed"
    assert 3 * S <= measured.ended_ns - measured.phases.window_start_ns < 5 * S
    assert len(measured.replies) < 40, "the intervals between attempts grow"


def test_a_connection_that_went_stale_is_replaced_at_once_and_later_attempts_back_off():
    measured = closed(constant(0, Outcome.CONNECT_FAILED), window_ns=3600 * S)
    starts = [reply.started_ns for reply in measured.replies]
    gaps_ms = [(after - before) // MS for before, after in itertools.pairwise(starts)]
    assert gaps_ms == [0, 10, 20, 40, 80, 160, 320, 640, 1000, 1000]


def test_an_attempt_that_the_transport_delayed_is_not_delayed_twice():
    measured = closed(constant(500 * MS, Outcome.CONNECT_FAILED), window_ns=3600 * S)
    starts = [reply.started_ns for reply in measured.replies]
    assert [(after - before) // MS for before, after in itertools.pairwise(starts)] == [500] * 6


def test_a_server_that_breaks_every_request_is_reached_but_not_hammered():
    measured = closed(constant(0, Outcome.BROKEN), window_ns=60 * S)
    assert measured.ending.cause is not StopCause.TARGET_LOST
    assert 60 <= len(measured.replies) < 80


def test_a_target_is_not_lost_while_another_slot_reaches_it():
    measured = closed(lambda index: (100 * MS, Outcome.OK if index % 2 else Outcome.CONNECT_FAILED), concurrency=2, window_ns=20 * S)
    assert measured.ending.cause is not StopCause.TARGET_LOST
    assert measured.ending.reason == ""


def test_a_short_outage_is_survived_and_counted():
    measured = closed(lambda index: (10 * MS, Outcome.CONNECT_FAILED if 5 <= index < 11 else Outcome.OK))
    assert measured.ending.cause is not StopCause.TARGET_LOST
    assert measured.outcomes().count(Outcome.CONNECT_FAILED) == 6
    assert measured.outcomes()[-1] is Outcome.OK


def test_a_rejecting_server_is_reached_and_never_lost():
    measured = closed(constant(10 * MS, Outcome.REJECTED), window_ns=20 * S)
    assert measured.ending.cause is not StopCause.TARGET_LOST
    assert len(measured.replies) == 2000


def test_requests_are_cycled_through_by_all_slots_together():
    sent = []

    class Noting(ScriptedTransport):
        def send(self, prepared):
            sent.append(prepared)
            return super().send(prepared)

    pool = [Prepared((bytes([number]),)) for number in range(5)]
    Measured(lambda clock: Noting(clock, constant(10 * MS)), requests=pool, window_ns=S, concurrency=2)
    assert [prepared.buffers[0][0] for prepared in sent] == [number % 5 for number in range(200)]
