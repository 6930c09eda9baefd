"""How a window went on: each request in the interval to which it belongs, whatever the order in which it is recorded."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.recorder.recorder import Recorder
from perfkit.recorder.series import SeriesRecorder
from perfkit.recorder.window import cut
from perfkit.transport.base import Outcome, Reply

MS, S = 1_000_000, 1_000_000_000
START = 100 * S


@pytest.mark.parametrize(("window_s", "interval_ms"), [(1, 20), (2, 20), (10, 50), (60, 300), (200, 1000), (2000, 1000)])
def test_intervals_are_a_two_hundredth_of_the_window_within_bounds(window_s, interval_ms):
    series = SeriesRecorder(START, START + window_s * S).finish()
    assert series.interval_ns == interval_ms * MS
    assert series.scheduled.size == window_s * 1000 // interval_ms


@given(st.lists(st.tuples(st.integers(-S, 11 * S), st.integers(0, 3 * S), st.sampled_from(Outcome)), max_size=60))
def test_every_request_is_counted_where_it_belongs(drawn):
    recorder = Recorder(window_start_ns=START, window_end_ns=START + 10 * S, is_open=True)
    for intended_ns, time_ns, outcome in drawn:
        reply = Reply(outcome, START + intended_ns, START + intended_ns + time_ns)
        reply.intended_ns = reply.paced_ns = START + intended_ns
        recorder.add(reply)
    series = recorder.finish(START + 10 * S).series
    inside = [(intended, time, outcome) for intended, time, outcome in drawn if 0 <= intended < 10 * S]
    kept = [one for one in inside if one[2] not in (Outcome.REJECTED, Outcome.CONNECT_FAILED, Outcome.BROKEN, Outcome.ABANDONED)]
    unanswered = (Outcome.TIMED_OUT, Outcome.UNFINISHED, Outcome.ABANDONED)
    ended = [intended + time for intended, time, outcome in drawn if outcome not in unanswered]
    assert series.scheduled.tolist() == counted([intended for intended, _, outcome in inside if outcome is not Outcome.ABANDONED])
    assert series.answered.tolist() == counted([end for end in ended if 0 <= end < 10 * S])
    assert series.timed.tolist() == counted([intended for intended, _, _ in kept])
    by_hand: dict[int, int] = {}
    for intended, time, _ in kept:
        by_hand[intended // (50 * MS)] = by_hand.get(intended // (50 * MS), 0) + time
    assert {index: int(total) for index, total in enumerate(series.time_sum_ns) if total} == {k: v for k, v in by_hand.items() if v}


def counted(instants_ns):
    return np.bincount([instant // (50 * MS) for instant in instants_ns], minlength=200).tolist()


def test_dropped_arrivals_were_scheduled():
    recorder = Recorder(window_start_ns=START, window_end_ns=START + 10 * S, is_open=True)
    recorder.drop(START + np.array([0, 10 * S, -1]), False)
    recorder.drop(START + np.array([5 * S, 6 * S, 11 * S]), True)
    window = cut(recorder.finish(START + 10 * S), START, is_open=True)
    assert (window.count("dropped"), window.count("unsent")) == (3, 2)
    assert int(window.series.scheduled.sum()) == 3


@given(st.lists(st.tuples(st.integers(0, 3000 * S), st.integers(1, 9)), min_size=1, max_size=40))
def test_a_series_without_a_known_end_grows_and_loses_nothing(drawn):
    recorder = SeriesRecorder(START, None)
    for instant_ns, count in drawn:
        recorder.add_answered(np.full(count, START + instant_ns))
    last_ns = max(instant_ns for instant_ns, _ in drawn)
    series = recorder.finish().between(START, START + last_ns + S)
    assert series.interval_ns in {20 * MS << doubled for doubled in range(6)}
    by_hand = np.zeros(series.answered.size, dtype=np.int64)
    for instant_ns, count in drawn:
        by_hand[instant_ns // series.interval_ns] += count
    assert series.answered.tolist() == by_hand.tolist()
    assert series.answered.size <= 400 or series.interval_ns == 640 * MS


def test_a_series_between_two_instants_has_the_whole_intervals_between_them():
    recorder = SeriesRecorder(START, START + 10 * S)
    recorder.add_scheduled(START + np.arange(200) * 50 * MS)
    series = recorder.finish()
    for instant_ms, first in ((-1000, 0), (0, 0), (1, 1), (50, 1), (51, 2), (9999, 200)):
        found = series.between(START + instant_ms * MS, START + 10 * S)
        assert (found.origin_ns, found.scheduled.size) == (START + first * 50 * MS, 200 - first)
        assert series.between(START, START + instant_ms * MS).scheduled.size == max(instant_ms // 50, 0)


def test_coarser_intervals_add_up_their_parts_and_leave_out_the_rest():
    recorder = SeriesRecorder(START, START + 10 * S)
    recorder.add_times(START + np.arange(200) * 50 * MS, np.arange(200))
    found = recorder.finish().coarser(7)
    assert (found.interval_ns, found.timed.size) == (350 * MS, 28)
    assert found.timed.tolist() == [7] * 28
    assert found.time_sum_ns.tolist() == [sum(range(7 * index, 7 * index + 7)) for index in range(28)]
