"""The decisions of the capacity search: which rate to probe next and for how long, and when and why to stop.

`decide` is a pure function of the probes so far. The search brackets the capacity by factors of two, bisects the bracket twice
(geometrically), and then probes on both sides of the estimate, which is fitted again after each probe, until its interval is
narrow enough. These probes grow until they hold enough requests beyond the limit that are independent of each other. A
last probe confirms that the interval's lower end meets the SLO. If it has too few samples to show that by itself, the fit counts it,
and the search goes on if the interval is then too wide.
"""

import dataclasses
import math
from collections.abc import Callable, Sequence

from perfkit.result.search import Confirmation, StopReason
from perfkit.search.crossing import Crossing
from perfkit.search.drift import find_drift
from perfkit.search.estimate import BRACKET_FACTOR, MUCH_LONGER, bracket_of, contradictory_range, estimate, searched_range, standing_probes
from perfkit.search.probes import (
    FEWEST_BEYOND,
    MIN_FITTED_POINTS,
    Estimate,
    NextProbe,
    Probe,
    SearchEnd,
    SearchSettings,
    allowed_share,
    dispersion_without_fit,
    fewest_requests,
    is_long,
    longest_count,
    missing_requests,
    needed_requests,
    next_requests,
    relative_slope,
)
from perfkit.search.share_curve import LOWEST_NEAR
from perfkit.stats.percentiles import minimum_samples

_PLACES = (-1.0, 0.5, -0.5, 1.0)  # of refining probes around the estimate, as shares of their reach
_ALIKE = 1.25  # sides of an interval whose widths differ by up to this factor
_FIRST_REACH, _FAR_REACH, _SHORTEST_REACH, _LONGEST_REACH = 0.06, 0.3, 0.02, 0.12
_REACHED_LOGARITHM = 0.8
_BISECTIONS, _NARROW_RATIO = 2, 1.14
_BISECTION_SAMPLES_FACTOR = 4  # of the samples that the percentile needs
_NEAR_PROBES = 4  # if no curve fits after this many refining probes, check for a cliff and probe further away
_CLIFF_MARGIN_STEP = math.log(10)  # at a cliff, the share beyond the limit rises at least tenfold
_DOUBTFUL_MARGIN, _CLEAR_MARGIN = math.log(5), math.log(10)  # a miss by less may be chance; a miss by more is none
# a probe at the highest or lowest rate, on which the answer rests alone, has this multiple of the samples that the percentile needs
_END_SAMPLES_FACTOR = 20
_FLOOR_RATIO = 2.0**-10  # lowest probed rate ÷ first rate, if the scenario sets no min_rate
_FLAT_MARGIN = 0.05
_MAX_MISSED_CONFIRMATIONS = 3
_CONFIRM_LENGTH_FACTOR = 4  # longest confirming probe ÷ longest other probe
_MAX_INVALID_IN_A_ROW, _TRIES_PER_RATE = 5, 2
_LONG_ENOUGH = 0.8  # a fit that needs slightly longer probes than the last ones is good enough
_LOW_RATE = 0.6  # of the estimate
_HOPELESS_FACTOR = 1.5
_LARGE_DRIFT = 0.5  # of the precision: the capacity changes by at least as much as the times
_MUCH_SHORTER = 0.8  # of the time that a search needs: a wider precision that saves less is not worth a hint


def decide(
    probes: Sequence[Probe], settings: SearchSettings, probe_length_s: Callable[[NextProbe], float] | None = None
) -> NextProbe | SearchEnd:
    """The next probe, or the end of the search.

    `probe_length_s` gives the time that a probe will take, which counts against the budget; by default that of the last probe.

    Each limit of the SLO is fitted by itself, and the lowest crossing is the capacity. If no rising curve fits the probes around
    the estimate, the curve may have a cliff: then rates are bisected by whether they meet the SLO, and the interval goes from
    the highest rate that meets it to the lowest rate above it that misses it. If those outcomes contradict each other, the search
    ends. A rate at which the load generator was the bottleneck bounds the search from above but says nothing about the target. One at which
    the target was cold bounds nothing, and is probed again. Times that are not known count as beyond their limit; an answer that they
    decide is undecided.
    """
    if not probes:
        return NextProbe(settings.clipped(settings.start_per_s), "bracket")
    step = _affordable(_next_step(probes, settings), probes, settings, probe_length_s)
    return _with_unknown_times(_with_drift(step, probes, settings), probes, settings) if isinstance(step, SearchEnd) else step


