"""The ranking of a plan's configurations: by cost, under constraints, with shared ranks where the data cannot tell them apart."""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from perfkit.plan.evidence import KEPT_UP, Evidence
from perfkit.plan.inputs import PlanInputs
from perfkit.plan.model import ConfigurationPlan, RankedConfiguration
from perfkit.stats.capacity import count_replicas
from perfkit.stats.constraints import judge_all, worst_of
from perfkit.stats.distributions import student_t_quantile
from perfkit.stats.ranking import CERTAIN, Z_CERTAIN, probability_below, shared_ranks, times_as_much
from perfkit.stats.ratio_interval import Estimate, share_interval
from perfkit.stats.slo_capacity import CONFIDENCE

_ENDS = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
_Z_END = statistics.NormalDist().inv_cdf(_ENDS[1])
_MOST_TIMES = 100
_DECIDED = ("replicas", "price")


@dataclasses.dataclass(frozen=True, slots=True)
class _Candidate:
    """A configuration that can be planned, with the distribution of what it would cost."""

    plan: ConfigurationPlan
    costs: tuple[float, ...]
    """What the replicas that a draw of the capacity needs cost an hour, or their number if there are no prices."""
    figures: Mapping[str, Estimate]
    """By the name that constraints have for them."""


def rank_configurations(
    planned: Sequence[ConfigurationPlan], evidence: Sequence[Evidence], inputs: PlanInputs, *, compares_costs: bool
) -> tuple[RankedConfiguration, ...]:
    """All configurations, the best first; those that violate a constraint, and then those that cannot be planned, have no rank.

    Ranked are the configurations that satisfy all constraints; if there is none, those for which that cannot be told. One costs
    less than another if the replicas that a draw of its capacity needs cost less, with a probability of 95 % over independent draws of
    both capacities.
    """
    candidates = [
        _candidate(one, source, inputs, compares_costs=compares_costs)
        for one, source in zip(planned, evidence, strict=True)
        if not one.refusal
    ]
    judged = [judge_all(inputs.constraints, _as_planned(candidate.figures)) for candidate in candidates]
    verdicts = [worst_of(judgements) for judgements in judged]
    ranked_verdict = next((verdict for verdict in ("holds", "cannot be told") if verdict in verdicts), None)
    ranked = [candidate for candidate, verdict in zip(candidates, verdicts, strict=True) if verdict == ranked_verdict]
    ranks = shared_ranks(len(ranked), lambda one, other: probability_below(ranked[one].costs, ranked[other].costs) >= CERTAIN)
    rank_of = {candidate.plan.name: rank for candidate, rank in zip(ranked, ranks, strict=True)}
    order = sorted(
        zip(candidates, judged, verdicts, strict=True),
        key=lambda one: (("holds", "cannot be told", "violated").index(one[2]), rank_of.get(one[0].plan.name, 0), *_planned(one[0].plan)),
    )
    first = order[0][0] if order else None
    rows = [
        RankedConfiguration(
            name=candidate.plan.name,
            rank=rank_of.get(candidate.plan.name),
            verdict=verdict,
            judgements=tuple((constraint.text, judgement) for constraint, judgement in zip(inputs.constraints, judgements, strict=True)),
            figures=candidate.figures,
            first_is_cheaper=None if first is None or candidate is first else probability_below(first.costs, candidate.costs),
            times_as_much=_times_as_much(first, candidate) if first is not None and rank_of.get(candidate.plan.name) == 1 else None,
        )
        for candidate, judgements, verdict in order
    ]
    refused = [RankedConfiguration(one.name, None, "cannot be told", (), {}, None, None) for one in planned if one.refusal]
    return (*rows, *refused)


def _planned(one: ConfigurationPlan) -> tuple[float, int]:
    """What the planned replicas cost, and their number."""
    assert one.fleet is not None
    return (one.cost_per_hour if one.cost_per_hour is not None else one.fleet.replicas), one.fleet.replicas


