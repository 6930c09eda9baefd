"""One worker's sequences, from its specification to the window, in virtual time."""

import pytest

from perfkit.clock import ManualClock
from perfkit.load.arrivals import Schedule, constant_rate
from perfkit.load.load_plan import ClosedPlan, OpenPlan
from perfkit.load.sequence_requests import SequenceRequests
from perfkit.load.sequences import LengthLaw, SequencePlan
from perfkit.recorder.window import cut
from perfkit.target.address import Address
from perfkit.transport.base import Outcome
from perfkit.transport.scripted import ScriptedTransport
from tests.load.loops import MS, S
from tests.load.sequence_server import REQUESTS, SequenceServer, prepare
from tests.measured_points import point_spec, run_point

FIVE_STEPS = SequencePlan(LengthLaw(5, 5), 10**18)


class Transport(ScriptedTransport):
    """The transport of a server of sequences."""

    def __init__(self, clock, script):
        super().__init__(clock, script)
        self.server = SequenceServer(clock, script)

    def send(self, prepared):
        return self.server.send(prepared)

    def abandon(self):
        self.server.abandon()


def measure(load, script=lambda _: (10 * MS, Outcome.OK), **changes):
    clock = ManualClock(5 * S)
    fields = {"load": load, "warmup_ns": S, "window_ns": 10 * S, "requests": None, "drain_ns": 5 * S, "connections": 4, **changes}

    async def main():
        transport, requests = Transport(clock, script), SequenceRequests(prepare, REQUESTS)
        return await run_point(
            point_spec(**fields),
            transport,
            requests,
            clock=clock,
            address=Address("http", "h", 1),
            on_loop=lambda _: None,
        )

    recorded = clock.run(main())
    return recorded.recording, cut(recorded.recording, 0, is_open=isinstance(load, OpenPlan))


def test_a_window_holds_what_the_closed_form_says():
    recording, window = measure(ClosedPlan(4, 0, FIVE_STEPS))
    # from the warm-up on, each of four slots has a sequence of 50 ms after the other
    assert window.outcomes[Outcome.OK] == 4 * 1000
    assert (window.count("sequences_started"), window.count("sequences_failed")) == (4 * 200, 0)
    # the one that ends at the very beginning counts, and that at the very end does not
    assert window.count("sequences_ended") == 4 * 200
    times = window.times["sequence_time"]
    assert times.count == 4 * 200
    assert times.max_ns == pytest.approx(50 * MS, rel=1e-3)
    assert sum(part.count for part in window.further_batches["sequence_time"]) == 4 * 200
    assert recording.answer_totals.answered == 4 * 1100  # with the warm-up


def test_ends_are_counted_for_the_server_and_nowhere_else():
    recording, window = measure(ClosedPlan(4, 0, FIVE_STEPS), window_ns=10 * S + 20 * MS)
    assert window.outcomes[Outcome.OK] == 4 * 1002
    assert recording.answer_totals.answered == 4 * 1102 + 4
    assert (window.count("sequences_started"), window.count("sequences_ended")) == (4 * 201, 4 * 201)


def test_a_failed_step_ends_its_sequence():
    _, window = measure(ClosedPlan(1, 0, FIVE_STEPS), lambda index: (10 * MS, Outcome.REJECTED if index % 10 == 2 else Outcome.OK))
    assert window.count("sequences_failed") == window.outcomes[Outcome.REJECTED] > 50
    assert window.count("sequences_ended") > 50
    assert window.times["sequence_time"].count == window.count("sequences_ended")
    assert window.count("sequences_started") == pytest.approx(window.count("sequences_ended") + window.count("sequences_failed"), abs=1)


def test_live_sequences_are_divided_among_workers():
    schedule = Schedule("poisson", constant_rate(100.0), (1,))
    plan = SequencePlan(LengthLaw(5, 5), 7, live=8)
    spec = point_spec(OpenPlan(100.0, "poisson", schedule, None, 5, plan), 0, S, None, S, 4)
    assert spec.max_workers == 5
    parts = [part.loads[0].sequences for part in spec.split(3)]
    assert [part.live for part in parts if part is not None] == [3, 3, 2]
    assert {part.first_id for part in parts if part is not None} == {7}
