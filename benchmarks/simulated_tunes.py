"""Races of configurations whose true throughput is known, with simulated noise, as `perfkit tune` runs them."""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from perfkit.gate.tune.race import Standing, is_confirmed, ratio_of_pairs, stand

MOST_ROUNDS, MOST_PAIRS = 60, 40


@dataclasses.dataclass(frozen=True, slots=True)
class Noise:
    """Standard deviations on a logarithmic scale."""

    window: Sequence[float]
    """Of each configuration's windows."""
    drift: float = 0.0
    """What all windows of a round share: an AR(1) process with correlation 0.8."""
    tails: int = 0
    """The degrees of freedom of Student's t, scaled to the same standard deviation; 0 for normal noise."""
    contaminated: float = 0.0
    """The share of windows that are slower by an exponential amount with a mean of 10 %."""


@dataclasses.dataclass(frozen=True, slots=True)
class SimulatedTune:
    """How a race ended; throughputs are logarithms."""

    loss: float
    """By which share the best configuration is better than the leader."""
    bound: float
    """By which share another one may be better, as the race says."""
    is_decided: bool
    covers: bool
    """Whether the interval of the confirmation holds the leader's true ratio to configuration 0."""
    pairs: int
    """Of the confirmation."""
    windows: int
    """Of the race."""
    rounds: int
    standing: Standing


def simulate(truth: Sequence[float], noise: Noise, seed: int, indifference: float) -> SimulatedTune:
    """A race of configurations of these true throughputs, and its confirmation."""
    draw, level = np.random.default_rng(seed), 0.0

    def window(index: int) -> float:
        scale = noise.window[index]
        if noise.tails:
            error = scale * float(draw.standard_t(noise.tails)) * math.sqrt((noise.tails - 2) / noise.tails)
        else:
            error = scale * float(draw.standard_normal())
        slow = float(draw.exponential(0.1)) if draw.random() < noise.contaminated else 0.0
        return math.exp(truth[index] + level + error - slow)

    windows: dict[int, dict[int, float]] = {index: {} for index in range(len(truth))}
    left, number, standing = set(windows), 0, None
    while number < MOST_ROUNDS and (standing is None or standing.bounds[standing.leader] > 1 + indifference):
        number += 1
        level = 0.8 * level + noise.drift * float(draw.standard_normal())
        for index in sorted(left):
            windows[index][number] = window(index)
        if number > 1:
            standing = stand(windows, left, len(truth))
            left -= set(standing.worse)
    assert standing is not None
    leader = standing.leader
    pairs: list[tuple[float, float]] = []
    while len(pairs) < MOST_PAIRS and not is_confirmed(ratio_of_pairs(pairs), standing.bounds[leader], indifference):
        pairs.append((window(leader), window(0)))
    ratio, true_ratio = ratio_of_pairs(pairs), math.exp(truth[leader] - truth[0])
    assert ratio is not None
    bound = standing.bounds[leader] - 1
    return SimulatedTune(
        loss=math.exp(max(truth) - truth[leader]) - 1,
        bound=bound,
        is_decided=bound <= indifference,
        covers=ratio.low <= true_ratio <= ratio.high,
        pairs=len(pairs),
        windows=sum(map(len, windows.values())),
        rounds=number,
        standing=standing,
    )
