"""The scheduler, with a clock, an alarm and instances that the test controls."""

import asyncio
import types

import pytest

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol.message import InferRequest, InferResponse
from server_stub.scheduling.batching import BatchingPolicy, BatchingQueue, QueuePolicy
from server_stub.scheduling.model_statistics import FailureReason, Statistics, Timing
from server_stub.scheduling.request_queue import FifoQueue, QueuedRequest
from server_stub.scheduling.scheduler import BatchResult, InlineInstance, Instances, Scheduler
from server_stub.tracing.request_trace import RequestTrace
from tests.conditions import until


class ManualInstances(Instances):
    """A clock, an alarm and instances controlled by the test. `log` lists the started batches."""

    def __init__(self, count=1, prefetch_count=0):
        self.now_ns, self.count, self.prefetch_count = 0, count, prefetch_count
        self.log, self.running, self.alarms_ns = [], [], []
        self.statistics = Statistics(epoch_ns=lambda: 0)
        self.is_closed = False

    def scheduler(self, queue):
        return Scheduler(queue, self, self.statistics, now_ns=lambda: self.now_ns, make_alarm=self.make_alarm)

    def make_alarm(self, loop, ring):
        self.ring = ring
        return self

    def set(self, instant_ns):
        self.alarms_ns.append(instant_ns)

    def close(self):
        self.is_closed = True

    def start(self, batch, on_finished):
        names = "".join(one.request.id for one in batch)
        self.log.append(names)
        self.running.append((names, batch, on_finished, self.now_ns))

    def finish(self, failure=None):
        _, batch, on_finished, started_ns = self.running.pop(0)
        responses = [InferResponse("m", "1", (), one.request.id) for one in batch]
        on_finished(BatchResult(() if failure else responses, Timing(started_ns, started_ns, self.now_ns, self.now_ns), failure))

    def counts(self):
        entry = self.statistics.document("m", "1")
        durations = {key: (one["count"], one["ns"]) for key, one in entry["inference_stats"].items() if one["count"]}
        return durations, entry["inference_count"], entry["execution_count"]


async def send(instances, scheduler, name, **parameters):
    task = asyncio.ensure_future(
        scheduler.submit(QueuedRequest(InferRequest("m", (), id=name, parameters=parameters), 1, instances.now_ns))
    )
    await asyncio.sleep(0)  # the task runs until it waits for its response
    return task


async def test_each_idle_instance_takes_one_request_and_the_others_wait():
    instances = ManualInstances(count=2)
    scheduler = instances.scheduler(FifoQueue())
    tasks = [await send(instances, scheduler, name) for name in "abcd"]
    assert (instances.log, scheduler.pending) == (["a", "b"], 2)
    instances.now_ns = 10
    instances.finish()
    assert (instances.log, scheduler.pending) == (["a", "b", "c"], 1)
    while instances.running:
        instances.finish()
    assert [(await task).id for task in tasks] == list("abcd")
    # a and b started at once; c and d waited 10 ns each
    assert instances.counts() == ({"success": (4, 40), "queue": (4, 20), "compute_input": (4, 0), "compute_infer": (4, 20), "compute_output": (4, 0)}, 4, 4)  # fmt: skip


async def test_prefetched_requests_are_still_pending():
    instances = ManualInstances(count=1, prefetch_count=1)
    scheduler = instances.scheduler(FifoQueue())
    for name in "abc":
        await send(instances, scheduler, name)
    assert (instances.log, scheduler.pending) == (["a", "b"], 2)
    instances.finish()
    instances.finish()
    instances.finish()
    assert (instances.log, scheduler.pending) == (["a", "b", "c"], 0)


async def test_requests_that_arrive_while_an_instance_is_busy_become_one_batch():
    instances = ManualInstances()
    scheduler = instances.scheduler(BatchingQueue(BatchingPolicy(), 8))
    tasks = [await send(instances, scheduler, name) for name in "abc"]
    instances.now_ns = 100
    instances.finish()
    instances.now_ns = 130
    instances.finish()
    assert instances.log == ["a", "bc"]
    assert [(await task).id for task in tasks] == ["a", "b", "c"]
    durations, inferences, executions = instances.counts()
    assert (inferences, executions) == (3, 2)
    assert durations["compute_infer"] == (3, 100 + 30 + 30)
    assert durations["queue"] == (3, 200)


async def test_a_waiting_batch_starts_when_the_alarm_rings():
    instances = ManualInstances()
    scheduler = instances.scheduler(BatchingQueue(BatchingPolicy((4,), 1000), 8))
    await send(instances, scheduler, "a")
    await send(instances, scheduler, "b")
    assert (instances.log, instances.alarms_ns[-1]) == ([], 1000)
    instances.now_ns = 999
    instances.ring()
    assert instances.log == [], "it rang too early, and is set again"
    instances.now_ns = 1000
    instances.ring()
    assert instances.log == ["ab"]
    instances.finish()


