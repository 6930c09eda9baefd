"""How the workloads of a mix affect each other: each alone compared with its part of the mix, as a table and in sentences."""

import dataclasses
from collections.abc import Iterator, Sequence

from perfkit.report.table import Column, Mark, Table, interval_columns
from perfkit.result.load import ClosedLoad
from perfkit.result.model import Point, Result
from perfkit.stats.ratio_interval import Estimate, ratio_of, ratio_of_means
from perfkit.units import NS_PER_S, format_duration_ns

_FIGURES = ("p99", "p50")  # in the sentence, the first that both have


@dataclasses.dataclass(frozen=True, slots=True)
class Neighbours:
    """One workload's load points: with the others and without them."""

    together: Point
    alone: Point
    throughput: Estimate | None
    """Together ÷ alone, from the repetitions."""
    is_indication: bool = False
    """Whether a closed loop is shared by weights: then the workload has other numbers of requests in flight together and alone."""

    def times(self, name: str) -> Estimate | None:
        """The ratio of a percentile, together ÷ alone, with its 95 % interval; None where one of them is withheld."""
        sides = [_percentile(point, name) for point in (self.alone, self.together)]
        base, other = sides
        return None if base is None or other is None else ratio_of(base, other)


def neighbours(result: Result) -> list[Neighbours]:
    """The workloads that were measured both ways, in the order of the summary."""
    alone = [point for point in result.summary if point.alone]
    pairs = [(point, _match(point, alone, result)) for point in result.summary if point.workload is not None and not point.alone]
    return [
        Neighbours(point, match, _throughput(result, match, point), _shares_a_closed_loop(result, point))
        for point, match in pairs
        if match is not None
    ]


def neighbours_table(result: Result) -> Table:
    """A row for each workload of each mix; no rows where the workloads were not measured alone."""
    columns = (
        Column("workload", "workload", value=lambda one: one.together.workload),
        Column("protocol", "protocol", value=lambda one: one.together.protocol),
        Column("load", "load", value=lambda one: one.together.load.title),
        Column("p99_alone_ns", "p99 alone", "duration_ns", lambda one: one.alone.times.p99),
        Column("p99_together_ns", "p99 together", "duration_ns", lambda one: one.together.times.p99),
        *interval_columns("p99_ratio", "p99 ratio", "number", lambda one: one.times("p99")),
        *interval_columns("p50_ratio", "p50 ratio", "number", lambda one: one.times("p50")),
        Column("throughput_alone_per_s", "throughput alone", "rate_per_s", lambda one: one.alone.throughput_per_s),
        Column("throughput_together_per_s", "together", "rate_per_s", lambda one: one.together.throughput_per_s),
        *interval_columns("throughput_ratio", "throughput ratio", "number", lambda one: one.throughput),
    )
    found = neighbours(result)
    note = (
        "Each workload alone, with its part of the load, and together with the others; the ratios are together ÷ alone, with their 95% "
        "intervals: those of p99 and p50 from the percentiles' own, that of the throughput from the repetitions."
    )
    if any(one.is_indication for one in found):
        note += (
            " They are only an indication where workloads share a closed loop by weights: alone, a workload has its share of the concurrency; "
            "in the mix, slow workloads have more requests in flight than their share, and fast ones fewer. Loads of their own, or a rate, compare "
            "the same load."
        )
    marks: list[Mark] = ["" if one.alone.valid and one.together.valid else "invalid" for one in found]
    return Table.of("neighbours", "Workloads alone and together", columns, found, note, marks)


def neighbour_sentences(result: Result) -> Iterator[str]:
    """For each workload of the heaviest mix, how much longer its requests take beside the others: `p99 of small is …`."""
    found = [one for one in neighbours(result) if one.alone.valid and one.together.valid]
    latest = {one.together.workload: one for one in sorted(found, key=lambda one: one.together.load.level)}
    for name, one in latest.items():
        others = [str(entry) for entry in dict.fromkeys(point.workload for point in result.summary) if entry not in (None, name)]
        figure = next((figure for figure in _FIGURES if one.times(figure) is not None), None)
        if figure is None or (ratio := one.times(figure)) is None:
            continue
        beside = others[0] if len(others) == 1 else "the other workloads"
        yield f"{figure} of {name} is {_in_words(ratio)} times as long beside {beside} as alone ({_change(one, figure)})."


def _change(one: Neighbours, figure: str) -> str:
    alone_ns, together_ns = (getattr(point.times, figure) for point in (one.alone, one.together))
    change = f"{format_duration_ns(together_ns)} after {format_duration_ns(alone_ns)}"
    if not one.is_indication:
        return change
    together, alone = (f"{point.throughput_per_s * point.service_time_ns.mean / NS_PER_S:.3g}" for point in (one.together, one.alone))
    return (
        f"{change}; only an indication: in the closed loop that they share it had {together} requests in flight on average, alone {alone}"
    )


def _match(together: Point, alone: Sequence[Point], result: Result) -> Point | None:
    """The load point in which a workload was alone with its part of the load of a mix."""
    own = [one for one in alone if (one.workload, one.protocol) == (together.workload, together.protocol)]
    if _shares_a_closed_loop(result, together):
        assert isinstance(together.load, ClosedLoad)
        share = _share(result, str(together.workload)) or 0
        level = max(1, round(together.load.concurrency * share))
        return next((one for one in own if one.load == ClosedLoad(concurrency=level)), None)
    return next((one for one in own if one.load == together.load), None)


def _shares_a_closed_loop(result: Result, together: Point) -> bool:
    return isinstance(together.load, ClosedLoad) and _share(result, str(together.workload)) is not None


def _share(result: Result, name: str) -> float | None:
    """A workload's share of the requests; None where it has a load of its own."""
    given = result.scenario.get("workloads") or []
    weights = {entry.get("name"): entry.get("weight") for entry in given if isinstance(entry, dict)} if isinstance(given, list) else {}
    known = [weight for weight in weights.values() if isinstance(weight, int) and weight > 0]
    weight = weights.get(name)
    return weight / sum(known) if isinstance(weight, int) and weight > 0 else None


def _percentile(point: Point, name: str) -> Estimate | None:
    value_ns = getattr(point.times, name)
    return Estimate(value_ns, *point.intervals.get(name, (None, None))) if value_ns and point.times.count else None


def _throughput(result: Result, alone: Point, together: Point) -> Estimate | None:
    before, after = ([one.throughput_per_s for one in result.points if one.key == point.key] for point in (alone, together))
    return ratio_of_means(before, after) if before and after and min(*before, *after) > 0 else None


def _in_words(ratio: Estimate) -> str:
    """A ratio with its interval: `3.1 [2.8, 3.4]`."""
    if ratio.low is None and ratio.high is None:
        return f"{ratio.value:.3g}"
    low, high = (end if end is None else f"{end:.3g}" for end in (ratio.low, ratio.high))
    return f"{ratio.value:.3g} [{low or '0'}, {high or '∞'}]"
