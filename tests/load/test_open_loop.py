"""The open loop in virtual time, against queues whose answers are known."""

import math

import numpy as np
import pytest

from perfkit.load import arrivals
from perfkit.load.arrivals import Schedule, Trace
from perfkit.load.loop import StopCause
from perfkit.load.open_loop import Pacer
from perfkit.transport.base import Outcome
from perfkit.transport.scripted import ScriptedTransport
from tests.load import loops
from tests.load.loops import MS, Measured, S, opened


class Queue:
    """A server in virtual time with one FIFO queue: departure = max(arrival, free) + service."""

    def __init__(self, clock, services_ns):
        self._clock, self._services, self._free_ns = clock, iter(services_ns), 0

    def __call__(self, _index):
        arrival_ns = self._clock.now_ns()
        self._free_ns = max(arrival_ns, self._free_ns) + next(self._services)
        return self._free_ns - arrival_ns, Outcome.OK


class Stalling:
    """Answers at once, but not in the first second of every ten: what comes then is answered at its end."""

    def __init__(self, clock):
        self._clock = clock

    def __call__(self, _index):
        into_ns = self._clock.now_ns() % (10 * S)
        return max(S - into_ns, 0) + MS, Outcome.OK


def response_s(measured):
    return np.array([(reply.finished_ns - reply.intended_ns) / S for reply in sorted(measured.replies, key=lambda one: one.intended_ns)])


def every(rate):
    return Schedule("constant", arrivals.constant_rate(rate))


def poisson(rate, *seed):
    return Schedule("poisson", arrivals.constant_rate(rate), seed or (1,))


def constant(service_ns):
    return lambda _clock: loops.constant(service_ns)


def lindley(instants_ns, services_ns):
    """Response times of a FIFO queue with one server, by Lindley's recursion in whole nanoseconds."""
    free_ns, found = 0, []
    for arrival_ns, service_ns in zip(instants_ns, services_ns, strict=False):
        free_ns = max(arrival_ns, free_ns) + service_ns
        found.append(free_ns - arrival_ns)
    return found


@pytest.mark.parametrize("law", ["constant", "poisson", "gamma"])
def test_requests_start_exactly_when_their_schedule_says(law):
    schedule = Schedule(law, arrivals.constant_rate(500), (4,), 2.0)
    measured = opened(schedule, constant(3 * MS))
    expected = [int(one) for one in np.concatenate([next(schedule.chunks())]) if one < 10 * S][: len(measured.replies)]
    started = sorted(reply.started_ns for reply in measured.replies)
    assert started[: len(expected)] == expected
    assert all(reply.started_ns == reply.intended_ns == reply.paced_ns for reply in measured.replies)


@pytest.mark.parametrize(("rate", "seed"), [(50, 1), (80, 2), (95, 3)])
def test_response_times_are_those_of_the_queue_to_the_nanosecond(rate, seed):
    """M/M/1: the loop and Lindley's recursion see the same arrivals and services."""
    services = np.random.default_rng(seed).exponential(10 * MS, 20_000).astype(np.int64).tolist()
    schedule = poisson(rate, seed)
    measured = opened(schedule, lambda clock: Queue(clock, services), window_ns=30 * S, drain_ns=300 * S)
    instants = [int(one) for one in next(schedule.chunks()) if one < 30 * S]
    assert len(measured.replies) == len(instants) > 1000
    by_arrival = sorted(measured.replies, key=lambda one: one.intended_ns)
    assert [reply.finished_ns - reply.intended_ns for reply in by_arrival] == lindley(instants, services)


def test_a_stall_is_seen_by_an_open_loop_as_its_users_see_it_and_not_by_a_closed_one():
    """Coordinated omission: 1 s of every 10 s is a stall, at 200/s; exact p95 is 0.5 s and p99 0.9 s."""
    measured = opened(every(200), Stalling, window_ns=20 * S, drain_ns=2 * S)
    p95, p99 = np.quantile(response_s(measured), [0.95, 0.99])
    assert p95 == pytest.approx(0.5, rel=0.03)
    assert p99 == pytest.approx(0.9, rel=0.03)

    closed = Measured(lambda clock: ScriptedTransport(clock, Stalling(clock)), concurrency=1, window_ns=20 * S, drain_ns=2 * S)
    assert np.quantile([reply.finished_ns - reply.started_ns for reply in closed.replies], 0.99) < 50 * MS


def test_arrivals_beyond_the_limit_in_flight_are_dropped_and_the_others_on_time():
    measured = opened(every(100), constant(100 * MS), max_in_flight=4, window_ns=10 * S)
    # one comes every 10 ms and stays for 100 ms: four of every ten find room
    assert len(measured.replies) + len(measured.drops) == 999
    assert len(measured.replies) == pytest.approx(400, abs=4)
    assert measured.transport.in_flight_max == 4
    assert all(reply.started_ns == reply.intended_ns for reply in measured.replies)
    assert not any(is_late for _, is_late in measured.drops)


