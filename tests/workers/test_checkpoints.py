"""Checkpoints: the pieces of a recording add up to that of a run that ends at their instant."""

import asyncio
import dataclasses
import functools

import pytest

from perfkit.clock import ManualClock
from perfkit.load.load_plan import ClosedPlan
from perfkit.recorder.histogram import encode
from perfkit.recorder.window import cut
from perfkit.target.address import Address
from perfkit.transport.base import Outcome, Prepared
from perfkit.transport.scripted import ScriptedTransport
from perfkit.workers.checkpoints import CheckpointCollector
from perfkit.workers.messages import Checkpoint
from tests.measured_points import run_point
from tests.workers.test_point import MS, S, poisson, spec


def measure(whole, workers=1, *, service_ns=20 * MS):
    """The recordings of so many workers in one virtual time, and their checkpoints in the order in which they came."""
    clock, came, taken_at_ns = ManualClock(5 * S), list[tuple[int, Checkpoint]](), list[int]()
    intervals = [list[tuple[int, int]]() for _ in range(workers)]

    async def main():
        async def begin_at():
            return 6 * S

        def note(worker, _, interval):
            intervals[worker].append((interval.index, interval.times["service_time"].count))

        def take(worker, checkpoint):
            came.append((worker, checkpoint))
            taken_at_ns.append(clock.now_ns())

        points = [
            run_point(
                one, ScriptedTransport(clock, lambda _: (service_ns, Outcome.OK)), [Prepared((b"x",))], clock=clock,
                address=Address("http", "h", 1), on_loop=lambda _: None, begin_at=begin_at,
                on_interval=functools.partial(note, worker), on_checkpoint=functools.partial(take, worker),
            )
            for worker, one in enumerate(whole.split(workers))
        ]  # fmt: skip
        return await asyncio.gather(*points)

    return clock.run(main()), came, intervals, taken_at_ns


def figures(recorded, *, is_open=True):
    """All that a result takes from a recording, in a form that can be compared."""
    window = cut(recorded.recording, recorded.recording.origin_ns, is_open=is_open)
    times = {name: encode(counts) for name, counts in window.times.items()}
    counted = window.outcomes, window.counts, window.finished_per_s, window.failed_per_s
    return times, counted, window.start_ns, window.end_ns, recorded.connections.opened, recorded.start_ns


def encoded_batches(recorded):
    """The times of each batch, and their length."""
    recording = recorded.recording
    of_batches = {
        number: {name: encode(counts) for name, counts in batch.times.items()} for number, batch in sorted(recording.batches.items())
    }
    return recording.batch_ns, of_batches


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("service_ns", [20 * MS, 2_500 * MS])
@pytest.mark.parametrize("requests", [None, 1000])
def test_a_checkpoint_has_the_figures_of_a_run_that_ended_there(workers, service_ns, requests):
    long = spec(poisson(max_in_flight=40), checkpoint_ns=3 * S, timeout_ns=5 * S, drain_ns=5 * S)
    if requests is not None:
        long = dataclasses.replace(long, requests=requests, window_ns=None)
    points, came, _, _ = measure(long, workers, service_ns=service_ns)
    collector, seconds = CheckpointCollector(workers), []
    for worker, checkpoint in came:
        collector.add(worker, checkpoint)
        if (complete := collector.take(())) is not None:
            at_ns, recorded = complete
            seconds.append((at_ns - 7 * S) // S)
            short = dataclasses.replace(long, window_ns=seconds[-1] * S, requests=None, checkpoint_ns=None)
            alone = CheckpointCollector(workers)
            for number, point in enumerate(measure(short, workers, service_ns=service_ns)[0]):
                alone.add(number, Checkpoint(at_ns, point))
            expected = alone.take(())
            assert expected is not None
            assert figures(recorded) == figures(expected[1])
    assert seconds[:2] == [3, 6]
    assert requests is not None or len(seconds) == 2  # at 9 s the window is about to end
    assert sum(sum(point.recording.finished_per_s.values()) for point in points) > 0


def test_checkpoints_change_nothing_in_the_recording_of_the_whole():
    by_requests = {"window_ns": None, "requests": 950}
    for load, changes in ((poisson(), {}), (ClosedPlan(3, 0), {}), (poisson(), by_requests), (ClosedPlan(2, 0), by_requests)):
        plain = spec(load, timeout_ns=S, **changes)
        ((with_checkpoints,), came, intervals, _) = measure(dataclasses.replace(plain, checkpoint_ns=2 * S))
        ((without,), none, _, _) = measure(plain)
        is_open = not isinstance(load, ClosedPlan)
        assert (len(came), none) == (4, [])
        assert figures(with_checkpoints, is_open=is_open) == figures(without, is_open=is_open)
        assert encoded_batches(with_checkpoints) == encoded_batches(without)
        samples = cut(with_checkpoints.recording, 7 * S, is_open=is_open).times["service_time"].count
        assert sum(count for _, count in intervals[0]) == samples


def test_a_checkpoint_waits_for_the_answers_of_its_requests_and_no_longer_than_their_timeout():
    _, _, _, soon = measure(spec(poisson(), checkpoint_ns=5 * S, timeout_ns=4 * S))
    _, _, _, late = measure(spec(poisson(), checkpoint_ns=5 * S, timeout_ns=4 * S, drain_ns=9 * S), service_ns=3 * S)
    assert soon[0] < 7 * S + 5 * S + 2 * S
    assert 7 * S + 5 * S + 3 * S <= late[0] <= 7 * S + 5 * S + S + 4 * S + S


def test_a_lost_worker_without_a_checkpoint_is_left_out_and_the_others_go_on():
    _, came, _, _ = measure(spec(poisson(), checkpoint_ns=5 * S, timeout_ns=S), 2)
    collector = CheckpointCollector(2)
    (first,) = [checkpoint for worker, checkpoint in came if worker == 0]
    collector.add(0, first)
    assert collector.take(()) is None
    assert collector.lose(1) is None
    complete = collector.take(("worker 2 is gone",))
    assert complete is not None
    at_ns, recorded = complete
    assert (at_ns, recorded.lost) == (first.at_ns, ("worker 2 is gone",))
    assert recorded.recording.finished_per_s == first.piece.recording.finished_per_s
    collector.add(1, came[-1][1])
    assert collector.take(()) is None


def test_what_a_lost_worker_had_recorded_until_its_last_checkpoint_counts_on():
    _, came, _, _ = measure(spec(poisson(), checkpoint_ns=3 * S, timeout_ns=S), 2)
    collector = CheckpointCollector(2)
    first, second = ([checkpoint for worker, checkpoint in came if worker == number] for number in range(2))
    collector.add(0, first[0])
    collector.add(1, second[0])
    assert collector.take(()) is not None
    collector.add(1, second[1])  # which the other worker has not reached
    known = collector.lose(1)
    assert known is not None
    assert known.recording.finished_per_s == second[0].piece.recording.finished_per_s
    collector.add(0, first[1])
    complete = collector.take(())
    assert complete is not None
    assert complete[0] == first[1].at_ns
    expected = sum(sum(one.piece.recording.finished_per_s.values()) for one in (first[0], second[0], first[1]))
    assert sum(complete[1].recording.finished_per_s.values()) == expected > 0
