"""The ranking of a sweep's cases by one figure under constraints; cases that the data cannot tell apart share a rank. Pure."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Self

from perfkit.comparison.point_figures import (
    FEWEST_REPETITIONS,
    FIGURES,
    RandomizedBlocks,
    error_rate,
    figures_of_point,
    figures_of_search,
    repeated_values,
)
from perfkit.result.load import OpenLoad
from perfkit.result.model import Point, Result
from perfkit.scenario.slo import FURTHER_TIMES
from perfkit.stats.probability import normal_quantile
from perfkit.stats.ranking import (
    Z_POWER,
    Constraint,
    Judgement,
    pair_confidence,
    parse_constraint,
    sample_size_factor,
    shared_ranks,
    worst_of,
)
from perfkit.stats.ratio_interval import CONFIDENCE, Estimate, LogSample, PooledScatter, difference_of, ratio_of

HIGHER_IS_BETTER = frozenset(("throughput", "goodput", "capacity"))
_SHARES = frozenset(("error_rate",))  # compared by their difference, since they may be zero
_BEST_FIRST: tuple[Judgement, ...] = ("holds", "cannot be told", "violated")
_UNSTEADY = ("overloaded", "not_steady")
_MOST_TIMES, _LOWEST_PRECISION = 100, 0.01  # beyond these, longer measurements are not advised
_Z = normal_quantile((1 + CONFIDENCE) / 2)
_SEARCH_CONFIDENCE = 0.9  # of the interval whose half-width is a search's precision
MOST_RANKED = 200
"""The largest number of cases with a rank, since every pair is compared; of a larger sweep only the best are ranked."""


@dataclasses.dataclass(frozen=True, slots=True)
class RankedCase:
    """A case over one protocol, represented by its best load point or by its search."""

    values: Mapping[str, Any]
    """The swept values."""
    protocol: str
    load: str
    """The title of its best load point, preferably one that certainly satisfies the constraints. Empty for a search."""
    rank: int | None
    """One plus the number of cases that are better; None if it is not ranked."""
    verdict: Judgement
    judgements: tuple[tuple[str, Judgement], ...]
    figures: Mapping[str, Estimate]
    """With 95 % intervals, by their names in constraints; units as in `figures_of_point`."""
    repetitions: int
    times_as_much: float | None
    """For a case tied with the first: how many times as much measuring tells them apart with 80 % probability; infinite above 100."""
    block: int | None = None
    """The number of the block of cases with which it was compared repetition by repetition; None for one without such cases."""
    requests: int = 0
    """The times of requests at that load point, whose number decides what a percentile's interval can show; 0 for a search."""


@dataclasses.dataclass(frozen=True, slots=True)
class CasePoint:
    """A load point of a ranked case, for the plot."""

    row: int
    """The index of its case in the ranking."""
    load: str
    verdict: Judgement
    figures: Mapping[str, Estimate]


@dataclasses.dataclass(frozen=True, slots=True)
class SweepRanking:
    """The cases that have the figure `by`, the best first."""

    by: str
    rows: tuple[RankedCase, ...]
    points: tuple[CasePoint, ...]
    """All load points, in the order of the rows."""
    p99_limits_ns: tuple[float, ...]
    """The limits on p99 among the constraints."""
    confidence: float
    """The confidence of each pair's comparison, at which all differences together hold with 95 %; see `pair_confidence`."""
    lead: Estimate | None = None
    """The figure of the first case ÷ that of the second, at this confidence; None if fewer are ranked, and for error rates, which may be zero."""