async def test_a_timeout_is_a_failure_with_tritons_message():
    instances = ManualInstances()
    scheduler = instances.scheduler(BatchingQueue(BatchingPolicy(default_queue=QueuePolicy(default_timeout_ns=50)), 1))
    first, late = await send(instances, scheduler, "a"), await send(instances, scheduler, "b")
    instances.now_ns = 60
    instances.finish()
    with pytest.raises(ProtocolError, match=r"^Request timeout expired$") as error:
        await late
    assert error.value.kind is ErrorKind.UNAVAILABLE
    assert (await first).id == "a"
    assert instances.counts()[0]["fail"] == (1, 60)
    assert {reason.value: count for reason, count in instances.statistics.failures.items() if count} == {"REJECTED": 1}


async def test_a_full_queue_rejects_without_counting():
    instances = ManualInstances()
    scheduler = instances.scheduler(BatchingQueue(BatchingPolicy(default_queue=QueuePolicy(max_size=1)), 1))
    await send(instances, scheduler, "a")
    await send(instances, scheduler, "b")
    with pytest.raises(ProtocolError, match="Exceeds maximum queue size"):
        await scheduler.submit(QueuedRequest(InferRequest("m", ()), 1, 0))
    assert instances.counts()[0] == {}
    instances.finish()
    instances.finish()


async def test_a_request_cancelled_while_waiting_is_not_executed_and_counts_as_canceled():
    instances = ManualInstances()
    scheduler = instances.scheduler(FifoQueue())
    running, left, last = [await send(instances, scheduler, name) for name in "abc"]
    instances.now_ns = 7
    left.cancel()
    running.cancel()
    await until(lambda: left.cancelled() and running.cancelled())
    instances.finish()
    instances.finish()
    assert instances.log == ["a", "c"]
    assert (await last).id == "c"
    assert {reason.value: count for reason, count in instances.statistics.failures.items() if count} == {"CANCELED": 1}
    assert instances.counts()[2] == 2, "an execution counts even if its request was cancelled"


async def test_a_failed_batch_fails_all_of_its_requests():
    instances = ManualInstances()
    scheduler = instances.scheduler(BatchingQueue(BatchingPolicy((2,), 1000), 2))
    tasks = [await send(instances, scheduler, name) for name in "ab"]
    instances.finish(ProtocolError("no", ErrorKind.INTERNAL))
    for task in tasks:
        with pytest.raises(ProtocolError, match="no"):
            await task
    durations, inferences, executions = instances.counts()
    assert (durations["fail"][0], inferences, executions) == (2, 0, 0)
    await send(instances, scheduler, "c")


async def test_closing_fails_the_waiting_requests():
    instances = ManualInstances()
    scheduler = instances.scheduler(FifoQueue())
    tasks = [await send(instances, scheduler, name) for name in "ab"]
    scheduler.close()
    assert instances.is_closed
    instances.finish()
    assert instances.log == ["a"], "nothing is started after closing"
    for task in tasks:
        with pytest.raises(ProtocolError, match="shutting down"):
            await task


async def outcome_of(submitting):
    """What a request comes to: its response or its error."""
    try:
        return await submitting
    except ProtocolError as error:
        return error


TIMING = Timing(10, 12, 15, 20)
ANSWER, FAILURE = InferResponse("m", "1", ()), ProtocolError("no", ErrorKind.INTERNAL)


@pytest.mark.parametrize(
    ("result", "counts", "failures"),
    [
        (
            BatchResult((ANSWER,), TIMING),
            ({"success": (1, 16), "queue": (1, 6), "compute_input": (1, 2), "compute_infer": (1, 3), "compute_output": (1, 5)}, 1, 1),
            0,
        ),
        (BatchResult((), TIMING, FAILURE), ({"fail": (1, 16)}, 0, 0), 1),
    ],
    ids=["answered", "failed"],
)
def test_on_the_event_loop_a_request_is_executed_without_a_wait_counted_and_traced(result, counts, failures):
    instances = ManualInstances()
    execution = types.SimpleNamespace(begin=lambda batch: batch, finish=lambda _: result)
    scheduler = Scheduler(FifoQueue(), InlineInstance(execution), instances.statistics)
    trace = RequestTrace(1, "HTTP", None, 0, 0)
    with pytest.raises(StopIteration) as ended:
        outcome_of(scheduler.submit(QueuedRequest(InferRequest("m", ()), 1, 4, trace))).send(None)
    assert ended.value.value is (result.failure or ANSWER)
    assert instances.counts() == counts
    assert instances.statistics.failures[FailureReason.BACKEND] == failures
    assert trace.compute == TIMING
    assert scheduler.pending == 0