def _affordable(
    step: NextProbe | SearchEnd, probes: Sequence[Probe], settings: SearchSettings, probe_length_s: Callable[[NextProbe], float] | None
) -> NextProbe | SearchEnd:
    """The step, or the end if it is a probe for which `max_probes` or the budget leaves no room."""
    if isinstance(step, SearchEnd):
        return step
    spent_s, needed_s = sum(probe.took_s for probe in probes), probe_length_s(step) if probe_length_s else probes[-1].took_s
    left_s = settings.budget_s - spent_s
    current = estimate(probes, settings)
    fit = current.fit
    further_s = 0.0 if fit is None or step.stage != "refine" else _further_s(fit, probes, settings)
    has_room = len(probes) < settings.max_probes and needed_s <= left_s
    if has_room and further_s <= _HOPELESS_FACTOR * left_s:
        return step
    if not any(probe.is_valid for probe in probes):
        return _stop_invalid(current, probes, probes)
    if len(probes) >= settings.max_probes:
        return _stop("max_probes", current, probes)
    if step.stage == "confirm":
        return dataclasses.replace(_stop("too_short", current, probes), needed_s=spent_s + needed_s)
    if step.stage == "refine" or (step.stage == "bisect" and any(probe.stage == "refine" for probe in probes)):
        dispersion = dispersion_without_fit(probes) if fit is None else fit.dispersion
        fewest_s = FEWEST_BEYOND * dispersion / allowed_share(probes) / step.rate_per_s
        confirm_s = minimum_samples(1 - allowed_share(probes), dispersion) / step.rate_per_s
        wider = dataclasses.replace(settings, precision=2 * settings.precision)
        wider_further_s = 0.0 if fit is None else _further_s(fit, probes, wider)
        whole_s, wider_s = (max(spent_s + max(seconds, needed_s), fewest_s) + confirm_s for seconds in (further_s, wider_further_s))
        return dataclasses.replace(
            _stop("too_short", current, probes),
            needed_s=whole_s,
            needed_if_wider_s=wider_s if wider_s < _MUCH_SHORTER * whole_s else None,
        )
    return _stop("budget", current, probes)


def _with_drift(end: SearchEnd, probes: Sequence[Probe], settings: SearchSettings) -> SearchEnd:
    """The end with the target's drift; a search that has an answer but for a drift of half its precision or more is undecided."""
    capacity_per_s = end.estimate.capacity_per_s
    drift = find_drift(probes, capacity_per_s) if capacity_per_s else None
    is_large = drift is not None and abs(drift.slower) >= _LARGE_DRIFT * settings.precision
    is_undecided = is_large and end.reason in ("precision", "cliff", "never_missed")
    return dataclasses.replace(end, reason="drifted" if is_undecided else end.reason, drift=drift)


def _with_unknown_times(end: SearchEnd, probes: Sequence[Probe], settings: SearchSettings) -> SearchEnd:
    """The end of a search that took unknown times to be beyond their limits, undecided if its answer is another with all of them within.

    The interval of a fit reaches up to that of a fit with all of them within, and has to be within the precision then, too.
    """
    if not any(one.unknown for probe in probes for one in probe.limits.values()):
        return end
    within, current = [probe.with_unknown_within for probe in probes], end.estimate
    if end.reason == "precision" and current.capacity_per_s is not None:
        high_per_s = estimate(within, settings).high_per_s
        if high_per_s is not None and current.high_per_s is not None:
            high_per_s = max(high_per_s, current.high_per_s)
        is_wide = high_per_s is None or high_per_s > (1 + settings.precision) * current.capacity_per_s
        current = dataclasses.replace(current, high_per_s=high_per_s)
        return dataclasses.replace(end, reason="unknown_times" if is_wide else end.reason, estimate=current)
    highest = current.high_per_s if end.reason == "cliff" and current.high_per_s is not None else math.inf
    is_open = any(not one.is_met and other.is_met and one.rate_per_s <= highest for one, other in zip(probes, within, strict=True))
    is_answer = end.reason == "cliff" or (current.capacity_per_s is None and end.reason not in ("generator", "cold"))
    return dataclasses.replace(end, reason="unknown_times") if is_open and is_answer else end


