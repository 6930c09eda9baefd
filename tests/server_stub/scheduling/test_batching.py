"""Dynamic batching: which requests are executed together, and when."""

import random

import pytest

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype, Tensor
from server_stub.scheduling.batching import BatchingPolicy, BatchingQueue, QueuePolicy
from server_stub.scheduling.request_queue import FifoQueue, QueuedRequest


class QueueDriver:
    """A queue with named requests, driven at given instants."""

    def __init__(self, policy, max_batch_size=8, **keys):
        self.queue = BatchingQueue(policy, max_batch_size, **keys) if policy else FifoQueue()

    def add(self, name, now_ns=0, *, size=1, shape=(1,), **parameters):
        tensor = Tensor("x", Datatype.FP32, (size, *shape), b"")
        queued = QueuedRequest(InferRequest("m", (tensor,), id=name, parameters=parameters), size, now_ns)
        self.queue.add(queued, now_ns)
        return queued

    def select(self, now_ns=0):
        selection = self.queue.select(now_ns, 0)
        names = "".join(one.request.id for one in selection.batch)
        return (
            (names, "".join(one.request.id for one in selection.rejected), selection.wake_ns)
            if selection.rejected or selection.wake_ns
            else names
        )


def test_without_batching_requests_are_executed_one_by_one():
    queue = QueueDriver(None)
    for name in "abc":
        queue.add(name)
    assert [queue.select(), queue.select(), queue.select(), queue.select()] == ["a", "b", "c", ""]


def test_without_a_delay_all_waiting_requests_up_to_the_maximum_are_batched():
    queue = QueueDriver(BatchingPolicy(), 4)
    for name in "abcdef":
        queue.add(name)
    assert [queue.select(), queue.select(), queue.select(), len(queue.queue)] == ["abcd", "ef", "", 0]


def test_a_request_that_does_not_fit_stays_first_in_the_queue():
    queue = QueueDriver(BatchingPolicy(), 4)
    queue.add("a", size=3)
    queue.add("b", size=2)
    queue.add("c", size=2)
    assert [queue.select(), queue.select()] == ["a", "bc"]


def test_other_batches_wait_for_a_preferred_size_up_to_the_delay():
    queue = QueueDriver(BatchingPolicy((4,), 100), 8)
    queue.add("a", 10)
    queue.add("b", 20)
    assert queue.select(20) == ("", "", 110), "the delay counts from the oldest request"
    queue.add("c", 30)
    assert queue.select(109) == ("", "", 110)
    assert queue.select(110) == "abc"
    for name in "defgh":
        queue.add(name, 200)
    assert queue.select(200) == "defg", "the preferred size is executed at once, and the rest waits"
    assert queue.select(200) == ("", "", 300)


def test_the_largest_preferred_size_reached_is_executed():
    queue = QueueDriver(BatchingPolicy((2, 4), 100), 8)
    for name in "abc":
        queue.add(name)
    assert queue.select() == "ab"
    for name in "defgh":
        queue.add(name)
    assert queue.select() == "cdef"


def test_a_batch_is_executed_at_once_if_the_next_request_exceeds_every_preferred_size():
    queue = QueueDriver(BatchingPolicy((4,), 100), 8)
    queue.add("a", size=3)
    assert queue.select() == ("", "", 100)
    queue.add("b", size=2)
    assert queue.select() == "a"


def test_after_the_delay_all_requests_that_fit_are_executed():
    queue = QueueDriver(BatchingPolicy((2,), 100), 8)
    for name in "abc":
        queue.add(name)
    assert queue.select(100) == "abc"


def test_variable_shapes_must_be_equal_within_a_batch():
    queue = QueueDriver(BatchingPolicy((8,), 100), 8, variable_inputs=["x"])
    queue.add("a", shape=(3,))
    queue.add("b", shape=(3,))
    queue.add("c", shape=(4,))
    assert queue.select() == "ab", "c can never join them, so they are not delayed"


def test_higher_priorities_go_first_and_unknown_ones_are_the_default():
    queue = QueueDriver(BatchingPolicy(priority_levels=3, default_priority=2), 1)
    for name, priority in (("a", 3), ("b", 0), ("c", 9), ("d", 1), ("e", 2)):
        queue.add(name, priority=priority)
    assert [queue.select() for _ in range(5)] == ["d", "b", "c", "e", "a"]


def test_without_priority_levels_priorities_are_ignored():
    queue = QueueDriver(BatchingPolicy(), 1)
    queue.add("a", priority=5)
    queue.add("b", priority=1)
    assert [queue.select(), queue.select()] == ["a", "b"]


