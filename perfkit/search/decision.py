"""The decisions of the capacity search: which rate to probe next, and when and why to stop.

`decide` is a pure function of the probes so far. The search brackets the capacity by factors of two, bisects the bracket twice
(geometrically), and then probes at 0.94, 1.03, 0.97 and 1.06 times the estimate, which is fitted again after each probe, until its
interval is narrow enough. A last probe confirms that the interval's lower end meets the SLO.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

from perfkit.search.root_fit import RootFit, fit_root

Stage: TypeAlias = Literal["bracket", "bisect", "refine", "confirm"]
Confirmation: TypeAlias = Literal["passed", "not_steady", "too_few_samples", "missed"]
StopReason: TypeAlias = Literal[
    "precision", "cliff", "non_monotone", "not_confirmed", "never_met", "never_missed", "generator", "max_probes", "budget", "interrupted"
]

_BRACKET_FACTOR = 2.0
_NEAR_FACTORS, _FAR_FACTORS = (0.94, 1.03, 0.97, 1.06), (0.7, 1.3, 0.85, 1.15)
_BISECTIONS, _NARROW_RATIO = 2, 1.14
_MIN_FITTED_POINTS = 6
_NEAR_PROBES = 4  # if no line fits after this many refining probes, check for a cliff and probe further away
_CLIFF_MARGIN_STEP = math.log(2)
_FLOOR_RATIO = 2.0**-10  # lowest probed rate ÷ first rate, if the scenario sets no min_rate
_FLAT_MARGIN = 0.05
_MAX_MISSED_CONFIRMATIONS = 3
_MAX_INVALID_IN_A_ROW, _TRIES_PER_RATE = 5, 2


@dataclasses.dataclass(frozen=True, slots=True)
class Probe:
    """One probe; `margins` holds ln(measured ÷ limit) for each limit of the SLO, by name."""

    rate_per_s: float
    stage: Stage
    margins: Mapping[str, float]
    is_overloaded: bool = False
    """The backlog grew during the probe, so the SLO is missed whatever the margins are."""
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
        if self.is_overloaded or not self.margins:
            return math.inf
        return max(self.margins.values())

    @property
    def is_met(self) -> bool:
        """Whether the probe is valid and met the SLO."""
        return self.is_valid and self.margin <= 0


@dataclasses.dataclass(frozen=True, slots=True)
class SearchSettings:
    """Where the search begins, and when it stops."""

    start_per_s: float
    min_rate_per_s: float = 0.0
    max_rate_per_s: float = math.inf
    precision: float = 0.05
    max_probes: int = 16
    budget_s: float = math.inf
    confidence: float = 0.9

    def clipped(self, rate_per_s: float) -> float:
        """The rate, limited to the range that may be probed."""
        return min(max(rate_per_s, self.min_rate_per_s), self.max_rate_per_s)


@dataclasses.dataclass(frozen=True, slots=True)
class NextProbe:
    """The rate to probe next, with fresh arrivals; a probe to confirm needs more samples."""

    rate_per_s: float
    stage: Stage


@dataclasses.dataclass(frozen=True, slots=True)
class Estimate:
    """The capacity and its interval, as far as the probes determine them; None for the rest."""

    capacity_per_s: float | None
    low_per_s: float | None
    high_per_s: float | None
    fit: RootFit | None = None
    limit: str | None = None
    """The limit that is missed first, if a line was fitted to it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Stop:
    """The end of the search: why, the estimate, and the outcome of the last confirming probe."""

    reason: StopReason
    estimate: Estimate
    confirmation: Confirmation | None = None
    missed_below_per_s: float | None = None
    """A rate far below the capacity at which the SLO is missed, too; the capacity holds for the rates above it."""


def decide(
    probes: Sequence[Probe], settings: SearchSettings, probe_length_s: Callable[[NextProbe], float] | None = None
) -> NextProbe | Stop:
    """The next probe, or the end of the search.

    `probe_length_s` gives the time that a probe will take, which counts against the budget; by default that of the last probe.

    Each limit of the SLO is fitted by itself, and the lowest crossing is the capacity. If no rising line fits the probes around
    the estimate, the curve may have a cliff: then rates are bisected by whether they meet the SLO, and the interval lies between
    the highest rate that meets it and the lowest rate above that misses it. If those outcomes contradict each other, the search
    ends. A rate at which the load generator was the bottleneck bounds the search from above but says nothing about the target.
    """
    if not probes:
        return NextProbe(settings.clipped(settings.start_per_s), "bracket")
    step = _next_step(probes, settings)
    if isinstance(step, NextProbe):
        spent_s, needed_s = sum(probe.took_s for probe in probes), probe_length_s(step) if probe_length_s else probes[-1].took_s
        if len(probes) >= settings.max_probes or spent_s + needed_s > settings.budget_s:
            current = estimate(probes, settings)
            if current.fit is not None and _is_precise(current.fit, settings) and _last_confirmation(probes) != "missed":
                return _stop("precision", current, probes)  # only the confirming probe is left out
            if not any(probe.is_valid for probe in probes):
                return _stop("generator", current, probes)
            return _stop("max_probes" if len(probes) >= settings.max_probes else "budget", current, probes)
    return step