def _further_s(fit: Crossing, probes: Sequence[Probe], settings: SearchSettings) -> float:
    """The seconds that the search still has to probe for its precision."""
    return missing_requests(fit, probes, settings) / fit.rate_per_s


def _next_step(probes: Sequence[Probe], settings: SearchSettings) -> NextProbe | SearchEnd:
    """The next probe or the end, regardless of `max_probes` and the budget."""
    latest, last = probes[-_MAX_INVALID_IN_A_ROW:], probes[-1]
    if len(probes) >= _MAX_INVALID_IN_A_ROW and not any(probe.is_valid for probe in latest):
        return _stop_invalid(estimate(probes, settings), latest, probes)
    tries = sum(probe.rate_per_s == last.rate_per_s for probe in probes)
    if last.is_cold or (not last.is_valid and tries < _TRIES_PER_RATE):  # it may pass
        return NextProbe(last.rate_per_s, last.stage, last.count if last.stage in ("refine", "confirm") else 0)
    if _is_doubtful(last, probes):
        return NextProbe(last.rate_per_s, last.stage, MUCH_LONGER * minimum_samples(1 - allowed_share(probes)))
    probes = [probe for probe in probes if not _is_overruled(probe, probes)]
    low, high = searched_range(probes)
    if low is None or high is None:
        return _widen(probes, settings, low)
    current, refined = estimate(probes, settings), sum(probe.stage == "refine" for probe in probes)
    if high / low > _NARROW_RATIO:
        least = _BISECTION_SAMPLES_FACTOR * minimum_samples(1 - allowed_share(probes))
        if not refined and sum(probe.stage == "bisect" for probe in probes) < _BISECTIONS:
            return NextProbe(math.sqrt(low * high), "bisect", least)
        if refined and current.fit is None and len(standing_probes(probes)) < len(probes):
            return NextProbe(math.sqrt(low * high), "bisect", max(least, longest_count(probes)))
    if not any(probe.is_valid and not probe.is_met for probe in probes):  # only the generator's limit bounds the bracket
        return _stop("generator", current, probes) if high / low <= _NARROW_RATIO else NextProbe(math.sqrt(low * high), "bisect")
    fit = current.fit
    if _is_precise(fit, probes, settings):
        return _confirm("precision", current, probes, settings)
    is_bounded = fit is not None and fit.is_bounded
    if refined >= _NEAR_PROBES and not is_bounded and is_long(probes):
        if cliff := _cliff(probes):
            return _bisect_cliff(*cliff, probes, settings)
        if refined >= 2 * _NEAR_PROBES and fit is None:
            return _stop("non_monotone", contradictory_range(probes), probes)
    centre = math.sqrt(low * high) if fit is None else min(max(fit.rate_per_s, 0.9 * low), 1.1 * high)
    low_rate_per_s = settings.clipped(_LOW_RATE * centre)
    if (
        not refined
        and low_rate_per_s < LOWEST_NEAR * centre
        and not any(probe.is_valid and probe.rate_per_s < LOWEST_NEAR * centre for probe in probes)
    ):  # the curve needs to know how many requests are slow without a queue
        return NextProbe(low_rate_per_s, "bisect", _BISECTION_SAMPLES_FACTOR * minimum_samples(1 - allowed_share(probes)))
    if fit is not None and is_bounded:
        reach, place = _reach(fit), _place(fit, refined)
    else:
        is_early = refined < _NEAR_PROBES or not is_long(probes)
        reach, place = _FIRST_REACH if is_early else _FAR_REACH if fit is None else _LONGEST_REACH, _PLACES[refined % len(_PLACES)]
    return NextProbe(settings.clipped(centre * (1 + reach * place)), "refine", next_requests(fit, refined, probes, settings))


def _place(fit: Crossing, refined: int) -> float:
    """Where the next probe goes: on the wider side of the interval, about which less is known; on both sides in turn if they are alike.

    Its distance from the crossing alternates, because a probe far away may lie outside the range that the curve is fitted to.
    """
    below, above = 1 - fit.low_per_s / fit.rate_per_s, fit.high_per_s / fit.rate_per_s - 1
    if max(below, above) <= _ALIKE * min(below, above):
        return _PLACES[refined % len(_PLACES)]
    distance = (1.0, 0.5)[refined % 2]
    return -distance if below > above else distance