def test_a_full_queue_rejects_as_triton_does_and_each_level_has_its_own_limit():
    queue = QueueDriver(BatchingPolicy(priority_levels=2, default_priority=1, default_queue=QueuePolicy(max_size=1)))
    queue.add("a")
    with pytest.raises(ProtocolError, match=r"^\[request id: b\] Exceeds maximum queue size$") as error:
        queue.add("b")
    assert error.value.kind is ErrorKind.UNAVAILABLE
    queue.add("c", priority=2)
    assert queue.select() == "ac"
    queue.add("d")


def test_timed_out_requests_are_rejected_when_a_batch_is_formed():
    queue = QueueDriver(BatchingPolicy(default_queue=QueuePolicy(default_timeout_ns=5000, allow_timeout_override=True)), 1)
    queue.add("a")
    queue.add("b", timeout=2)
    queue.add("c", timeout=9)
    queue.add("d", 2000)
    assert queue.select(5000) == "a", "exactly at its deadline it is still served"
    assert queue.select(5001) == ("d", "bc", None), "a request can only shorten its timeout"
    assert len(queue.queue) == 0


def test_a_request_cannot_set_a_timeout_unless_overrides_are_allowed():
    queue = QueueDriver(BatchingPolicy(), 1)
    queue.add("a", timeout=1)
    assert queue.select(10**9) == "a"


def test_delayed_requests_wait_behind_all_others_of_their_level():
    queue = QueueDriver(BatchingPolicy(default_queue=QueuePolicy(default_timeout_ns=10, delays=True)), 1)
    queue.add("a", 0)
    queue.add("b", 15)
    queue.add("c", 15)
    assert [queue.select(15), queue.select(15), queue.select(20), queue.select(20)] == ["b", "c", "a", ""]


def test_a_delayed_request_that_is_put_back_stays_behind_the_others():
    queue = QueueDriver(BatchingPolicy((2,), 10**6, default_queue=QueuePolicy(default_timeout_ns=10, delays=True)), 2)
    queue.add("a", 0)
    assert queue.select(11) == ("", "", 10**6)
    queue.add("b", 12)
    queue.add("c", 12)
    assert queue.select(12) == "bc"


def test_the_next_deadline_wakes_a_waiting_batch():
    queue = QueueDriver(BatchingPolicy((8,), 10_000, default_queue=QueuePolicy(allow_timeout_override=True)))
    queue.add("a", 0)
    queue.add("b", 100, timeout=3)
    assert queue.select(100) == ("", "", 3101)
    assert queue.select(3101) == ("", "b", 10_000)


def test_a_cancelled_request_is_skipped_and_does_not_count():
    queue = QueueDriver(BatchingPolicy(default_queue=QueuePolicy(max_size=2)))
    queue.add("a")
    queue.queue.discard(queue.add("b"))
    queue.add("c")
    assert (len(queue.queue), queue.select()) == (2, "ac")


@pytest.mark.parametrize("seed", range(20))
def test_no_request_is_lost_repeated_or_overtaken(seed):
    chosen = random.Random(seed)
    max_size = chosen.randint(1, 8)
    preferred = tuple(sorted(chosen.sample(range(1, max_size + 1), chosen.randint(0, max_size))))
    queue = BatchingQueue(BatchingPolicy(preferred, chosen.choice([0, 50])), max_size)
    added: list[QueuedRequest] = []
    selected: list[QueuedRequest] = []
    now_ns = 0
    for _ in range(300):
        now_ns += chosen.randint(0, 20)
        if chosen.random() < 0.6:
            queued = QueuedRequest(InferRequest("m", ()), chosen.randint(1, max_size), now_ns)
            queue.add(queued, now_ns)
            added.append(queued)
        else:
            batch = queue.select(now_ns, 0).batch
            assert sum(queued.batch_size for queued in batch) <= max_size
            selected += batch
    while len(queue):
        selected += queue.select(now_ns + 50, 0).batch
    assert selected == added


def test_a_batch_is_cut_to_the_rows_that_are_executed_fastest():
    best_rows = (0, 1, 2, 2, 4, 4, 4, 6, 8)
    queue = QueueDriver(BatchingPolicy(), 8, best_rows=best_rows)
    for name in "abcde":
        queue.add(name)
    assert [queue.select(), queue.select(), queue.select()] == ["abcd", "e", ""]
    queue.add("f", size=3)
    queue.add("g", size=2)
    assert [queue.select(), queue.select()] == ["f", "g"], "of 5 rows, 4 are best: the first request fits"
    queue.add("h", size=3)
    assert queue.select() == "h", "one request is not cut"


def test_sizes_that_the_policy_prefers_count_more_than_fast_ones():
    queue = QueueDriver(BatchingPolicy((3,)), 8, best_rows=(0, 1, 2, 2, 4, 4, 4, 6, 8))
    for name in "abcd":
        queue.add(name)
    assert [queue.select(), queue.select()] == ["abc", "d"]
