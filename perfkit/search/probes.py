"""The values that a capacity search decides about: its probes, its settings, the next probe and the end, and how many requests a probe needs."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from perfkit.result.search import Confirmation, LimitCount, SearchDrift, Stage, StopReason
from perfkit.search.crossing import Crossing, dispersion_of
from perfkit.search.share_curve import CountAt, is_near
from perfkit.stats.percentiles import minimum_samples

_FEWEST_OF_FASTEST = 20


class Median(NamedTuple):
    """A median with its standard error."""

    value_ns: float
    error: float
    """As a share of the value."""


@dataclasses.dataclass(frozen=True, slots=True)
class Probe:
    """One probe. `limits` holds the requests beyond each limit of the SLO by name, unknown times among them; empty if one of the counts is unknown."""

    rate_per_s: float
    stage: Stage
    limits: Mapping[str, LimitCount]
    is_overloaded: bool = False
    """The backlog grew during the probe, so the SLO is missed whatever the counts are."""
    ceiling_per_s: float = math.inf
    """The highest throughput that an overloaded probe's answers allow, which the capacity cannot exceed; infinite for other probes."""
    is_valid: bool = True
    """False if the load generator was the bottleneck or the target cold: then nothing is known about the warm target at that rate."""
    is_cold: bool = False
    """Whether it is not valid for the sole reason that the target was cold, which bounds nothing: the rate can be probed again."""
    is_steady: bool = True
    """False if the times still drifted: a longer window might give others."""
    median: Median | None = None
    """The median of the response times; None if the window shows too little."""
    has_enough_samples: bool = False
    """Whether the probe alone shows that the SLO is met; see `stats.percentiles.is_limit_shown_met`."""
    took_s: float = 0.0

    @property
    def margin(self) -> float:
        """The largest margin; above 0 the SLO is missed."""
        if self.is_overloaded or not self.limits:
            return math.inf
        return max(counted.margin for counted in self.limits.values())

    @property
    def with_unknown_within(self) -> "Probe":
        """The same probe, with all unknown times taken to be within their limits."""
        return dataclasses.replace(self, limits={name: one.with_unknown_within for name, one in self.limits.items()})

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
    max_probes: int = 30
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
class SearchEnd:
    """The end of the search: why, the estimate, and the outcome of the last confirming probe."""

    reason: StopReason
    estimate: Estimate
    confirmation: Confirmation | None = None
    missed_below_per_s: float | None = None
    """A rate far below the capacity at which the SLO is missed, too; the capacity holds for the rates above it."""
    needed_s: float | None = None
    """An estimate of the time that the whole search would take; None unless the search was too short."""
    needed_if_wider_s: float | None = None
    """The same for an interval that may be twice as wide; None if that would save less than a fifth."""
    drift: SearchDrift | None = None


MIN_FITTED_POINTS = 6
FEWEST_BEYOND = 16.0  # independent requests beyond the limit, over all fitted probes
# all fitted probes together have this multiple of the samples that the percentile needs, but not more than a p99; at other precisions by
# the inverse square: in fewer requests, a queue with service times of cv 3 and eight servers often shows no slow group at all
_FEWEST_SAMPLES_FACTOR, _AT_PRECISION, _LEAST_SHARE = 100.0, 0.05, 0.01
_ERROR_RATE = "error_rate"
_GROWTH, _GROWTH_WITHOUT_FIT = 8.0, 4.0  # longest next probe ÷ longest probe so far
# the last four probes that max_probes allows may use half of what the budget has left, but grow by at most three
_LAST_PROBES, _SPENT_AT_THE_END, _GROWTH_AT_THE_END = 4, 0.5, 3.0
_LEAST_OF_BUDGET = 0.005
_PART_OF_NEEDED = 1 / 3  # of the samples that a percentile needs by itself: a curve adds up the evidence of several probes
_LARGEST_MISFIT = 4.0  # the dispersion around the curve ÷ that within windows
_COMPARABLE = 4  # probes of at least the longest length divided by this are compared with each other
_LATER_T = 1.8  # Student's 95 % quantile with the probes of a whole search: about ten degrees of freedom
_LEAST_PRECISION = 0.3  # of the precision that is asked for, at the least, is left for the counts
_PROBES_AHEAD = 4  # the rest of the search is divided among this many probes
_FEWEST_TO_TELL = 4.0  # independent requests beyond the limit, before the time that a search needs can be told


def relative_slope(fit: Crossing) -> float:
    """The slope of ln(share beyond the limit) against the rate as a share of the crossing."""
    return fit.slope * fit.rate_per_s / fit.centre_per_s