def _is_doubtful(last: Probe, probes: Sequence[Probe]) -> bool:
    """Whether a short probe missed the SLO by so few requests that it may be chance, even far below the capacity."""
    return (
        last.stage == "bracket"
        and last.is_valid
        and 0 < last.margin < _DOUBTFUL_MARGIN
        and last.count < minimum_samples(1 - allowed_share(probes))
        and sum(probe.rate_per_s == last.rate_per_s for probe in probes) < _TRIES_PER_RATE
    )


def _is_overruled(one: Probe, probes: Sequence[Probe]) -> bool:
    """Whether a probe missed the SLO where a much longer one at the same rate met it."""
    return not one.is_met and any(
        other.is_met and other.rate_per_s == one.rate_per_s and other.count >= MUCH_LONGER * one.count for other in probes
    )


def _reach(fit: Crossing) -> float:
    """How far from the estimate to probe: where the share beyond the limit is about twice the allowed share, or half of it."""
    return min(max(_REACHED_LOGARITHM / relative_slope(fit), _SHORTEST_REACH), _LONGEST_REACH)


def _widen(probes: Sequence[Probe], settings: SearchSettings, low: float | None) -> NextProbe | SearchEnd:
    rates = [probe.rate_per_s for probe in probes]
    if low is not None:
        if low >= settings.max_rate_per_s:
            return _longer_at(low, probes) or _stop("never_missed", Estimate(low, low, None), probes)
        return NextProbe(settings.clipped(low * BRACKET_FACTOR), "bracket")
    ascending = sorted((probe for probe in probes if probe.is_valid), key=lambda probe: probe.rate_per_s)
    # at two rates: the target keeps up with twice the lower one, so requests are slow there without a queue
    if sum(probe.is_out_of_reach for probe in probes) > 1:
        return _stop("never_met", Estimate(None, None, ascending[0].rate_per_s), probes)
    # batches may fill faster at a higher rate
    if probes[-1].is_out_of_reach and not ascending[-1].is_overloaded and max(rates) < settings.max_rate_per_s:
        return NextProbe(settings.clipped(max(rates) * BRACKET_FACTOR), "bracket")
    floor = settings.min_rate_per_s or settings.start_per_s * _FLOOR_RATIO
    # if times do not fall with the rate, lower rates are no better: a server may wait for batches to fill
    is_flat = len(ascending) > 1 and math.isfinite(ascending[1].margin) and ascending[0].margin > ascending[1].margin - _FLAT_MARGIN
    if not is_flat and min(rates) > floor * (1 + 1e-9):
        return NextProbe(max(settings.clipped(min(rates) / BRACKET_FACTOR), floor), "bracket")
    if not ascending:
        return NextProbe(min(rates), "bracket")
    if math.isfinite(ascending[-1].margin) and max(rates) < settings.max_rate_per_s:
        return NextProbe(settings.clipped(max(rates) * BRACKET_FACTOR), "bracket")
    return _longer_at(ascending[0].rate_per_s, probes) or _stop("never_met", Estimate(None, None, ascending[0].rate_per_s), probes)


def _longer_at(rate_per_s: float, probes: Sequence[Probe]) -> NextProbe | None:
    """A longer probe at the highest or lowest allowed rate, on which the answer would rest alone; None if it has samples enough."""
    measured = [probe for probe in probes if probe.is_valid and probe.rate_per_s == rate_per_s]
    longest, least = max(measured, key=lambda probe: probe.count), _END_SAMPLES_FACTOR * minimum_samples(1 - allowed_share(probes))
    is_clear = longest.has_enough_samples or not longest.is_met
    if longest.is_overloaded or longest.margin > _CLEAR_MARGIN or (longest.count >= least and is_clear):
        return None
    return NextProbe(rate_per_s, "bracket", max(least, MUCH_LONGER * longest.count))


def _cliff(probes: Sequence[Probe]) -> tuple[float, float] | None:
    """The highest rate that meets the SLO and the lowest that misses it, if the share beyond the limit rises tenfold between them."""
    low, high = bracket_of(probes)
    margins = {probe.rate_per_s: probe.margin for probe in probes if probe.is_valid}
    if low is None or high is None or high not in margins or any(margins[rate] > 0 for rate in margins if low / _NARROW_RATIO < rate < low):
        return None
    return (low, high) if margins[high] - margins[low] > _CLIFF_MARGIN_STEP else None


