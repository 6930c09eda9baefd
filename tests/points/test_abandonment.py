"""What a server did for requests that were given up, from its counts."""

import dataclasses

import pytest

from perfkit.points.measured import Resources
from perfkit.points.point import point
from perfkit.protocol.statistics import ModelStatistics, TotalTime
from perfkit.recorder.recorder import Recorder
from perfkit.recorder.recording import AnswerTotals
from perfkit.recorder.window import cut
from perfkit.stats.buckets import BucketCounts
from perfkit.telemetry.server.statistics import ServerCounts
from perfkit.transport.base import Outcome, Reply
from tests.points.made_measurement import measurement

MS = 1_000_000


def server_counts(counted, answered, left, timed_out=0):
    """Requests of 100 ms each, of which 80 ms are computing."""
    times = {name: TotalTime(counted, counted * ms * MS) for name, ms in (("success", 100), ("compute_input", 10), ("compute_infer", 70))}
    sent = AnswerTotals(answered=answered, perhaps_answered=left + timed_out, abandoned=left)
    return ServerCounts(ModelStatistics("1", counted, counted, **times), ("1",), sent)


def stream_counts(server_ms, counted=10, failed=0, queue_ms=0):
    """Eight streams of 100 ms, and two given up after 40 ms, as their client saw them; what the server counts, and its time of all together."""
    times = {"success": TotalTime(counted, server_ms * MS), "compute_infer": TotalTime(counted, (server_ms - queue_ms) * MS)}
    times["fail"] = TotalTime(failed, failed * 40 * MS)
    sent = AnswerTotals(answered=8, answered_ns=800 * MS, perhaps_answered=2, abandoned=2, abandoned_ns=80 * MS)
    return ServerCounts(ModelStatistics("1", counted, counted, **times), ("1",), sent)


def abandonment(counts, **changes):
    made = measurement([100 * MS] * 8, others={"abandoned": [30 * MS] * 2})
    window = dataclasses.replace(made.window, times={**made.window.times, "abandoned_time": BucketCounts.of([30 * MS] * 2)})
    return point(dataclasses.replace(made, window=window, resources=Resources(server=counts), **changes)).abandonment


def test_what_was_executed_beyond_the_answers_is_wasted():
    found = abandonment(server_counts(10, answered=8, left=2))
    assert (found.executed, found.wasted_share, found.unknown) == (2, 0.2, "")
    assert found.wasted_ns == pytest.approx(2 * 80 * MS)
    assert found.held_ns == pytest.approx(70 * MS, rel=0.01)


def test_a_server_that_cancels_wastes_nothing():
    found = abandonment(server_counts(8, answered=8, left=2))
    assert (found.executed, found.wasted_share, found.wasted_ns, found.held_ns) == (0, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("counts", "wasted_ms", "share"),
    [
        pytest.param(stream_counts(10 * 100), 120, 0.12, id="it sends both to their end"),
        pytest.param(stream_counts(10 * 100 + 600, queue_ms=600), 120, 0.12, id="and had both in its queue for long"),
        pytest.param(stream_counts(8 * 100 + 2 * 40), 0, 0.0, id="it stops both, and counts them"),
        pytest.param(stream_counts(8 * 100, counted=8, failed=2), 0, 0.0, id="it stops both, as failures"),
    ],
)
def test_the_time_of_streams_beyond_their_clients_is_wasted(counts, wasted_ms, share):
    found = abandonment(counts, is_streamed=True)
    held_ms = (counts.server.success.ns + counts.server.fail.ns) / MS - 880
    assert (found.executed, found.wasted_ns, found.held_ns, found.unknown) == (None, wasted_ms * MS, held_ms / 2 * MS, "")
    assert found.wasted_share == pytest.approx(share)


@pytest.mark.parametrize(
    ("counts", "changes", "told"),
    [
        (None, {}, "no v2 statistics"),
        (server_counts(11, answered=8, left=2), {}, "not of this load alone"),
        (server_counts(7, answered=8, left=2), {}, "not of this load alone"),
        (stream_counts(8 * 30 + 2 * 1), {"is_streamed": True}, "end before they do"),
        (stream_counts(1000, counted=9), {"is_streamed": True}, "other failures or successes"),
        (stream_counts(8 * 101 + 2 * 40), {"is_streamed": True}, "0.9% of theirs, too little to tell"),
        (server_counts(10, answered=8, left=2, timed_out=1), {}, "may also have executed 1 requests that failed"),
    ],
)
def test_what_the_counts_do_not_show_is_not_known(counts, changes, told):
    found = abandonment(counts, **changes)
    assert (found.executed, found.wasted_share, found.wasted_ns, found.held_ns) == (None, None, None, None)
    assert told in found.unknown


def test_requests_that_might_have_been_given_up_are_in_no_times_so_that_slow_ones_keep_their_share():
    """Every second request takes 300 ms, and of each kind every second one is given up after 20 ms: 50 quick and 50 slow ones have times."""
    recorder = Recorder(window_start_ns=0, window_end_ns=10_000 * MS, some_leave=True)
    for number in range(200):
        started_ns, is_slow, may_leave = 40 * number * MS, bool(number % 2), number % 4 > 1
        outcome = Outcome.ABANDONED if is_slow and may_leave else Outcome.OK
        length_ms = 20 if outcome is Outcome.ABANDONED else 300 if is_slow else 10
        recorder.add(Reply(outcome, started_ns, started_ns + length_ms * MS, may_leave=may_leave))
    window = cut(recorder.finish(10_000 * MS), 0, is_open=False)
    assert (window.outcomes[Outcome.OK], window.outcomes[Outcome.ABANDONED], window.count("answered_early")) == (150, 50, 50)
    times = window.times["service_time"]
    assert (times.count, times.count_above(200 * MS)) == (100, 50)
    assert int(window.series.scheduled.sum()) == int(window.series.answered.sum()) == 150
