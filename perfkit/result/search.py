"""The result of a capacity search: its probes, the fitted curve, and the capacity with its interval."""

import dataclasses
import math
from typing import Literal

from perfkit.result.part import Part

Stage = Literal["bracket", "bisect", "refine", "confirm"]
Confirmation = Literal["passed", "not_steady", "too_few_samples", "missed"]
StopReason = Literal[
    "precision", "cliff", "drifted", "non_monotone", "not_confirmed", "never_met", "never_missed", "generator", "cold", "too_short",
    "max_probes", "budget", "interrupted", "unknown_times",
]  # fmt: skip


class FittedCurve(Part):
    """The curve that a search fitted: share beyond the limit = floor + exp(intercept + slope · (rate ÷ centre - 1))."""

    limit: str
    """The name of the SLO's limit, such as `p99`."""
    centre_per_s: float
    """The rate around which the curve is written."""
    floor: float
    """The share beyond the limit at low rates."""
    intercept: float
    """The logarithm of the rise at the centre."""
    slope: float
    """How fast the logarithm of the rise grows with the relative rate."""
    points: int
    effective_beyond: float
    """The number of independent requests beyond the limit that would carry as much information."""
    dispersion: float
    """The variance of a probe's count beyond the limit, divided by its mean, at the capacity."""


def limit_in_words(name: str) -> str:
    """The name of a limit on a percentile: `p99.9` for `p99_9`, `first token p99` for `first_token.p99`."""
    of_what, dot, percentile = name.rpartition(".")
    return f"{of_what.replace('_', ' ')} {percentile.replace('_', '.')}" if dot else percentile.replace("_", ".")


@dataclasses.dataclass(frozen=True, slots=True)
class LimitCount:
    """The requests of one probe that were beyond one limit of the SLO: slower than a percentile's limit, or failed."""

    beyond: int
    count: int
    allowed_share: float
    """The share that may be beyond the limit, such as 0.01 for a p99."""
    dispersion: float = 1.0
    """The variance of `beyond` divided by its mean, from the batches of the probe's window; 1 for independent requests. It is about the
    number of requests that exceed the limit together."""
    unknown: int = 0
    """The requests among those of `beyond` whose time is not known."""

    @property
    def with_unknown_within(self) -> "LimitCount":
        """The count of the same requests if all unknown times are taken to be within the limit."""
        return dataclasses.replace(self, beyond=self.beyond - self.unknown, unknown=0)

    @property
    def margin(self) -> float:
        """ln(share beyond the limit ÷ allowed share), finite without requests beyond it; above 0 the limit is missed."""
        return math.log((self.beyond + 0.5) / (self.allowed_share * self.count + 0.5))


class SearchProbe(Part):
    """One probe of a search; its figures are those of the load point with the same index."""

    rate_per_s: float
    stage: Stage
    limits: dict[str, LimitCount]
    met: bool
    overloaded: bool
    """Whether the backlog grew."""
    valid: bool
    took_s: float
    cold: bool = False
    """Whether it is not valid for the sole reason that the target was cold."""


class SearchDrift(Part):
    """How much slower the target became while the search probed it, by the medians of the probes near the capacity."""

    slower: float
    """The share by which all its times became longer from the first of these probes to the last; negative if it became faster."""
    low: float
    """The lower end of its 95 % interval."""
    high: float
    """The upper end of its 95 % interval."""
    probes: int
    """The number of these probes."""


class AddedTime(Part):
    """More time that an undecided or interrupted search was given."""

    after_probes: int
    """The number of its probes until then."""
    budget_s: float
    """The time that its further probes may take; more if the search had more left."""


class Search(Part):
    """The result of a `search` load; capacities are arrivals per second, None if unknown."""

    slo: dict[str, str]
    capacity_per_s: float | None
    low_per_s: float | None
    high_per_s: float | None
    confidence: float
    """The confidence of the interval if a curve was fitted; otherwise the interval lies between a rate that met the SLO and one that missed it."""
    precision: float
    """The half-width of the interval that was asked for, as a share of the capacity."""
    budget_s: float | None = None
    """The time limit of the search; None if it was not recorded."""
    stopped_because: StopReason
    reason: str
    """The result in one sentence."""
    confirmation: Confirmation | None = None
    """The result of a new probe at the lower limit."""
    missed_below_per_s: float | None = None
    """A rate far below the capacity that misses the SLO as well."""
    needed_s: float | None = None
    """The time that the whole search would take; None unless it ended as `too_short`."""
    needed_if_wider_s: float | None = None
    """The time that it would take at twice this precision; None if that would save less than a fifth."""
    drifted_at_per_s: tuple[float, ...] = ()
    """The rates of the probes during which the response times drifted."""
    drift: SearchDrift | None = None
    """None unless a drift during the whole search is shown, with an error of 1 %."""
    curve: FittedCurve | None = None
    added_time: tuple[AddedTime, ...] = ()
    """Each time that the search was given more time; the probes before are of the earlier runs."""
    probes: tuple[SearchProbe, ...] = ()

    @property
    def can_continue(self) -> bool:
        """Whether it ended undecided for lack of time or probes, so that more of them may decide it."""
        return self.stopped_because in ("too_short", "max_probes", "budget")

    @property
    def more_s(self) -> float:
        """The time that it needs in addition, as far as it can tell; otherwise as much as it has used."""
        spent_s = sum(probe.took_s for probe in self.probes)
        return max(self.needed_s - spent_s, 0.1 * spent_s) if self.needed_s else spent_s