def _next_step(probes: Sequence[Probe], settings: SearchSettings) -> NextProbe | Stop:
    """The next probe or the end, regardless of `max_probes` and the budget."""
    if len(probes) >= _MAX_INVALID_IN_A_ROW and not any(probe.is_valid for probe in probes[-_MAX_INVALID_IN_A_ROW:]):
        return _stop("generator", estimate(probes, settings), probes)
    last = probes[-1]
    if not last.is_valid and sum(probe.rate_per_s == last.rate_per_s for probe in probes) < _TRIES_PER_RATE:  # it may pass
        return NextProbe(last.rate_per_s, last.stage)
    low, high = _bracket([probe for probe in probes if probe.stage in ("bracket", "bisect")])
    if low is None or high is None:
        return _widen(probes, settings, low)
    current, refined = estimate(probes, settings), sum(probe.stage == "refine" for probe in probes)
    if not refined and high / low > _NARROW_RATIO and sum(probe.stage == "bisect" for probe in probes) < _BISECTIONS:
        return NextProbe(math.sqrt(low * high), "bisect")
    if not any(probe.is_valid and not probe.is_met for probe in probes):  # only the generator's limit bounds the bracket
        return _stop("generator", current, probes) if high / low <= _NARROW_RATIO else NextProbe(math.sqrt(low * high), "bisect")
    fit = current.fit
    if fit is not None and _is_precise(fit, settings):
        return _confirm("precision", current, probes, settings)
    is_bounded = fit is not None and fit.is_bounded
    if refined >= _NEAR_PROBES and not is_bounded:
        if cliff := _cliff(probes):
            return _bisect_cliff(*cliff, probes, settings)
        if refined >= 2 * _NEAR_PROBES and fit is None:
            return _stop("non_monotone", _contradictory_range(probes), probes)
    centre = math.sqrt(low * high) if fit is None else min(max(fit.root_per_s, 0.9 * low), 1.1 * high)
    factors = _NEAR_FACTORS if is_bounded or refined < _NEAR_PROBES else _FAR_FACTORS
    return NextProbe(settings.clipped(centre * factors[refined % len(factors)]), "refine")


def _widen(probes: Sequence[Probe], settings: SearchSettings, low: float | None) -> NextProbe | Stop:
    rates = [probe.rate_per_s for probe in probes]
    if low is not None:
        if low >= settings.max_rate_per_s:
            return _stop("never_missed", Estimate(low, low, None), probes)
        return NextProbe(settings.clipped(low * _BRACKET_FACTOR), "bracket")
    ascending = sorted((probe for probe in probes if probe.is_valid), key=lambda probe: probe.rate_per_s)
    floor = settings.min_rate_per_s or settings.start_per_s * _FLOOR_RATIO
    # if times do not fall with the rate, lower rates are no better: a server may wait for batches to fill
    is_flat = len(ascending) > 1 and math.isfinite(ascending[1].margin) and ascending[0].margin > ascending[1].margin - _FLAT_MARGIN
    if not is_flat and min(rates) > floor * (1 + 1e-9):
        return NextProbe(max(settings.clipped(min(rates) / _BRACKET_FACTOR), floor), "bracket")
    if not ascending:
        return NextProbe(min(rates), "bracket")
    if math.isfinite(ascending[-1].margin) and max(rates) < settings.max_rate_per_s:
        return NextProbe(settings.clipped(max(rates) * _BRACKET_FACTOR), "bracket")
    return _stop("never_met", Estimate(None, None, ascending[0].rate_per_s), probes)


def _cliff(probes: Sequence[Probe]) -> tuple[float, float] | None:
    """The highest rate that meets the SLO and the lowest that misses it, if the measured time at least doubles between them."""
    low, high = _bracket(probes)
    margins = {probe.rate_per_s: probe.margin for probe in probes if probe.is_valid}
    if low is None or high is None or high not in margins or any(margins[rate] > 0 for rate in margins if low / _NARROW_RATIO < rate < low):
        return None
    return (low, high) if margins[high] - margins[low] > _CLIFF_MARGIN_STEP else None


