"""The pieces of a recording: those until an instant add up to what a load that ended there would have recorded."""

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
from perfkit.units import NS_PER_S
from perfkit.workers.messages import Piece
from perfkit.workers.point_recording import PointSum, merge_points
from tests.measured_points import run_point
from tests.workers.test_point import MS, S, poisson, spec


def measure(whole, workers=1, *, service_ns=20 * MS, in_pieces=True):
    """The last pieces of so many workers in one virtual time, those before, and when they came."""
    clock, came, taken_at_ns = ManualClock(5 * S), list[tuple[int, Piece]](), list[int]()

    async def main():
        async def begin_at():
            return 6 * S

        def take(worker, piece):
            came.append((worker, piece))
            taken_at_ns.append(clock.now_ns())

        points = [
            run_point(
                one, ScriptedTransport(clock, lambda _: (service_ns, Outcome.OK)), [Prepared((b"x",))], clock=clock,
                address=Address("http", "h", 1), on_loop=lambda _: None, begin_at=begin_at,
                on_piece=functools.partial(take, worker) if in_pieces else None,
            )
            for worker, one in enumerate(whole.split(workers))
        ]  # fmt: skip
        return await asyncio.gather(*points)

    return clock.run(main()), came, taken_at_ns


def added(pieces):
    total = PointSum()
    for worker, piece in pieces:
        total.add(worker, piece)
    return total.take()


SERIES = ("scheduled", "answered", "time_sum_ns", "timed")


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


@pytest.mark.parametrize(
    ("workers", "service_ns", "requests"),
    [(1, 20 * MS, None), (1, 2_500 * MS, 1000), (2, 20 * MS, 1000), (2, 2_500 * MS, None)],
)
def test_the_pieces_until_an_instant_have_the_figures_of_a_load_that_ended_there(workers, service_ns, requests):
    long = spec(poisson(max_in_flight=40), timeout_ns=5 * S, drain_ns=5 * S)
    if requests is not None:
        long = dataclasses.replace(long, requests=requests, window_ns=None)
    _, came, _ = measure(long, workers, service_ns=service_ns)
    seconds = [(piece.at_ns - 7 * S) // S for worker, piece in came if not worker]
    for second in seconds[:: 3 if service_ns < S else 1]:
        so_far = added((worker, piece.point) for worker, piece in came if piece.at_ns <= (7 + second) * S)
        short = dataclasses.replace(long, window_ns=second * S, requests=None)
        expected, _, _ = measure(short, workers, service_ns=service_ns, in_pieces=False)
        assert figures(so_far) == figures(merge_points(expected))
    assert seconds[:2] == ([1, 2] if service_ns < S else [1, 3])


def test_pieces_change_nothing_in_the_recording_of_the_whole():
    by_requests = {"window_ns": None, "requests": 950}
    for load, changes in ((poisson(), {}), (ClosedPlan(3, 0), {}), (poisson(), by_requests), (ClosedPlan(2, 0), by_requests)):
        plain = spec(load, timeout_ns=S, **changes)
        ((last,), came, _) = measure(plain)
        ((without,), none, _) = measure(plain, in_pieces=False)
        whole, is_open = added([*((0, piece.point) for _, piece in came), (0, last)]), not isinstance(load, ClosedPlan)
        assert (len(came) >= 7, none) == (True, [])
        assert figures(whole, is_open=is_open) == figures(without, is_open=is_open)
        assert encoded_batches(whole) == encoded_batches(without)
        assert all(getattr(whole.recording.series, name).tolist() == getattr(without.recording.series, name).tolist() for name in SERIES)


def test_a_piece_waits_for_the_answers_of_its_requests_and_no_longer_than_their_timeout():
    _, _, soon = measure(spec(poisson(), timeout_ns=4 * S))
    _, _, late = measure(spec(poisson(), timeout_ns=4 * S, drain_ns=9 * S), service_ns=3 * S)
    assert soon[0] < 7 * S + S + 2 * S
    assert 7 * S + S + 3 * S <= late[0] <= 7 * S + S + S + 4 * S + S


def test_a_sum_of_pieces_for_the_log_keeps_its_seconds_apart():
    _, came, _ = measure(spec(poisson(), timeout_ns=S, window_ns=50 * S), 2)
    total = PointSum(NS_PER_S)
    for worker, piece in came:
        total.add(worker, piece.point)
    recording = total.take().workloads[0].recording
    whole = sum(times["service_time"].count for _, times in recording.times_by_second())
    assert (
        whole
        == sum(sum(times["service_time"].count for _, times in piece.point.workloads[0].recording.times_by_second()) for _, piece in came)
        > 0
    )
    assert total.take() is None
    before = added((worker, piece.point) for worker, piece in came if piece.at_ns <= 40 * S)
    cut_off = recording.before(40 * S)
    assert sum(batch.counts["finished"] for batch in cut_off.batches.values()) == sum(before.recording.finished_per_s.values())


class OneConnection(ScriptedTransport):
    """Sends one request at a time; the others wait for the connection."""

    def __init__(self, clock, service_ns):
        super().__init__(clock, lambda _: (service_ns, Outcome.OK))
        self._connection, self._waiting = asyncio.Lock(), 0

    @property
    def queued(self):
        return self._waiting

    async def send(self, prepared):
        self._waiting += 1
        async with self._connection:
            self._waiting -= 1
            return await super().send(prepared)


def test_requests_that_wait_for_a_connection_hold_no_piece_up():
    clock, taken = ManualClock(5 * S), list[tuple[int, int]]()
    load = spec(ClosedPlan(8, 0), timeout_ns=30 * S, window_ns=6 * S)

    async def main():
        return await run_point(
            load, OneConnection(clock, 20 * MS), [Prepared((b"x",))], clock=clock, address=Address("http", "h", 1), on_loop=lambda _: None,
            on_piece=lambda piece: taken.append((piece.at_ns, clock.now_ns())),
        )  # fmt: skip

    clock.run(main())
    assert len(taken) >= 4
    assert all(now_ns - at_ns < 3 * S // 2 for at_ns, now_ns in taken)
