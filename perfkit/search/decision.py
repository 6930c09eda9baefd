"""The capacity search: told what the probes found, it says which rate to probe next, or that it is over, and why.

It holds no state and knows no clock: `decide` is a function of the probes so far. Bracketing by factors of two, two geometric
bisections, then probes at 0.94, 1.03, 0.97 and 1.06 of an estimate that moves with every fit, until its interval is narrow
enough; and a last probe at the interval's lower end, which must keep to the SLO by itself.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

from perfkit.search.root_fit import RootFit, fit_root

Stage: TypeAlias = Literal["bracket", "bisect", "refine", "confirm"]
Confirmation: TypeAlias = Literal["passed", "not_steady", "too_few_samples", "missed"]
StopReason: TypeAlias = Literal[
    "precision", "cliff", "non_monotone", "not_confirmed", "never_met", "never_missed", "generator", "max_probes", "budget"
]

_STEP = 2.0
_AROUND, _FURTHER = (0.94, 1.03, 0.97, 1.06), (0.7, 1.3, 0.85, 1.15)
_BISECTIONS, _NARROW = 2, 1.14
_FEWEST_FITTED = 6
_FIT_BY = 4  # probes around the estimate; where no line goes through them, look for a cliff, and further away
_CLIFF = math.log(2)
_LOWEST = 2.0**-10  # of the first rate, where no lowest one is given
_FLAT = 0.05
_CONFIRMATIONS = 3
_INVALID, _TRIES = 5, 2


@dataclasses.dataclass(frozen=True, slots=True)
class Probe:
    """What one probe found: for each limit of the SLO, by name, ln(measured ÷ limit)."""

    rate_per_s: float
    stage: Stage
    margins: Mapping[str, float]
    is_overloaded: bool = False
    """The backlog grew: the margins hold for the probe's length alone, and the SLO is missed whatever they say."""
    is_valid: bool = True
    """Otherwise the load generator was the bottleneck, and nothing is known of the target at that rate."""
    is_steady: bool = True
    """Otherwise the times still rose or fell: over a longer window they might be others."""
    carries: bool = False
    """Whether it has samples enough to show by itself that the SLO is kept; see `stats.sample_bound`."""
    took_s: float = 0.0

    @property
    def margin(self) -> float:
        """That of the limit that is worst off; above 0 the SLO is missed."""
        if self.is_overloaded or not self.margins:
            return math.inf
        return max(self.margins.values())

    @property
    def is_met(self) -> bool:
        """Whether the SLO was kept."""
        return self.is_valid and self.margin <= 0


@dataclasses.dataclass(frozen=True, slots=True)
class SearchSettings:
    """Where to begin, and when to stop."""

    start_per_s: float
    min_rate_per_s: float = 0.0
    max_rate_per_s: float = math.inf
    precision: float = 0.05
    max_probes: int = 16
    budget_s: float = math.inf
    confidence: float = 0.9

    def clipped(self, rate_per_s: float) -> float:
        """The rate, or the nearest that may be probed."""
        return min(max(rate_per_s, self.min_rate_per_s), self.max_rate_per_s)


@dataclasses.dataclass(frozen=True, slots=True)
class Next:
    """Probe this rate, with arrivals of its own; one to confirm needs samples enough to stand alone."""

    rate_per_s: float
    stage: Stage


