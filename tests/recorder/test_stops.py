"""The detector of stops, in virtual time: what it finds, what it leaves out, and which requests it marks."""

import asyncio
import dataclasses

import numpy as np
import pytest

from benchmarks.simulated_stops import StoppableClock
from perfkit.clock import ManualClock
from perfkit.recorder.recorder import Recorder
from perfkit.recorder.recording import merge
from perfkit.recorder.stops import SHORTEST_NS, TICK_NS, Stop, StopDetector
from perfkit.recorder.window import cut
from perfkit.transport.base import Outcome, Reply

MS, S = 1_000_000, 1_000_000_000


def found(*stops_ms, until_ms=400, worked_ms=lambda _: 0, in_flight=lambda _: 0):
    """What a detector finds from 100 ms on, in a process that stands still at these spans; the functions get the time in ms."""
    clock = ManualClock()
    own = StoppableClock(clock, [(int(start * MS), int(end * MS)) for start, end in stops_ms])

    def now_ms():
        return clock.now_ns() / MS

    detector = StopDetector(own, lambda: worked_ms(now_ms()) * MS)

    async def main():
        watching = asyncio.ensure_future(detector.watch(100 * MS, lambda: in_flight(now_ms())))
        await own.sleep_until_ns(until_ms * MS)
        watching.cancel()
        return detector.finish()

    return clock.run(main())


def test_a_process_that_runs_has_no_stops():
    assert found() == ()


@pytest.mark.parametrize("start_ms", np.linspace(150, 156, 13).tolist())
@pytest.mark.parametrize("length_ms", [9, 10, 20, 200])
def test_every_stop_of_nine_milliseconds_or_more_is_found(start_ms, length_ms):
    (stop,) = found((start_ms, start_ms + length_ms))
    assert stop.end_ns == (start_ms + length_ms) * MS
    assert 0 <= stop.start_ns - start_ms * MS <= TICK_NS
    assert stop.length_ns >= SHORTEST_NS


def test_short_delays_are_no_stops():
    assert found((200.1, 203.9), (300, 303)) == ()


def test_a_stop_that_lasts_beyond_the_end_of_the_load_is_found():
    (stop,) = found((390, 700))
    assert stop.end_ns == 700 * MS
    assert stop.length_ns == pytest.approx(310 * MS, abs=TICK_NS)


def test_a_stop_before_the_load_does_not_count():
    assert found((20, 90)) == ()


def test_a_stop_across_the_beginning_counts_from_there():
    (stop,) = found((50, 160))
    assert (stop.start_ns, stop.end_ns) == (105 * MS, 160 * MS)


def test_the_process_s_own_work_is_no_stop():
    assert found((200, 259), worked_ms=lambda now_ms: min(max(now_ms - 200, 0), 59)) == ()
    (stop,) = found((200, 259), worked_ms=lambda now_ms: 20 if now_ms > 200 else 0)
    assert stop.length_ns == 39 * MS, "64 ms between two ticks, less the wait for the second one and the work"


def test_a_stop_is_settled_at_the_next_tick_if_no_more_requests_are_in_flight_than_usual():
    (stop,) = found((200, 240), in_flight=lambda _: 4)
    assert (stop.end_ns, stop.settled_ns) == (240 * MS, 245 * MS)


def test_a_stop_is_not_settled_while_more_requests_are_in_flight_than_usual():
    (stop,) = found((200, 240), in_flight=lambda now_ms: 3 if now_ms < 200 or now_ms >= 333 else 30)
    assert stop.settled_ns == 335 * MS
    (stop,) = found((200, 240), in_flight=lambda now_ms: 3 if now_ms < 200 else 4)
    assert stop.settled_ns == 400 * MS, "the end of the load"


def test_a_stop_is_settled_after_a_while_although_the_load_has_grown():
    (stop,) = found((200, 220), until_ms=6000, in_flight=lambda now_ms: 3 if now_ms < 200 else 30)
    assert stop.settled_ns == pytest.approx((220 + 1000 + 50 * 20) * MS, abs=50 * TICK_NS + TICK_NS)
    first, *_, last = found((200, 220), (230, 250), (5000, 5040), until_ms=6000, in_flight=lambda now_ms: 3 if now_ms < 200 else 30)
    assert first.settled_ns == pytest.approx((220 + 1000 + 50 * 40) * MS, abs=100 * TICK_NS + TICK_NS)
    assert last.settled_ns - last.end_ns <= TICK_NS, "as many requests in flight as before it"


def test_stops_that_follow_each_other_are_settled_together():
    stops = found((200, 220), (221, 240), in_flight=lambda now_ms: 9 if 200 < now_ms < 300 else 4)
    assert [stop.settled_ns for stop in stops] == [300 * MS] * 2


def test_a_stop_is_settled_a_tick_after_the_next_one_if_there_is_one_at_every_tick():
    stops = found((200, 220), (221, 240), (241, 260), (261, 280), in_flight=lambda _: 4)
    assert [(stop.end_ns / MS, stop.settled_ns / MS) for stop in stops] == [(220, 245), (240, 265), (260, 285), (280, 285)]


