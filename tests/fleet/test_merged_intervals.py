"""The intervals of a machine's workers: their sums are those of all, whatever is merged when, and a lost worker's can be taken out again."""

import collections

from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.fleet.merged_intervals import MergedIntervals
from perfkit.recorder.recording import Interval, merge_intervals
from perfkit.stats.buckets import BucketCounts

MS = 1_000_000
WORKERS = 3


def interval(index, times_ms, workload=0):
    times = BucketCounts.of([time_ms * MS for time_ms in times_ms])
    return Interval(index, dict.fromkeys(("service_time", "response_time", "stream_time"), times), workload)


def counted(intervals):
    """How many times of each bucket are in each second, by name."""
    found = collections.Counter[tuple[int, int, str, int]]()
    for one in intervals:
        for name, times in one.times.items():
            for bucket, count in zip(times.indices.tolist(), times.counts.tolist(), strict=True):
                found[one.index, one.workload, name, bucket] += count
    return found


INTERVALS = st.builds(interval, st.integers(0, 3), st.lists(st.integers(0, 5000), min_size=1, max_size=4), st.integers(0, 1))


@settings(max_examples=30, deadline=None)
@given(st.lists(INTERVALS, max_size=12))
def test_a_sum_has_one_interval_for_each_second_and_workload_with_all_times(parts):
    merged = merge_intervals(parts)
    keys = [(one.index, one.workload) for one in merged]
    assert keys == sorted(set(keys))
    assert counted(merged) == counted(parts)
    largest = collections.defaultdict[tuple[int, int], int](int)
    for part in parts:
        largest[part.index, part.workload] = max(largest[part.index, part.workload], part.times["response_time"].largest_ns)
    assert {(one.index, one.workload): one.times["response_time"].largest_ns for one in merged} == largest


STEPS = st.lists(st.one_of(st.tuples(st.integers(0, WORKERS - 1), INTERVALS), st.sampled_from(["send", *range(WORKERS)])), max_size=20)


@settings(max_examples=100, deadline=None)
@given(STEPS, st.one_of(st.none(), st.integers(0, WORKERS - 1)))
def test_what_checkpoints_count_and_what_is_left_after_a_loss_is_what_the_workers_sent(steps, victim):
    """Each worker's intervals lie in the part of its own checkpoints; the driver's rule: before a checkpoint, seconds below its end."""
    merged, received = MergedIntervals(WORKERS), list[Interval]()
    reached = [0] * WORKERS  # each worker's own checkpoints: the n-th ends before second n
    complete, counts_now, by_piece = 0, list[Interval](), collections.defaultdict[tuple[int, int], list[Interval]](list)
    for step in steps:
        if step == "send":
            received += merged.take()
        elif isinstance(step, int):
            reached[step] += 1
            merged.reach(step, reached[step])
            while min(reached) > complete:
                received += merged.take()
                complete += 1
                counts_now += [one for one in received if one.index < complete]
                received = [one for one in received if one.index >= complete]
                merged.count_before(complete)
        else:
            worker, one = step
            by_piece[worker, max(reached[worker] + 1, one.index + 1)].append(one)
            merged.add(worker, one)
    sent = {key: counted(intervals) for key, intervals in by_piece.items()}

    def expected(wanted):
        return sum((one for (worker, piece), one in sent.items() if wanted(worker, piece)), collections.Counter())

    assert counted(counts_now) == expected(lambda _, piece: piece <= complete)
    before = complete
    if victim is not None:
        received, lost = merged.lose(victim)
        assert counted(lost) == expected(lambda worker, piece: worker == victim and piece > before)
    for worker in set(range(WORKERS)) - {victim}:
        for end in range(reached[worker] + 1, 12):
            merged.reach(worker, end)
    for end in range(before + 1, 12):
        received += merged.take()
        merged.count_before(end)
    received += merged.take()
    assert counted(counts_now + received) == expected(lambda worker, piece: worker != victim or piece <= before)
