"""Windows, outcomes and intervals: where each reply is counted."""

import collections
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.recorder.batches import tally
from perfkit.recorder.failures import FailureKind
from perfkit.recorder.histogram import encode
from perfkit.recorder.recorder import Recorder
from perfkit.recorder.recording import AnswerTotals, RecordingSum
from perfkit.recorder.window import cut
from perfkit.stats.buckets import BucketCounts
from perfkit.transport.base import Outcome, Reply

MS, S = 1_000_000, 1_000_000_000
START, END = 100 * S, 110 * S
WINDOW: dict[str, Any] = {"window_start_ns": START, "window_end_ns": END}


def record(*replies, instants=WINDOW, end=END):
    recorder = Recorder(**instants)
    for reply in replies:
        recorder.add(reply)
    recording = recorder.finish(end)
    return cut(recording, instants["window_start_ns"], is_open=False), dict(recording.times_by_second())


def times(window, name="service_time"):
    return window.times[name]


def reply(started_ns, service_ns, outcome=Outcome.OK, error=""):
    return Reply(outcome, started_ns, started_ns + service_ns, None, error)


def test_requests_belong_to_the_window_in_which_they_start():
    recording, _ = record(
        reply(START - 1, 2), reply(START, MS), reply(END - 1, 5 * S), reply(END, MS), reply(START + S, MS, Outcome.REJECTED)
    )  # fmt: skip
    assert recording.outcomes[Outcome.OK] == 2
    assert recording.outcomes[Outcome.REJECTED] == 1
    assert times(recording).count == 2


def test_throughput_counts_what_finishes_in_the_window_wherever_it_started():
    recording, _ = record(reply(START - S, S), reply(START, MS), reply(END - 1, 1), reply(START - 2, 1), reply(END - MS, MS - 1))
    assert recording.count("finished") == 3
    assert recording.finished_per_s == (2, *[0] * 8, 1)


def test_failures_are_counted_in_the_second_in_which_they_end():
    failed = (reply(START + S, S, Outcome.REJECTED), reply(START + S, S, Outcome.TIMED_OUT), reply(START, 1, Outcome.INVALID_OUTPUT))
    outside = (reply(START - S, 1, Outcome.BROKEN), reply(END - 1, 1, Outcome.BROKEN), reply(START, S, Outcome.UNFINISHED))
    window, _ = record(*failed, *outside, reply(START, MS))
    assert window.failed_per_s == (1, 0, 2, *[0] * 7)
    assert window.finished_per_s == (1, *[0] * 9)


def test_the_totals_beside_the_servers_own_have_all_answers_wrong_ones_too_and_those_that_may_have_been():
    recorder = Recorder(**WINDOW)
    for number, outcome in enumerate(Outcome):
        recorder.add(reply(START - S, 2**number, outcome))
    numbers = {outcome: 2**number for number, outcome in enumerate(Outcome)}
    answered_ns = numbers[Outcome.OK] + numbers[Outcome.INVALID_OUTPUT]
    assert recorder.finish(END).answer_totals == AnswerTotals(
        answered=2, answered_ns=answered_ns, perhaps_answered=4, rejected=1, abandoned=1, abandoned_ns=numbers[Outcome.ABANDONED]
    )


def test_dropped_arrivals_count_as_failures_of_their_second():
    recorder = Recorder(**WINDOW)
    recorder.drop(np.array([START - 1, START + 3 * S, START + 3 * S + 1, END]), is_late=False)
    window = cut(recorder.finish(END), START, is_open=True)
    assert window.failed_per_s == (*[0] * 3, 2, *[0] * 6)


def test_each_outcome_reaches_its_distribution():
    recording, _ = record(*(reply(START + index, 7 * MS, outcome) for index, outcome in enumerate(Outcome)))
    assert recording.outcomes == dict.fromkeys(Outcome, 1)
    assert times(recording).count == 4, "ok, invalid output, and at their age timed out and unfinished"
    assert times(recording, "failure_time").count == 3


