"""perf_analyzer's own results beside those of perfkit: service times with service times, and nothing made up for what it did not record. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from perfkit.comparison.result_comparison import (
    ComparedResult,
    MetricRow,
    ResultComparison,
    change_of,
    error_rate_of,
    known_percentile,
    status_notes,
    throughput_of,
)
from perfkit.errors import IncomparableError
from perfkit.result.distribution import PERCENTILES, Distribution
from perfkit.result.fingerprint import Difference, commit_of, environment_differences, scenario_differences
from perfkit.result.load import ClosedLoad, OpenLoad
from perfkit.result.model import Point, Protocol, Result
from perfkit.result.perf_analyzer_files import NOT_RECORDED
from perfkit.result.perf_analyzer_result import PerfAnalyzerLoad, PerfAnalyzerPoint, PerfAnalyzerResult
from perfkit.stats.ratio_interval import Estimate

Side: TypeAlias = Result | PerfAnalyzerResult
_Unit: TypeAlias = Literal["per_s", "ns", "share"]
_NOT_COVERED = (
    "The 95 % intervals cover the variation between the requests of each result; those of perf_analyzer's CSV reports are not known. They leave out "
    "what differs between the two programs, restarts of the server, times of day and machines. For a comparison of two versions of a server, "
    "measure both with perfkit."
)
_FURTHER_PERCENTILES = ("p50", "p99")


class _Place(NamedTuple):
    """A load point that all sides have; the protocol is that of perfkit's results, since perf_analyzer's files do not name theirs."""

    protocol: Protocol | None
    load: PerfAnalyzerLoad

    @property
    def title(self) -> str:
        return f"{self.protocol}, {self.load.title}" if self.protocol else self.load.title


class _Figure(NamedTuple):
    unit: _Unit
    value: Estimate


def compare_with_perf_analyzer(sides: Sequence[tuple[str, Side]]) -> ResultComparison:
    """Compares labelled results with the first, one or more of which are perf_analyzer's; raises IncomparableError without a common load.

    Load points belong together by concurrency or rate. All times are service times, also those of perfkit's open loops.
    """
    found = [_points(side) for _, side in sides]
    places = _shared_places(found)
    if not places:
        listed = "; ".join(
            f"{label}: {' and '.join(place.title for place in points) or 'none'}" for (label, _), points in zip(sides, found, strict=True)
        )
        raise IncomparableError(f"these results have no load in common ({listed}); perf_analyzer's are compared by concurrency or rate")
    rows = [row for place in places for row in _rows(place, [_at(points, place) for points in found])]
    compared = tuple(
        ComparedResult(
            label,
            side.started_at or "at a time that is not recorded",
            commit_of(side) if isinstance(side, Result) else "",
            side.status if isinstance(side, Result) else "complete",
            tuple(_differences(sides[0][1], side)) if number else (),
        )
        for number, (label, side) in enumerate(sides)
    )
    return ResultComparison(compared, tuple(_notes(sides, found, places)), tuple(rows), tuple(() for _ in sides), _NOT_COVERED)


_Points: TypeAlias = Mapping[_Place, tuple[Side, Point | PerfAnalyzerPoint]]


def _points(side: Side) -> _Points:
    if isinstance(side, PerfAnalyzerResult):
        return {_Place(None, point.load): (side, point) for point in side.points}
    return {
        _Place(point.protocol, load): (side, point) for point in side.summary if not side.is_mix and (load := _load_of(point)) is not None
    }


def _load_of(point: Point) -> PerfAnalyzerLoad | None:
    """The load in perf_analyzer's terms; None for loads that it does not have."""
    if isinstance(point.load, ClosedLoad):
        return PerfAnalyzerLoad("concurrency", point.load.concurrency)
    return PerfAnalyzerLoad("request_rate", point.load.rate_per_s) if isinstance(point.load, OpenLoad) else None


def _shared_places(found: Sequence[_Points]) -> list[_Place]:
    """The places that all sides have, in the order of the first; one for each protocol that all of perfkit's results have."""
    ours = [points for points in found if any(place.protocol for place in points)]
    candidates = (place for points in ours[:1] for place in points) if ours else found[0]
    return [place for place in candidates if all(_at(points, place) is not None for points in found)]


def _at(points: _Points, place: _Place) -> tuple[Side, Point | PerfAnalyzerPoint] | None:
    return points.get(place) or points.get(_Place(None, place.load))


def _rows(place: _Place, at: Sequence[tuple[Side, Point | PerfAnalyzerPoint] | None]) -> Iterator[MetricRow]:
    figures = [dict(_figures(*one)) for one in at if one is not None]
    for name in sorted({name for one in figures for name in one}, key=_order):
        if name == _INFERENCES and all("throughput" in one for one in figures):
            continue
        known = [one.get(name) for one in figures]
        first, *others = (None if one is None else one.value for one in known)
        unit = next(one.unit for one in known if one is not None)
        changes = (None, *(change_of(unit, first, other) for other in others))
        yield MetricRow(place.title, name, unit, "higher" if unit == "per_s" else "lower", (first, *others), changes)


