"""The order of a mix's requests: exact shares in each block, every variant, and none periodic."""

import collections
import itertools

import pytest

from perfkit.load.request_order import for_worker, request_order


@pytest.mark.parametrize(
    ("weights", "block"), [((70, 20, 10), (7, 2, 1)), ((1, 1), (1, 1)), ((997, 3), (997, 3)), ((5,), (1,)), ((6, 4, 2, 2), (3, 2, 1, 1))]
)
def test_each_block_has_exactly_the_shares_of_the_weights(weights, block):
    order = request_order(weights, [3] * len(weights), (0,))
    assert len(order) % sum(block) == 0
    for start in range(0, len(order), sum(block)):
        counts = collections.Counter(workload for workload, _ in order[start : start + sum(block)])
        assert [counts[number] for number in range(len(block))] == list(block)


def test_blocks_are_shuffled_and_a_seed_gives_the_same_order_again():
    order = request_order((70, 20, 10), (1, 1, 1), (1, 2))
    blocks = {tuple(order[start : start + 10]) for start in range(0, len(order), 10)}
    assert len(blocks) > 100, "of 360 possible ones"
    assert request_order((70, 20, 10), (1, 1, 1), (1, 2)) == order
    assert request_order((70, 20, 10), (1, 1, 1), (1, 3)) != order


def test_each_workload_takes_all_its_variants_in_turn():
    order = request_order((99, 1), (16, 300), (0,))
    for workload, variants in ((0, 16), (1, 300)):
        own = [variant for number, variant in order if number == workload]
        assert own == list(itertools.islice(itertools.cycle(range(variants)), len(own)))
        assert len(own) >= variants


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_worker_of_several_sends_its_own_order(workers):
    order = request_order((70, 20, 10), (4, 4, 4), (0, 1))
    spread = for_worker(order, workers)
    for worker in range(workers):
        sent = [spread[index % len(spread)] for index in range(worker, worker + workers * len(order), workers)]
        assert sent == order
