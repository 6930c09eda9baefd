"""Requests that are sent again, in virtual time: when, how often, and what becomes of them."""

import types

import pytest

from perfkit.load.arrivals import Schedule, constant_rate, worker_arrivals
from perfkit.load.retries import RetriedRequest, RetryBudget, RetryingSender, RetryPlan, with_retries
from perfkit.transport.base import Outcome, Prepared, RetriedReply
from perfkit.transport.connect import FILE_LIMIT
from perfkit.transport.scripted import ScriptedTransport
from tests.load.loops import MS, Measured, S, constant
from tests.load.test_direct_requests import DirectTransport

SCHEDULE = Schedule("constant", constant_rate(100.0), (0, 0, 0))


def plan(attempts=3, first_ms=50, longest_ms=2000, jitter=False, causes=("timeout",), budget=None, seed=3):
    return RetryPlan(attempts, first_ms * MS, longest_ms * MS, jitter, causes, budget, seed)


def measured(script, schedule=None, retry=None, kind=ScriptedTransport, workers=1, **options):
    chosen = retry or plan()
    requests = with_retries([Prepared(())], chosen)
    connect = lambda clock: RetryingSender(kind(clock, script), chosen, clock, workers)  # noqa: E731 - made of the loop's clock
    options.setdefault("concurrency", 1) if schedule is None else None
    return Measured(connect, schedule, requests=requests, workers=workers, **options)


def failing(times, service_ms=10, outcome=Outcome.TIMED_OUT):
    """Every request fails so many times before it is answered."""
    return lambda index: (service_ms * MS, Outcome.OK if index % (times + 1) == times else outcome)


def first(run):
    return min(run.replies, key=lambda reply: reply.started_ns)