_INFERENCES = "inferences"
_ORDER = ("throughput", _INFERENCES, "mean service time", "service time", "first response", "gap", "error rate")


def _order(name: str) -> tuple[int, float]:
    kind, _, percentile = name.rpartition(" p")
    return _ORDER.index(kind or name), float(percentile) if kind else 0.0


def _figures(side: Side, point: Point | PerfAnalyzerPoint) -> Iterator[tuple[str, _Figure]]:
    if isinstance(side, Result) and isinstance(point, Point):
        yield from _own_figures(side, point)
    elif isinstance(point, PerfAnalyzerPoint):
        yield from _their_figures(point)


def _own_figures(result: Result, point: Point) -> Iterator[tuple[str, _Figure]]:
    if (throughput := throughput_of(result, point.key)) is not None:
        yield "throughput", _Figure("per_s", throughput)
        size = point.inferences_per_s / point.throughput_per_s
        ends = (None if end is None else end * size for end in (throughput.low, throughput.high))
        yield _INFERENCES, _Figure("per_s", Estimate(point.inferences_per_s, *ends))
    times, is_closed = point.service_time_ns, point.response_time_ns is None
    if times.count:
        yield "mean service time", _Figure("ns", Estimate(times.mean, None, None))
    for name in PERCENTILES:
        # the intervals of an open loop are those of its response times
        if (value := known_percentile(times, name, point.intervals if is_closed else {})) is not None:
            yield f"service time {name.replace('_', '.')}", _Figure("ns", value)
    further = {"first response": ("first_response_time", point.first_response_time_ns), "gap": ("response_gap", point.response_gap_ns)}
    for title, (key, distribution) in further.items():
        # that of an open loop begins at the intended start
        if distribution is not None and (is_closed or key != "first_response_time"):
            yield from _percentiles(title, distribution, point.further_intervals.get(key, {}))
    if (rate := error_rate_of(point)) is not None:
        yield "error rate", _Figure("share", rate)


def _their_figures(point: PerfAnalyzerPoint) -> Iterator[tuple[str, _Figure]]:
    for name, value in (("throughput", point.throughput_per_s), (_INFERENCES, point.inferences_per_s)):
        if value:
            yield name, _Figure("per_s", Estimate(value, None, None))
    if point.mean_ns:
        yield "mean service time", _Figure("ns", Estimate(point.mean_ns, None, None))
    for name, estimate in point.percentiles_ns.items():
        if estimate.value > 0 and name != "p99_99":
            yield f"service time {name.replace('_', '.')}", _Figure("ns", estimate)
    for title, distribution in (("first response", point.first_response_ns), ("gap", point.response_gap_ns)):
        if distribution is not None:
            yield from _percentiles(title, distribution, {})


def _percentiles(title: str, times: Distribution, intervals: Mapping[str, tuple[float, float | None]]) -> Iterator[tuple[str, _Figure]]:
    for name in _FURTHER_PERCENTILES:
        if (value := known_percentile(times, name, intervals)) is not None:
            yield f"{title} {name}", _Figure("ns", value)


def _differences(first: Side, other: Side) -> Iterator[Difference]:
    if isinstance(first, Result) and isinstance(other, Result):
        yield from scenario_differences(first.scenario, other.scenario)
        yield from environment_differences(first, other)
    elif isinstance(first, Result) or isinstance(other, Result):
        yield Difference("settings", "the settings", _settings(first), _settings(other), "incomparable")


def _settings(side: Side) -> str:
    return "recorded by perfkit" if isinstance(side, Result) else "not in perf_analyzer's files"


def _notes(sides: Sequence[tuple[str, Side]], found: Sequence[_Points], places: Sequence[_Place]) -> Iterator[str]:
    yield from status_notes([(label, side) for label, side in sides if isinstance(side, Result)])
    for (label, side), points in zip(sides, found, strict=True):
        if isinstance(side, PerfAnalyzerResult):
            yield f"{label} is a {side.kind} of {side.program}: {NOT_RECORDED}."
        used = [one for place in places if (one := _at(points, place)) is not None]
        if left := [place.title for place, one in points.items() if one not in used]:
            yield f"Left out, because not all results have it: {'; '.join(left)} of {label}."
        if invalid := [one.title for _, one in used if isinstance(one, Point) and not one.valid]:
            yield f"Not valid in {label}: {'; '.join(invalid)}; its figures may be those of the load generator or of a cold target."
        yield from (note for _, one in used if isinstance(one, PerfAnalyzerPoint) for note in one.notes)
        if any(isinstance(one, Point) and one.response_time_ns is not None for _, one in used):
            yield f"The times of {label} are its service times, from the actual send; perf_analyzer has nothing to compare its response times with."
    yield "perf_analyzer's files name neither protocol, model nor payload: perfkit cannot check that they are those of the other results."
    if any(isinstance(side, PerfAnalyzerResult) and side.kind == "CSV report" for _, side in sides):
        yield "A CSV report counts inferences, not requests, and only those of its last three windows; its percentiles have no intervals."
