"""Requests that the client gives up, in virtual time: which ones, when, and what becomes of them."""

import types

import pytest

from perfkit.load.abandonment import AbandoningSender, AbandonPlan, LeftRequest, with_abandonment
from perfkit.load.arrivals import Schedule, constant_rate, worker_arrivals
from perfkit.transport.base import Outcome, Prepared
from perfkit.transport.scripted import ScriptedTransport
from tests.load.loops import MS, Measured, S, constant
from tests.load.test_direct_requests import DirectTransport

SCHEDULE = Schedule("constant", constant_rate(100.0), (0, 0, 0))


def plan(share=0.25, after_ms=30, seed=3):
    return AbandonPlan(share, seed, uniform_ns=(after_ms * MS, after_ms * MS))


def measured(script, schedule=SCHEDULE, abandon=None, **options):
    requests = with_abandonment([Prepared(())], abandon or plan())
    connect = lambda clock: AbandoningSender.of(ScriptedTransport(clock, script), clock)  # noqa: E731 - made of the loop's clock
    return Measured(connect, schedule, requests=requests, **options)


def left_places(requests):
    return [place for place, one in enumerate(requests) if isinstance(one, LeftRequest)]


def test_slow_requests_with_impatient_clients_are_given_up_in_time():
    run = measured(constant(100 * MS))
    expected = [place for place in left_places(with_abandonment([Prepared(())], plan())) if place < 999]  # the 1000th is due at the end
    given_up = [reply for reply in run.replies if reply.outcome is Outcome.ABANDONED]
    assert sorted(reply.variant for reply in given_up) == expected
    assert {reply.finished_ns - reply.started_ns for reply in given_up} == {30 * MS}
    assert len(run.replies) == 999
    assert {reply.outcome for reply in run.replies} == {Outcome.OK, Outcome.ABANDONED}


def test_requests_that_are_answered_before_are_ordinary():
    assert set(measured(constant(20 * MS)).outcomes()) == {Outcome.OK}


def test_a_drain_that_ends_first_leaves_them_unfinished():
    run = measured(constant(10 * S), abandon=plan(share=1.0, after_ms=5000), window_ns=S, drain_ns=S)
    assert set(run.outcomes()) == {Outcome.UNFINISHED}


def test_closed_loops_go_on_after_a_request_that_was_given_up():
    run = measured(constant(100 * MS), None, abandon=plan(share=1.0), concurrency=2, window_ns=3 * S)
    assert len(run.replies) == 2 * 100
    assert set(run.outcomes()) == {Outcome.ABANDONED}


def test_two_workers_give_up_the_requests_that_one_does():
    def starts(worker, workers):
        schedule = types.SimpleNamespace(chunks=lambda: worker_arrivals(SCHEDULE.chunks(), worker, workers))
        run = measured(constant(100 * MS), schedule, worker=worker, workers=workers, window_ns=5 * S)
        return {reply.variant for reply in run.replies if reply.outcome is Outcome.ABANDONED}

    assert starts(0, 2) | starts(1, 2) == starts(0, 1)


@pytest.mark.parametrize("variants", [1, 7, 20_000])
def test_the_share_is_exact_over_a_period_and_variants_are_used_in_turn(variants):
    originals = [Prepared((b"%d" % number,)) for number in range(variants)]
    requests = with_abandonment(originals, plan(share=0.05))
    assert len(left_places(requests)) == round(0.05 * len(requests))
    assert len(requests) % variants == 0
    own = [one.request if isinstance(one, LeftRequest) else one for one in requests]
    assert all(one is originals[place % variants] for place, one in enumerate(own))


def test_the_seed_chooses_the_requests():
    one, same, other = (left_places(with_abandonment([Prepared(())], plan(seed=seed))) for seed in (1, 1, 2))
    assert one == same != other


def test_an_error_while_a_request_is_given_up_ends_the_load_and_not_only_its_slot():
    class Failing(DirectTransport):
        def give_up(self, reply):
            raise OSError("no file")

    connect = lambda clock: AbandoningSender.of(Failing(clock, constant(100 * MS)), clock)  # noqa: E731 - made of the loop's clock
    with pytest.raises(OSError, match="no file"):
        Measured(connect, concurrency=1, window_ns=S, requests=with_abandonment([Prepared(())], plan(share=1.0)))


def test_lognormal_patience_has_its_median():
    requests = with_abandonment([Prepared(())], AbandonPlan(0.5, 0, lognormal_ns=(200 * MS, 0.5)))
    times = sorted(one.after_ns for one in requests if isinstance(one, LeftRequest))
    assert times[len(times) // 2] == pytest.approx(200 * MS, rel=0.05)