@dataclasses.dataclass(frozen=True, slots=True)
class Estimate:
    """The capacity as far as it is known; None and the open ends are what is not."""

    capacity_per_s: float | None
    low_per_s: float | None
    high_per_s: float | None
    fit: RootFit | None = None
    limit: str | None = None
    """The limit that is missed first, where a line was fitted to it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Stop:
    """The end: why, what is known, and what the last probe to confirm it came to."""

    reason: StopReason
    estimate: Estimate
    confirmation: Confirmation | None = None
    missed_below_per_s: float | None = None
    """A rate far below the capacity at which the SLO is missed as well: the capacity is that of the rates above it."""


def decide(probes: Sequence[Probe], settings: SearchSettings, takes_s: Callable[[Next], float] | None = None) -> Next | Stop:
    """The next rate, or the end; `takes_s` says how long a probe will take, for the budget, and is left out where all take as long as the last.

    Several limits are fitted each by itself, and the lowest crossing is the capacity. Where no rising line goes through the
    probes around the estimate, the curve has a cliff there: what is left is bisection by verdicts, and the interval lies between the highest
    rate that kept to the SLO and the lowest above it that missed. Verdicts that contradict each other there end the
    search. Rates at which the generator was the bottleneck bound it from above, and are no evidence of the target.
    """
    if not probes:
        return Next(settings.clipped(settings.start_per_s), "bracket")
    step = _step(probes, settings)
    if isinstance(step, Next):
        spent_s, ahead_s = sum(probe.took_s for probe in probes), takes_s(step) if takes_s else probes[-1].took_s
        if len(probes) >= settings.max_probes or spent_s + ahead_s > settings.budget_s:
            known = estimate(probes, settings)
            if known.fit is not None and _is_precise(known.fit, settings):  # it was the confirmation that had no room
                return _stop("precision", known, probes)
            if not any(probe.is_valid for probe in probes):
                return _stop("generator", known, probes)
            return _stop("max_probes" if len(probes) >= settings.max_probes else "budget", known, probes)
    return step


def _step(probes: Sequence[Probe], settings: SearchSettings) -> Next | Stop:
    if len(probes) >= _INVALID and not any(probe.is_valid for probe in probes[-_INVALID:]):
        return _stop("generator", estimate(probes, settings), probes)
    last = probes[-1]
    if not last.is_valid and sum(probe.rate_per_s == last.rate_per_s for probe in probes) < _TRIES:  # it may have been a mishap
        return Next(last.rate_per_s, last.stage)
    low, high = _bracket([probe for probe in probes if probe.stage in ("bracket", "bisect")])
    if low is None or high is None:
        return _widen(probes, settings, low)
    known, around = estimate(probes, settings), sum(probe.stage == "refine" for probe in probes)
    if not around and high / low > _NARROW and sum(probe.stage == "bisect" for probe in probes) < _BISECTIONS:
        return Next(math.sqrt(low * high), "bisect")
    if not any(probe.is_valid and not probe.is_met for probe in probes):  # only the generator is in the way
        return _stop("generator", known, probes) if high / low <= _NARROW else Next(math.sqrt(low * high), "bisect")
    fit = known.fit
    if fit is not None and _is_precise(fit, settings):
        return _confirm("precision", known, probes, settings)
    is_bounded = fit is not None and fit.is_bounded
    if around >= _FIT_BY and not is_bounded:
        if _is_cliff(probes):
            return _by_verdicts(probes, settings)
        if around >= 2 * _FIT_BY and fit is None:
            return _stop("non_monotone", _beside_contradictions(probes), probes)
    centre = math.sqrt(low * high) if fit is None else min(max(fit.root_per_s, 0.9 * low), 1.1 * high)
    factors = _AROUND if is_bounded or around < _FIT_BY else _FURTHER
    return Next(settings.clipped(centre * factors[around % len(factors)]), "refine")


def _widen(probes: Sequence[Probe], settings: SearchSettings, low: float | None) -> Next | Stop:
    """No rate that keeps to the SLO and one above it that misses are known yet."""
    rates = [probe.rate_per_s for probe in probes]
    if low is not None:
        if low >= settings.max_rate_per_s:
            return _stop("never_missed", Estimate(low, low, None), probes)
        return Next(settings.clipped(low * _STEP), "bracket")
    ascending = sorted((probe for probe in probes if probe.is_valid), key=lambda probe: probe.rate_per_s)
    floor = settings.min_rate_per_s or settings.start_per_s * _LOWEST
    # where times do not fall with the rate, lower ones are no better: a server may wait for batches to fill
    is_flat = len(ascending) > 1 and math.isfinite(ascending[1].margin) and ascending[0].margin > ascending[1].margin - _FLAT
    if not is_flat and min(rates) > floor * (1 + 1e-9):
        return Next(max(settings.clipped(min(rates) / _STEP), floor), "bracket")
    if not ascending:
        return Next(min(rates), "bracket")
    if math.isfinite(ascending[-1].margin) and max(rates) < settings.max_rate_per_s:
        return Next(settings.clipped(max(rates) * _STEP), "bracket")
    return _stop("never_met", Estimate(None, None, ascending[0].rate_per_s), probes)


def _is_cliff(probes: Sequence[Probe]) -> bool:
    """Whether the verdicts agree, and the margin doubles or more from the last rate that kept to the SLO to the first that did not."""
    low, high = _bracket(probes)
    margins = {probe.rate_per_s: probe.margin for probe in probes if probe.is_valid}
    if low is None or high is None or high not in margins or any(margins[rate] > 0 for rate in margins if low / _NARROW < rate < low):
        return False
    return margins[high] - margins[low] > _CLIFF


def _by_verdicts(probes: Sequence[Probe], settings: SearchSettings) -> Next | Stop:
    low, high = _bracket(probes)
    assert low is not None
    assert high is not None
    if high / low > (1 + settings.precision) / (1 - settings.precision):
        return Next(math.sqrt(low * high), "bisect")
    return _confirm("cliff", Estimate(low, low, high), probes, settings)


def _confirm(reason: StopReason, known: Estimate, probes: Sequence[Probe], settings: SearchSettings) -> Next | Stop:
    assert known.low_per_s is not None
    rate_per_s = settings.clipped(known.low_per_s)
    tried = [probe for probe in probes if probe.stage == "confirm" and probe.is_valid]
    if tried and tried[-1].is_met and tried[-1].rate_per_s <= rate_per_s * (1 + 1e-9):
        return _stop(reason, known, probes)
    if sum(not probe.is_met for probe in tried) >= _CONFIRMATIONS:
        return _stop("not_confirmed", known, probes)
    return Next(rate_per_s, "confirm")


def estimate(probes: Sequence[Probe], settings: SearchSettings) -> Estimate:
    """The lowest crossing of all limits; where no line goes through them, what the verdicts say."""
    # one that confirmed the interval is evidence apart from it
    fitted = [probe for probe in probes if not (probe.stage == "confirm" and probe.is_met)]
    steady = [probe for probe in fitted if probe.is_valid and not probe.is_overloaded]
    by_rate = _bracket([probe for probe in fitted if probe.stage in ("bracket", "bisect")])
    low, high = by_rate
    crossings: list[tuple[float, str, RootFit]] = []
    if low is not None and high is not None:
        for name in dict.fromkeys(name for probe in steady for name in probe.margins):
            known = [probe for probe in steady if name in probe.margins]
            rates, margins = [probe.rate_per_s for probe in known], [probe.margins[name] for probe in known]
            fit = fit_root(rates, margins, math.sqrt(low * high), settings.confidence)
            if fit is not None:
                crossings.append((fit.root_per_s, name, fit))
    if crossings:
        _, name, fit = min(crossings)
        if low is not None and high is not None and low / _STEP <= fit.root_per_s <= high * _STEP:
            upper = fit.high_per_s if math.isfinite(fit.high_per_s) else None
            return Estimate(fit.root_per_s, fit.low_per_s or None, upper, fit, name)
    low, high = _bracket(fitted)
    return Estimate(low, low, high)


def _bracket(probes: Sequence[Probe]) -> tuple[float | None, float | None]:
    """The highest rate that kept to the SLO, and was not missed at another try, and the lowest above it that did not."""
    known = {probe.rate_per_s for probe in probes if probe.is_valid}
    other = {probe.rate_per_s for probe in probes if not probe.is_met and (probe.is_valid or probe.rate_per_s not in known)}
    met = {probe.rate_per_s for probe in probes if probe.is_met} - other
    low = max(met, default=None)
    return low, min((rate for rate in other if low is not None and rate > low), default=None)


def _beside_contradictions(probes: Sequence[Probe]) -> Estimate:
    """From the rate up to which all probes keep to the SLO to that from which on none does."""
    missed = min((probe.rate_per_s for probe in probes if probe.is_valid and not probe.is_met), default=math.inf)
    low = max((probe.rate_per_s for probe in probes if probe.is_met and probe.rate_per_s < missed), default=None)
    return Estimate(low, low, _bracket(probes)[1])


def _is_precise(fit: RootFit, settings: SearchSettings) -> bool:
    return fit.points >= _FEWEST_FITTED and fit.is_within(settings.precision)


def _stop(reason: StopReason, known: Estimate, probes: Sequence[Probe]) -> Stop:
    tried = [probe for probe in probes if probe.stage == "confirm" and probe.is_valid]
    confirmation = _confirmation(tried[-1]) if tried else None
    low = known.low_per_s or 0.0
    below = [probe.rate_per_s for probe in probes if probe.is_valid and not probe.is_met and probe.rate_per_s * _NARROW < low]
    return Stop(reason, known, confirmation, max(below, default=None))


def _confirmation(probe: Probe) -> Confirmation:
    if not probe.is_met:
        return "missed"
    if not probe.is_steady:
        return "not_steady"
    return "passed" if probe.carries else "too_few_samples"
