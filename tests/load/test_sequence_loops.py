"""Loops of sequences in virtual time, against a server that notes every breach of their rules."""

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.clock import Clock
from perfkit.load.arrivals import Schedule, constant_rate
from perfkit.load.loop import StopCause
from perfkit.load.sequences import LengthLaw, SequencePlan
from perfkit.transport.base import Outcome
from tests.load.loops import MS, S, constant
from tests.load.sequence_server import MeasuredSequences, fixed


def at_rate(rate_per_s, law="constant"):
    return Schedule(law, constant_rate(rate_per_s), (3,))


def closed(script, **options):
    return MeasuredSequences(script, **{"concurrency": 1, **options})


LENGTHS = [LengthLaw(1, 1), LengthLaw(5, 5), LengthLaw(1, 9), LengthLaw(geometric_mean=4.0)]
LOADS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "closed": (None, {"concurrency": 6}, {}),
    "closed with think time": (None, {"concurrency": 6, "think_time_ns": 3 * MS}, {}),
    "steps": (at_rate(400, "poisson"), {}, {"live": 6}),
    "arrivals": (at_rate(80, "poisson"), {}, {}),
    "arrivals with think time": (at_rate(80, "poisson"), {}, {"think_time_ns": 3 * MS}),
}


@pytest.mark.parametrize("law", LENGTHS, ids=["one", "fixed", "uniform", "geometric"])
@pytest.mark.parametrize("load", LOADS)
def test_the_server_sees_every_sequence_start_and_end_and_one_request_of_it_at_a_time(load, law):
    schedule, options, plan = LOADS[load]
    script = lambda index: ((index * 7919 % 20 + 1) * MS, Outcome.OK)  # noqa: E731 - a script in a line
    measured = MeasuredSequences(script, schedule, plan=SequencePlan(law, 10**18, **plan), window_ns=S, **options)
    server, events = measured.server, measured.events
    assert server.faults == []
    assert server.held == {}
    assert len(measured.replies) > 60
    # only what is still open at the end of the load gets an end of its own
    assert len(server.calls) == len(measured.replies) + len(events.untimed_replies)
    assert len(events.started) == len(events.ended) + len(events.untimed_replies)
    assert events.failed == []
    assert len(server.over) == len(events.started)
    assert all(end >= start for start, end in events.ended)


@settings(deadline=None, max_examples=20)
@given(st.integers(1, 5), st.integers(1, 6), st.lists(st.sampled_from(list(Outcome)[:6]), min_size=1, max_size=12), st.booleans())
def test_a_step_that_fails_ends_its_sequence_and_the_server_is_told(live, length, outcomes, is_open):
    script = lambda index: (20 * MS, outcomes[index % len(outcomes)])  # noqa: E731 - a script in a line
    schedule, options, plan = (at_rate(300), {}, {"live": live}) if is_open else (None, {"concurrency": live}, {})
    measured = MeasuredSequences(script, schedule, plan=fixed(length, **plan), window_ns=S, drain_ns=5 * S, **options)
    server, events = measured.server, measured.events
    # a step or an end that fails leaves its sequence on this server; nothing follows an end, or a step without ok but an end
    for _, steps in itertools.groupby(sorted(server.calls, key=lambda call: (call[0], call[4])), key=lambda call: call[0]):
        flags = [(starts, ends) for _, starts, ends, _, _ in steps]
        assert flags[0][0]
        assert not any(starts for starts, _ in flags[1:])
        assert not any(ends for _, ends in flags[:-1]) or (flags[-1] == (False, True) and flags[-2][1])
        assert len(flags) <= length + 1
    assert not [fault for fault in server.faults if "in flight" in fault]
    failed = sum(reply.outcome is not Outcome.OK for reply in measured.replies)
    assert len(events.failed) == failed
    assert len(server.calls) == len(measured.replies) + len(events.untimed_replies)


def test_an_end_that_takes_longer_than_the_load_is_awaited_and_holds_up_the_next_sequence_for_a_second():
    calls = {2: (10 * MS, Outcome.REJECTED), 3: (3 * S, Outcome.OK)}  # a step fails, and the end of its sequence takes long
    measured = closed(lambda index: calls.get(index, (10 * MS, Outcome.OK)), plan=fixed(5), window_ns=2 * S, drain_ns=5 * S)
    end, following = measured.server.calls[3:5]
    assert end[:3] == (10**18, False, True)
    assert following[:2] == (10**18 + 1, True)
    assert following[4] - end[4] == S
    assert [reply.outcome for reply in measured.events.untimed_replies if reply.finished_ns - reply.started_ns == 3 * S] == [Outcome.OK]
    assert measured.server.in_flight == measured.server.held == {}


