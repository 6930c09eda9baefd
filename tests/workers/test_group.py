"""What a group of workers does with the messages of each: several may answer as one, on another machine."""

import asyncio

import pytest

from perfkit.clock import MonotonicClock
from perfkit.load.loop import Ending, StopCause
from perfkit.machine.readings import BusyShares
from perfkit.recorder.recorder import Recorder
from perfkit.transport.base import ConnectionCounts, Outcome, Reply
from perfkit.workers.group import GroupListener, NoWorkerLeftError, WorkerGroup
from perfkit.workers.messages import Begin, PartLost, Piece, Ready, StopOrder
from perfkit.workers.point_recording import PointRecording, WorkloadRecording

S = 1_000_000_000
GONE = object()


class Link:
    """Answers a start with `messages`, and a stop with its recording."""

    pids = ()

    def __init__(self, name, workers, messages):
        self.name, self.workers, self._messages = name, workers, messages
        self.sent = list[object]()
        self._queue = asyncio.Queue[object]()
        self._queue.put_nowait(Ready())

    def send(self, message):
        self.sent.append(message)
        if isinstance(message, Begin):
            for one in self._messages:
                self._queue.put_nowait(one)
        elif isinstance(message, StopOrder):
            self._queue.put_nowait(last(point()))

    async def receive(self):
        if (message := await self._queue.get()) is GONE:
            raise EOFError
        return message

    async def wait_for_end(self):
        return "was lost"

    def kill(self):
        self._queue.put_nowait(GONE)


def last(recorded):
    return Piece(recorded.end_ns, recorded, is_last=True)


def run(links, **options):
    async def main():
        made = [Link(*link) for link in links]
        group = WorkerGroup(made, MonotonicClock(), GroupListener(), lead_ns=0, **options)
        return await group.run(), made

    return asyncio.run(main())


def point(requests=0, until_s=3, **changes):
    """The recording from 2 s on of so many requests, with two workloads."""
    recorder = Recorder(window_start_ns=2 * S, window_end_ns=9 * S)
    for _ in range(requests):
        recorder.add(Reply(Outcome.OK, 2 * S, 2 * S + 1))
    parts = tuple(WorkloadRecording(one.finish(until_s * S), ConnectionCounts(opened=1)) for one in (recorder, recorder))
    return PointRecording(parts, S, Ending(until_s * S), BusyShares(), **changes)


def test_a_worker_lost_on_another_machine_stops_all_if_the_load_is_to_stop_then():
    loss = PartLost("worker 2 of 3 is gone")
    _, (alpha, beta) = run([("alpha", 2, [loss]), ("beta", 1, [])], stops_when_one_is_lost=True)
    for link in (alpha, beta):
        assert [one for one in link.sent if isinstance(one, StopOrder)] == [
            StopOrder("worker 2 of 3 is gone", StopCause.WORKER_LOST, drain=True)
        ]


def test_what_stops_one_machine_stops_all():
    stop = StopOrder("the target fails", StopCause.TOO_MANY_ERRORS, drain=True)
    _, (_, beta) = run([("alpha", 2, [stop]), ("beta", 1, [])])
    assert stop in beta.sent


def test_pieces_and_the_rest_add_up_and_what_pieces_do_not_add_up_is_the_newest():
    pieces = [Piece(3 * S, point(3)), Piece(4 * S, point(4, 4)), last(point(5, 5))]
    recorded, _ = run([("alpha", 1, pieces), ("beta", 1, [last(point(6, 5))])])
    counted = [sum(one.recording.finished_per_s.values()) for one in recorded.workloads]
    assert counted == [3 + 4 + 5 + 6, 0]  # the second recorder's replies are taken already
    assert (recorded.connections.opened, recorded.ending.stopped_ns, recorded.recording.end_ns) == (4, 5 * S, 5 * S)


def test_what_lost_workers_had_sent_counts_even_if_none_is_left():
    recorded, _ = run([("alpha", 15, [Piece(3 * S, point(3)), Piece(5 * S, point(4, 5)), GONE]), ("beta", 1, [GONE])])
    assert recorded.lost == (
        "alpha was lost: its share of the load, 15 of 16, is missing after the first 4 s",
        "beta was lost: its share of the load, 1 of 16, is missing",
    )
    assert sum(recorded.recording.finished_per_s.values()) == 7
    with pytest.raises(NoWorkerLeftError, match="no worker is left: alpha was lost"):
        run([("alpha", 1, [GONE])])


def test_losses_within_a_machine_are_those_of_the_load_point():
    recorded, _ = run([("alpha", 2, [last(point(lost=("worker 2 of 3 (on alpha) is gone",)))]), ("beta", 1, [last(point())])])
    assert recorded.lost == ("worker 2 of 3 (on alpha) is gone",)
