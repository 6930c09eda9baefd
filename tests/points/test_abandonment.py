"""What a server did for requests that were given up, from its counts."""

import dataclasses

import pytest

from perfkit.points.measured import Resources
from perfkit.points.point import point
from perfkit.protocol.statistics import ModelStatistics, TotalTime
from perfkit.recorder.recording import AnswerTotals
from perfkit.stats.buckets import BucketCounts
from perfkit.telemetry.server.statistics import ServerCounts
from tests.points.made_measurement import measurement

MS = 1_000_000


def server_counts(counted, answered, left):
    """Requests of 100 ms each, of which 80 ms are computing."""
    times = {name: TotalTime(counted, counted * ms * MS) for name, ms in (("success", 100), ("compute_input", 10), ("compute_infer", 70))}
    sent = AnswerTotals(answered=answered, perhaps_answered=left, abandoned=left)
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
    ("counts", "changes", "told"),
    [
        (None, {}, "no v2 statistics"),
        (server_counts(11, answered=8, left=2), {}, "not of this load alone"),
        (server_counts(7, answered=8, left=2), {}, "not of this load alone"),
        (server_counts(10, answered=8, left=2), {"is_streamed": True}, "a stream"),
    ],
)
def test_what_the_counts_do_not_show_is_not_known(counts, changes, told):
    found = abandonment(counts, **changes)
    assert (found.executed, found.wasted_share, found.wasted_ns, found.held_ns) == (None, None, None, None)
    assert told in found.unknown
