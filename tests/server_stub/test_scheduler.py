"""Requests between a line and instances, on a clock, an alarm and instances that do as they are told."""

import asyncio

import pytest

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol.message import InferRequest, InferResponse
from server_stub.batching import BatchingLine, BatchingPolicy, QueuePolicy
from server_stub.execution import Executed
from server_stub.line import Fifo, Waiting
from server_stub.scheduler import Scheduler
from server_stub.statistics import Statistics, Timing
from tests.conditions import until


class Hand:
    """A clock, an alarm and instances, moved by the test; `log` are the batches that were started."""

    def __init__(self, count=1, ahead=0):
        self.now_ns, self.count, self.ahead = 0, count, ahead
        self.log, self.running, self.alarms_ns = [], [], []
        self.statistics = Statistics(epoch_ns=lambda: 0)
        self.is_closed = False

    def scheduler(self, line):
        return Scheduler(line, self, self.statistics, now_ns=lambda: self.now_ns, make_alarm=self.make_alarm)

    def make_alarm(self, loop, ring):
        self.ring = ring
        return self

    def set(self, instant_ns):
        self.alarms_ns.append(instant_ns)

    def close(self):
        self.is_closed = True

    def start(self, batch, ended):
        names = "".join(one.request.id for one in batch)
        self.log.append(names)
        self.running.append((names, batch, ended, self.now_ns))

    def finish(self, failure=None):
        _, batch, ended, started_ns = self.running.pop(0)
        responses = [InferResponse("m", "1", (), one.request.id) for one in batch]
        ended(Executed(() if failure else responses, Timing(started_ns, started_ns, self.now_ns, self.now_ns), failure))

    def counts(self):
        entry = self.statistics.document("m", "1")
        durations = {key: (one["count"], one["ns"]) for key, one in entry["inference_stats"].items() if one["count"]}
        return durations, entry["inference_count"], entry["execution_count"]


async def send(hand, scheduler, name, **parameters):
    before = len(scheduler._in_flight)
    task = asyncio.ensure_future(scheduler.submit(Waiting(InferRequest("m", (), id=name, parameters=parameters), 1, hand.now_ns)))
    await until(lambda: len(scheduler._in_flight) > before)
    return task


def test_each_idle_instance_takes_one_and_the_others_wait():
    async def main():
        hand = Hand(count=2)
        scheduler = hand.scheduler(Fifo())
        tasks = [await send(hand, scheduler, name) for name in "abcd"]
        assert (hand.log, scheduler.pending) == (["a", "b"], 2)
        hand.now_ns = 10
        hand.finish()
        assert (hand.log, scheduler.pending) == (["a", "b", "c"], 1)
        while hand.running:
            hand.finish()
        assert [(await task).id for task in tasks] == list("abcd")
        # a and b began at once; c and d waited 10 ns each
        assert hand.counts() == ({"success": (4, 40), "queue": (4, 20), "compute_input": (4, 0), "compute_infer": (4, 20), "compute_output": (4, 0)}, 4, 4)  # fmt: skip

    asyncio.run(main())


def test_what_an_instance_takes_ahead_is_still_pending():
    async def main():
        hand = Hand(count=1, ahead=1)
        scheduler = hand.scheduler(Fifo())
        for name in "abc":
            await send(hand, scheduler, name)
        assert (hand.log, scheduler.pending) == (["a", "b"], 2)
        hand.finish()
        hand.finish()
        hand.finish()
        assert (hand.log, scheduler.pending) == (["a", "b", "c"], 0)

    asyncio.run(main())


def test_what_came_while_an_instance_was_busy_is_one_execution():
    async def main():
        hand = Hand()
        scheduler = hand.scheduler(BatchingLine(BatchingPolicy(), 8))
        tasks = [await send(hand, scheduler, name) for name in "abc"]
        hand.now_ns = 100
        hand.finish()
        hand.now_ns = 130
        hand.finish()
        assert hand.log == ["a", "bc"]
        assert [(await task).id for task in tasks] == ["a", "b", "c"]
        durations, inferences, executions = hand.counts()
        assert (inferences, executions) == (3, 2)
        assert durations["compute_infer"] == (3, 100 + 30 + 30)
        assert durations["queue"] == (3, 200)

    asyncio.run(main())