def _bisect_cliff(low: float, high: float, probes: Sequence[Probe], settings: SearchSettings) -> NextProbe | Stop:
    if high / low > (1 + settings.precision) / (1 - settings.precision):
        return NextProbe(math.sqrt(low * high), "bisect")
    return _confirm("cliff", Estimate(low, low, high), probes, settings)


def _confirm(reason: StopReason, current: Estimate, probes: Sequence[Probe], settings: SearchSettings) -> NextProbe | Stop:
    """Stops for the reason if a probe has confirmed the lower end of the estimate; otherwise probes there."""
    assert current.low_per_s is not None
    rate_per_s = settings.clipped(current.low_per_s)
    confirming = _confirming(probes)
    if confirming and confirming[-1].is_met and confirming[-1].rate_per_s <= rate_per_s * (1 + 1e-9):
        return _stop(reason, current, probes)
    if sum(not probe.is_met for probe in confirming) >= _MAX_MISSED_CONFIRMATIONS:
        return _stop("not_confirmed", current, probes)
    return NextProbe(rate_per_s, "confirm")


def estimate(probes: Sequence[Probe], settings: SearchSettings) -> Estimate:
    """The lowest crossing of all limits; if no line fits, the range between rates that meet and miss the SLO."""
    # a probe that confirmed the interval stays out of the fit, as independent evidence
    usable = [probe for probe in probes if not (probe.stage == "confirm" and probe.is_met)]
    fitted = [probe for probe in usable if probe.is_valid and not probe.is_overloaded]
    low, high = _bracket([probe for probe in usable if probe.stage in ("bracket", "bisect")])
    if low is not None and high is not None:
        crossings: list[tuple[float, str, RootFit]] = []
        for name in dict.fromkeys(name for probe in fitted for name in probe.margins):
            rates, margins = zip(*((probe.rate_per_s, probe.margins[name]) for probe in fitted if name in probe.margins), strict=True)
            if (fit := fit_root(rates, margins, math.sqrt(low * high), settings.confidence)) is not None:
                crossings.append((fit.root_per_s, name, fit))
        root_per_s, name, fit = min(crossings, default=(math.inf, "", None))
        if fit is not None and low / _BRACKET_FACTOR <= root_per_s <= high * _BRACKET_FACTOR:
            upper = fit.high_per_s if math.isfinite(fit.high_per_s) else None
            return Estimate(root_per_s, fit.low_per_s or None, upper, fit, name)
    low, high = _bracket(usable)
    return Estimate(low, low, high)


def _bracket(probes: Sequence[Probe]) -> tuple[float | None, float | None]:
    """The highest rate at which every probe met the SLO, and the lowest rate above it that was missed or not reached."""
    valid = {probe.rate_per_s for probe in probes if probe.is_valid}
    not_met = {probe.rate_per_s for probe in probes if not probe.is_met and (probe.is_valid or probe.rate_per_s not in valid)}
    met = {probe.rate_per_s for probe in probes if probe.is_met} - not_met
    low = max(met, default=None)
    return low, min((rate for rate in not_met if low is not None and rate > low), default=None)


def _contradictory_range(probes: Sequence[Probe]) -> Estimate:
    """From the highest rate below which every probe meets the SLO to the lowest rate above which none does."""
    missed = min((probe.rate_per_s for probe in probes if probe.is_valid and not probe.is_met), default=math.inf)
    low = max((probe.rate_per_s for probe in probes if probe.is_met and probe.rate_per_s < missed), default=None)
    return Estimate(low, low, _bracket(probes)[1])


def _is_precise(fit: RootFit, settings: SearchSettings) -> bool:
    return fit.points >= _MIN_FITTED_POINTS and fit.is_within(settings.precision)


def _stop(reason: StopReason, current: Estimate, probes: Sequence[Probe]) -> Stop:
    low = current.low_per_s or 0.0
    missed_below = [probe.rate_per_s for probe in probes if probe.is_valid and not probe.is_met and probe.rate_per_s * _NARROW_RATIO < low]
    return Stop(reason, current, _last_confirmation(probes), max(missed_below, default=None))


def _confirming(probes: Sequence[Probe]) -> list[Probe]:
    return [probe for probe in probes if probe.stage == "confirm" and probe.is_valid]


def _last_confirmation(probes: Sequence[Probe]) -> Confirmation | None:
    for last in reversed(_confirming(probes)):
        if not last.is_met:
            return "missed"
        return "not_steady" if not last.is_steady else "passed" if last.has_enough_samples else "too_few_samples"
    return None
