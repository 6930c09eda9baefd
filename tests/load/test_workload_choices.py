"""The choices of a mix's workloads: exact shares in each block, every variant, and none periodic."""

import collections
import itertools

import pytest

from perfkit.workers.mix import choices_of_worker, workload_choices


@pytest.mark.parametrize(
    ("weights", "block"), [((70, 20, 10), (7, 2, 1)), ((1, 1), (1, 1)), ((997, 3), (997, 3)), ((5,), (1,)), ((6, 4, 2, 2), (3, 2, 1, 1))]
)
def test_each_block_has_exactly_the_shares_of_the_weights(weights, block):
    choices = workload_choices(weights, [3] * len(weights), (0,))
    assert len(choices) % sum(block) == 0
    for start in range(0, len(choices), sum(block)):
        counts = collections.Counter(workload for workload, _ in choices[start : start + sum(block)])
        assert [counts[number] for number in range(len(block))] == list(block)


def test_blocks_are_shuffled_and_a_seed_gives_the_same_order_again():
    choices = workload_choices((70, 20, 10), (1, 1, 1), (1, 2))
    blocks = {tuple(choices[start : start + 10]) for start in range(0, len(choices), 10)}
    assert len(blocks) > 100, "of 360 possible ones"
    assert workload_choices((70, 20, 10), (1, 1, 1), (1, 2)) == choices
    assert workload_choices((70, 20, 10), (1, 1, 1), (1, 3)) != choices


def test_each_workload_takes_all_its_variants_in_turn():
    choices = workload_choices((99, 1), (16, 300), (0,))
    for workload, variants in ((0, 16), (1, 300)):
        own = [variant for number, variant in choices if number == workload]
        assert own == list(itertools.islice(itertools.cycle(range(variants)), len(own)))
        assert len(own) >= variants


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_a_worker_of_several_sends_its_own_choices(workers):
    choices = workload_choices((70, 20, 10), (4, 4, 4), (0, 1))
    spread = choices_of_worker(choices, workers)
    for worker in range(workers):
        sent = [spread[index % len(spread)] for index in range(worker, worker + workers * len(choices), workers)]
        assert sent == choices