_BlockKey = tuple[int, int, tuple[int | None, ...]]
"""A group of interleaved cases, the number of load points in each repetition, and the repetitions."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Candidate:
    """A load point or a search of a case, which may represent it in the ranking."""

    values: Mapping[str, Any]
    point: Point
    load: str
    figures: Mapping[str, Estimate]
    judgements: tuple[tuple[str, Judgement], ...]
    repeated: tuple[float, ...]
    """The figure `by` of each repetition; empty if there is only one, or if the figure is computed from all of them together."""
    repetitions: int
    block: _BlockKey | None = None
    """What it has in common with the cases that were measured in the same repetitions; None without any, or for too few repetitions."""

    @property
    def verdict(self) -> Judgement:
        return worst_of(tuple(judgement for _, judgement in self.judgements))


def rank_sweep(
    results: Sequence[tuple[Mapping[str, Any], Result]], by: str | None, where: Sequence[Constraint], groups: Sequence[int | None] = ()
) -> SweepRanking | None:
    """Ranks results, each with its swept values, by the figure `by`; None if no valid load point and no search has it.

    The default figure is `capacity` for searches, `p99` for single open-loop rates, and `throughput` otherwise. The constraints are
    `where` and the SLO of each scenario. `groups` has the group of interleaved cases that each result belongs to, or None; empty without any.

    One case is better than another if the interval of the ratio of their figures excludes 1. The interval is that of `RandomizedBlocks` if
    both were measured in the same repetitions, three or more: cases of one group with equally many load points. Otherwise it is that of
    `PooledScatter` if both cases have repetitions, and MOVER's from the intervals of both figures if not. Its confidence is that of `pair_confidence`, so at
    most 5 % of all sweeps have a false difference in their ranking. Error rates may be zero: the interval of their difference must
    exclude 0. Raises ValueError for an unknown figure.
    """
    by = by or _default_figure([result for _, result in results])
    if by not in FIGURES:
        raise ValueError(f"{by!r} is not a known figure; known are {', '.join(FIGURES)}")
    by_case: dict[tuple[int, str], list[_Candidate]] = {}
    for number, ((values, result), group) in enumerate(zip(results, groups or [None] * len(results), strict=True)):
        for candidate in _candidates(values, result, by, where, group):
            if by in candidate.figures and (candidate.figures[by].value > 0 or by in _SHARES):
                by_case.setdefault((number, candidate.point.protocol), []).append(candidate)
    if not by_case:
        return None

    def order(one: _Candidate) -> tuple[int, float]:
        return _BEST_FIRST.index(one.verdict), _sort_value(one, by)

    cases = sorted((sorted(candidates, key=order) for candidates in by_case.values()), key=lambda case: order(case[0]))
    ranked = _ranked([case[0] for case in cases])
    comparison = _Comparison.of(ranked, by)
    ranks: list[int | None] = [*shared_ranks(len(ranked), comparison.is_better)]
    ranks += [None] * (len(cases) - len(ranked))
    places = sorted(range(len(cases)), key=lambda place: ranks[place] or math.inf)
    rows = tuple(
        RankedCase(
            values=one.values,
            protocol=one.point.protocol,
            load=one.load,
            rank=ranks[place],
            verdict=one.verdict,
            judgements=one.judgements,
            figures=one.figures,
            repetitions=one.repetitions,
            times_as_much=comparison.times_as_much(0, place) if place and ranks[place] == 1 else None,
            block=comparison.block_of(place),
            requests=one.point.times.count if one.load else 0,
        )
        for place in places
        for one in cases[place][:1]
    )
    points = tuple(CasePoint(row, one.load, one.verdict, one.figures) for row, place in enumerate(places) for one in cases[place])
    limits = {
        constraint for _, result in results for constraint in [*slo_constraints(result.scenario), *where] if constraint.metric == "p99"
    }
    lead = comparison.ratio(places[0], places[1]) if len(ranked) > 1 and by not in _SHARES else None
    return SweepRanking(by, rows, points, tuple(sorted(constraint.limit for constraint in limits)), comparison.confidence, lead)


def _ranked(best: Sequence[_Candidate]) -> Sequence[_Candidate]:
    """The best load points that are ranked; `best` has that of each case, in order.

    Ranked are up to `MOST_RANKED` cases that satisfy the constraints; without any, those that may satisfy them.
    """
    verdict = best[0].verdict
    return [] if verdict == "violated" else [one for one in best if one.verdict == verdict][:MOST_RANKED]


def _default_figure(results: Sequence[Result]) -> str:
    if any(result.search is not None for result in results):
        return "capacity"
    loads = [
        [point.load for point in result.summary if point.protocol == result.summary[0].protocol and point.workload is None]
        for result in results
        if result.summary
    ]
    return "p99" if all(len(one) == 1 and isinstance(one[0], OpenLoad) for one in loads) else "throughput"


def _candidates(values: Mapping[str, Any], result: Result, by: str, where: Sequence[Constraint], group: int | None) -> list[_Candidate]:
    if result.is_scan:
        return []
    if result.search is not None:
        figures = figures_of_search(result)
        if not figures or not result.points:
            return []
        judgements = tuple((constraint.text, constraint.judge(figures.get(constraint.metric))) for constraint in where)
        return [_Candidate(values, result.points[0], "", figures, judgements, (), 1)]
    constraints = list(dict.fromkeys([*slo_constraints(result.scenario), *where]))
    candidates = []
    for point in result.summary:
        if not point.valid or point.workload is not None:
            continue  # a mix is ranked as a whole
        repetitions = [one for one in result.points if one.key == point.key]
        figures = figures_of_point(point, repetitions)
        judgements = tuple((constraint.text, _judge(constraint, point, figures)) for constraint in constraints)
        values_by = repeated_values(by, repetitions)
        repeated = tuple(values_by) if len(values_by) > 1 and min(values_by) > 0 else ()
        block = None
        if group is not None and len(repeated) >= FEWEST_REPETITIONS:
            block = group, len(result.summary), tuple(one.repetition for one in repetitions)
        candidates.append(_Candidate(values, point, point.load.title, figures, judgements, repeated, len(repetitions), block))
    return candidates


def slo_constraints(scenario: Mapping[str, Any]) -> list[Constraint]:
    """The limits of a stored scenario's SLO as constraints; one that cannot be parsed is judged `cannot be told`."""
    slo = scenario.get("slo")
    limits = {str(name): limit for name, limit in slo.items()} if isinstance(slo, Mapping) else {}
    further = [(key, given) for key in FURTHER_TIMES if isinstance(given := limits.pop(key, None), Mapping)]
    of_parts = [(key, _slo_constraint(str(name), limit)) for key, given in further for name, limit in given.items()]
    return [
        *(_slo_constraint(name, limit) for name, limit in limits.items()),
        *(dataclasses.replace(one, metric=f"{key}.{one.metric}", text=f"{key}.{one.text}") for key, one in of_parts),
    ]


