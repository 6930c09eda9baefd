"""The search for the first slower revision: what the gates so far leave open, and which revision to measure next. Pure."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import numpy as np

from perfkit.stats.signed_rank import hodges_lehmann, limits, signed_rank_p

Outcome: TypeAlias = Literal["slower", "not_slower", "undecided", "skipped"]
"""What a gate says of a revision; `skipped`: it could not be measured."""


MOST_UNDECIDED = 3
"""Undecided revisions after which a search ends: the noise would leave the next ones undecided, too."""


@dataclasses.dataclass(frozen=True, slots=True)
class Search:
    """The revisions by position: 0 is the good one, `bad` the last one, which is slower."""

    bad: int
    outcomes: Mapping[int, Outcome] = dataclasses.field(default_factory=dict)
    """By position, of the revisions after the good one."""
    bad_is_shown: bool = True
    """Whether it is shown that the bad one is slower. Otherwise it is measured, too, if the search ends there."""

    @property
    def last_good(self) -> int:
        """The last revision that is known not to be slower."""
        return max((position for position, outcome in self.outcomes.items() if outcome == "not_slower"), default=0)

    @property
    def first_bad(self) -> int:
        """The first revision that is known to be slower."""
        return min((position for position, outcome in self.outcomes.items() if outcome == "slower"), default=self.bad)

    @property
    def suspects(self) -> range:
        """The positions among which the first slower revision is; none if even the bad one turned out not to be slower."""
        return range(self.last_good + 1, self.first_bad + 1)

    @property
    def found(self) -> int | None:
        """The first slower revision, if it is shown to be slower, and the one before it not to be."""
        is_shown = self.first_bad < self.bad or self.bad_is_shown or self.outcomes.get(self.bad) == "slower"
        return self.first_bad if len(self.suspects) == 1 and is_shown else None

    @property
    def next_position(self) -> int | None:
        """The revision to measure next: of those not measured yet, the one nearest to the middle; None if there is none.

        A revision that was skipped or stayed undecided is thus followed by its neighbour.
        """
        if sum(outcome == "undecided" for outcome in self.outcomes.values()) >= MOST_UNDECIDED:
            return None
        if self._needs_bad and len(self.suspects) == 1:
            return self.bad
        ends = self.last_good + self.first_bad
        candidates = [position for position in range(self.last_good + 1, self.first_bad) if position not in self.outcomes]
        return min(candidates, key=lambda position: (abs(2 * position - ends), position), default=None)

    @property
    def most_gates_left(self) -> int:
        """The number of gates that the search needs at most if none of them skips a revision or stays undecided."""
        return math.ceil(math.log2(len(self.suspects))) + self._needs_bad if self.next_position is not None else 0

    @property
    def _needs_bad(self) -> bool:
        return self.first_bad == self.bad and not self.bad_is_shown and self.bad not in self.outcomes


LOOKS = (10, 13, 17, 24, 36, 60)
"""The numbers of pairs after which a gate may decide. With fewer than 10 no test can reach its significance level."""
GATE_ERROR_RATE = 0.01
ALPHA = GATE_ERROR_RATE / len(LOOKS)
"""The significance level of either test at one look: by the union bound the looks of a gate share its error."""
_SPREAD_ALPHA, _LEAST_SPREAD = 0.05, 1e-9
CONFIDENCE = 1 - 2 * ALPHA
"""The confidence of the interval that a gate reports; its end lies beyond the threshold when the gate has decided."""


@dataclasses.dataclass(frozen=True, slots=True)
class Size:
    """How much slower the bad revision is in one metric."""

    estimate: float
    """The Hodges-Lehmann estimate."""
    spread: float
    """The distance from there to the lower limit at a level of 95 %."""
    lower: float
    """The lower limit at the level of the first gate, which takes account of its metrics and looks."""

    @classmethod
    def of(cls, differences: Sequence[float], alpha: float) -> "Size":
        """The size, with a lower limit that is above the truth with a probability of at most `alpha`."""
        values = np.asarray(differences, np.float64)
        estimate = float(hodges_lehmann(values))
        return cls(estimate, estimate - float(limits(values, _SPREAD_ALPHA)[0]), float(limits(values, alpha)[0]))

    @property
    def threshold(self) -> float:
        """Half of the estimate, as far from no change as from all of it."""
        return self.estimate / 2

    @property
    def is_shown(self) -> bool:
        """Whether the first gate shows that the bad revision is above the threshold."""
        return self.lower > self.threshold


def most_precise(sizes: Sequence[Size]) -> int | None:
    """The index of the size that is largest beside its spread, and so takes the fewest pairs; None if none is above zero."""
    above = [index for index, size in enumerate(sizes) if size.estimate > 0]
    return max(above, key=lambda index: sizes[index].estimate / max(sizes[index].spread, _LEAST_SPREAD), default=None)


def decide(
    differences: Sequence[float],
    threshold: float,
    most_pairs: int,
    measurable: float | None = None,
    servers_differences: Sequence[float] | None = None,
) -> Literal["slower", "not_slower", "undecided"] | None:
    """The decision on the differences of all usable pairs of a gate; None if it needs more pairs, up to `most_pairs`.

    With `most_pairs` below the last of `LOOKS`, they are the last look, in place of the later ones: there are never more looks.

    A revision is not slower only if it is below `measurable`, too: the threshold where the machine has become so slow since the first gate
    that it hides a part of the change. And only by `servers_differences`, if they are given: what is left of the pairs if as much as other
    processes may hide of each difference is added to it. The estimate from all pairs must be below, too.

    Either test is Wilcoxon's signed-rank test, exact for pairs in random order, of the differences minus the threshold.
    """
    if len(differences) in (*LOOKS, most_pairs):
        values = np.asarray(differences, np.float64)
        own = values if servers_differences is None else np.asarray(servers_differences, np.float64)
        limit = threshold if measurable is None else measurable
        if signed_rank_p(values - threshold) <= ALPHA:
            return "slower"
        if own.size and signed_rank_p(limit - own) <= ALPHA and float(hodges_lehmann(values)) < limit:
            return "not_slower"
    return "undecided" if len(differences) >= most_pairs else None
