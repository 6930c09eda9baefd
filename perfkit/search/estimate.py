"""What the probes of a capacity search say of the capacity: an estimate from the fit, or the bracket where there is no fit yet."""

import dataclasses
import math
from collections.abc import Sequence

from perfkit.search.crossing import Crossing, fit_crossing
from perfkit.search.probes import Estimate, Probe, SearchSettings
from perfkit.search.share_curve import CountAt

BRACKET_FACTOR = 2.0
"""The factor between rates while the capacity is bracketed; a fit that lies further outside the bracket is not used."""

MUCH_LONGER = 4
"""A probe of so many times the requests of another can contradict it."""

_SAME_RATE = 1.05  # at up to so many times its rate


def estimate(probes: Sequence[Probe], settings: SearchSettings) -> Estimate:
    """The capacity: the lowest crossing of all limits, at most what an overloaded target answered. Without a fit: its bracket."""
    # a probe that showed the interval's lower end to be met stays out of the fit, as independent evidence
    usable = [probe for probe in probes if probe.is_valid and not _is_conclusive(probe)]
    low, high = searched_range(probes)
    ceiling_per_s = min((probe.ceiling_per_s for probe in usable if probe.is_overloaded), default=math.inf)
    if low is not None and high is not None:
        crossings: list[tuple[float, str, Crossing]] = []
        for name in dict.fromkeys(name for probe in usable for name in probe.limits):
            counts = [
                CountAt(probe.rate_per_s, probe.limits[name], is_lower_bound=probe.is_overloaded or not (probe.is_steady or probe.is_met))
                for probe in usable
                if name in probe.limits and probe.limits[name].allowed_share > 0
            ]
            if (fit := fit_crossing(counts, math.sqrt(low * high), settings.confidence)) is not None:
                crossings.append((fit.rate_per_s, name, fit))
        rate_per_s, name, fit = min(crossings, default=(math.inf, "", None))
        if fit is not None and low / BRACKET_FACTOR <= rate_per_s <= high * BRACKET_FACTOR:
            if fit.low_per_s < ceiling_per_s < fit.high_per_s:
                rate_per_s = min(rate_per_s, ceiling_per_s)
                fit = dataclasses.replace(fit, rate_per_s=rate_per_s, high_per_s=ceiling_per_s)
            return Estimate(rate_per_s, fit.low_per_s or None, fit.high_per_s if math.isfinite(fit.high_per_s) else None, fit, name)
    low, high = bracket_of([probe for probe in probes if not (probe.stage == "confirm" and probe.is_met)])
    return Estimate(low, low, high)


def bracket_of(probes: Sequence[Probe]) -> tuple[float | None, float | None]:
    """The highest rate at which every probe met the SLO, and the lowest rate above it that was missed or not reached."""
    valid = {probe.rate_per_s for probe in probes if probe.is_valid}
    judged = [probe for probe in probes if not probe.is_cold]
    not_met = {probe.rate_per_s for probe in judged if not probe.is_met and (probe.is_valid or probe.rate_per_s not in valid)}
    met = {probe.rate_per_s for probe in probes if probe.is_met} - not_met
    low = max(met, default=None)
    return low, min((rate for rate in not_met if low is not None and rate > low), default=None)


def searched_range(probes: Sequence[Probe]) -> tuple[float | None, float | None]:
    """The bracket of the probes that bracketed and bisected; of all standing probes, once a longer probe contradicted one of those."""
    bracketing, standing = [probe for probe in probes if probe.stage in ("bracket", "bisect")], standing_probes(probes)
    if all(probe in standing for probe in bracketing):
        return bracket_of(bracketing)
    return bracket_of([probe for probe in standing if not (probe.stage == "confirm" and probe.is_met)])


def standing_probes(probes: Sequence[Probe]) -> list[Probe]:
    """The probes, without those that met the SLO where a much longer one, in which a queue could form, missed it."""
    missed = [probe for probe in probes if probe.is_valid and not probe.is_met]

    def is_contradicted(one: Probe) -> bool:
        return any(other.rate_per_s <= _SAME_RATE * one.rate_per_s and other.count >= MUCH_LONGER * one.count for other in missed)

    return [probe for probe in probes if not (probe.is_met and is_contradicted(probe))]


def contradictory_range(probes: Sequence[Probe]) -> Estimate:
    """From the highest rate below which every probe meets the SLO to the lowest rate above which none does."""
    missed = min((probe.rate_per_s for probe in probes if probe.is_valid and not probe.is_met), default=math.inf)
    low = max((probe.rate_per_s for probe in probes if probe.is_met and probe.rate_per_s < missed), default=None)
    return Estimate(low, low, bracket_of(probes)[1])


def _is_conclusive(probe: Probe) -> bool:
    return probe.stage == "confirm" and probe.is_met and probe.has_enough_samples
