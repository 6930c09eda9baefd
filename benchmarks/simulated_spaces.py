"""Spaces of several keys, too large to be measured as a whole, whose best configuration is known by a law."""

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

Values = Mapping[str, str]


@dataclasses.dataclass(frozen=True, slots=True)
class PlantedSpace:
    """The configurations of a space, the present one first, and the logarithm of the throughput of each."""

    values: Sequence[Values]
    truth: Sequence[float]


def _planted(keys: Mapping[str, Sequence[float]], law: Callable[..., float], draw: np.random.Generator) -> PlantedSpace:
    """All combinations of the keys' values, one of which is the present one by chance."""
    combinations = list(itertools.product(*keys.values()))
    present = int(draw.integers(len(combinations)))
    combinations.insert(0, combinations.pop(present))
    return PlantedSpace(
        [{key: f"{value:g}" for key, value in zip(keys, one, strict=True)} for one in combinations], [law(*one) for one in combinations]
    )


def separable(seed: int) -> PlantedSpace:
    """Four keys of five values: each has an optimum by itself, and costs the more the further its value lies from it."""
    draw = np.random.default_rng(seed)
    optima, costs = draw.integers(0, 5, 4), draw.uniform(0.02, 0.1, 4)
    keys = {name: range(5) for name in ("a", "b", "c", "d")}
    return _planted(keys, lambda *values: -float((costs * np.abs(np.array(values) - optima) ** 1.5).sum()), draw)


def batches_and_instances(seed: int) -> PlantedSpace:
    """Instances, the largest batch, the delay in its queue and the threads of an instance, which share CPUs.

    A batch costs a fixed time and a time for each request in it, which threads divide as far as there are CPUs; a batch is filled the more the
    longer its delay and the fewer instances wait for requests, and the delay costs time; instances beyond the CPUs disturb one another.
    """
    draw = np.random.default_rng(seed)
    fixed_ms, each_ms, cpus, crowding = draw.uniform(1, 12), draw.uniform(0.5, 6), int(draw.choice([2, 4, 8, 16])), draw.uniform(0.05, 0.4)
    clients = int(draw.choice([16, 32, 64]))

    def law(instances: float, most: float, delay_ms: float, threads: float) -> float:
        share = min(cpus / (instances * threads), 1.0)
        filled = 1 + (most - 1) * min(clients / (instances * most), 1.0) * (0.5 + 0.5 * (1 - math.exp(-delay_ms)))
        batch_ms = (
            fixed_ms / min(share * threads, 1.0) + filled * each_ms / (share * threads) ** 0.8 + (0.3 * delay_ms if most > 1 else 0.0)
        )
        crowd = 1 + crowding * max(instances * threads / cpus - 1, 0.0)
        return math.log(instances * filled / batch_ms / crowd)

    keys = {"instances": (1, 2, 3, 4, 6, 8), "batch": (1, 4, 8, 16, 32), "delay": (0, 0.5, 2, 5), "threads": (1, 2, 4, 8)}
    return _planted(keys, law, draw)


def two_peaks(seed: int) -> PlantedSpace:
    """Three keys; the better of two peaks is 15 to 40 % higher, and lies on the other side of a valley."""
    draw = np.random.default_rng(seed)
    near, far = draw.integers(0, 3, 2), draw.integers(5, 8, 2)
    height, optimum = draw.uniform(0.15, 0.4), int(draw.integers(0, 5))

    def law(first: float, second: float, third: float) -> float:
        low, high = (0.09 * float(np.abs(np.array([first, second]) - peak).sum()) for peak in (near, far))
        return max(-low, height - high) - 0.06 * abs(third - optimum)

    return _planted({"first": range(8), "second": range(8), "third": range(5)}, law, draw)


SPACES: Mapping[str, Callable[[int], PlantedSpace]] = {
    "4 keys of 5 values, separable": separable,
    "instances × batch × delay × threads": batches_and_instances,
    "two peaks with a valley between": two_peaks,
}
