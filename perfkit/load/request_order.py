"""The order in which the workloads of a mix take turns: shuffled, with exact shares in each block of requests."""

import itertools
import math
from collections.abc import Sequence

import numpy as np

# orders are repeated: short ones would be noticed by a server, long ones take memory
_FEWEST, _MOST = 4096, 1 << 20


def request_order(weights: Sequence[int], variants: Sequence[int], seed: Sequence[int]) -> list[tuple[int, int]]:
    """Pairs of a workload and one of its variants, to be repeated.

    Each block of as many requests as the reduced weights add up to has exactly their shares, in an order that a seed always gives
    again. Each workload takes its variants in turn, all of them unless the order would exceed a million requests.
    """
    parts = [weight // math.gcd(*weights) for weight in weights]
    block = np.repeat(np.arange(len(parts)), parts)
    wanted = max(_FEWEST, *(-(-count // part) * block.size for count, part in zip(variants, parts, strict=True)))
    blocks = max(1, min(-(-wanted // block.size), _MOST // block.size))
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence(tuple(seed))))
    turns = [itertools.cycle(range(count)) for count in variants]
    return [(workload, next(turns[workload])) for _ in range(blocks) for workload in random.permutation(block).tolist()]


def for_worker(order: Sequence[tuple[int, int]], workers: int) -> list[tuple[int, int]]:
    """The order for one of several workers, which sends every n-th request of its list: these are then those of the order."""
    return [pair for pair in order for _ in range(workers)]