def _slo_constraint(name: str, limit: object) -> Constraint:
    try:
        return parse_constraint(f"{name}<{limit}", FIGURES)
    except ValueError:
        return Constraint("slo", math.nan, is_maximum=True, text=f"slo.{name}")


def _judge(constraint: Constraint, point: Point, figures: Mapping[str, Estimate]) -> Judgement:
    """Judges like `Constraint.judge`; an overloaded or unsteady target violates every limit on times, which grow with the window."""
    is_unsteady = any(warning.code in _UNSTEADY for warning in point.warnings)
    key, dot, name = constraint.metric.partition(".")
    if is_unsteady and constraint.is_maximum and (dot or key.startswith("p")):
        return "violated"
    return constraint.judge(_further(point, FURTHER_TIMES[key], name) if dot else figures.get(constraint.metric))


def _further(point: Point, recorded: str, name: str) -> Estimate | None:
    """A percentile of a part of the answers' times, with its interval; None where it is withheld or there are no streams."""
    times, intervals = getattr(point, f"{recorded}_ns"), point.further_intervals.get(recorded, {})
    value_ns = None if times is None else getattr(times, name, None)
    return Estimate(value_ns, *intervals.get(name, (None, None))) if value_ns else None


def _sort_value(one: _Candidate, by: str) -> float:
    return one.figures[by].value * (-1 if by in HIGHER_IS_BETTER else 1)