def test_a_server_with_half_the_capacity_answers_at_its_own_pace_and_the_backlog_shows():
    services = [10 * MS] * 5000
    measured = opened(every(200), lambda clock: Queue(clock, services), drain_ns=60 * S)
    assert len(measured.replies) == 1999
    finished = sum(reply.finished_ns < 10 * S for reply in measured.replies)
    assert finished / 10 == pytest.approx(100, rel=0.02)
    assert response_s(measured)[-1] == pytest.approx(10, rel=0.01), "the last one waits for a thousand others"
    assert (np.diff(response_s(measured)) > 0).all()


def test_what_is_not_answered_in_the_drain_is_unfinished_at_its_age():
    measured = opened(every(1), constant(100 * S), window_ns=5 * S, drain_ns=2 * S)
    assert measured.outcomes() == [Outcome.UNFINISHED] * 4
    assert [reply.finished_ns for reply in measured.replies] == [7 * S] * 4


def test_a_counted_window_sends_exactly_that_many_requests():
    measured = opened(poisson(100), constant(MS), warmup_ns=S, window_ns=None, count=250)
    in_window = [reply for reply in measured.replies if reply.intended_ns >= S]
    assert len(in_window) == 250
    assert len(measured.replies) > 250


def test_a_trace_is_sent_as_it_is_and_the_window_goes_on_after_it():
    measured = opened(Trace(np.array([0, 5 * MS, 5 * MS, 2 * S])), constant(MS), window_ns=3 * S)
    assert [reply.intended_ns for reply in measured.replies] == [0, 5 * MS, 5 * MS, 2 * S]
    assert measured.ending.stopped_ns == 3 * S


def test_a_stopped_loop_sends_nothing_more_and_ends_when_all_is_answered():
    async def stop(loop, clock):
        await clock.sleep_until_ns(2 * S)
        loop.stop("enough")

    measured = opened(every(10), constant(500 * MS), during=stop)
    assert measured.ending.reason == "enough"
    assert max(reply.started_ns for reply in measured.replies) <= 2 * S
    assert measured.ended_ns == 2400 * MS


def test_a_target_that_cannot_be_reached_for_a_while_is_lost():
    measured = opened(every(10), lambda _clock: lambda _index: (0, Outcome.CONNECT_FAILED), window_ns=60 * S)
    assert measured.ending.cause is StopCause.TARGET_LOST
    assert measured.ending.stopped_ns == pytest.approx(3.1 * S, rel=0.05)


def test_one_connection_that_is_refused_at_the_end_loses_nobody():
    measured = opened(
        every(10),
        lambda _clock: lambda index: (0, Outcome.CONNECT_FAILED if index == 98 else Outcome.OK),
    )
    assert measured.outcomes().count(Outcome.CONNECT_FAILED) == 1
    assert measured.ending.cause is None


def test_a_loop_that_cannot_keep_up_counts_the_arrivals_it_did_not_reach():
    """The pacer wakes late: at the window's end most arrivals are still before it."""

    class Slow(Pacer):
        async def wait_until_ns(self, instant_ns):
            await super().wait_until_ns(instant_ns + 2 * S)

    measured = opened(Trace(np.arange(0, 20 * S, 3 * S)), constant(MS), pacer=Slow)
    assert [reply.paced_ns - reply.intended_ns for reply in measured.replies] == [0, 2 * S, 2 * S], (
        "the last one's turn comes behind the window"
    )
    assert measured.drops == [(9 * S, True)]


def test_the_mean_of_an_m_m_1_queue_is_that_of_the_closed_form():
    """E[R] = 1/(mu - lambda), within four standard errors of a mean with an autocorrelation time of 9.7 (rho = 0.5)."""
    services = np.random.default_rng(9).exponential(10 * MS, 60_000).astype(np.int64).tolist()
    measured = opened(poisson(50, 9), lambda clock: Queue(clock, services), window_ns=400 * S, drain_ns=10 * S)
    count = len(measured.replies)
    assert response_s(measured).mean() == pytest.approx(0.02, rel=4 * math.sqrt(9.7 / count))


def test_a_failure_of_the_transport_or_the_recorder_ends_the_loop():
    class Failing(ScriptedTransport):
        def send(self, prepared):
            raise RuntimeError("broken")

    def refuse(_reply):
        raise RuntimeError("the disk is full")

    with pytest.raises(RuntimeError, match="broken"):
        Measured(lambda clock: Failing(clock, loops.constant(MS)), poisson(100), window_ns=S)
    with pytest.raises(RuntimeError, match="the disk is full"):
        opened(poisson(20), constant(900 * MS), on_reply=refuse, window_ns=S)
