"""Races of configurations whose true throughput is known, with simulated noise, as `perfkit tune` runs them."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from perfkit.gate.tune.folder import Phase, Window
from perfkit.gate.tune.moves import SearchSpace, is_stage_over
from perfkit.gate.tune.progress import TuneState
from perfkit.gate.tune.race import Answer, Standing, is_confirmed

MOST_ROUNDS, MOST_PAIRS = 100, 202


@dataclasses.dataclass(frozen=True, slots=True)
class Noise:
    """Standard deviations on a logarithmic scale."""

    window: Sequence[float] | float
    """The standard deviation of each configuration's windows, or of all windows."""
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
    """By which share the best configuration of the space is better than the chosen one: the leader, or configuration 0 if it is kept."""
    measured_loss: float
    """By which share the best of the measured configurations is better than the chosen one."""
    measured: int
    """The number of configurations that were measured."""
    bound: float
    """The share by which another measured configuration may be better, as the race states it."""
    answer: Answer | None
    """None if the race ended undecided."""
    covers: bool | None
    """Whether the interval of the confirmation holds the leader's true ratio to configuration 0; None without one."""
    pairs: int
    """The pairs of the confirmation."""
    windows: int
    """The windows of the race."""
    rounds: int
    is_best_dropped: bool
    """Whether the best configuration of those that were measured was shown worse."""
    standing: Standing | None


def simulate(
    truth: Sequence[float],
    noise: Noise,
    seed: int,
    indifference: float,
    values: Sequence[Mapping[str, str]] | None = None,
    most_rounds: int = MOST_ROUNDS,
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

    def measure(index: int, phase: Phase, number: int) -> None:
        rate = throughput(index)
        state.add(Window.model_construct(candidate=index, phase=phase, round=number, length_s=1.0, is_valid=True, throughput_per_s=rate))

    number, stage, pairs = 0, 1, 0
    while True:
        while number < most_rounds:
            is_raced = number > 1 and state.is_raced(indifference)
            joining: tuple[int, ...] = ()
            if state.standing is not None and (is_raced or is_stage_over(number + 1 - stage, is_out_of_time=False)):
                joining = space.joining(state.standing.leader, state.levels(), state.entries)
            if joining:
                state.open(joining)
                is_raced, stage = False, number + 1
            if is_raced:
                break
            number += 1
            level = 0.8 * level + noise.drift * float(draw.standard_normal())
            for index in sorted(state.in_round(number)):
                if state.entries[index].state == "waiting":
                    measure(index, "scan", number)
                measure(index, "race", number)
            state.close_round(number)
        best, ratio, answer = state.choice(indifference)
        assert best is not None
        while best != 0 and pairs < MOST_PAIRS and not is_confirmed(state.ratio(best), state.bound(best), indifference):
            if number < most_rounds and state.needs_rounds(indifference):
                break
            pairs += 1
            measure(best, "confirmation", pairs)
            measure(0, "confirmation", pairs)
        best, ratio, answer = state.choice(indifference)
        assert best is not None
        if best == 0 or answer is not None or number >= most_rounds or pairs >= MOST_PAIRS:
            break
    chosen, bound = best if answer != "kept" else 0, state.bound(best)
    if bound is not None and answer == "kept" and ratio is not None:
        bound *= ratio.high
    return SimulatedTune(
        loss=math.exp(max(truth) - truth[chosen]) - 1,
        measured_loss=math.exp(max(truth[one] for one in state.entries) - truth[chosen]) - 1,
        measured=len(state.entries),
        bound=math.inf if bound is None else bound - 1,
        answer=answer,
        covers=None if ratio is None else ratio.low <= math.exp(truth[best] - truth[0]) <= ratio.high,
        pairs=pairs,
        windows=sum(one.phase == "race" for entry in state.entries.values() for one in entry.windows),
        rounds=number,
        is_best_dropped=state.entries[max(state.entries, key=lambda one: truth[one])].state == "worse",
        standing=state.standing,
    )