def _bisect_cliff(low: float, high: float, probes: Sequence[Probe], settings: SearchSettings) -> NextProbe | SearchEnd:
    if high / low > (1 + settings.precision) / (1 - settings.precision):
        return NextProbe(math.sqrt(low * high), "bisect")
    # a cluster of slow requests in a short window looks like a cliff: both sides need windows that would hold several
    sides = {rate: [probe for probe in probes if probe.rate_per_s == rate and probe.is_valid] for rate in (low, high)}
    dispersion = max((one.dispersion for probe in sides[high] for one in probe.limits.values()), default=1.0)
    needed = minimum_samples(1 - allowed_share(probes), dispersion)
    needed_at = {high: needed, low: max(needed, fewest_requests(probes, settings))}  # a queue that fills rarely may look fast for long
    for rate, measured in sides.items():
        overloaded = [probe.count for probe in measured if probe.is_overloaded]  # one alone may be chance, if it was short
        is_shown = len(overloaded) > 1 or max(overloaded, default=0) >= minimum_samples(1 - allowed_share(probes))
        if not is_shown and sum(probe.count for probe in measured) < needed_at[rate]:
            return NextProbe(rate, "bisect", needed_at[rate])
    return _confirm("cliff", Estimate(low, low, high), probes, settings)


def _confirm(reason: StopReason, current: Estimate, probes: Sequence[Probe], settings: SearchSettings) -> NextProbe | SearchEnd:
    """Stops for the reason if a probe has confirmed the lower end of the estimate; otherwise probes there."""
    assert current.low_per_s is not None
    rate_per_s = settings.clipped(current.low_per_s)
    confirming = _confirming(probes)
    if confirming and confirming[-1] is probes[-1] and probes[-1].is_met:
        low_per_s = min(rate_per_s, probes[-1].rate_per_s)  # an inconclusive probe is in the fit, which may have moved up
        return _stop(reason, dataclasses.replace(current, low_per_s=low_per_s), probes)
    if sum(not probe.is_met for probe in confirming) >= _MAX_MISSED_CONFIRMATIONS:
        return _stop("not_confirmed", current, probes)
    dispersion = max((one.dispersion for probe in probes[-_NEAR_PROBES:] for one in probe.limits.values()), default=1.0)
    if current.fit is not None:
        dispersion = current.fit.dispersion
    needed = minimum_samples(1 - allowed_share(probes), dispersion)
    return NextProbe(rate_per_s, "confirm", min(needed, _CONFIRM_LENGTH_FACTOR * max(longest_count(probes), 1)))


def _is_precise(fit: Crossing | None, probes: Sequence[Probe], settings: SearchSettings) -> bool:
    return (
        fit is not None
        and fit.points >= MIN_FITTED_POINTS
        and fit.half_width <= settings.precision
        and fit.effective_beyond >= FEWEST_BEYOND
        and fit.requests >= fewest_requests(probes, settings)
        and longest_count(probes) >= _LONG_ENOUGH * needed_requests(fit, probes)
    )


def _stop(reason: StopReason, current: Estimate, probes: Sequence[Probe]) -> SearchEnd:
    low = current.low_per_s or 0.0
    missed_below = [probe.rate_per_s for probe in probes if probe.is_valid and not probe.is_met and probe.rate_per_s * _NARROW_RATIO < low]
    return SearchEnd(reason, current, _last_confirmation(probes), max(missed_below, default=None))


def _stop_invalid(current: Estimate, invalid: Sequence[Probe], probes: Sequence[Probe]) -> SearchEnd:
    return _stop("cold" if all(probe.is_cold for probe in invalid) else "generator", current, probes)


def _confirming(probes: Sequence[Probe]) -> list[Probe]:
    return [probe for probe in probes if probe.stage == "confirm" and probe.is_valid]


def _last_confirmation(probes: Sequence[Probe]) -> Confirmation | None:
    for last in reversed(_confirming(probes)):
        if not last.is_met:
            return "missed"
        return "not_steady" if not last.is_steady else "passed" if last.has_enough_samples else "too_few_samples"
    return None
