"""Which requests are executed together, and when: Triton's rules by the instant."""

import random

import pytest

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype, Tensor
from server_stub.batching import BatchingLine, BatchingPolicy, QueuePolicy
from server_stub.line import Fifo, Waiting


class Driven:
    """A line whose requests have names, asked at given instants."""

    def __init__(self, policy, max_batch_size=8, **keys):
        self.line = BatchingLine(policy, max_batch_size, **keys) if policy else Fifo()

    def add(self, name, now_ns=0, *, size=1, shape=(1,), **parameters):
        tensor = Tensor("x", Datatype.FP32, (size, *shape), b"")
        waiting = Waiting(InferRequest("m", (tensor,), id=name, parameters=parameters), size, now_ns)
        self.line.add(waiting, now_ns)
        return waiting

    def take(self, now_ns=0):
        taken = self.line.take(now_ns, 0)
        names = "".join(one.request.id for one in taken.batch)
        return (names, "".join(one.request.id for one in taken.rejected), taken.wake_ns) if taken.rejected or taken.wake_ns else names


def test_without_batching_it_is_one_after_the_other():
    line = Driven(None)
    for name in "abc":
        line.add(name)
    assert [line.take(), line.take(), line.take(), line.take()] == ["a", "b", "c", ""]


def test_without_a_delay_all_who_are_there_go_up_to_the_largest_batch():
    line = Driven(BatchingPolicy(), 4)
    for name in "abcdef":
        line.add(name)
    assert [line.take(), line.take(), line.take(), len(line.line)] == ["abcd", "ef", "", 0]


def test_a_batch_that_would_be_too_large_leaves_who_does_not_fit_in_front():
    line = Driven(BatchingPolicy(), 4)
    line.add("a", size=3)
    line.add("b", size=2)
    line.add("c", size=2)
    assert [line.take(), line.take()] == ["a", "bc"]


def test_others_wait_for_a_preferred_size_as_long_as_the_delay():
    line = Driven(BatchingPolicy((4,), 100), 8)
    line.add("a", 10)
    line.add("b", 20)
    assert line.take(20) == ("", "", 110), "the delay is the oldest one's"
    line.add("c", 30)
    assert line.take(109) == ("", "", 110)
    assert line.take(110) == "abc"
    for name in "defgh":
        line.add(name, 200)
    assert line.take(200) == "defg", "the preferred size goes at once, who is beyond it stays"
    assert line.take(200) == ("", "", 300)


def test_the_largest_preferred_size_that_is_reached_goes():
    line = Driven(BatchingPolicy((2, 4), 100), 8)
    for name in "abc":
        line.add(name)
    assert line.take() == "ab"
    for name in "defgh":
        line.add(name)
    assert line.take() == "cdef"


def test_a_batch_that_the_next_one_would_take_beyond_every_preferred_size_goes_at_once():
    line = Driven(BatchingPolicy((4,), 100), 8)
    line.add("a", size=3)
    assert line.take() == ("", "", 100)
    line.add("b", size=2)
    assert line.take() == "a"


def test_after_the_delay_all_who_fit_go_together():
    line = Driven(BatchingPolicy((2,), 100), 8)
    for name in "abc":
        line.add(name)
    assert line.take(100) == "abc"


def test_sizes_that_requests_choose_must_be_alike_within_a_batch():
    line = Driven(BatchingPolicy((8,), 100), 8, compatible_inputs=["x"])
    line.add("a", shape=(3,))
    line.add("b", shape=(3,))
    line.add("c", shape=(4,))
    assert line.take() == "ab", "c can never join them, so they need not wait"


def test_higher_levels_go_first_and_unknown_ones_count_as_the_default():
    line = Driven(BatchingPolicy(priority_levels=3, default_priority=2), 1)
    for name, priority in (("a", 3), ("b", 0), ("c", 9), ("d", 1), ("e", 2)):
        line.add(name, priority=priority)
    assert [line.take() for _ in range(5)] == ["d", "b", "c", "e", "a"]


