"""Which workload of a mix each request belongs to: chosen at random, with exact shares in each block of requests."""

import itertools
import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

Choice: TypeAlias = tuple[int, int]
"""The number of a workload, and that of one of its requests (its variant)."""

# the list of choices is repeated: a server would notice a short one, and a long one takes memory
_FEWEST, _MOST = 4096, 1 << 20


def workload_choices(weights: Sequence[int], variants: Sequence[int], seed: Sequence[int]) -> list[Choice]:
    """The choices for successive requests, to be repeated; the same for the same seed.

    Each block of as many requests as the reduced weights add up to is shuffled and has exactly their shares. Each workload uses its
    variants in turn, all of them unless there would be more than a million choices.
    """
    parts = [weight // math.gcd(*weights) for weight in weights]
    block = np.repeat(np.arange(len(parts)), parts)
    wanted = max(_FEWEST, *(-(-count // part) * block.size for count, part in zip(variants, parts, strict=True)))
    blocks = max(1, min(-(-wanted // block.size), _MOST // block.size))
    random = np.random.Generator(np.random.Philox(np.random.SeedSequence(tuple(seed))))
    next_variant = [itertools.cycle(range(count)) for count in variants]
    return [(workload, next(next_variant[workload])) for _ in range(blocks) for workload in random.permutation(block).tolist()]


def choices_of_worker(choices: Sequence[Choice], workers: int) -> list[Choice]:
    """The list for one of several workers: it sends every n-th request of the list, and these are then exactly the choices."""
    return [choice for choice in choices for _ in range(workers)]