def next_requests(fit: Crossing | None, refined: int, probes: Sequence[Probe], settings: SearchSettings) -> int:
    """The requests of the next refining probe: as many as the fit says that it needs, without growing too fast."""
    longest, least = longest_count(probes), minimum_samples(1 - allowed_share(probes))
    if fit is None or not fit.is_bounded:
        enough = max(minimum_samples(1 - allowed_share(probes), dispersion_without_fit(probes)), longest)
        return max(least, min(round((_GROWTH_WITHOUT_FIT if refined else 1) * longest), enough))
    share = round(missing_requests(fit, probes, settings) / max(min(settings.max_probes - len(probes) - 1, _PROBES_AHEAD), 1))
    if math.isfinite(settings.budget_s):  # a probe that is short beside the budget is not worth one of `max_probes`
        share = max(share, round(_LEAST_OF_BUDGET * settings.budget_s * fit.rate_per_s))
    probes_left = settings.max_probes - len(probes)
    if probes_left <= _LAST_PROBES and math.isfinite(settings.budget_s):  # rather use the budget than end at max_probes
        left_s = settings.budget_s - sum(probe.took_s for probe in probes)
        affordable = _SPENT_AT_THE_END * max(left_s, 0.0) * fit.rate_per_s / max(probes_left, 1)
        share = max(share, round(min(affordable, _GROWTH_AT_THE_END * longest)))
    return max(
        least,
        min(max(needed_requests(fit, probes), share, fewest_requests(probes, settings) // MIN_FITTED_POINTS), round(_GROWTH * longest)),
    )


def is_long(probes: Sequence[Probe]) -> bool:
    """Whether the longest probe holds the samples that the percentile needs."""
    return longest_count(probes) >= minimum_samples(1 - allowed_share(probes), dispersion_without_fit(probes))


def dispersion_without_fit(probes: Sequence[Probe]) -> float:
    """The dispersion of the counts of the longer probes where no curve fits: the largest of all limits."""
    longest, limits = longest_count(probes), dict[str, list[CountAt]]()
    for probe in probes:
        for name, one in probe.limits.items():
            is_comparable = probe.is_valid and not probe.is_overloaded and one.count * _COMPARABLE >= longest
            if is_comparable and is_near(one):
                limits.setdefault(name, []).append(CountAt(probe.rate_per_s, one))
    return max(map(dispersion_of, limits.values()), default=1.0)


def longest_count(probes: Sequence[Probe]) -> int:
    """The requests of the longest probe that was valid and not overloaded; 0 without one."""
    return max((probe.count for probe in probes if probe.is_valid and not probe.is_overloaded), default=0)


def allowed_share(probes: Sequence[Probe]) -> float:
    """The smallest share that a percentile's limit allows; the allowed error rate if the SLO has no percentile."""
    shares = {name: one.allowed_share for probe in probes for name, one in probe.limits.items() if one.allowed_share > 0}
    return min((share for name, share in shares.items() if name != _ERROR_RATE), default=shares.get(_ERROR_RATE, 1.0))


def needed_requests(fit: Crossing, probes: Sequence[Probe]) -> int:
    """The requests that one refining probe needs at the dispersion of the fitted counts."""
    # a curve of another form than the fitted one raises the dispersion between long probes, and longer ones would not help
    dispersion = min(fit.dispersion, _LARGEST_MISFIT * fit.window_dispersion)
    return round(_PART_OF_NEEDED * minimum_samples(1 - allowed_share(probes), dispersion))


def fewest_requests(probes: Sequence[Probe], settings: SearchSettings) -> int:
    """The least number of requests in all fitted probes: in fewer, a queue that fills rarely may not have filled at all."""
    if not any(name != _ERROR_RATE for probe in probes for name in probe.limits):
        return 0  # failures do not come in the groups of a queue
    share = max(allowed_share(probes), _LEAST_SHARE)
    return round(_FEWEST_SAMPLES_FACTOR * (_AT_PRECISION / settings.precision) ** 2 * minimum_samples(1 - share))


def missing_requests(fit: Crossing, probes: Sequence[Probe], settings: SearchSettings) -> float:
    """The requests that the search still needs for its precision, as far as the fit can tell; 0 if it cannot."""
    if not fit.is_bounded or fit.points < MIN_FITTED_POINTS or fit.effective_beyond < _FEWEST_TO_TELL:
        return 0.0
    precision = max(settings.precision - fit.form_shift, _LEAST_PRECISION * settings.precision)
    half_width = (fit.half_width - fit.form_shift) * min(_LATER_T / fit.t, 1.0)  # with more probes, Student's t falls as well
    # a wide interval is mostly the slope's doubt, which falls faster: later probes lie on both sides of the crossing
    least = _LATER_T / (relative_slope(fit) * math.sqrt(fit.effective_beyond))
    half_width = min(half_width, max(least, math.sqrt(2) * precision))
    factor = max(FEWEST_BEYOND / fit.effective_beyond, (half_width / precision) ** 2)
    for_precision = max(factor - 1, 0.0) * fit.effective_beyond * fit.dispersion / allowed_share(probes)
    return max(for_precision, fewest_requests(probes, settings) - fit.requests)
