"""What is left of a recording without its warm-up: exactly what a window that began then would hold."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.recorder.batches import BatchRecorder, batch_length_ns
from perfkit.recorder.histogram import encode
from perfkit.recorder.recorder import Recorder
from perfkit.recorder.recording import merge
from perfkit.recorder.window import cut
from perfkit.transport.base import Outcome, Reply

MS, S = 1_000_000, 1_000_000_000
START = 100 * S
drawn_replies = st.lists(
    st.tuples(st.integers(-2 * S, 21 * S), st.sampled_from([MS, 700 * MS, 3 * S]), st.sampled_from(Outcome), st.integers(0, 2 * MS)),
    max_size=60,
)


def reply(intended_ns, service_ns, outcome, delay_ns=0):
    started_ns = START + intended_ns + delay_ns
    one = Reply(outcome, started_ns, started_ns + service_ns, None, "", "503" if outcome is Outcome.REJECTED else "")
    one.intended_ns, one.paced_ns = START + intended_ns, START + intended_ns + delay_ns // 2
    return one


def recorded(drawn, instants, drops=(), end_ns=START + 20 * S):
    recorder = Recorder(**instants, is_open=True, check=lambda one: one.outcome is Outcome.OK, good_within_ns={"waited": MS})
    for one in drawn:
        recorder.add(reply(*one))
    recorder.drop(START + np.array(drops, dtype=np.int64), is_late=True)
    return recorder.finish(end_ns)


def instants(*, starts_s=0, warmup_s=0, window_s=20):
    start_ns = START + starts_s * S
    return {"series_start_ns": start_ns - warmup_s * S, "window_start_ns": start_ns, "window_end_ns": START + window_s * S}


@given(drawn_replies, st.lists(st.integers(0, 20 * S - 1), max_size=5), st.integers(0, 6))
def test_a_window_that_is_cut_holds_what_one_that_began_then_would_hold(drawn, drops, seconds):
    whole = recorded(drawn, instants(warmup_s=1), drops)
    found = cut(whole, START + seconds * S, is_open=True)
    later = recorded(drawn, instants(starts_s=seconds), drops)
    expected = cut(later, START + seconds * S, is_open=True)
    for field in ("start_ns", "end_ns", "outcomes", "statuses", "finished_per_s", "failed_per_s", "counts"):
        assert getattr(found, field) == getattr(expected, field), field
    for name, packed in expected.times.items():
        assert encode(found.times[name]) == encode(packed), name
    assert logged(whole, seconds) == logged(later, 0, shift=seconds)


def logged(recording, first, shift=0):
    """Response times by second of the load, as they are logged."""
    seconds = {second + shift: times["response_time"] for second, times in recording.times_by_second() if second >= first}
    return {second: encode(times) for second, times in seconds.items() if times.count}


@given(drawn_replies)
def test_batches_hold_the_response_times_of_equal_parts_in_order(drawn):
    window = cut(recorded(drawn, instants()), START, is_open=True)
    assert len(window.batches) == 40, "of half a second each"
    kept = [
        one
        for one in drawn
        if 0 <= one[0] < 20 * S and one[2] not in (Outcome.REJECTED, Outcome.CONNECT_FAILED, Outcome.BROKEN, Outcome.ABANDONED)
    ]
    assert [packed.count for packed in window.batches] == np.bincount([one[0] // (S // 2) for one in kept], minlength=40).tolist()


@pytest.mark.parametrize(("since_ms", "cut_s"), [(-5000, 0), (0, 0), (1, 1), (999, 1), (1000, 1), (1001, 2), (6400, 7)])
def test_a_cut_goes_on_to_the_next_whole_second(since_ms, cut_s):
    window = cut(recorded([], instants()), START + since_ms * MS, is_open=True)
    assert window.start_ns == START + cut_s * S
    assert window.length_ns == (20 - cut_s) * S


def test_a_cut_of_a_long_window_goes_on_to_the_next_batch():
    recording = merge([recorded([], instants(window_s=600), end_ns=START + 600 * S)])
    assert recording.batch_ns == 16 * S
    assert cut(recording, START + 17 * S, is_open=True).start_ns == START + 32 * S


@given(st.lists(st.tuples(st.integers(0, 5000 * S), st.integers(0, 10 * S)), min_size=1, max_size=50))
def test_batches_without_a_known_end_double_up_to_a_second_and_lose_nothing(drawn):
    recorder = BatchRecorder(START, None)
    intended = np.array([START + instant for instant, _ in drawn])
    times = {"service_time": (np.arange(len(drawn)), np.array([time for _, time in drawn]))}
    for _ in recorder.add(intended, np.zeros(len(drawn), dtype=np.int64), np.ones(len(drawn), dtype=bool), times, {}):
        pass
    recorder.count("ended", intended)
    batches = recorder.take_before(None)
    assert max(batches) < 60 or recorder.batch_ns == S
    assert recorder.batch_ns == S // 64 or max(batches) >= 30
    by_hand = np.bincount([instant // recorder.batch_ns for instant, _ in drawn], minlength=max(batches) + 1)
    assert [batches[number].counts["ended"] if number in batches else 0 for number in range(by_hand.size)] == by_hand.tolist()
    assert {number: batch.times["service_time"].count for number, batch in batches.items()} == {
        number: int(count) for number, count in enumerate(by_hand) if count
    }


@pytest.mark.parametrize("window_ms", [1, 100, 900, 1000, 5000, 11_000, 60_000, 61_000, 3_600_000])
def test_batches_are_few_and_end_with_whole_seconds(window_ms):
    batch_ns = batch_length_ns(window_ms * MS)
    assert window_ms * MS / batch_ns <= 60
    assert batch_ns == S // 64 or window_ms * MS / batch_ns > 30
    assert S % batch_ns == 0 or batch_ns % S == 0