def _candidate(one: ConfigurationPlan, evidence: Evidence, inputs: PlanInputs, *, compares_costs: bool) -> _Candidate:
    capacity, fleet = one.capacity, one.fleet
    assert capacity is not None
    assert fleet is not None
    rules = {name: getattr(inputs, name) for name in ("headroom", "failure_headroom", "redundancy", "zones")}
    draws = [draw for draw in capacity.draws_per_s if draw > 0] or [capacity.per_s]
    needed = [count_replicas(inputs.demand_per_s, draw * one.batch_size, **rules).replicas for draw in draws]
    price = one.price_per_hour if one.price_per_hour is not None and compares_costs else 1.0
    # the planned number is the upper end: the replicas that the 95 % lower limit of the capacity needs
    low, high = min(float(np.quantile(needed, _ENDS[0], method="inverted_cdf")), fleet.replicas), float(fleet.replicas)
    figures = {
        "capacity": Estimate(capacity.per_s * one.batch_size, capacity.low_per_s * one.batch_size, capacity.high_per_s * one.batch_size)
    }
    figures["replicas"] = Estimate(float(fleet.replicas), low, high)
    if one.price_per_hour is not None:
        figures["price"] = Estimate(fleet.replicas * one.price_per_hour, low * one.price_per_hour, high * one.price_per_hour)
    rate_per_s = fleet.rate_per_replica_per_s / one.batch_size
    for name, curve in one.curves.items():
        if name != "mean" and rate_per_s < curve.saturation_per_s:
            expected = curve.predict(rate_per_s)
            figures[name] = Estimate(expected.value, expected.low, expected.high)
    if (errors := _error_rate(evidence, capacity.per_s)) is not None:
        figures["error_rate"] = errors
    if (memory_bytes := _gpu_memory_bytes(evidence)) is not None:
        figures["gpu_memory"] = Estimate(memory_bytes, memory_bytes, memory_bytes)
    if one.energy is not None:
        reach = _energy_reach(evidence)
        ends = (None, None) if reach is None else (one.energy.gross_j * math.exp(-reach), one.energy.gross_j * math.exp(reach))
        figures["energy"] = Estimate(one.energy.gross_j, *ends)
    return _Candidate(one, tuple(price * count for count in needed), figures)


def _as_planned(figures: Mapping[str, Estimate]) -> dict[str, Estimate]:
    """The figures without the intervals of what the plan itself decides: it buys the planned replicas at their price."""
    return {name: Estimate(one.value, one.value, one.value) if name in _DECIDED else one for name, one in figures.items()}


def _error_rate(evidence: Evidence, capacity_per_s: float) -> Estimate | None:
    """The share of failed requests at the rates up to the capacity at which the target kept up, with its 90 % interval."""
    measured = [point.measured.requests for point in evidence.open_points if point.state == KEPT_UP and point.rate_per_s <= capacity_per_s]
    scheduled = sum(requests.scheduled for requests in measured)
    failed = scheduled - sum(requests.ok for requests in measured)
    return share_interval(failed, scheduled, CONFIDENCE) if scheduled else None


def _gpu_memory_bytes(evidence: Evidence) -> float | None:
    """The most memory that was in use at once on one GPU, at any rate."""
    used = [
        gpu.memory_used_max_bytes
        for point in evidence.open_points
        for gpu in point.measured.gpus
        if gpu.memory_used_max_bytes is not None and gpu.used_by_server is not False
    ]
    return float(max(used)) if used else None


def _energy_reach(evidence: Evidence) -> float | None:
    """Half the width of the 90 % interval of ln(energy per inference), from the scatter of the repetitions at each rate.

    The repetitions of all rates are pooled (the scatter as a share is assumed to be equal); None if each rate was measured once.
    """
    by_rate: dict[float, list[float]] = {}
    for point in evidence.open_points:
        if point.state == KEPT_UP and (energy_j := point.measured.energy_per_inference_j):
            by_rate.setdefault(point.rate_per_s, []).append(math.log(energy_j))
    repeated = [values for values in by_rate.values() if len(values) > 1]
    degrees = sum(len(values) - 1 for values in repeated)
    if not degrees:
        return None
    variance = sum((len(values) - 1) * statistics.variance(values) for values in repeated) / degrees
    return student_t_quantile(_ENDS[1], degrees) * math.sqrt(variance / statistics.fmean(map(len, repeated)))


def _times_as_much(first: _Candidate, other: _Candidate) -> float | None:
    """How many times as much measuring of both would tell two configurations of rank 1 apart; None for the first itself.

    From the distance of the costs per unit of capacity, which have no steps as the numbers of replicas have, and the widths of their
    distributions. Infinite if they are closer than measuring can tell; 1 if the capacities differ for certain, but the numbers of
    replicas that the demand needs do not.
    """
    if first is other:
        return None
    (centre, sd), (other_centre, other_sd) = _log_unit_cost(first.plan), _log_unit_cost(other.plan)
    gap, standard_error = abs(other_centre - centre), math.hypot(sd, other_sd)
    if gap >= Z_CERTAIN * standard_error:
        return 1.0
    times = times_as_much(gap, standard_error)
    return times if times <= _MOST_TIMES else math.inf


def _log_unit_cost(one: ConfigurationPlan) -> tuple[float, float]:
    """The median and the standard deviation of ln(price ÷ capacity)."""
    assert one.capacity is not None
    draws = [draw for draw in one.capacity.draws_per_s if draw > 0] or [one.capacity.per_s]
    low, middle, high = (math.log(float(draw)) for draw in np.quantile(draws, [_ENDS[0], 0.5, _ENDS[1]]))
    return math.log(one.price_per_hour or 1.0) - math.log(one.batch_size) - middle, (high - low) / (2 * _Z_END)