def test_a_failed_step_is_followed_by_an_end_and_another_sequence():
    outcomes = {2: Outcome.REJECTED}
    measured = closed(lambda index: (10 * MS, outcomes.get(index, Outcome.OK)), plan=fixed(5), window_ns=100 * MS)
    first, second = 10**18, 10**18 + 1
    assert [call[:4] for call in measured.server.calls[:6]] == [
        (first, True, False, 0), (first, False, False, 1), (first, False, False, 2), (first, False, True, 0),
        (second, True, False, 0), (second, False, False, 1),
    ]  # fmt: skip
    start_ns = measured.phases.start_ns
    assert measured.events.failed == [(start_ns, start_ns + 30 * MS)]
    assert measured.outcomes()[:4] == [Outcome.OK, Outcome.OK, Outcome.REJECTED, Outcome.OK]  # the end is in no figure


@pytest.mark.parametrize(
    ("failing", "outcome", "ends"),
    [
        (0, Outcome.CONNECT_FAILED, 0), (0, Outcome.REJECTED, 1), (1, Outcome.CONNECT_FAILED, 1), (2, Outcome.REJECTED, 1),
        (2, Outcome.INVALID_OUTPUT, 0), (1, Outcome.INVALID_OUTPUT, 1), (1, Outcome.TIMED_OUT, 1), (2, Outcome.BROKEN, 1),
    ],
)  # fmt: skip
def test_an_end_is_sent_where_the_server_may_still_hold_the_sequence(failing, outcome, ends):
    measured = closed(
        lambda index: (10 * MS, outcome if index == failing else Outcome.OK), plan=fixed(3), window_ns=None, count=failing + 1
    )
    assert [call[0] for call in measured.server.calls] == [10**18] * (failing + 1 + ends)
    assert len(measured.events.untimed_replies) == ends


