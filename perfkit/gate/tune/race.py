"""The race of configurations: which are shown worse, which leads, and by how much another one may be better. Pure.

In a round each configuration that is left is measured once, in random order, in every other round the better ones alone. Differences of the
logarithms of the throughput within a round cancel what changes slowly. All statements hold together with a probability of at least 97.5 %,
whatever configuration leads and whenever the race is looked at: the best configuration is never dropped, and no other is better by more than
is stated. This assumes that windows vary alike in all configurations, or that the best one's vary no more than the others'; where they vary
six times as much, it is dropped in up to 4 % of races (`benchmarks/tune_simulation`).
"""

import dataclasses
import itertools
import math
import statistics
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal, Self

import numpy as np
import numpy.typing as npt

from perfkit.stats.probability import student_t_quantile

ERROR = 0.025
"""The chance that the best configuration is dropped, or that a stated bound is too low."""
CONFIRMATION_ERROR = 0.025
"""The chance that the interval of the confirmation does not hold the ratio, at any of its looks."""
FIRST_LOOK = 5
"""The number of pairs after which the confirmation is looked at for the first time; then after 8, 12, 18, 27, 40, 60, 90 and so on."""
NARROW = 0.03
"""A confirmed ratio is known to this share."""
FEWEST_ROUNDS = 2
"""The common rounds after which a configuration that joined later is compared."""
_LARGEST_LOGARITHM = math.log(sys.float_info.max)
_ROUNDS_TO_DROP, _CLEAR = 3, math.log(1.15)
"""With fewer common rounds, a configuration is dropped only where it is worse by this factor as well."""
_PRIOR = 8
"""The degrees of freedom of the pooled variance where it is averaged with that of a configuration's own windows."""

Answer = Literal["better", "kept"]
Windows = Mapping[int, Mapping[int, float]]
"""The throughput of each window, by configuration and round."""


@dataclasses.dataclass(frozen=True, slots=True)
class Standing:
    """The race after a round."""

    leader: int
    worse: Mapping[int, int]
    """The configurations that are shown worse, each with one that is better."""
    effects: Mapping[int, float]
    """The logarithm of what each configuration is worth, less that of the rounds, also of those dropped before."""
    bounds: Mapping[int, float]
    """For each configuration that is left, by which factor the best may be better than it: at least 1, infinite while nothing is known."""


def stand(windows: Windows, left: Collection[int], entered: int, number: int) -> Standing:
    """Compares the configurations that are left after the round `number`, from 2 on; those dropped before still tell how the rounds differed.

    `entered` is the number of configurations that may race, also later. A difference is judged by Student's t with the variance of all windows;
    where a configuration's own is larger, with a mean of both (as in G. Smyth, *Statistical Applications in Genetics and Molecular Biology*
    3, 2004, with a prior of 8 degrees of freedom). The error is divided over configurations and rounds: of round r the share 1/((r-1)r),
    which add up to 1 (a union bound, so that the race may be looked at after each round). With fewer than three common rounds, a configuration
    is dropped only if the other one is better by 15 % as well: nothing is known of its own variance then.
    """
    noise = _Noise(windows, ERROR / (max(entered, 2) * (number - 1) * number))
    order = sorted(left)
    uppers = {(one, other): noise.upper(one, other) for one in order for other in order if one != other}
    worse = {}
    for one in order:  # the one that beats it most clearly
        beaten = [(upper, other) for (first, other), upper in uppers.items() if first == one and upper < 0 and noise.may_drop(one, other)]
        if beaten:
            worse[one] = min(beaten)[1]
    kept = [one for one in order if one not in worse]
    bounds = {one: _factor(max([0.0, *(uppers[other, one] for other in kept if other != one)])) for one in kept}
    return Standing(max(kept, key=lambda one: noise.effects.get(one, -math.inf)), worse, noise.effects, bounds)


