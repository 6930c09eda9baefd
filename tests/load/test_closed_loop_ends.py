"""How a closed loop ends where the target or the person does something at an awkward moment, in virtual time."""

import asyncio

import pytest

from perfkit.clock import ManualClock
from perfkit.load.closed_loop import ClosedLoop
from perfkit.load.loop import Phases, StopCause
from perfkit.transport.base import Outcome, Prepared
from perfkit.transport.scripted import ScriptedTransport

MS, S = 1_000_000, 1_000_000_000


def ending(script, *, window_ns, concurrency=1, think_time_ns=0, stop_at_ns=None):
    clock = ManualClock()

    async def main():
        phases = Phases.plan(0, warmup_ns=0, window_ns=window_ns, requests=None, drain_ns=30 * S)
        loop = ClosedLoop(
            ScriptedTransport(clock, script), [Prepared(())], lambda _: None,
            concurrency=concurrency, phases=phases, clock=clock, think_time_ns=think_time_ns,
        )  # fmt: skip

        async def stop():
            await clock.sleep_until_ns(stop_at_ns)
            loop.stop("interrupted")

        stopping = asyncio.ensure_future(stop()) if stop_at_ns is not None else None
        ended = await loop.run()
        if stopping:
            await stopping
        return ended

    return clock.run(main())


def test_a_stop_while_the_answers_are_awaited_is_not_lost():
    ended = ending(lambda _: (5 * S, Outcome.OK), window_ns=S, stop_at_ns=2 * S)
    assert ended.reason == "interrupted"
    assert ended.stopped_ns == S


def test_a_target_that_is_gone_when_a_short_window_ends_is_lost():
    ended = ending(lambda index: (10 * MS, Outcome.OK if index < 50 else Outcome.CONNECT_FAILED), window_ns=S)
    assert ended.cause is StopCause.TARGET_LOST
    assert ended.reason == "connect_failed"


def test_one_refused_connection_after_a_long_thought_loses_nobody():
    ended = ending(lambda index: (10 * MS, Outcome.CONNECT_FAILED if index == 1 else Outcome.OK), window_ns=20 * S, think_time_ns=4 * S)
    assert ended.cause is not StopCause.TARGET_LOST
    assert ended.reason == ""


@pytest.mark.parametrize("index", [1, 99])
def test_a_connection_that_is_refused_once_the_load_is_over_or_as_its_last_loses_nobody(index):
    """Request 1 is refused in the drain, where the server may have closed; request 99 is the window's last."""
    refused_after_ns = 1500 * MS if index == 1 else 10 * MS
    ended = ending(
        lambda sent: (refused_after_ns, Outcome.CONNECT_FAILED) if sent == index else (10 * MS, Outcome.OK),
        window_ns=S,
        concurrency=2 if index == 1 else 1,
    )
    assert (ended.cause, ended.reason) == (None, "")
