"""What a group of workers does with the messages of each: several may answer as one, on another machine."""

import asyncio
import dataclasses

import pytest

from perfkit.clock import MonotonicClock
from perfkit.load.loop import StopCause
from perfkit.recorder.recording import Interval
from perfkit.stats.buckets import BucketCounts
from perfkit.workers.group import GroupListener, NoWorkerLeftError, WorkerGroup
from perfkit.workers.messages import Begin, Logged, PartLost, Ready, Stop
from perfkit.workers.point_recording import empty_point

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
        elif isinstance(message, Stop):
            self._queue.put_nowait(empty_point(S, 2 * S, 3 * S, 1))

    async def receive(self):
        if (message := await self._queue.get()) is GONE:
            raise EOFError
        return message

    async def wait_for_end(self):
        return "was lost"

    def kill(self):
        self._queue.put_nowait(GONE)


def run(links, **options):
    async def main():
        made = [Link(*link) for link in links]
        group = WorkerGroup(made, MonotonicClock(), GroupListener(), lead_ns=0, **options)
        return await group.run(), made

    return asyncio.run(main())


def logged():
    return Logged(2 * S, Interval(0, {"service_time": BucketCounts.of([1_000_000])}))


def test_a_worker_lost_on_another_machine_stops_all_if_the_load_is_to_stop_then():
    loss = PartLost("worker 2 of 3 is gone", 2 * S, (), ())
    _, (alpha, beta) = run([("alpha", 2, [loss]), ("beta", 1, [])], stops_when_one_is_lost=True)
    for link in (alpha, beta):
        assert [one for one in link.sent if isinstance(one, Stop)] == [Stop("worker 2 of 3 is gone", StopCause.WORKER_LOST, drain=True)]


def test_what_stops_one_machine_stops_all():
    stop = Stop("the target fails", StopCause.TOO_MANY_ERRORS, drain=True)
    _, (_, beta) = run([("alpha", 2, [stop]), ("beta", 1, [])])
    assert stop in beta.sent


def test_the_loss_of_all_leaves_an_empty_recording_if_they_had_logged_anything():
    recorded, _ = run([("alpha", 15, [logged(), GONE]), ("beta", 1, [GONE])], workloads=2)
    assert recorded.lost == (
        "alpha was lost: its share of the load, 15 of 16, is missing",
        "beta was lost: its share of the load, 1 of 16, is missing",
    )
    assert (recorded.recording.origin_ns, recorded.recording.batches, len(recorded.workloads)) == (2 * S, {}, 2)
    with pytest.raises(NoWorkerLeftError, match="no worker is left: alpha was lost"):
        run([("alpha", 1, [GONE])], workloads=0)


def test_losses_within_a_machine_are_those_of_the_load_point():
    point = dataclasses.replace(empty_point(S, 2 * S, 3 * S, 1), lost=("worker 2 of 3 (on alpha) is gone",))
    recorded, _ = run([("alpha", 2, [point]), ("beta", 1, [empty_point(S, 2 * S, 3 * S, 1)])])
    assert recorded.lost == ("worker 2 of 3 (on alpha) is gone",)
