"""The search for the first slower revision: what the gates so far leave open, and which revision to measure next. Pure."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Literal, TypeAlias

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
