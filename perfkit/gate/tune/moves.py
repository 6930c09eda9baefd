"""The order in which the configurations of a space join the race: all at once, or by moves from the leader. Pure.

A space of at most `MOST_MEASURED` configurations is measured as a whole if there is time. Otherwise the present configuration and those that differ from it by one key
join first (a star). Later the neighbours of the leader join, which differ from it by one key: for numbers by the next lower or higher value; and a few that a
forecast from all that was measured says may be better.
"""

import contextlib
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from perfkit.gate.tune.forecast import Forecast

MOST_MEASURED = 64
_STAGE_ROUNDS = 8
"""After this many rounds further configurations join the race even if nothing is decided: configurations that are alike take long to tell apart."""
_FORECAST, _FORECAST_ALONE = 4, 8
"""How many configurations join because of the forecast: beside neighbours of the leader, and where no neighbour is left."""
_LEAST_GAIN = 0.0003
"""The expected gain, as a logarithm, below which no configuration joins because of the forecast."""
Values = Mapping[str, str]


class SearchSpace:
    """The configurations of a space by number, of which 0 is the present one."""

    def __init__(self, values: Sequence[Values]) -> None:
        self._values = values
        self._ranks: dict[str, dict[str, int]] = {}
        """The order of the values of those keys whose values are numbers."""
        for key in {key for one in values for key in one}:
            with contextlib.suppress(ValueError):
                ordered = sorted({one[key] for one in values if key in one}, key=float)
                self._ranks[key] = {value: rank for rank, value in enumerate(ordered)}
        self._forecast = Forecast(values, self._ranks)

    def __len__(self) -> int:
        return len(self._values)

    def values(self, number: int) -> Values:
        """The value of each key."""
        return self._values[number]

    @property
    def most(self) -> int:
        """The largest number of configurations that are measured, over which the error is controlled."""
        return min(len(self), MOST_MEASURED)

    def first(self, at_once: int = MOST_MEASURED) -> tuple[int, ...]:
        """The configurations that are measured from the start: all if there is time for so many, otherwise the star.

        With a key that no configuration of the star has, a small space is measured as a whole; in a large one those nearest to the present one join.
        """
        star = self.star
        varied = {key for one in self._values for key in one if len({*self._given(key)}) > 1}
        missing = {key for key in varied - {*star.values()} if not any(key.startswith(f"{other}.") for other in star.values())}
        if len(self) <= (MOST_MEASURED if missing else min(at_once, MOST_MEASURED)):
            return tuple(range(len(self)))
        nearest = dict.fromkeys(number for key in sorted(missing) for number in self._nearest(key))
        return tuple(dict.fromkeys((0, *star, *nearest)))[: self.most]

    @property
    def star(self) -> dict[int, str]:
        """The configurations that differ from the present one by a single key, each with that key."""
        return self._differing_by_one(0)

    def neighbours(self, number: int) -> tuple[int, ...]:
        """The configurations that differ by a single key; if its values are numbers, only by the next lower or higher one."""
        found = self._differing_by_one(number)
        return tuple(other for other, key in found.items() if self._is_step(key, self._values[number], self._values[other]))

    def joining(self, leader: int, levels: Mapping[int, float], opened: Collection[int]) -> tuple[int, ...]:
        """The configurations that join next: a few that, by forecast, may be better than all in `levels`, then the leader's neighbours; none if none may.

        `levels` has the logarithm of what each measured one is worth, and `opened` those that have joined before.
        """
        if len(opened) >= self.most:
            return ()
        beside = [number for number in self.neighbours(leader) if number not in opened]
        gains = self._forecast.gains(levels)
        promising = [int(number) for number in np.argsort(-gains) if number not in opened and gains[number] > _LEAST_GAIN]
        found = dict.fromkeys((*promising[: _FORECAST if beside else _FORECAST_ALONE], *beside))
        return tuple(found)[: self.most - len(opened)]

    def _given(self, key: str) -> list[str | None]:
        """The values of a key, None where a configuration has none."""
        return [one.get(key) for one in self._values]

    def _nearest(self, key: str) -> list[int]:
        """The configurations that differ by the fewest keys from the present one, among those with another value of `key`."""
        differing = {number: _differing(self._values[0], one) for number, one in enumerate(self._values)}
        counts = {number: len(keys) for number, keys in differing.items() if key in keys}
        least = min(counts.values(), default=0)
        return [number for number, count in counts.items() if count == least]

    def _differing_by_one(self, number: int) -> dict[int, str]:
        values = self._values[number]
        differing = {other: _differing(values, one) for other, one in enumerate(self._values) if other != number}
        return {other: keys[0] for other, keys in differing.items() if len(keys) == 1}

    def _is_step(self, key: str, values: Values, others: Values) -> bool:
        ranks = self._ranks.get(key)
        return ranks is None or key not in values or key not in others or abs(ranks[values[key]] - ranks[others[key]]) == 1


def is_stage_over(rounds: int, *, is_out_of_time: bool) -> bool:
    """Whether further configurations may join although nothing is decided: enough rounds have passed since the last ones joined, or there is no time for more."""
    return rounds >= _STAGE_ROUNDS or (rounds >= 1 and is_out_of_time)


def _differing(values: Values, others: Values) -> list[str]:
    """The keys with different values, without those that follow from another one: without `dynamic_batching`, there is no delay of it."""
    differing = [key for key in {**values, **others} if values.get(key) != others.get(key)]
    return [key for key in differing if not any(key.startswith(f"{other}.") for other in differing)]