def test_without_levels_priorities_count_for_nothing():
    line = Driven(BatchingPolicy(), 1)
    line.add("a", priority=5)
    line.add("b", priority=1)
    assert [line.take(), line.take()] == ["a", "b"]


def test_a_full_queue_refuses_as_triton_does_and_each_level_is_a_queue():
    line = Driven(BatchingPolicy(priority_levels=2, default_priority=1, default_queue=QueuePolicy(max_size=1)))
    line.add("a")
    with pytest.raises(ProtocolError, match=r"^\[request id: b\] Exceeds maximum queue size$") as error:
        line.add("b")
    assert error.value.kind is ErrorKind.UNAVAILABLE
    line.add("c", priority=2)
    assert line.take() == "ac"
    line.add("d")


def test_who_waited_too_long_is_rejected_when_a_batch_is_formed():
    line = Driven(BatchingPolicy(default_queue=QueuePolicy(default_timeout_ns=5000, allow_timeout_override=True)), 1)
    line.add("a")
    line.add("b", timeout=2)
    line.add("c", timeout=9)
    line.add("d", 2000)
    assert line.take(5000) == "a", "it is at its limit, not beyond"
    assert line.take(5001) == ("d", "bc", None), "a timeout can be shortened alone"
    assert len(line.line) == 0


def test_a_timeout_that_may_not_be_overridden_is_not():
    line = Driven(BatchingPolicy(), 1)
    line.add("a", timeout=1)
    assert line.take(10**9) == "a"


def test_who_is_delayed_waits_on_behind_all_others_of_his_level():
    line = Driven(BatchingPolicy(default_queue=QueuePolicy(default_timeout_ns=10, delays=True)), 1)
    line.add("a", 0)
    line.add("b", 15)
    line.add("c", 15)
    assert [line.take(15), line.take(15), line.take(20), line.take(20)] == ["b", "c", "a", ""]


def test_a_delayed_one_who_is_put_back_lets_others_pass_still():
    line = Driven(BatchingPolicy((2,), 10**6, default_queue=QueuePolicy(default_timeout_ns=10, delays=True)), 2)
    line.add("a", 0)
    assert line.take(11) == ("", "", 10**6)
    line.add("b", 12)
    line.add("c", 12)
    assert line.take(12) == "bc"


def test_while_a_batch_waits_the_next_deadline_wakes():
    line = Driven(BatchingPolicy((8,), 10_000, default_queue=QueuePolicy(allow_timeout_override=True)))
    line.add("a", 0)
    line.add("b", 100, timeout=3)
    assert line.take(100) == ("", "", 3101)
    assert line.take(3101) == ("", "b", 10_000)


def test_who_has_left_is_passed_over_and_frees_his_place():
    line = Driven(BatchingPolicy(default_queue=QueuePolicy(max_size=2)))
    line.add("a")
    line.line.discard(line.add("b"))
    line.add("c")
    assert (len(line.line), line.take()) == (2, "ac")


@pytest.mark.parametrize("seed", range(20))
def test_nobody_is_lost_doubled_or_overtaken_whatever_comes(seed):
    chosen = random.Random(seed)
    max_size = chosen.randint(1, 8)
    preferred = tuple(sorted(chosen.sample(range(1, max_size + 1), chosen.randint(0, max_size))))
    line = BatchingLine(BatchingPolicy(preferred, chosen.choice([0, 50])), max_size)
    added: list[Waiting] = []
    taken: list[Waiting] = []
    now_ns = 0
    for _ in range(300):
        now_ns += chosen.randint(0, 20)
        if chosen.random() < 0.6:
            waiting = Waiting(InferRequest("m", ()), chosen.randint(1, max_size), now_ns)
            line.add(waiting, now_ns)
            added.append(waiting)
        else:
            batch = line.take(now_ns, 0).batch
            assert sum(waiting.batch_size for waiting in batch) <= max_size
            taken += batch
    while len(line):
        taken += line.take(now_ns + 50, 0).batch
    assert taken == added
