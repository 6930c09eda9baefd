"""The effect of each key by itself, from the race. Pure."""

from collections.abc import Iterator

from perfkit.gate.tune.moves import SearchSpace
from perfkit.gate.tune.progress import TuneState
from perfkit.gate.tune.race import ratios_to
from perfkit.result.part import Part


class Effect(Part):
    """The effect of one key by itself, from a configuration that differs from the present one in this key alone."""

    key: str
    value: str
    """The values of keys that exist only with this value, such as a delay of batching, are included."""
    number: int
    """The configuration's number."""
    ratio: float
    """The figure of the objective, divided by that of the present configuration, in the rounds in which both were measured."""
    interval: tuple[float, float]
    """A 95 % interval for each effect by itself: of twenty, one is expected to miss the true ratio."""
    rounds: int


def effects_of(state: TuneState, space: SearchSpace) -> Iterator[Effect]:
    """The effects of the configurations that were measured in a round with the present one, key by key."""
    windows, present = state.race_windows(), space.values(0)
    ratios, keys = ratios_to(0, windows) if 0 in windows else {}, space.star
    for number in sorted(keys.keys() & ratios.keys(), key=lambda one: (list(keys.values()).index(keys[one]), one)):
        key, values, ratio = keys[number], space.values(number), ratios[number]
        further = "".join(f", {other} {value}" for other, value in values.items() if other != key and other not in present)
        figure, interval = state.objective.figures(ratio.estimate, (ratio.low, ratio.high))
        value = f"{values.get(key, 'none')}{further}"
        yield Effect(key=key, value=value, number=number, ratio=figure, interval=interval, rounds=ratio.pairs)
