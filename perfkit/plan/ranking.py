"""The ranking of a plan's configurations: by cost, under constraints, with shared ranks where the data cannot tell them apart."""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence

import numpy as np

from perfkit.plan.evidence import KEPT_UP, Evidence
from perfkit.plan.inputs import PlanInputs
from perfkit.plan.model import ConfigurationPlan, RankedConfiguration
from perfkit.plan.rate_points import error_rate_up_to
from perfkit.plan.slo_capacity import CONFIDENCE, Capacity
from perfkit.stats.probability import normal_quantile, student_t_quantile
from perfkit.stats.ranking import judge_all, pair_confidence, probability_below, sample_size_factor, shared_ranks, worst_of
from perfkit.stats.ratio_interval import Estimate

_ENDS = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
_Z_END = statistics.NormalDist().inv_cdf(_ENDS[1])
_MOST_TIMES, _MOST_TIMES_LONGER = 100, 20  # more measuring is not advised
_DECIDED = ("replicas", "price")


@dataclasses.dataclass(frozen=True, slots=True)
class _Candidate:
    """A configuration that can be planned, with the distribution of its cost."""

    plan: ConfigurationPlan
    costs: tuple[float, ...]
    """The cost an hour of the replicas that each draw of the capacity needs; without prices, their number."""
    lowest_costs: tuple[float, ...]
    """The same for `Capacity.highest_draws_per_s`."""
    figures: Mapping[str, Estimate]
    """By their names in constraints."""


def rank_configurations(
    planned: Sequence[ConfigurationPlan], evidence: Sequence[Evidence], inputs: PlanInputs, *, compares_costs: bool
) -> tuple[RankedConfiguration, ...]:
    """Rank the configurations, the best first; those without a rank come last.

    Ranked are the configurations that satisfy all constraints or, if none does, those for which that cannot be told. One is cheaper than
    another if its cost is lower with a probability of at least `pair_confidence`, over independent draws of both capacities: 95 % for two,
    and so much more for several that all differences are right with 95 %. Where a capacity is known only to lie between two measured rates,
    an order is claimed only if it holds wherever the capacity lies.
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
    needed = pair_confidence(len(ranked))
    ranks = shared_ranks(len(ranked), lambda one, other: probability_below(ranked[one].costs, ranked[other].lowest_costs) >= needed)
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
            first_is_cheaper=None if first is None or candidate is first else probability_below(first.costs, candidate.lowest_costs),
            times_as_much=_times_as_much(first, candidate, needed) if first is not None and rank_of.get(candidate.plan.name) == 1 else None,
        )
        for candidate, judgements, verdict in order
    ]
    refused = [RankedConfiguration(one.name, None, "cannot be told", (), {}, None, None) for one in planned if one.refusal]
    return (*rows, *refused)


def _planned(one: ConfigurationPlan) -> tuple[float, int]:
    """The cost an hour of the planned replicas, or their number without prices; and their number, for ties."""
    assert one.fleet is not None
    return (one.cost_per_hour if one.cost_per_hour is not None else one.fleet.replicas), one.fleet.replicas


def _candidate(one: ConfigurationPlan, evidence: Evidence, inputs: PlanInputs, *, compares_costs: bool) -> _Candidate:
    capacity, fleet = one.capacity, one.fleet
    assert capacity is not None
    assert fleet is not None
    needed, fewest = (
        [inputs.count_replicas(inputs.demand_per_s, draw * one.batch_size).replicas for draw in _above_zero(draws_per_s, capacity)]
        for draws_per_s in (capacity.draws_per_s, capacity.highest_draws_per_s)
    )
    price = one.price_per_hour if one.price_per_hour is not None and compares_costs else 1.0
    # the plan uses the lower limit of the capacity, so that the planned number is the upper end
    low, high = min(float(np.quantile(fewest, _ENDS[0], method="inverted_cdf")), fleet.replicas), float(fleet.replicas)
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
    if (errors := error_rate_up_to(evidence, capacity.per_s)) is not None:
        figures["error_rate"] = errors
    if (memory_bytes := _gpu_memory_bytes(evidence)) is not None:
        figures["gpu_memory"] = Estimate(memory_bytes, memory_bytes, memory_bytes)
    if one.energy is not None:
        reach = _energy_reach(evidence)
        ends = (None, None) if reach is None else (one.energy.gross_j * math.exp(-reach), one.energy.gross_j * math.exp(reach))
        figures["energy"] = Estimate(one.energy.gross_j, *ends)
    return _Candidate(one, tuple(price * count for count in needed), tuple(price * count for count in fewest), figures)


def _above_zero(draws_per_s: Sequence[float], capacity: Capacity) -> list[float]:
    """The draws above zero; the estimate if there are none."""
    return [draw for draw in draws_per_s if draw > 0] or [capacity.per_s]


def _as_planned(figures: Mapping[str, Estimate]) -> dict[str, Estimate]:
    """The figures by which constraints are judged: the plan decides on the replicas and their price, so that these have no interval."""
    return {name: Estimate(one.value, one.value, one.value) if name in _DECIDED else one for name, one in figures.items()}


def _gpu_memory_bytes(evidence: Evidence) -> float | None:
    """The highest memory use of a GPU at any rate; None if unknown."""
    used = [
        gpu.memory_used_max_bytes
        for point in evidence.open_points
        for gpu in point.measured.server_gpus
        if gpu.memory_used_max_bytes is not None
    ]
    return float(max(used)) if used else None


def _energy_reach(evidence: Evidence) -> float | None:
    """The half-width of the 90 % interval of ln(energy per inference); None if each rate was measured once.

    The variance between repetitions is pooled over the rates. Assumption: the relative scatter is the same at each.
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


