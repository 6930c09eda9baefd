"""The cases of a sweep ranked by one figure under constraints; cases that the data cannot tell apart share a rank. Pure."""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from perfkit.comparison.point_figures import FIGURES, figures_of_point, figures_of_search, repeated_values
from perfkit.result.model import OpenLoad, Point, Result
from perfkit.stats.constraints import Constraint, Judgement, parse_constraint, worst_of
from perfkit.stats.ranking import shared_ranks, times_as_much
from perfkit.stats.ratio_interval import CONFIDENCE, Estimate, ratio_of, ratio_of_means, share_difference

HIGHER_IS_BETTER = frozenset(("throughput", "goodput", "capacity"))
_SHARES = frozenset(("error_rate",))  # compared by their difference, since they may be zero
_Z = statistics.NormalDist().inv_cdf((1 + CONFIDENCE) / 2)
_UNSTEADY = ("overloaded", "not_steady")
_MOST_TIMES = 100
MOST_RANKED = 200
"""Every pair is compared; of a larger sweep the best are ranked."""


@dataclasses.dataclass(frozen=True, slots=True)
class RankedCase:
    """A case over one protocol, by its best load point or its search."""

    values: Mapping[str, Any]
    """The swept values."""
    protocol: str
    load: str
    """The best load point that satisfies the constraints, otherwise the best of all; empty for a search."""
    rank: int | None
    """One plus the number of cases that are certainly better; None if it is not ranked."""
    verdict: Judgement
    judgements: tuple[tuple[str, Judgement], ...]
    figures: Mapping[str, Estimate]
    """By the names of constraints, with 95 % intervals: rates in inferences per second, times in ns, energy in joules."""
    repetitions: int
    times_as_much: float | None
    """For another case of rank 1: how many times as much measuring would tell it from the first; infinite if none would."""


@dataclasses.dataclass(frozen=True, slots=True)
class CasePoint:
    """A load point of a case, as the plot shows it."""

    row: int
    """The index of its case in the ranking."""
    load: str
    verdict: Judgement
    figures: Mapping[str, Estimate]


@dataclasses.dataclass(frozen=True, slots=True)
class SweepRanking:
    """The cases that have figures, the best first, and the figure that they are ranked by."""

    by: str
    rows: tuple[RankedCase, ...]
    points: tuple[CasePoint, ...]
    """All load points, in the order of the rows."""
    p99_limits_ns: tuple[float, ...]
    """The limits on p99 among the constraints."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Candidate:
    """A load point, or a search, of a case."""

    values: Mapping[str, Any]
    point: Point
    load: str
    figures: Mapping[str, Estimate]
    judgements: tuple[tuple[str, Judgement], ...]
    repeated: Sequence[float]
    """The figure that is ranked by, in each repetition; empty where it is known for all together only."""
    repetitions: int

    @property
    def verdict(self) -> Judgement:
        return worst_of(tuple(judgement for _, judgement in self.judgements))


def rank_sweep(results: Sequence[tuple[Mapping[str, Any], Result]], by: str | None, where: Sequence[Constraint]) -> SweepRanking | None:
    """The ranking of the results by their swept values; None if no load point is valid and has the figure.

    Without `by`, searches are ranked by their capacity, single rates by p99, and all else by throughput. The constraints are `where`
    and the SLO of each scenario. One case is better than another if the 95 % interval of the ratio of their figures excludes 1: Welch's
    where both have repetitions, otherwise from both figures' own intervals (MOVER). Error rates, which may be zero, are compared by
    their difference. Raises ValueError for an unknown figure.
    """
    by = by or _default_figure([result for _, result in results])
    if by not in FIGURES:
        raise ValueError(f"{by!r} is not a known figure; known are {', '.join(FIGURES)}")
    groups: dict[tuple[int, str], list[_Candidate]] = {}
    for number, (values, result) in enumerate(results):
        for candidate in _candidates(values, result, by, where):
            if by in candidate.figures and (candidate.figures[by].value > 0 or by in _SHARES):
                groups.setdefault((number, candidate.point.protocol), []).append(candidate)
    best = [_best(group, by) for group in groups.values()]
    if not best:
        return None
    ranked_verdict = next((verdict for verdict in ("holds", "cannot be told") if any(one.verdict == verdict for one in best)), None)
    ranked = sorted((one for one in best if one.verdict == ranked_verdict), key=lambda one: _sort_value(one, by))[:MOST_RANKED]
    ranks = shared_ranks(len(ranked), lambda one, other: _is_better(ranked[one], ranked[other], by))
    rank_of = {id(one): rank for one, rank in zip(ranked, ranks, strict=True)}
    tiers = ("holds", "cannot be told", "violated")
    order = sorted(best, key=lambda one: (tiers.index(one.verdict), rank_of.get(id(one), math.inf), _sort_value(one, by)))
    rows = tuple(
        RankedCase(
            values=one.values,
            protocol=one.point.protocol,
            load=one.load,
            rank=rank_of.get(id(one)),
            verdict=one.verdict,
            judgements=one.judgements,
            figures=one.figures,
            repetitions=one.repetitions,
            times_as_much=_times_as_much(order[0], one, by) if one is not order[0] and rank_of.get(id(one)) == 1 else None,
        )
        for one in order
    )
    group_of = {id(one): group for one, group in zip(best, groups.values(), strict=True)}
    points = tuple(CasePoint(row, one.load, one.verdict, one.figures) for row, chosen in enumerate(order) for one in group_of[id(chosen)])
    limits = {
        constraint for _, result in results for constraint in [*slo_constraints(result.scenario), *where] if constraint.metric == "p99"
    }
    return SweepRanking(by, rows, points, tuple(sorted(constraint.limit for constraint in limits)))


def _default_figure(results: Sequence[Result]) -> str:
    if any(result.search is not None for result in results):
        return "capacity"
    loads = [
        [point.load for point in result.summary if point.protocol == result.summary[0].protocol] for result in results if result.summary
    ]
    return "p99" if all(len(one) == 1 and isinstance(one[0], OpenLoad) for one in loads) else "throughput"


def _candidates(values: Mapping[str, Any], result: Result, by: str, where: Sequence[Constraint]) -> list[_Candidate]:
    if result.search is not None:
        figures = figures_of_search(result)
        if not figures or not result.points:
            return []
        judgements = tuple((constraint.text, constraint.judge(figures.get(constraint.metric))) for constraint in where)
        return [_Candidate(values, result.points[0], "", figures, judgements, (), 1)]
    constraints = list(dict.fromkeys([*slo_constraints(result.scenario), *where]))
    candidates = []
    for point in result.summary:
        if not point.valid:
            continue
        repetitions = [one for one in result.points if (one.protocol, one.load) == (point.protocol, point.load)]
        figures = figures_of_point(point, repetitions)
        judgements = tuple((constraint.text, _judge(constraint, point, figures)) for constraint in constraints)
        repeated = repeated_values(by, repetitions)
        candidates.append(_Candidate(values, point, point.load.title, figures, judgements, repeated, len(repetitions)))
    return candidates


def slo_constraints(scenario: Mapping[str, Any]) -> list[Constraint]:
    """The limits of a stored scenario's SLO as constraints; of one that no run stores nothing can be told."""
    slo = scenario.get("slo")
    return [_slo_constraint(str(name), limit) for name, limit in (slo.items() if isinstance(slo, Mapping) else ())]