@dataclasses.dataclass(frozen=True, slots=True)
class _Comparison:
    """The pairwise comparison of one ranking's cases, by their indices."""

    by: str
    confidence: float
    cases: Sequence[_Candidate]
    samples: Sequence[LogSample | None]
    """The repetitions of each case; None for one without."""
    scatter: PooledScatter | None
    """The scatter of the repetitions, pooled over all cases with more than one; None without any."""
    blocks: Sequence[tuple[RandomizedBlocks, Sequence[int]]]
    """The cases that were measured in the same repetitions, with their indices."""

    @classmethod
    def of(cls, ranked: Sequence[_Candidate], by: str) -> Self:
        samples = [LogSample.of(one.repeated) if one.repeated else None for one in ranked]
        members: dict[_BlockKey, list[int]] = {}
        for index, one in enumerate(ranked):
            if one.block is not None:
                members.setdefault(one.block, []).append(index)
        blocks = [(RandomizedBlocks.of([ranked[index].repeated for index in block]), block) for block in members.values() if len(block) > 1]
        repeated = [one for one in samples if one]
        return cls(by, pair_confidence(len(ranked)), ranked, samples, PooledScatter.of(repeated) if repeated else None, blocks)

    @property
    def z(self) -> float:
        """The two-sided critical value of the normal distribution at this confidence."""
        return normal_quantile((1 + self.confidence) / 2)

    def block_of(self, case: int) -> int | None:
        """The number of a case's block, from 0; None without one."""
        return next((number for number, (_, members) in enumerate(self.blocks) if case in members), None)

    def is_better(self, one: int, other: int) -> bool:
        if _sort_value(self.cases[one], self.by) >= _sort_value(self.cases[other], self.by):
            return False
        if self.by in _SHARES:
            return (self._difference(one, other).high or 0.0) < 0
        ratio = self.ratio(one, other)
        return (ratio.low is not None and ratio.low > 1) if self.by in HIGHER_IS_BETTER else (ratio.high is not None and ratio.high < 1)

    def times_as_much(self, first: int, other: int) -> float:
        """How many times as much to measure until the two differ beyond chance, if their figures stay as they are.

        The standard error of the ratio or difference falls with the square root of the measured time.
        """
        if self.by in _SHARES:
            difference = self._difference(other, first)
            return self._advised(difference.value, difference.value - (difference.low or 0.0))
        ratio = self.ratio(first, other)
        end = ratio.low if ratio.value > 1 else ratio.high
        return math.inf if end is None or end <= 0 else self._advised(abs(math.log(ratio.value)), abs(math.log(ratio.value / end)))

    def _advised(self, gap: float, reach: float) -> float:
        times = sample_size_factor(gap, reach / self.z, self.z)
        return times if times <= _MOST_TIMES else math.inf

    def ratio(self, one: int, other: int) -> Estimate:
        """The ratio one ÷ other of their figures."""
        block = self.block_of(one)
        if block is not None and block == self.block_of(other):
            paired, members = self.blocks[block]
            return paired.ratio(members.index(other), members.index(one), self.confidence)
        one_sample, other_sample = self.samples[one], self.samples[other]
        if self.scatter and one_sample and other_sample:
            return self.scatter.ratio(other_sample, one_sample, self.confidence)
        return ratio_of(self.cases[other].figures[self.by], self.cases[one].figures[self.by]).scaled(self.z / _Z)

    def _difference(self, one: int, other: int) -> Estimate:
        """The difference one - other of their error rates."""
        return difference_of(error_rate(self.cases[other].point, self.confidence), error_rate(self.cases[one].point, self.confidence))


def separating_precision(ranking: SweepRanking, tied: RankedCase) -> float | None:
    """The precision at which a search tells a tied case from the first with 80 % probability; None if it is below 1 %."""
    gap = abs(math.log(tied.figures["capacity"].value / ranking.rows[0].figures["capacity"].value))
    z_search, z_pair = (normal_quantile((1 + one) / 2) for one in (_SEARCH_CONFIDENCE, ranking.confidence))
    precision = gap * z_search / (math.sqrt(2) * (z_pair + Z_POWER))
    return precision if precision >= _LOWEST_PRECISION else None