@pytest.mark.parametrize("kind", [ScriptedTransport, DirectTransport])
def test_a_request_lasts_from_its_first_attempt_to_its_answer_with_the_pauses_between(kind):
    run = measured(failing(2), count=1, kind=kind, window_ns=None)
    reply = first(run)
    assert isinstance(reply, RetriedReply)
    assert (reply.outcome, reply.started_ns, reply.finished_ns) == (Outcome.OK, 0, (10 + 50 + 10 + 100 + 10) * MS)
    assert [(one.cause, one.started_ns // MS, one.finished_ns // MS) for one in reply.attempts] == [
        ("timeout", 0, 10), ("timeout", 60, 70), ("", 170, 180),
    ]  # fmt: skip


def test_pauses_grow_to_the_longest():
    assert plan(attempts=6, first_ms=50, longest_ms=300).pauses_ns() == [pause * MS for pause in (50, 100, 200, 300, 300)]


def test_the_last_permitted_attempt_is_final():
    run = measured(constant(10 * MS, Outcome.TIMED_OUT), count=1, window_ns=None)
    reply = first(run)
    assert isinstance(reply, RetriedReply)
    assert (reply.outcome, len(reply.attempts), reply.is_over_budget) == (Outcome.TIMED_OUT, 3, False)


def test_the_reply_to_a_repeated_request_has_all_that_its_last_attempt_had():
    had = {"payload": ["body"], "error": "too long", "status": "503", "responses_ns": (5,), "is_own_limit": True, "replica": 1}

    class Odd(ScriptedTransport):
        async def _answer(self, service_time_ns, outcome):
            reply = await super()._answer(service_time_ns, outcome)
            for name, value in had.items() if self.sent == 2 else ():
                setattr(reply, name, value)
            return reply

    reply = first(measured(constant(10 * MS, Outcome.TIMED_OUT), kind=Odd, count=1, window_ns=None))
    assert isinstance(reply, RetriedReply)
    assert len(reply.attempts) == 2
    assert {name: getattr(reply, name) for name in had} == had


@pytest.mark.parametrize("outcome", [Outcome.REJECTED, Outcome.BROKEN, Outcome.CONNECT_FAILED, Outcome.INVALID_OUTPUT])
def test_failures_that_are_not_named_are_final(outcome):
    run = measured(constant(10 * MS, outcome), window_ns=S)
    assert {type(reply) for reply in run.replies}.isdisjoint({RetriedReply})
    assert run.transport.transport.sent == len(run.replies)


def test_a_retry_delays_no_arrival():
    """Each arrival is sent at its instant, although all before it wait for their retries."""
    run = measured(failing(0, service_ms=30), SCHEDULE, window_ns=S)
    stuck = measured(constant(30 * MS, Outcome.TIMED_OUT), SCHEDULE, window_ns=S, drain_ns=5 * S)
    assert sorted(reply.started_ns for reply in stuck.replies) == sorted(reply.started_ns for reply in run.replies)
    assert {reply.started_ns - reply.intended_ns for reply in stuck.replies} == {0}
    assert stuck.transport.transport.sent == 3 * len(stuck.replies)


def test_a_slot_of_a_closed_loop_waits_for_the_answer():
    run = measured(failing(1), window_ns=7 * S)
    starts = sorted(reply.started_ns for reply in run.replies)
    assert starts == [number * 70 * MS for number in range(100)]


def test_a_load_that_ends_between_two_attempts_leaves_the_request_unfinished():
    run = measured(constant(10 * MS, Outcome.TIMED_OUT), retry=plan(first_ms=1900), window_ns=S, drain_ns=0)
    (reply,) = run.replies
    assert isinstance(reply, RetriedReply)
    assert (reply.outcome, [one.outcome for one in reply.attempts]) == (Outcome.UNFINISHED, [Outcome.TIMED_OUT])
    assert reply.finished_ns == S
    assert run.transport.transport.sent == 1


def test_two_workers_pause_for_as_long_as_one_does():
    def pauses(worker, workers):
        schedule = types.SimpleNamespace(chunks=lambda: worker_arrivals(SCHEDULE.chunks(), worker, workers))
        chosen = plan(jitter=True, attempts=3)
        requests = with_retries([Prepared(())], chosen)
        connect = lambda clock: RetryingSender(ScriptedTransport(clock, constant(MS, Outcome.TIMED_OUT)), chosen, clock)  # noqa: E731 - of the loop's clock
        run = Measured(connect, schedule, requests=requests, worker=worker, workers=workers, window_ns=2 * S, drain_ns=10 * S)
        return {
            reply.variant: [later.started_ns - earlier.finished_ns for earlier, later in zip(reply.attempts, reply.attempts[1:], strict=False)]
            for reply in run.replies
            if isinstance(reply, RetriedReply)
        }  # fmt: skip

    one = pauses(0, 1)
    assert pauses(0, 2) | pauses(1, 2) == one
    assert len({tuple(own) for own in one.values()}) == len(one) == 199


@pytest.mark.parametrize("variants", [1, 7, 20_000])
def test_jitter_is_uniform_and_seeded_and_variants_are_used_in_turn(variants):
    originals = [Prepared((b"%d" % number,)) for number in range(variants)]
    one, same, other = (with_retries(originals, plan(jitter=True, seed=seed)) for seed in (1, 1, 2))
    pauses = [request.pauses_ns for request in one if isinstance(request, RetriedRequest)]
    assert pauses == [request.pauses_ns for request in same if isinstance(request, RetriedRequest)]
    assert pauses != [request.pauses_ns for request in other if isinstance(request, RetriedRequest)]
    for number, longest_ms in enumerate((50, 100)):
        values = sorted(own[number] for own in pauses)
        assert 0 <= values[0] <= values[-1] <= longest_ms * MS
        assert values[len(values) // 2] == pytest.approx(longest_ms * MS / 2, rel=0.05)
    assert all(request.request is originals[place % variants] for place, request in enumerate(one))  # type: ignore[attr-defined]


def test_retries_are_at_most_the_budget_of_the_requests_so_far():
    run = measured(constant(MS, Outcome.TIMED_OUT), SCHEDULE, plan(budget=0.1), window_ns=10 * S, drain_ns=5 * S)
    requests = len(run.replies)
    assert run.transport.transport.sent - requests == requests // 10
    final = [reply for reply in run.replies if isinstance(reply, RetriedReply)]
    # each request was refused another attempt, but for the few that had all three
    assert sum(reply.is_over_budget for reply in final) == requests - sum(len(reply.attempts) == 3 for reply in final)


def test_a_bucket_saves_a_hundred_tokens_which_workers_share():
    for workers, saved in ((1, 100), (2, 50), (1000, 1)):
        budget = RetryBudget(0.1, workers)
        assert not budget.take()
        for _ in range(9):
            budget.add_request()
        assert not budget.take()
        budget.add_request()
        assert budget.take()
        for _ in range(5000):
            budget.add_request()
        assert [budget.take() for _ in range(saved + 1)] == [True] * saved + [False]


@pytest.mark.parametrize(("asked_ms", "instants_ms"), [(700, [0, 710]), (0, [0, 10]), (-1, [0])])
def test_what_the_server_asks_for_takes_the_place_of_the_pause(asked_ms, instants_ms):
    class Asking(ScriptedTransport):
        def retry_after_ns(self, reply):
            return asked_ms * MS

    run = measured(failing(1), kind=Asking, count=1, window_ns=None)
    reply = first(run)
    attempts = reply.attempts if isinstance(reply, RetriedReply) else [reply]
    assert [one.started_ns // MS for one in attempts] == instants_ms


@pytest.mark.parametrize("change", [{"responses_ns": (5,)}, {"is_own_limit": True}, {"error": f"{FILE_LIMIT}, so"}])
def test_neither_a_begun_stream_nor_what_perfkit_refuses_is_sent_again(change):
    class Begun(ScriptedTransport):
        async def _answer(self, service_time_ns, outcome):
            reply = await super()._answer(service_time_ns, outcome)
            for name, value in change.items():
                setattr(reply, name, value)
            return reply

    run = measured(constant(10 * MS, Outcome.TIMED_OUT), kind=Begun, window_ns=S)
    assert run.transport.transport.sent == len(run.replies) > 0


def test_an_error_while_a_request_is_sent_again_ends_the_load():
    class Failing(DirectTransport):
        def submit(self, prepared, reply):
            if self.sent:
                raise OSError("no file")
            super().submit(prepared, reply)

    with pytest.raises(OSError, match="no file"):
        measured(constant(10 * MS, Outcome.TIMED_OUT), kind=Failing, window_ns=S)
