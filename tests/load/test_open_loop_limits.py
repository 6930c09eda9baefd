"""The open loop beyond what it can do: rates that nobody keeps up with, targets that answer nothing."""

import asyncio

import numpy as np

from perfkit.load import arrivals
from perfkit.load.arrivals import Schedule, Trace
from perfkit.load.load_plan import MAX_IN_FLIGHT
from perfkit.load.open_loop import Pacer
from perfkit.transport.base import Outcome, Reply
from perfkit.transport.scripted import ScriptedTransport
from tests.load.loops import MS, Measured, S


class SilentTransport(ScriptedTransport):
    """Takes requests, and answers none."""

    def __init__(self, clock):
        super().__init__(clock, lambda _: (0, Outcome.OK))
        self.pending: list[asyncio.Future[Reply]] = []

    def send(self, prepared):
        self.pending.append(asyncio.get_running_loop().create_future())
        return self.pending[-1]

    def abandon(self):
        for reply in self.pending:
            reply.set_result(Reply(Outcome.UNFINISHED, 0, 0))


class StuckPacer(Pacer):
    """Wakes as the window is over."""

    async def wait_until_ns(self, instant_ns):
        await super().wait_until_ns(10 * S)


def run(schedule, on_drop, *, pacer=Pacer, window_ns=S):
    return Measured(SilentTransport, schedule, on_drop=on_drop, pacer=pacer, window_ns=window_ns).replies


def test_a_target_that_answers_nothing_is_sent_a_bounded_number_of_requests():
    drops: list[tuple[int, bool]] = []
    schedule = Schedule("constant", arrivals.constant_rate(80_000.0))
    replies = run(schedule, lambda instants_ns, _, is_late: drops.append((instants_ns.size, is_late)))
    assert len(replies) == MAX_IN_FLIGHT
    assert {is_late for _, is_late in drops} == {True}, "the bound is the loop's own"
    assert len(replies) + sum(size for size, _ in drops) == 79_999


def test_millions_of_missed_arrivals_are_counted_in_pieces_between_which_other_tasks_run():
    dropped: list[np.ndarray] = []
    heard: list[int] = []

    def on_drop(instants_ns, _, is_late):
        assert is_late
        dropped.append(instants_ns)
        asyncio.get_running_loop().call_soon(heard.append, len(dropped))
        assert len(heard) == len(dropped) - 1, "what came up with the last piece has had its turn"

    run(Schedule("constant", arrivals.constant_rate(1e6)), on_drop, pacer=StuckPacer, window_ns=3 * S)
    assert np.array_equal(np.concatenate(dropped), np.arange(1000, 3 * S, 1000))
    assert len(dropped) < 1000


def test_a_long_trace_is_counted_in_pieces_as_well():
    sizes: list[int] = []
    run(Trace(np.arange(MS, MS + 100_000)), lambda instants_ns, *_: sizes.append(instants_ns.size), pacer=StuckPacer)
    assert sum(sizes) == 100_000
    assert max(sizes) < 10_000
