"""The values that a capacity search decides about: its probes, its settings, the next probe and the end."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Literal, TypeAlias

from perfkit.search.crossing import Crossing
from perfkit.search.share_curve import LimitCount

Stage: TypeAlias = Literal["bracket", "bisect", "refine", "confirm"]
Confirmation: TypeAlias = Literal["passed", "not_steady", "too_few_samples", "missed"]
StopReason: TypeAlias = Literal[
    "precision", "cliff", "non_monotone", "not_confirmed", "never_met", "never_missed", "generator", "too_short", "max_probes", "budget",
    "interrupted",
]  # fmt: skip

_FEWEST_OF_FASTEST = 20


@dataclasses.dataclass(frozen=True, slots=True)
class Probe:
    """One probe. `limits` holds the requests beyond each limit of the SLO by name; it is empty if one of the counts is unknown."""

    rate_per_s: float
    stage: Stage
    limits: Mapping[str, LimitCount]
    is_overloaded: bool = False
    """The backlog grew during the probe, so the SLO is missed whatever the counts are."""
    ceiling_per_s: float = math.inf
    """Of an overloaded probe: the highest throughput that its answers allow, which the capacity cannot exceed."""
    is_valid: bool = True
    """False if the load generator was the bottleneck: then nothing is known about the target at that rate."""
    is_steady: bool = True
    """False if the times still drifted: a longer window might give others."""
    has_enough_samples: bool = False
    """Whether the probe alone shows that the SLO is met; see `stats.sample_size.is_limit_shown_met`."""
    took_s: float = 0.0

    @property
    def margin(self) -> float:
        """The largest margin; above 0 the SLO is missed."""
        if self.is_overloaded or not self.limits:
            return math.inf
        return max(counted.margin for counted in self.limits.values())

    @property
    def is_met(self) -> bool:
        """Whether the probe is valid and met the SLO."""
        return self.is_valid and self.margin <= 0

    @property
    def is_out_of_reach(self) -> bool:
        """Whether even the fastest requests were beyond a limit, though the target kept up."""
        return (
            self.is_valid
            and not self.is_overloaded
            and any(one.count >= _FEWEST_OF_FASTEST and one.beyond == one.count for one in self.limits.values())
        )

    @property
    def count(self) -> int:
        """The number of requests that the limits were judged by."""
        return max((one.count for one in self.limits.values()), default=0)


@dataclasses.dataclass(frozen=True, slots=True)
class SearchSettings:
    """Where the search begins, and when it stops."""

    start_per_s: float
    min_rate_per_s: float = 0.0
    max_rate_per_s: float = math.inf
    precision: float = 0.05
    max_probes: int = 20
    budget_s: float = math.inf
    confidence: float = 0.9

    def clipped(self, rate_per_s: float) -> float:
        """The rate, limited to the range that may be probed."""
        return min(max(rate_per_s, self.min_rate_per_s), self.max_rate_per_s)


@dataclasses.dataclass(frozen=True, slots=True)
class NextProbe:
    """The rate to probe next, and the least number of requests; 0 leaves it to the scenario's duration."""

    rate_per_s: float
    stage: Stage
    requests: int = 0


@dataclasses.dataclass(frozen=True, slots=True)
class Estimate:
    """The capacity and its interval, as far as the probes determine them; None for the rest."""

    capacity_per_s: float | None
    low_per_s: float | None
    high_per_s: float | None
    fit: Crossing | None = None
    limit: str | None = None
    """The limit that is missed first as the rate rises, if a curve was fitted to its counts."""


@dataclasses.dataclass(frozen=True, slots=True)
class Stop:
    """The end of the search: why, the estimate, and the outcome of the last confirming probe."""

    reason: StopReason
    estimate: Estimate
    confirmation: Confirmation | None = None
    missed_below_per_s: float | None = None
    """A rate far below the capacity at which the SLO is missed, too; the capacity holds for the rates above it."""
    needed_s: float | None = None
    """Of a search that was too short: an estimate of the time that the whole search would take."""
    needed_if_wider_s: float | None = None
    """The same for an interval that may be twice as wide; None if that would save less than a fifth."""
