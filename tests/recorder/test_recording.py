"""Several workers' recordings beside one worker's of the same requests."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.recorder.histogram import encode
from perfkit.recorder.recorder import Recorder
from perfkit.recorder.recording import merge
from perfkit.recorder.window import cut
from perfkit.transport.base import Outcome, Reply

MS, S = 1_000_000, 1_000_000_000
START = 50 * S
TIMED: dict[str, Any] = {"series_start_ns": START - S, "window_start_ns": START, "window_end_ns": START + 10 * S}
COUNTED: dict[str, Any] = {"window_start_ns": START, "window_end_ns": None}
drawn_replies = st.lists(
    st.tuples(st.integers(-S, 9 * S), st.sampled_from([MS, 700 * MS, 3 * S]), st.sampled_from(Outcome), st.integers(0, 2)), max_size=60
)


def recorded(drawn, instants):
    recorder = Recorder(**instants, is_open=True, good_within_ns={"waited": MS})
    for intended_ns, time_ns, outcome, _ in drawn:
        reply = Reply(outcome, START + intended_ns, START + intended_ns + time_ns, None, outcome.value)
        reply.intended_ns = reply.paced_ns = START + intended_ns
        recorder.add(reply)
    recorder.drop(np.array([START + 5 * S] if drawn else [], dtype=np.int64), is_late=False)
    return recorder.finish(instants["window_end_ns"])


@given(drawn_replies, st.sampled_from([TIMED, COUNTED]))
def test_merged_recordings_equal_that_of_a_single_worker(drawn, instants):
    parts = [[one for one in drawn if one[3] == worker] for worker in range(3)]
    found = cut(merge([recorded(part, instants) for part in parts]), START, is_open=True)
    expected = cut(recorded(drawn, instants), START, is_open=True)
    for field in ("start_ns", "end_ns", "outcomes", "failures", "finished_per_s"):
        assert getattr(found, field) == getattr(expected, field), field
    for name in ("ended", "finished", "good"):
        assert found.count(name) == expected.count(name), name
    dropped = sum(bool(part) for part in parts)
    assert found.count("dropped") == dropped
    assert [own - (second == 5) * (dropped - bool(drawn)) for second, own in enumerate(found.failed_per_s)] == list(expected.failed_per_s)
    for name, packed in expected.times.items():
        assert encode(found.times[name]) == encode(packed), name
    for name in ("answered", "timed", "time_sum_ns"):
        assert getattr(found.series, name).tolist() == getattr(expected.series, name).tolist(), name
    assert [one.count for one in found.batches] == [one.count for one in expected.batches]


def test_failures_of_several_workers_are_counted_together():
    def failed(*texts):
        recorder = Recorder(**TIMED)
        for text in texts:
            recorder.add(Reply(Outcome.BROKEN, START, START + 1, None, text))
        return recorder.finish(TIMED["window_end_ns"])

    merged = cut(merge([failed("a", "b"), failed("b", "c"), failed("d")]), START, is_open=False)
    assert {kind.message: count for kind, count in merged.failures.items()} == {"a": 1, "b": 2, "c": 1, "d": 1}


def test_recordings_of_different_starts_are_not_merged():
    with pytest.raises(ValueError, match="begin at the same instant"):
        merge([recorded([], TIMED), recorded([], {"window_start_ns": 0, "window_end_ns": 10 * S})])
