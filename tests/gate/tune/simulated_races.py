"""Races of configurations whose true throughput is known, with simulated noise."""

import dataclasses
import math
import random
from collections.abc import Sequence

from perfkit.gate.tune.race import Standing, stand

MOST_ROUNDS = 60


@dataclasses.dataclass(frozen=True)
class Race:
    """How a simulated race ended; throughputs are logarithms."""

    standing: Standing
    truth: Sequence[float]
    windows: dict[int, dict[int, float]]

    @property
    def loss(self) -> float:
        """By which share the best configuration is better than the leader."""
        return math.exp(max(self.truth) - self.truth[self.standing.leader]) - 1

    @property
    def bound_holds(self) -> bool:
        return 1 + self.loss <= self.standing.bounds[self.standing.leader] * (1 + 1e-9)

    @property
    def measured(self) -> int:
        return sum(map(len, self.windows.values()))

    @property
    def rounds(self) -> int:
        return max(map(len, self.windows.values()))


def race(truth: Sequence[float], noise: Sequence[float], seed: int, *, drift: float = 0.0, indifference: float = 0.03) -> Race:
    """Rounds with normal noise, and a drift that all windows of a round share (an AR(1) process with correlation 0.8)."""
    draw, level = random.Random(seed), 0.0
    windows: dict[int, dict[int, float]] = {index: {} for index in range(len(truth))}
    left = set(windows)
    standing = Standing(0, {}, {0: math.inf})
    for number in range(1, MOST_ROUNDS + 1):
        level = 0.8 * level + drift * draw.gauss(0, 1)
        for index in sorted(left):
            windows[index][number] = math.exp(truth[index] + level + noise[index] * draw.gauss(0, 1))
        if number > 1:
            standing = stand(windows, left, len(truth))
            left -= set(standing.worse)
            if standing.bounds[standing.leader] <= 1 + indifference:
                break
    return Race(standing, truth, windows)
