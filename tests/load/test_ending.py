"""The ends of a closed loop: planned, stopped, interrupted, with a lost target; nothing is sent afterwards and no task is left."""

import asyncio

import pytest

from perfkit.clock import ManualClock
from perfkit.load.arrivals import Schedule, constant_rate
from perfkit.load.closed_loop import ClosedLoop
from perfkit.load.loop import Phases, StopCause
from perfkit.measurement.control import Interruption
from perfkit.transport.base import Outcome, Reply
from perfkit.transport.scripted import ScriptedTransport
from tests.conditions import until
from tests.load.loops import MS, POOL, Measured, S, closed, constant
from tests.load.sequence_server import MeasuredSequences, fixed


class Loop:
    """A closed loop of four slots whose requests take 100 ms, within an hour's window."""

    def __init__(self, clock, on_reply=None, service_ns=100 * MS):
        self.replies: list[Reply] = []
        self.transport = ScriptedTransport(clock, lambda _: (service_ns, Outcome.OK))
        phases = Phases.plan(clock.now_ns(), warmup_ns=0, window_ns=3600 * S, requests=None, drain_ns=30 * S)
        self.loop = ClosedLoop(self.transport, POOL, on_reply or self.replies.append, concurrency=4, phases=phases, clock=clock)


def others():
    return asyncio.all_tasks() - {asyncio.current_task()}


def test_a_loop_that_ends_as_planned_leaves_no_task():
    clock = ManualClock()

    async def main():
        one = Loop(clock)
        running = asyncio.ensure_future(one.loop.run())
        await clock.sleep_until_ns(S)
        one.loop.stop("enough")
        await running
        await until(lambda: not others())

    clock.run(main())


def test_a_loop_that_is_cancelled_sends_no_more_and_leaves_no_task():
    clock = ManualClock()

    async def main():
        one = Loop(clock)
        running = asyncio.ensure_future(one.loop.run())
        await clock.sleep_until_ns(S + MS)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await until(lambda: not others())
        sent = one.transport.sent
        await clock.sleep_until_ns(10 * S)
        return sent, one.transport.sent

    assert clock.run(main()) == (44, 44)


def test_an_error_of_the_recorder_ends_the_loop_and_is_raised():
    clock = ManualClock()

    def fail(_):
        raise OSError("disk full")

    async def main():
        one = Loop(clock, fail)
        with pytest.raises(OSError, match="disk full"):
            await one.loop.run()
        await until(lambda: not others())
        return one.transport.sent

    assert clock.run(main()) == 4


def test_a_loop_that_is_stopped_before_it_runs_sends_nothing():
    clock = ManualClock(S)

    async def main():
        one = Loop(clock)
        one.loop.stop("never mind")
        return await one.loop.run(), one.transport.sent

    ending, sent = clock.run(main())
    assert (ending.reason, ending.stopped_ns, sent) == ("never mind", S, 0)


def test_the_first_interruption_drains_and_the_second_does_not_wait():
    clock = ManualClock()

    async def main(times):
        one, interruption = Loop(clock, service_ns=20 * S), Interruption()
        interruption.loop = one.loop
        began_ns = clock.now_ns()
        running = asyncio.ensure_future(one.loop.run())
        for _ in range(times):
            await clock.sleep_until_ns(clock.now_ns() + S)
            interruption.interrupt()
        ending = await running
        return ending.reason, {reply.outcome for reply in one.replies}, clock.now_ns() - began_ns

    assert clock.run(main(1)) == ("interrupted", {Outcome.OK}, 20 * S)
    assert clock.run(main(2)) == ("interrupted", {Outcome.UNFINISHED}, 2 * S)


def test_an_interruption_between_points_cancels_the_task():
    async def main():
        interruption = Interruption()
        task = asyncio.ensure_future(asyncio.get_running_loop().create_future())
        interruption.task = task
        interruption.interrupt()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_a_stop_while_the_answers_are_awaited_is_not_lost():
    async def stop(loop, clock):
        await clock.sleep_until_ns(9 * S)
        loop.stop("interrupted")

    ended = closed(constant(5 * S), window_ns=S, drain_ns=30 * S, during=stop).ending
    assert (ended.reason, ended.stopped_ns) == ("interrupted", 8 * S)


def test_a_target_that_is_gone_when_a_short_window_ends_is_lost():
    ended = closed(lambda index: (10 * MS, Outcome.OK if index < 50 else Outcome.CONNECT_FAILED), window_ns=S).ending
    assert ended.cause is StopCause.TARGET_LOST
    assert ended.reason == "connect_failed"


def test_one_refused_connection_after_a_long_think_time_loses_no_target():
    script = lambda index: (10 * MS, Outcome.CONNECT_FAILED if index == 1 else Outcome.OK)  # noqa: E731 - a script in a line
    ended = closed(script, window_ns=20 * S, think_time_ns=4 * S).ending
    assert ended.cause is not StopCause.TARGET_LOST
    assert ended.reason == ""


@pytest.mark.parametrize("index", [1, 99])
def test_a_connection_that_is_refused_once_the_load_is_over_or_as_its_last_loses_no_target(index):
    """Request 1 is refused in the drain, where the server may have closed; request 99 is the window's last."""
    refused_after_ns = 1500 * MS if index == 1 else 10 * MS
    script = lambda sent: (refused_after_ns, Outcome.CONNECT_FAILED) if sent == index else (10 * MS, Outcome.OK)  # noqa: E731 - as above
    ended = closed(script, window_ns=S, drain_ns=30 * S, concurrency=2 if index == 1 else 1).ending
    assert (ended.cause, ended.reason) == (None, "")


OWN_LIMIT = "the answer is broken: the answer holds more than 500,000 fields"


def ending_after_each_reply(change, *, is_open, has_sequences):
    """The ending of a second of load whose check changes each reply."""
    schedule = Schedule("constant", constant_rate(100), (3,)) if is_open else None
    options = {"on_reply": change, "window_ns": S, **({} if is_open else {"concurrency": 2})}
    if has_sequences:
        return MeasuredSequences(constant(10 * MS), schedule, plan=fixed(3), **options).ending
    return Measured(lambda clock: ScriptedTransport(clock, constant(10 * MS)), schedule, start_ns=7 * S, **options).ending


@pytest.mark.parametrize("has_sequences", [False, True], ids=["requests", "sequences"])
@pytest.mark.parametrize("is_open", [False, True], ids=["closed", "open"])
def test_an_answer_that_perfkit_does_not_decode_ends_the_load(is_open, has_sequences):
    def check(reply):
        reply.outcome, reply.error, reply.is_own_limit = Outcome.INVALID_OUTPUT, OWN_LIMIT, True

    ended = ending_after_each_reply(check, is_open=is_open, has_sequences=has_sequences)
    assert (ended.cause, ended.reason) == (StopCause.ANSWER_LIMIT, OWN_LIMIT)


@pytest.mark.parametrize("is_open", [False, True], ids=["closed", "open"])
def test_a_server_cannot_end_the_load_with_the_words_for_an_answer_that_perfkit_refuses(is_open):
    def check(reply):
        reply.outcome, reply.error = Outcome.BROKEN, OWN_LIMIT

    ended = ending_after_each_reply(check, is_open=is_open, has_sequences=False)
    assert (ended.cause, ended.reason) == (None, "")
