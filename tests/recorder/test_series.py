"""How a window went on: each request in the interval to which it belongs, whatever the order in which it is recorded."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.load.phases import Phases
from perfkit.recorder.histogram import Histogram
from perfkit.recorder.recording import Recorder
from perfkit.recorder.series import SeriesRecorder
from perfkit.transport.base import Outcome, Reply

MS, S = 1_000_000, 1_000_000_000
START = 100 * S


@pytest.mark.parametrize(("window_s", "interval_ms"), [(1, 20), (2, 20), (10, 50), (60, 300), (200, 1000), (2000, 1000)])
def test_intervals_are_a_two_hundredth_of_the_window_within_bounds(window_s, interval_ms):
    series = SeriesRecorder(START, START + window_s * S).finish(START + window_s * S)
    assert series.interval_ns == interval_ms * MS
    assert series.scheduled.size == window_s * 1000 // interval_ms
    assert len(series.batches) == 30


@given(st.lists(st.tuples(st.integers(-S, 11 * S), st.integers(0, 3 * S), st.sampled_from(Outcome)), max_size=60))
def test_every_request_is_counted_where_it_belongs(drawn):
    recorder = Recorder(Phases(START - S, START, START + 10 * S, None, S), lambda _: None, is_open=True)
    for intended_ns, time_ns, outcome in drawn:
        reply = Reply(outcome, START + intended_ns, START + intended_ns + time_ns)
        reply.intended_ns = reply.paced_ns = START + intended_ns
        recorder.add(reply)
    series = recorder.finish(START + 10 * S).series
    inside = [(intended, time, outcome) for intended, time, outcome in drawn if 0 <= intended < 10 * S]
    kept = [one for one in inside if one[2] not in (Outcome.REJECTED, Outcome.CONNECT_FAILED, Outcome.BROKEN)]
    ended = [intended + time for intended, time, outcome in drawn if outcome not in (Outcome.TIMED_OUT, Outcome.UNFINISHED)]
    assert series.scheduled.tolist() == counted([intended for intended, _, _ in inside])
    assert series.answered.tolist() == counted([end for end in ended if 0 <= end < 10 * S])
    assert series.timed.tolist() == counted([intended for intended, _, _ in kept])
    by_hand: dict[int, int] = {}
    for intended, time, _ in kept:
        by_hand[intended // (50 * MS)] = by_hand.get(intended // (50 * MS), 0) + time
    assert {index: int(total) for index, total in enumerate(series.time_sum_ns) if total} == {k: v for k, v in by_hand.items() if v}
    in_batches = [Histogram.decode(text).count for text in series.batches]
    assert sum(in_batches) == len([one for one in kept if one[0] < 30 * (10 * S // 30)])


def counted(instants_ns):
    return np.bincount([instant // (50 * MS) for instant in instants_ns], minlength=200).tolist()


def test_dropped_arrivals_were_scheduled():
    recorder = Recorder(Phases(START, START, START + 10 * S, None, S), lambda _: None, is_open=True)
    recorder.drop(START + np.array([0, 10 * S, -1]), False)
    recorder.drop(START + np.array([5 * S, 6 * S, 11 * S]), True)
    recording = recorder.finish(START + 10 * S)
    assert (recording.dropped, recording.unsent) == (3, 2)
    assert int(recording.series.scheduled.sum()) == 3


def test_an_early_end_leaves_out_what_is_not_whole():
    series = SeriesRecorder(START, START + 10 * S).finish(START + 1234 * MS)
    assert series.scheduled.size == 1234 // 50
    assert len(series.batches) == 1234 // 333


def test_a_counted_window_has_no_series():
    assert Recorder(Phases(0, 0, None, 5, S), lambda _: None).finish(S).series is None