def test_requests_that_overlap_a_stop_until_it_is_settled_are_touched():
    detector = StopDetector(ManualClock(), lambda: 0)
    detector._stops = [Stop(100 * MS, 150 * MS, 170 * MS), Stop(300 * MS, 310 * MS, 310 * MS)]
    cases = {  # start and end in ms: by how much it would be earlier and later, at most
        (10, 90): None, (10, 101): (50, 0), (90, 160): (50, 0), (98, 160): (50, 50), (120, 160): (50, 50), (10, 171): (0, 0),
        (169, 290): (50, 50), (170, 180): None, (200, 299): None, (90, 305): (10, 0), (169, 400): (50, 50), (296, 400): (10, 10), (311, 400): None,
    }  # fmt: skip
    started, finished = (np.array(times) * MS for times in zip(*cases, strict=True))
    touched = detector.touched(started, finished)
    assert touched is not None
    for case, mask, earlier_ns, later_ns in zip(cases, touched.mask, touched.earlier_ns, touched.later_ns, strict=True):
        assert ((earlier_ns / MS, later_ns / MS) if mask else None) == cases[case], case
    assert detector.touched(np.array([400 * MS]), np.array([500 * MS])) is None
    assert StopDetector(ManualClock()).touched(started, finished) is None


def touched_by_definition(stops, intended_ns, finished_ns):
    """Whether a request was touched, and by how much it would be earlier and later; an unsettled stop has None."""
    mask, earlier_ns, later_ns = False, 0, 0
    for start_ns, end_ns, settled_ns in stops:
        if finished_ns > start_ns and (settled_ns is None or intended_ns < settled_ns):
            is_due = intended_ns >= start_ns - TICK_NS
            mask = True
            earlier_ns += (end_ns - start_ns) * (is_due or settled_ns is None or finished_ns <= settled_ns)
            later_ns += (end_ns - start_ns) * is_due
    return mask, earlier_ns, later_ns


@pytest.mark.parametrize("seed", range(20))
def test_many_stops_add_up_as_defined_for_each_request(seed):
    draw = np.random.default_rng(seed)
    count = int(draw.integers(1, 9))
    edges = np.sort(draw.integers(0, 200, 2 * count)) * MS
    settled = np.maximum.accumulate(edges[1::2] + draw.integers(0, 60, count) * MS)
    detector = StopDetector(ManualClock(), lambda: 0)
    detector._stops = [Stop(*(int(edge) for edge in each)) for each in zip(edges[::2], edges[1::2], settled, strict=True)]
    unsettled = int(draw.integers(0, count + 1))
    detector._open_from = unsettled if unsettled < count else None
    stops = [(stop.start_ns, stop.end_ns, stop.settled_ns if index < unsettled else None) for index, stop in enumerate(detector._stops)]
    intended_ns = draw.integers(0, 250, 100) * MS
    finished_ns = intended_ns + draw.integers(1, 80, 100) * MS
    touched = detector.touched(intended_ns, finished_ns)
    expected = [touched_by_definition(stops, *request) for request in zip(intended_ns, finished_ns, strict=True)]
    assert touched is not None
    assert list(zip(touched.mask, touched.earlier_ns, touched.later_ns, strict=True)) == expected


class FoundStops(StopDetector):
    """A detector with one stop from 103 to 104 s, settled at 104.5 s."""

    def __init__(self):
        super().__init__(ManualClock())
        self._stops = [Stop(103 * S, 104 * S, 104 * S + S // 2)]


def record(*replies):
    stops = FoundStops()
    recorder = Recorder(window_start_ns=100 * S, window_end_ns=110 * S, stops=stops)
    for started_ms, time_ms, outcome in replies:
        recorder.add(Reply(outcome, 100 * S + started_ms * MS, 100 * S + (started_ms + time_ms) * MS))
    return dataclasses.replace(recorder.finish(110 * S), stops=stops.finish())


def test_touched_requests_are_recorded_with_what_their_times_may_have_been():
    ok, lost = Outcome.OK, Outcome.TIMED_OUT
    recording = record((100, 5, ok), (2990, 1020, ok), (2900, 1200, lost), (4400, 300, ok), (4600, 9, ok), (2995, 1100, Outcome.BROKEN))
    window = cut(recording, 100 * S, is_open=False)
    touched = {"touched_time": [300, 1020, 1200], "touched_least": [0, 20, 200], "touched_most": [1020, 1200, 1300]}
    for name, expected_ms in touched.items():
        assert [value / MS for value in window.times[name].values_at([0.01, 0.5, 0.99])] == pytest.approx(expected_ms, rel=2e-3, abs=1e-3)
    assert (window.count("touched"), window.count("touched_failed")) == (4, 2)
    assert sum(part.count for part in window.batches) == 5
    assert [round(part.max_ns / MS) for part in window.untouched if part.count] == [5, 9]
    assert window.stops == recording.stops == (Stop(103 * S, 104 * S, 104 * S + S // 2),)


def test_the_stops_of_several_workers_are_merged_in_the_order_of_time():
    one, other = record((100, 5, Outcome.OK)), record((2990, 1020, Outcome.OK))
    merged = merge([one, other])
    assert len(merged.stops) == 2
    assert cut(merged, 100 * S, is_open=False).count("touched") == 1
    assert cut(merged, 106 * S, is_open=False).stops == (), "they were settled before"