def test_a_slot_waits_for_an_end_for_a_second_at_most():
    measured = closed(
        lambda index: (60 * S if index == 1 else 10 * MS, Outcome.REJECTED if index == 0 else Outcome.OK), plan=fixed(2), window_ns=3 * S
    )
    starts_ms = [(call[4] - measured.phases.start_ns) // MS for call in measured.server.calls[:3]]
    assert starts_ms == [0, 10, 1010]


@pytest.mark.parametrize("load", LOADS)
def test_an_interruption_ends_every_open_sequence_at_once(load):
    async def interrupt(loop, clock):
        await clock.sleep_until_ns(8 * S)
        loop.stop("Ctrl-C")

    schedule, options, plan = LOADS[load]
    measured = MeasuredSequences(constant(20 * MS), schedule, plan=fixed(1000, **plan), window_ns=60 * S, during=interrupt, **options)
    assert measured.ending.cause is StopCause.INTERRUPTED
    assert measured.server.held == {}
    assert measured.server.faults == []
    assert len(measured.events.untimed_replies) == len(measured.events.started) > 5
    assert measured.ended_ns <= 8 * S + 50 * MS or load == "steps"  # steps that were due are still sent


@pytest.mark.parametrize("load", LOADS)
def test_a_second_interruption_leaves_the_sequences_to_the_server(load):
    async def interrupt(loop, clock):
        await clock.sleep_until_ns(8 * S)
        loop.stop("Ctrl-C")
        loop.stop("Ctrl-C", drain=False)

    schedule, options, plan = LOADS[load]
    measured = MeasuredSequences(constant(20 * MS), schedule, plan=fixed(1000, **plan), window_ns=60 * S, during=interrupt, **options)
    assert measured.ended_ns == 8 * S
    assert measured.server.held
    assert measured.events.failed == []


@pytest.mark.parametrize("load", LOADS)
def test_the_drain_bounds_the_ends(load):
    clocks = list[Clock]()

    def script(_):
        return (60 * S if clocks and clocks[0].now_ns() >= 7500 * MS else 5 * MS, Outcome.OK)

    async def note(_loop, clock):
        clocks.append(clock)

    schedule, options, plan = LOADS[load]
    measured = MeasuredSequences(script, schedule, plan=fixed(1000, **plan), window_ns=S, drain_ns=2 * S, during=note, **options)
    assert measured.ended_ns <= 10 * S + 100 * MS
    assert Outcome.UNFINISHED in measured.outcomes() or load == "arrivals with think time"


def test_arrivals_are_steps_of_the_sequence_that_was_idle_for_longest():
    measured = MeasuredSequences(constant(MS), at_rate(10), plan=fixed(100, live=3), window_ns=2 * S)
    assert [call[0] - 10**18 for call in measured.server.calls[:9]] == [0, 1, 2] * 3
    assert {reply.started_ns - reply.intended_ns for reply in measured.replies} == {0}


def test_an_arrival_that_finds_no_idle_sequence_waits_and_counts_from_its_instant():
    # two sequences with steps of 300 ms serve 6.7 steps a second of 10: the waiting time grows by 1/3 of the time that passes
    measured = MeasuredSequences(constant(300 * MS), at_rate(10), plan=fixed(1000, live=2), window_ns=3 * S, drain_ns=60 * S)
    waited_ms = [(reply.started_ns - reply.intended_ns) // MS for reply in measured.replies]
    assert waited_ms == [50 * (index - index % 2) for index in range(29)]
    assert measured.server.at_once_max == 2
    assert measured.server.held == {}


def test_arrivals_above_max_in_flight_are_dropped():
    measured = MeasuredSequences(constant(300 * MS), at_rate(10), plan=fixed(1000, live=2), window_ns=3 * S, max_in_flight=4)
    assert len(measured.drops) + len(measured.replies) == 29
    assert len(measured.drops) > 5
    assert not any(is_late for _, is_late in measured.drops)


def test_the_steps_of_an_arriving_sequence_follow_each_other():
    measured = MeasuredSequences(constant(10 * MS), at_rate(5), plan=fixed(4, think_time_ns=7 * MS), window_ns=1100 * MS)
    by_id: dict[int, list[tuple[int, int]]] = {}
    for key, _, _, number, start_ns in measured.server.calls:
        by_id.setdefault(key, []).append((start_ns, number))
    first_ns = min(start for steps in by_id.values() for start, _ in steps)
    assert len(by_id) == 5
    for index, steps in enumerate(by_id.values()):
        assert [start - first_ns - index * 200 * MS for start, _ in steps] == [0, 17 * MS, 34 * MS, 51 * MS]
        assert [number for _, number in steps] == [0, 1, 2, 0]
    assert [end - start for start, end in measured.events.ended] == [61 * MS] * 5
    assert {reply.finished_ns - reply.intended_ns for reply in measured.replies} == {10 * MS}


def test_workers_share_neither_ids_nor_lengths_and_together_send_what_one_would():
    plan, window_ns = SequencePlan(LengthLaw(1, 9), 10**18), 500 * MS
    measured = [
        MeasuredSequences(constant(MS), plan=plan, worker=worker, workers=workers, concurrency=3, window_ns=window_ns).server
        for worker, workers in ((0, 1), (0, 3), (1, 3), (2, 3))
    ]
    lengths = [
        dict(zip(dict.fromkeys(call[0] - 10**18 for call in server.calls if call[2]), server.over, strict=True)) for server in measured
    ]
    alone, *parts = ({number: length for number, length in one.items() if number < 100} for one in lengths)
    assert [{number % 3 for number in part} for part in parts] == [{0}, {1}, {2}]
    together = parts[0] | parts[1] | parts[2]
    common = alone.keys() & together.keys()
    assert len(common) > 80
    assert {number: alone[number] for number in common} == {number: together[number] for number in common}


@pytest.mark.parametrize("spare", [0, 3])
@pytest.mark.parametrize(("load", "most"), [("closed", 6), ("closed with think time", 6), ("steps", 6), ("arrivals", 20)])
def test_ids_of_a_range_are_used_again_and_never_while_they_are_live(load, most, spare):
    schedule, options, plan = LOADS[load]
    options = options | ({"max_in_flight": most} if load == "arrivals" else {})
    script = lambda index: ((index * 7919 % 20 + 1) * MS, Outcome.OK)  # noqa: E731 - a script in a line
    given = SequencePlan(LengthLaw(1, 9), 7, id_count=most + spare, **plan)
    measured = MeasuredSequences(script, schedule, plan=given, window_ns=S, **options)
    assert measured.server.faults == []
    assert measured.server.held == {}
    ids = [call[0] for call in measured.server.calls if call[1]]
    assert len(ids) > 2 * (most + spare)
    assert ids[0] == 7
    assert set(ids) == set(range(7, 7 + most + spare))


def test_ids_of_a_range_count_up_and_start_over():
    """As perf_analyzer did with --sequence-id-range 7:10: sequences of two steps one after the other, ids 7, 8, 9, 7, 8, 9."""
    measured = closed(constant(10 * MS), plan=fixed(2, first_id=7, id_count=3), window_ns=S)
    ids = [call[0] for call in measured.server.calls if call[1]]
    assert ids[:7] == [7, 8, 9, 7, 8, 9, 7]


@given(st.integers(1, 4), st.lists(st.sampled_from(list(Outcome)[:6]), min_size=1, max_size=12), st.booleans())
def test_failures_give_their_ids_back(live, outcomes, is_open):
    script = lambda index: (20 * MS, outcomes[index % len(outcomes)])  # noqa: E731 - a script in a line
    schedule, options, plan = (at_rate(300), {}, {"live": live}) if is_open else (None, {"concurrency": live}, {})
    given = fixed(3, first_id=1, id_count=live, **plan)
    measured = MeasuredSequences(script, schedule, plan=given, window_ns=S, drain_ns=5 * S, **options)
    assert {call[0] for call in measured.server.calls} == set(range(1, 1 + live))


def test_workers_divide_the_ids_of_a_range():
    parts = []
    for worker in range(3):
        plan = SequencePlan(LengthLaw(2, 2), 10, id_count=8)
        measured = MeasuredSequences(constant(MS), plan=plan, worker=worker, workers=3, concurrency=8, window_ns=100 * MS)
        assert measured.server.faults == []
        parts.append({call[0] for call in measured.server.calls})
    assert parts == [{10, 13, 16}, {11, 14, 17}, {12, 15}]