def test_failures_are_counted_by_message_and_those_of_the_warm_up_are_left_out():
    replies = [reply(START + index, MS, Outcome.REJECTED, f"message {index % 3}") for index in range(50)] + [reply(START, MS)] * 50
    recording, _ = record(*replies, reply(START - 1, MS, Outcome.BROKEN, "in the warm-up"))
    assert recording.failures == {FailureKind(Outcome.REJECTED, "", f"message {index}"): count for index, count in enumerate((17, 17, 16))}


def test_a_counted_window_has_no_end_until_it_is_finished():
    replies = [reply(START + index * MS, MS) for index in range(3000)]
    window, _ = record(reply(START - S, MS), *replies, instants={"window_start_ns": START, "window_end_ns": None}, end=None)
    assert window.outcomes[Outcome.OK] == window.count("finished") == 3000
    assert window.length_ns == 3000 * MS


def test_what_is_answered_after_an_early_end_is_no_throughput():
    recorder = Recorder(**WINDOW)
    for index in range(1500):
        recorder.add(reply(START + index, S))
    recorder.end_window(START + 2 * S)
    for index in range(1500):
        recorder.add(reply(START + index, 3 * S))
    recording = cut(recorder.finish(START + 2 * S), START, is_open=False)
    assert recording.count("finished") == 1500
    assert times(recording).count == 3000


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10 * S - 1), st.integers(0, 40 * S)), max_size=80))
def test_seconds_add_up_to_the_whole_whatever_the_order(drawn):
    recording, seconds = record(*(reply(START + started, service) for started, service in drawn))
    assert encode(BucketCounts.merged(one["service_time"] for one in seconds.values())) == encode(times(recording))
    counts = collections.Counter(started // S for started, _ in drawn)
    assert {second: one["service_time"].count for second, one in seconds.items()} == counts


def test_pieces_add_up_to_the_whole_in_few_batches_however_long_the_window():
    recorder, total = Recorder(window_start_ns=0, window_end_ns=10**6 * S), RecordingSum()
    for second in range(1000):
        recorder.add(reply(second * S, MS))
        recorder.add(reply(second * S, 2 * MS))
        if second % 7 == 3:
            piece = recorder.take_before(second * S)
            assert all(number < second for number in piece.batches)
            total.add(piece)
    total.add(recorder.finish(10**6 * S))
    whole = total.whole()
    assert len(whole.batches) <= 60
    assert sum(whole.finished_per_s.values()) == times(cut(whole, 0, is_open=False)).count == 2_000


def test_a_recorded_reply_has_no_payload_any_more():
    one = Reply(Outcome.OK, START, START + 1, [b"x" * 100])
    record(one)
    assert one.payload is None


@pytest.mark.parametrize(
    ("numbers", "counted"), [([], []), ([7], [(7, 1)]), ([5, 3, 5, 9, 5], [(3, 1), (5, 3), (9, 1)]), ([2**40, 2**40 + 1], [(2**40, 1), (2**40 + 1, 1)])]
)  # fmt: skip
def test_numbers_are_tallied_in_ascending_order(numbers, counted):
    assert tally(np.array(numbers, dtype=np.int64)) == counted


def test_in_an_open_loop_service_counts_from_the_start_response_from_the_schedule_and_the_delay_lies_between():
    recorder = Recorder(**WINDOW, is_open=True)
    one = Reply(Outcome.OK, START + 3 * MS, START + 10 * MS)
    one.intended_ns, one.paced_ns = START, START + MS
    recorder.add(one)
    window = cut(recorder.finish(END), START, is_open=True)
    expected = {"service_time": 7 * MS, "response_time": 10 * MS, "start_delay": 3 * MS, "pacing_delay": MS}
    assert {name: encode(times(window, name)) for name in expected} == {
        name: encode(BucketCounts.of([ns])) for name, ns in expected.items()
    }