def _times_as_much(first: _Candidate, other: _Candidate, needed: float) -> float | None:
    """How many times as much data would tell a configuration of rank 1 from the first; None for the first itself.

    Computed from the costs per unit of capacity, since whole numbers of replicas change in steps: their difference and its standard error, from
    the distributions' tails at the probability `needed`. 1 if those costs differ already and only the numbers of replicas are equal; infinite
    above 100.
    """
    if first is other:
        return None
    (centre, reach), (other_centre, other_reach) = (_log_unit_cost(one.plan, needed) for one in (first, other))
    z, gap = normal_quantile(needed), abs(other_centre - centre)
    standard_error = math.hypot(reach, other_reach) / z
    if gap >= z * standard_error:
        return 1.0
    times = sample_size_factor(gap, standard_error, z)
    return times if times <= _MOST_TIMES else math.inf


def _log_unit_cost(one: ConfigurationPlan, needed: float) -> tuple[float, float]:
    """The median of ln(price ÷ capacity), and how far the quantile `needed` and the opposite one lie from it, on average."""
    assert one.capacity is not None
    low, middle, high = np.log(np.quantile(_above_zero(one.capacity.draws_per_s, one.capacity), [1 - needed, 0.5, needed])).tolist()
    return math.log(one.price_per_hour or 1.0) - math.log(one.batch_size) - middle, (high - low) / 2


def times_longer(pair: tuple[ConfigurationPlan, ConfigurationPlan], times: float) -> float | None:
    """How many times as long windows separate two configurations as well as `times` as many restarts do; None above 20.

    Longer windows keep the variation between restarts, which alone may be too large.
    """
    total = between = 0.0  # variances of the logarithms of the capacities
    for one in pair:
        capacity, spread = one.capacity, one.curves[one.slo_percentile].spread
        assert capacity is not None
        total += (math.log(capacity.high_per_s / capacity.low_per_s) / (2 * _Z_END)) ** 2
        between += (spread.run_sd * capacity.speed_elasticity) ** 2 / spread.runs
    share = min(between / total, 1.0) if total else 1.0
    longer = (1 - share) / (1 / times - share) if 1 / times > share else math.inf
    return longer if 1 < longer <= _MOST_TIMES_LONGER else None