def _slo_constraint(name: str, limit: object) -> Constraint:
    try:
        return parse_constraint(f"{name}<{limit}", FIGURES)
    except ValueError:
        return Constraint("slo", math.nan, is_maximum=True, text=f"slo.{name}")


def _judge(constraint: Constraint, point: Point, figures: Mapping[str, Estimate]) -> Judgement:
    """As `Constraint.judge`; a target that did not keep up violates any limit on times, which depend on the window's length there."""
    is_unsteady = any(warning.code in _UNSTEADY for warning in point.warnings)
    if is_unsteady and constraint.is_maximum and constraint.metric.startswith("p"):
        return "violated"
    return constraint.judge(figures.get(constraint.metric))


def _best(group: Sequence[_Candidate], by: str) -> _Candidate:
    """The best load point of those that satisfy the constraints; without any of those that may, otherwise of all."""
    for verdict in ("holds", "cannot be told", "violated"):
        if able := [one for one in group if one.verdict == verdict]:
            return min(able, key=lambda one: _sort_value(one, by))
    raise AssertionError("a group has a candidate")


def _sort_value(one: _Candidate, by: str) -> float:
    return one.figures[by].value * (-1 if by in HIGHER_IS_BETTER else 1)


def _ratio(one: _Candidate, other: _Candidate, by: str) -> Estimate:
    """The first's figure as a ratio of the second's, with its 95 % interval."""
    if min(len(one.repeated), len(other.repeated)) > 1 and min(*one.repeated, *other.repeated) > 0:
        return ratio_of_means(other.repeated, one.repeated)
    return ratio_of(other.figures[by], one.figures[by])


def _is_better(one: _Candidate, other: _Candidate, by: str) -> bool:
    if _sort_value(one, by) >= _sort_value(other, by):
        return False
    if by in _SHARES:
        return (share_difference(other.figures[by], one.figures[by]).high or 0.0) < 0
    ratio = _ratio(one, other, by)
    return (ratio.low is not None and ratio.low > 1) if by in HIGHER_IS_BETTER else (ratio.high is not None and ratio.high < 1)


def _times_as_much(first: _Candidate, other: _Candidate, by: str) -> float:
    """How many times as much measuring tells the two apart, if the standard error of the ratio or difference falls with the square root."""
    if by in _SHARES:
        difference = share_difference(first.figures[by], other.figures[by])
        times = times_as_much(difference.value, (difference.value - (difference.low or 0.0)) / _Z, _Z)
        return times if times <= _MOST_TIMES else math.inf
    ratio = _ratio(first, other, by)
    end = ratio.low if ratio.value > 1 else ratio.high
    if end is None or end <= 0:
        return math.inf
    times = times_as_much(abs(math.log(ratio.value)), abs(math.log(ratio.value / end)) / _Z, _Z)
    return times if times <= _MOST_TIMES else math.inf
