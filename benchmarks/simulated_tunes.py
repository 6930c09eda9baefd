"""Races of configurations whose true throughput is known, with simulated noise, as `perfkit tune` runs them."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from perfkit.gate.tune.folder import Phase, Window
from perfkit.gate.tune.moves import STAGE_ROUNDS, SearchSpace
from perfkit.gate.tune.progress import TuneState
from perfkit.gate.tune.race import Standing, is_confirmed, ratio_of_pairs

MOST_ROUNDS, MOST_PAIRS = 100, 202


@dataclasses.dataclass(frozen=True, slots=True)
class Noise:
    """Standard deviations on a logarithmic scale."""

    window: Sequence[float] | float
    """Of each configuration's windows, or of all."""
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
    """By which share the best configuration of the space is better than the leader."""
    measured_loss: float
    """By which share the best one of those that were measured is."""
    measured: int
    """The number of configurations that were measured."""
    bound: float
    """By which share another measured one may be better, as the race says."""
    is_decided: bool
    covers: bool
    """Whether the interval of the confirmation holds the leader's true ratio to configuration 0."""
    pairs: int
    """Of the confirmation."""
    windows: int
    """Of the race."""
    rounds: int
    standing: Standing


def simulate(
    truth: Sequence[float], noise: Noise, seed: int, indifference: float, values: Sequence[Mapping[str, str]] | None = None
) -> SimulatedTune:
    """A race of configurations of these true throughputs, and its confirmation; `values` has their keys, by default one that numbers them."""
    draw, level = np.random.default_rng(seed), 0.0
    space = SearchSpace(values or [{"number": str(number)} for number in range(len(truth))])
    state = TuneState(space.first(), (0,), None, most=space.most)

    def throughput(index: int) -> float:
        scale = noise.window if isinstance(noise.window, float) else noise.window[index]
        if noise.tails:
            error = scale * float(draw.standard_t(noise.tails)) * math.sqrt((noise.tails - 2) / noise.tails)
        else:
            error = scale * float(draw.standard_normal())
        slow = float(draw.exponential(0.1)) if draw.random() < noise.contaminated else 0.0
        return math.exp(truth[index] + level + error - slow)

    def measure(index: int, phase: Phase) -> None:
        rate = throughput(index)
        state.add(Window.model_construct(candidate=index, phase=phase, round=number, length_s=1.0, is_valid=True, throughput_per_s=rate))

    number, stage = 0, 1
    while number < MOST_ROUNDS:
        is_decided = state.standing is not None and state.standing.bounds[state.standing.leader] <= 1 + indifference
        is_decided = is_decided and not any(state.entries[one].is_pending for one in state.left())
        if state.standing is not None and (is_decided or number + 1 - stage >= STAGE_ROUNDS):
            joining = space.joining(state.standing.leader, state.levels(), state.entries)
            if is_decided and not joining:
                break
            state.open(joining)
            stage = number + 1 if joining else stage
        number += 1
        level = 0.8 * level + noise.drift * float(draw.standard_normal())
        for index in sorted(state.in_round(number)):
            if state.entries[index].state == "waiting":
                measure(index, "scan")
            measure(index, "race")
        state.close_round(number)
    standing = state.standing
    assert standing is not None
    leader = standing.leader
    pairs: list[tuple[float, float]] = []
    while len(pairs) < MOST_PAIRS and not is_confirmed(ratio_of_pairs(pairs), standing.bounds[leader], indifference):
        pairs.append((throughput(leader), throughput(0)))
    ratio, true_ratio = ratio_of_pairs(pairs), math.exp(truth[leader] - truth[0])
    assert ratio is not None
    bound = standing.bounds[leader] - 1
    return SimulatedTune(
        loss=math.exp(max(truth) - truth[leader]) - 1,
        measured_loss=math.exp(max(truth[one] for one in state.entries) - truth[leader]) - 1,
        measured=len(state.entries),
        bound=bound,
        is_decided=bound <= indifference,
        covers=ratio.low <= true_ratio <= ratio.high,
        pairs=len(pairs),
        windows=sum(len(entry.windows) for entry in state.entries.values()),
        rounds=number,
        standing=standing,
    )
