"""A closed loop over a transport that hands replies over at once: it sends what it sends over any other, at the same instants."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.transport.base import DirectSender, Outcome
from perfkit.transport.scripted import ScriptedTransport
from tests.load.loops import MS, POOL, Measured, S, closed, constant


class DirectTransport(ScriptedTransport, DirectSender):
    """A scripted transport that passes replies on by itself."""

    def submit(self, prepared, reply):
        def pass_on(answered):
            if not reply.done():
                reply.set_result(answered.result())

        asyncio.ensure_future(self.send(prepared)).add_done_callback(pass_on)


def direct(script, *, concurrency=1, **options):
    return Measured(lambda clock: DirectTransport(clock, script), start_ns=7 * S, concurrency=concurrency, **options)


def rows(measured):
    return sorted((reply.started_ns, reply.finished_ns, reply.outcome.value, reply.variant) for reply in measured.replies)


OUTCOMES = [Outcome.OK, Outcome.OK, Outcome.OK, Outcome.REJECTED, Outcome.BROKEN, Outcome.CONNECT_FAILED]


@given(st.integers(1, 4), st.lists(st.tuples(st.integers(1, 90), st.sampled_from(OUTCOMES)), min_size=1, max_size=6))
def test_it_sends_and_gets_what_a_loop_over_futures_does(concurrency, scripted):
    script = lambda index: (scripted[index % len(scripted)][0] * MS, scripted[index % len(scripted)][1])  # noqa: E731 - a script in a line
    options = {"concurrency": concurrency, "window_ns": S, "requests": POOL * 3}
    at_once, by_futures = direct(script, **options), closed(script, **options)
    assert rows(at_once) == rows(by_futures)
    assert at_once.ended_ns == by_futures.ended_ns
    assert at_once.transport.in_flight_max == by_futures.transport.in_flight_max


def test_a_request_follows_its_answer_without_a_turn_of_the_event_loop():
    order = []

    class Ordered(DirectTransport):
        def submit(self, prepared, reply):
            order.append("sent")
            super().submit(prepared, reply)

    Measured(lambda clock: Ordered(clock, constant(10 * MS)), concurrency=2, window_ns=S, on_reply=lambda _: order.append("answered"))
    # both slots' answers come at the same instants: each is followed by its slot's request before the other's answer is taken
    assert order == ["sent"] * 2 + ["answered", "sent"] * 198 + ["answered"] * 2


def test_an_error_while_a_reply_is_recorded_ends_the_run():
    def fail(_reply):
        raise ArithmeticError("recorder")

    with pytest.raises(ArithmeticError, match="recorder"):
        direct(constant(10 * MS), concurrency=3, on_reply=fail)


def test_a_stop_abandons_what_is_in_flight():
    async def stop(loop, clock):
        await clock.sleep_until_ns(clock.now_ns() + 505 * MS)
        assert loop.unanswered == 4
        loop.stop("enough", drain=False)

    measured = direct(constant(100 * MS), concurrency=4, window_ns=3600 * S, drain_ns=3600 * S, during=stop)
    assert measured.outcomes() == [Outcome.OK] * 20 + [Outcome.UNFINISHED] * 4
    assert measured.ending.reason == "enough"


def test_a_recorder_that_stops_the_loop_gets_no_further_request():
    loops = []

    async def keep(loop, _clock):
        loops.append(loop)

    measured = direct(constant(10 * MS), during=keep, on_reply=lambda _: loops[0].stop("seen"))
    assert measured.transport.sent == 1