class _Noise:
    """The additive model of configurations and rounds, and the variance that it leaves."""

    def __init__(self, windows: Windows, error: float = ERROR) -> None:
        self._error = error
        self._logs = {one: {number: math.log(rate) for number, rate in rounds.items()} for one, rounds in windows.items() if rounds}
        names, rounds = list(self._logs), sorted({number for held in self._logs.values() for number in held})
        cells = [(names.index(one), rounds.index(number), value) for one, held in self._logs.items() for number, value in held.items()]
        values = np.array([value for *_, value in cells])
        columns = len(names) + len(rounds)
        design: npt.NDArray[np.float64] = np.zeros((len(cells), columns))
        for row, (name, number, _) in enumerate(cells):
            design[row, name] = design[row, len(names) + number] = 1.0
        fitted, _, rank, _ = np.linalg.lstsq(design, values, rcond=None)
        residuals = values - design @ fitted
        self.degrees = len(cells) - int(rank)
        self.variance = float(residuals @ residuals) / self.degrees if self.degrees > 0 else math.inf
        self.effects = {name: float(fitted[index]) for index, name in enumerate(names)}
        self._squares = dict.fromkeys(names, 0.0)
        for residual, (index, *_) in zip(residuals.tolist(), cells, strict=True):
            self._squares[names[index]] += residual**2 / (1 - 1 / max(len(names), 2))

    def upper(self, one: int, other: int) -> float:
        """The upper bound of how much better `one` is than `other`, as a logarithm; infinite without a common round, or a variance."""
        if self.degrees < 1 or not self.common(one, other):
            return math.inf
        mean, reach = self.difference(one, other, 1 - self._error)
        return mean + reach

    def common(self, one: int, other: int) -> list[int]:
        """The rounds that both have."""
        return sorted(self._logs.get(one, {}).keys() & self._logs.get(other, {}).keys())

    def may_drop(self, one: int, other: int) -> bool:
        """Whether there are enough rounds to drop `one` because of `other`, which is shown better."""
        return len(self.common(one, other)) >= _ROUNDS_TO_DROP or self.difference(other, one, 0.5)[0] > _CLEAR

    def difference(self, one: int, other: int, quantile: float) -> tuple[float, float]:
        """The mean of `one` - `other` in their common rounds, and by how much this quantile of Student's t lies above it."""
        first, second = self._logs[one], self._logs[other]
        differences = [first[number] - second[number] for number in self.common(one, other)]
        (variance, degrees), (other_variance, other_degrees) = self._variance_of(one), self._variance_of(other)
        t = student_t_quantile(quantile, min(degrees, other_degrees))
        return statistics.fmean(differences), t * math.sqrt((variance + other_variance) / len(differences))

    def _variance_of(self, one: int) -> tuple[float, int]:
        """The variance of a configuration's windows, and its degrees of freedom: that of all windows, or more where its own is larger."""
        degrees = len(self._logs[one]) - 1
        if degrees < 1 or self._squares[one] <= degrees * self.variance:
            return self.variance, self.degrees
        return (_PRIOR * self.variance + self._squares[one]) / (_PRIOR + degrees), min(_PRIOR + degrees, self.degrees)


@dataclasses.dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of what two configurations are worth with its interval, from so many pairs of windows: 97.5 % in the confirmation, 95 % in the race."""

    estimate: float
    low: float
    high: float
    pairs: int

    @classmethod
    def within(cls, mean: float, reach: float, pairs: int) -> Self:
        """The ratio whose logarithm is `mean`, with an interval that reaches so far on both sides of it."""
        return cls(_factor(mean), _factor(mean - reach), _factor(mean + reach), pairs)

    @property
    def half_width(self) -> float:
        """Half of the interval's width, as a share of the ratio."""
        return math.sqrt(self.high / self.low) - 1 if self.low else math.inf


def _factor(logarithm: float) -> float:
    """The exponential, infinite where it is too large for a float, as the bounds of few windows with much noise may be."""
    return math.exp(logarithm) if logarithm <= _LARGEST_LOGARITHM else math.inf


def ratios_to(base: int, windows: Windows) -> dict[int, Ratio]:
    """The ratio of each other configuration to `base` in the rounds that both have, with a 95 % interval of its own: a wide one after a single round."""
    noise = _Noise(windows)
    found = {}
    for one in windows:
        count = len(noise.common(one, base))
        if one != base and count and noise.degrees > 0:
            mean, reach = noise.difference(one, base, 0.975)
            found[one] = Ratio.within(mean, reach, count)
    return found


def _looks() -> Iterator[int]:
    """The numbers of pairs after which the confirmation is looked at, without end."""
    look = FIRST_LOOK
    while True:
        yield look
        look = round(1.5 * look)


def ratio_of_pairs(pairs: Sequence[tuple[float, float]]) -> Ratio | None:
    """The ratio of the first to the second throughput of pairs that were measured one after the other, at the last look so far.

    Student's t of the logarithms of the ratios, as in W. S. Gosset, *The Probable Error of a Mean* (1908), with the share 1/(k(k+1)) of
    the error at the look k: they add up to 1 (a union bound, so that the confirmation may end at any look). None before the first one.
    """
    looks = list(itertools.takewhile(lambda look: look <= len(pairs), _looks()))
    if not looks:
        return None
    count, share = looks[-1], 1 / (len(looks) * (len(looks) + 1))
    logs = [math.log(first / second) for first, second in pairs[:count]]
    mean, error = statistics.fmean(logs), float(np.std(logs, ddof=1)) / math.sqrt(count)
    reach = student_t_quantile(1 - CONFIRMATION_ERROR * share / 2, count - 1) * error
    return Ratio.within(mean, reach, count)


def answer_of(ratio: Ratio, bound: float | None, indifference: float) -> Answer | None:
    """Whether a configuration is `better` than the present one, or not by enough, so that the present one is `kept`; None if that is open.

    `bound` is the factor by which another configuration may be better than the one of the ratio: together they bound how much better any
    is than the present one.
    """
    if bound is not None and ratio.high * bound <= 1 + indifference:
        return "kept"
    return "better" if ratio.low > 1 else None


def is_confirmed(ratio: Ratio | None, bound: float | None, indifference: float) -> bool:
    """Whether further pairs of the confirmation would tell nothing that is asked."""
    if ratio is None:
        return False
    answer = answer_of(ratio, bound, indifference)
    return answer == "kept" or (answer == "better" and ratio.half_width <= NARROW)
