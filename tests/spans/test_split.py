"""The parts of a traced request's time: literal cases, and that they add up whatever the spans say."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.spans.server_times import ServerTimes
from perfkit.spans.span import SampledRequest
from perfkit.spans.split import PARTS, SplitRequests, fit_server_clock, split
from perfkit.stats.clock_offset import ClockOffset, NoOffset

UNIX = 1_760_000_000_000_000_000
CLOCK = ClockOffset((0,), (UNIX,), (250,))
SMALL = st.integers(0, 10**7)
MAYBE = st.none() | SMALL


def parts(requests, times, clock=CLOCK):
    found = split(requests, times, clock, 0)
    return [dict(zip(PARTS, row, strict=True)) for row in found.parts_ns.tolist()]


def test_an_open_request_has_every_part():
    request = SampledRequest("a", 1_000, 1_100, 1_300, 9_000, 2, True)
    server = ServerTimes(UNIX + 1_700, UNIX + 8_600, UNIX + 1_800, UNIX + 8_400, 2_000, 300, 4_000, 200)
    expected = {
        "start_delay": 100, "connection_wait": 200, "request_way": 500, "queue": 2_000, "compute_input": 300, "compute_infer": 4_000,
        "compute_output": 200, "response_way": 600, "remainder": 100,
    }  # fmt: skip
    assert parts([request], {"a": server}) == [expected]
    assert sum(expected.values()) == request.finished_ns - request.intended_ns


def test_a_closed_loop_starts_with_the_way():
    request = SampledRequest("a", 900, 0, 1_000, 5_000, 0, True)
    server = ServerTimes(UNIX + 1_500, UNIX + 4_000)
    (found,) = parts([request], {"a": server})
    assert (found["start_delay"], found["connection_wait"], found["request_way"], found["response_way"]) == (0, 0, 500, 1_000)
    assert found["remainder"] == 2_500
    assert split([request], {"a": server}, CLOCK, 0).is_known.tolist() == [True, True, True, False, False, False, False, True, True]


def test_without_a_clock_the_ways_are_in_the_remainder():
    request = SampledRequest("a", 0, 0, 1_000, 5_000, 0, True)
    found = split([request], {"a": ServerTimes(7, 8, 7, 8, 1_000, 0, 2_000, 0)}, NoOffset("why"), 0)
    assert found.parts_ns.tolist() == [[0, 0, 0, 1_000, 0, 2_000, 0, 0, 1_000]]
    assert (found.clock_bound_ns, found.clock_problem) == (None, "why")
    assert not found.is_known[[PARTS.index("request_way"), PARTS.index("response_way")]].any()


@given(st.lists(st.tuples(SMALL, SMALL, SMALL, SMALL, st.booleans(), SMALL, SMALL, MAYBE, MAYBE, MAYBE, MAYBE, MAYBE, MAYBE), max_size=20))
def test_the_parts_add_up_exactly(rows):
    requests, times = [], {}
    for number, (intended, delay, wait, service, is_open, received, busy, *inside) in enumerate(rows):
        paced, started = (intended + delay + 1, intended + delay + 1 + wait) if is_open else (0, intended)
        requests.append(SampledRequest(f"{number}", intended, paced, started, started + service, 0, True))
        began, ended, *stages = inside
        instants = [None if one is None else UNIX + one for one in (began, ended)]
        times[f"{number}"] = ServerTimes(UNIX + received, UNIX + received + busy, *instants, *stages)
    found = split(requests, times, CLOCK, 0)
    by_id = {one.trace_id: one.finished_ns - one.intended_ns for one in requests}
    assert found.parts_ns.sum(axis=1).tolist() == [by_id[trace_id] for trace_id in found.trace_ids]


def test_failed_requests_and_those_without_spans_are_counted():
    requests = [
        SampledRequest(name, at, 0, at, at + 5, 0, name != "failed")
        for name, at in (("late", 30), ("failed", 10), ("silent", 20), ("early", 5))
    ]
    times = {name: ServerTimes(UNIX, UNIX) for name in ("late", "failed", "early", "stranger")}
    found = split(requests, times, CLOCK, 5, repetition=3)
    assert (found.trace_ids, found.without_spans, found.failed) == (("early", "late"), 1, 1)
    assert (found.at_ns.tolist(), found.repetitions.tolist()) == ([0, 25], [3, 3])


def test_a_request_whose_span_is_years_off_counts_as_without_spans():
    """A result with such a part could not be read again."""
    requests = [SampledRequest(name, at, 0, at, at + 50, at, True) for name, at in (("a", 10), ("damaged", 20), ("b", 30))]
    times = {one.trace_id: ServerTimes(UNIX + one.started_ns, UNIX + one.started_ns + 5) for one in requests}
    times["damaged"] = ServerTimes(UNIX + 20, 2**62)
    found = split(requests, times, CLOCK, 0)
    assert (found.trace_ids, found.without_spans, found.variants.tolist()) == (("a", "b"), 1, [10, 30])
    assert found.parts_ns.shape == (2, 9)
    assert (found.at_ns.tolist(), found.repetitions.tolist()) == ([10, 30], [0, 0])


def test_repetitions_are_merged_in_their_order():
    def one(name, repetition, clock):
        return split([SampledRequest(name, 10, 0, 10, 20, 0, True)], {name: ServerTimes(UNIX + 10, UNIX + 12)}, clock, 0, repetition)

    known, ways = (
        [one("a", 0, CLOCK), one("b", 1, ClockOffset((0,), (UNIX,), (900,)))],
        [PARTS.index("request_way"), PARTS.index("response_way")],
    )
    merged = SplitRequests.merged(known)
    assert (merged.trace_ids, merged.repetitions.tolist()) == (("a", "b"), [0, 1])
    assert (merged.clock_bound_ns, merged.clock_problem) == (900, "")
    assert merged.parts_ns[:, ways].tolist() == [[0, 8]] * 2
    # of one repetition the ways are not known: a mean that took them for 0 would be too short
    merged = SplitRequests.merged([*known, one("c", 2, NoOffset("set"))])
    assert (merged.trace_ids, merged.clock_bound_ns, merged.clock_problem) == (("a", "b", "c"), None, "set")
    assert merged.parts_ns[:, PARTS.index("remainder")].tolist() == [10] * 3
    assert not merged.is_known[ways].any()
    assert not merged.parts_ns[:, ways].any()
    with pytest.raises(ValueError, match="no requests"):
        SplitRequests.merged([])


def test_the_clock_of_another_machine_is_found_from_the_requests():
    requests = [SampledRequest(f"{at}", at, 0, at, at + 100_000, 0, True) for at in range(0, 10**9, 10**8)]
    times = {one.trace_id: ServerTimes(UNIX + one.started_ns + 40_000, UNIX + one.finished_ns - 40_000) for one in requests}
    found = fit_server_clock(requests, times)
    assert np.abs(found.at(np.array([0, 10**9])) - UNIX).max() <= found.bound_ns <= 60_000
