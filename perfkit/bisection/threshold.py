"""What counts as slower in a bisection, and the exact tests that decide it. Pure.

Differences are logarithms of slowdowns against the good revision, or plain differences of shares, one for each pair; above 0 the
revision is slower. The first gate shows that the bad revision is slower, in at least one metric. From then on one metric and one
threshold decide: a revision is *slower* if its difference is above the threshold. Each later gate tests with new pairs.

Each later gate is wrong about its side of the threshold with a probability of at most `GATE_ERROR_RATE`. The revision found is above
the threshold by its own gate, and the one before it is not, by its own gate or because it is the good one. So an answer that takes k
gates is wrong with a probability of at most k · `GATE_ERROR_RATE`. Only if the bad revision itself is found, the first gate stands for
it, if it shows with the same probability of error that the bad revision is above the threshold; otherwise the bad one gets a gate of its own.
"""

import dataclasses
from collections.abc import Sequence
from typing import Literal

import numpy as np

from perfkit.stats.signed_rank import hodges_lehmann, limits, signed_rank_p

LOOKS = (10, 13, 17, 24, 36, 60)
"""The numbers of pairs after which a gate may decide. With fewer than 10 no test can reach its significance level."""
GATE_ERROR_RATE = 0.01
ALPHA = GATE_ERROR_RATE / len(LOOKS)
"""The significance level of either test at one look: by the union bound the looks of a gate share its error."""
_SPREAD_ALPHA, _LEAST_SPREAD = 0.05, 1e-9
CONFIDENCE = 1 - 2 * ALPHA
"""Of the interval that a gate reports; its end lies beyond the threshold when the gate has decided."""


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