def test_a_batch_that_waits_goes_when_the_alarm_rings():
    async def main():
        hand = Hand()
        scheduler = hand.scheduler(BatchingLine(BatchingPolicy((4,), 1000), 8))
        await send(hand, scheduler, "a")
        await send(hand, scheduler, "b")
        assert (hand.log, hand.alarms_ns[-1]) == ([], 1000)
        hand.now_ns = 999
        hand.ring()
        assert hand.log == [], "it rang early, and is set anew"
        hand.now_ns = 1000
        hand.ring()
        assert hand.log == ["ab"]
        hand.finish()

    asyncio.run(main())


def test_a_timeout_is_a_failure_and_its_sentence_is_tritons():
    async def main():
        hand = Hand()
        scheduler = hand.scheduler(BatchingLine(BatchingPolicy(default_queue=QueuePolicy(default_timeout_ns=50)), 1))
        first, late = await send(hand, scheduler, "a"), await send(hand, scheduler, "b")
        hand.now_ns = 60
        hand.finish()
        with pytest.raises(ProtocolError, match=r"^Request timeout expired$") as error:
            await late
        assert error.value.kind is ErrorKind.UNAVAILABLE
        assert (await first).id == "a"
        assert hand.counts()[0]["fail"] == (1, 60)
        assert {reason.value: count for reason, count in hand.statistics.failures.items() if count} == {"REJECTED": 1}

    asyncio.run(main())


def test_a_full_line_refuses_and_counts_nothing():
    async def main():
        hand = Hand()
        scheduler = hand.scheduler(BatchingLine(BatchingPolicy(default_queue=QueuePolicy(max_size=1)), 1))
        await send(hand, scheduler, "a")
        await send(hand, scheduler, "b")
        with pytest.raises(ProtocolError, match="Exceeds maximum queue size"):
            await scheduler.submit(Waiting(InferRequest("m", ()), 1, 0))
        assert hand.counts()[0] == {}
        hand.finish()
        hand.finish()

    asyncio.run(main())


def test_who_leaves_while_he_waits_is_never_executed_and_counts_as_canceled():
    async def main():
        hand = Hand()
        scheduler = hand.scheduler(Fifo())
        running, left, last = [await send(hand, scheduler, name) for name in "abc"]
        hand.now_ns = 7
        left.cancel()
        running.cancel()
        await until(lambda: left.cancelled() and running.cancelled())
        hand.finish()
        hand.finish()
        assert hand.log == ["a", "c"]
        assert (await last).id == "c"
        assert {reason.value: count for reason, count in hand.statistics.failures.items() if count} == {"CANCELED": 1}
        assert hand.counts()[2] == 2, "what was begun is counted, though nobody waits for it"

    asyncio.run(main())


def test_a_failed_batch_fails_all_of_its_requests():
    async def main():
        hand = Hand()
        scheduler = hand.scheduler(BatchingLine(BatchingPolicy((2,), 1000), 2))
        tasks = [await send(hand, scheduler, name) for name in "ab"]
        hand.finish(ProtocolError("no", ErrorKind.INTERNAL))
        for task in tasks:
            with pytest.raises(ProtocolError, match="no"):
                await task
        durations, inferences, executions = hand.counts()
        assert (durations["fail"][0], inferences, executions) == (2, 0, 0)
        await send(hand, scheduler, "c")

    asyncio.run(main())


def test_closing_tells_who_still_waits():
    async def main():
        hand = Hand()
        scheduler = hand.scheduler(Fifo())
        tasks = [await send(hand, scheduler, name) for name in "ab"]
        scheduler.close()
        assert hand.is_closed
        hand.finish()
        assert hand.log == ["a"], "what ends beyond that is followed by nothing"
        for task in tasks:
            with pytest.raises(ProtocolError, match="shutting down"):
                await task

    asyncio.run(main())
