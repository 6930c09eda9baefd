"""Results compared with the first one: differences of scenario and environment, then each figure, without a verdict. Pure."""

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

from perfkit.comparison.point_figures import error_rate
from perfkit.errors import IncomparableError
from perfkit.figures.declaration import Declared
from perfkit.result.distribution import PERCENTILES, Distribution
from perfkit.result.fingerprint import Difference, commit_of, environment_differences, scenario_differences
from perfkit.result.model import Point, PointKey, Result, parts_of_answers
from perfkit.result.scan import NOT_COMPARED
from perfkit.spans.change import PartChange, change_between
from perfkit.stats.buckets import bucket_width_ns
from perfkit.stats.probability import normal_quantile, student_t_quantile
from perfkit.stats.ratio_interval import CONFIDENCE, Estimate, difference_of, geometric_mean, ratio_of, ratio_of_means, welch_degrees

NOT_COVERED = (
    "The 95 % intervals cover the variation within each result: between requests for times, between repetitions for throughput and CPU time. "
    "They leave out the variation between restarts of the server, times of day and machines, which is often larger: for a verdict, use perfkit gate."
)
CPU_TIME, OUTPUT_TOKENS = "CPU time", "output tokens"
"""The metric of the server's CPU time for a request."""
_NO_CPU_TIME = "perfkit did not start the server, or did not measure it"
_Figure: TypeAlias = Callable[[Point], float]
_FEWEST_REPETITIONS = 3
"""With fewer, Student's interval of a throughput or CPU time spans orders of magnitude, and is left out."""


@dataclasses.dataclass(frozen=True, slots=True)
class ComparedResult:
    """One of the compared results."""

    label: str
    started_at: str
    commit: str
    status: str
    differences: tuple[Difference, ...]
    """The differences from the first result: those of the scenario, then those of the environment."""


@dataclasses.dataclass(frozen=True, slots=True)
class MetricRow:
    """One metric at one load point; `values` and `changes` are in the order of the results."""

    load_point: str
    metric: str
    unit: Literal["per_s", "ns", "share"]
    better: Literal["lower", "higher"]
    values: tuple[Estimate | None, ...]
    """None if a result lacks the figure."""
    changes: tuple[Estimate | None, ...]
    """The ratio of each value to the first, or for shares the difference; None for the first itself."""
    degrees: tuple[int | None, ...] = ()
    """The degrees of freedom of the intervals of the changes that rest on repetitions; None for those that rest on many requests."""

    @property
    def is_ratio(self) -> bool:
        """Whether `changes` are ratios."""
        return self.unit != "share"

    @property
    def is_latency(self) -> bool:
        """Whether a larger value is slower."""
        return self.unit == "ns" and self.metric != CPU_TIME


@dataclasses.dataclass(frozen=True, slots=True)
class ResultComparison:
    """A comparison of any number of results; `notes` must be read before the figures."""

    sides: tuple[ComparedResult, ...]
    """The results; the first is what the others are compared with."""
    notes: tuple[str, ...]
    """Sentences that a reader must know beside the figures."""
    rows: tuple[MetricRow, ...]
    parts: tuple[tuple[PartChange, ...], ...] = ()
    """For each result: which parts of the time of traced requests differ from the first; empty where either has none."""
    not_covered: str = NOT_COVERED
    """What the intervals leave out."""


def compare_results(results: Sequence[tuple[str, Result]]) -> ResultComparison:
    """Compare labelled results with the first; raises IncomparableError if they have no load point in common, and for scans."""
    first_label, first = results[0]
    if scans := [label for label, result in results if result.is_scan]:
        raise IncomparableError(f"{', '.join(scans)}: {NOT_COMPARED}")
    sides = tuple(
        ComparedResult(
            label,
            result.started_at,
            commit_of(result),
            result.status,
            (*scenario_differences(first.scenario, result.scenario), *environment_differences(first, result)),
        )
        for label, result in results
    )
    points = [{point.key: point for point in result.summary} for _, result in results]
    shared = [key for key in points[0] if all(key in others for others in points[1:])]
    if not shared:
        listed = "; ".join(f"{label}: {_titles(list(keys)) or 'none'}" for (label, _), keys in zip(results, points, strict=True))
        raise IncomparableError(f"these results have no load point in common ({listed}); compare results of one scenario")
    rows, notes = list[MetricRow](), [*status_notes(results), *_point_notes(results, points, shared)]
    for key in shared:
        key_rows, missing = _rows(key, results)
        rows += key_rows
        notes += missing
    if len({first.summary[0].times_name, *(result.summary[0].times_name for _, result in results)}) > 1:
        notes.append(f"Some results have response times and others service times: {first_label} has {first.summary[0].times_name}s.")
    parts = tuple(tuple(_changed_parts(first, result, shared)) if number else () for number, (_, result) in enumerate(results))
    return ResultComparison(sides, tuple(notes), tuple(rows), parts)


def _changed_parts(first: Result, other: Result, shared: Sequence[PointKey]) -> Iterator[PartChange]:
    for key in shared:
        one, two = _pooled(first, key).breakdown, _pooled(other, key).breakdown
        if one is not None and two is not None:
            yield from change_between(key.title, one, two)


def _titles(keys: Sequence[PointKey]) -> str:
    return ", ".join(key.title.replace(",", "") for key in keys)


def status_notes(results: Sequence[tuple[str, Result]]) -> list[str]:
    """A sentence for each result that is not complete."""
    reasons = [(label, result.status, result.status_reason) for label, result in results if result.status != "complete"]
    return [f"{label} is {status}{f': {reason}' if reason else ''}." for label, status, reason in reasons]


def _point_notes(
    results: Sequence[tuple[str, Result]], points: Sequence[dict[PointKey, Point]], shared: Sequence[PointKey]
) -> Iterator[str]:
    for (label, _), by_key in zip(results, points, strict=True):
        if unshared := [key for key in by_key if key not in shared]:
            yield f"Left out, because not all results have it: {_titles(unshared)} of {label}."
        if invalid := [key for key in shared if not by_key[key].valid]:
            yield f"Not valid in {label}: {_titles(invalid)}; its figures may be those of the load generator or of a cold target."


def _rows(key: PointKey, results: Sequence[tuple[str, Result]]) -> tuple[list[MetricRow], list[str]]:
    """The rows of a load point, and sentences about figures that some results lack."""
    load_point = key.title
    pooled = [_pooled(result, key) for _, result in results]
    columns: dict[str, tuple[Literal["per_s", "ns", "share"], list[Estimate | None]]] = {
        "throughput": ("per_s", [throughput_of(result, key) for _, result in results]),
        **{name: ("ns", [known_percentile(point.times, name, point.intervals) for point in pooled]) for name in PERCENTILES},
        OUTPUT_TOKENS: ("per_s", [_repeated(result, key, _REPEATED[OUTPUT_TOKENS]) for _, result in results]),
        **{
            f"{one.figure.title} {name}": ("ns", [_of_part(one, name, point) for point in pooled])
            for one in parts_of_answers()
            for name in one.figure.percentiles
        },
        "error rate": ("share", [error_rate_of(point) for point in pooled]),
        CPU_TIME: ("ns", [_repeated(result, key, _REPEATED[CPU_TIME]) for _, result in results]),
    }
    rows, missing = [], []
    for metric, (unit, values) in columns.items():
        if not any(values):
            continue
        if lacking := [label for (label, _), value in zip(results, values, strict=True) if value is None]:
            why = _NO_CPU_TIME if metric == CPU_TIME else "too few samples"
            missing.append(f"{metric.replace('_', '.')} of {load_point} is missing in {', '.join(lacking)}: {why}.")
        changes = tuple(None if not index else change_of(unit, values[0], value) for index, value in enumerate(values))
        degrees: tuple[int | None, ...] = ()
        if (figure := _REPEATED.get(metric)) is not None:
            first = results[0][1]
            others = list(zip(changes[1:], results[1:], strict=True))
            changes = (None, *(_repeated_change(change, first, other, key, figure) for change, (_, other) in others))
            degrees = (None, *(_repeated_degrees(first, other, key, figure) for _, (_, other) in others))
        better: Literal["lower", "higher"] = "higher" if metric in ("throughput", OUTPUT_TOKENS) else "lower"
        rows.append(MetricRow(load_point, metric.replace("_", "."), unit, better, tuple(values), changes, degrees))
    return rows, missing


def _pooled(result: Result, key: PointKey) -> Point:
    return next(point for point in result.summary if point.key == key)


def known_percentile(times: Distribution, name: str, intervals: Mapping[str, tuple[float, float | None]]) -> Estimate | None:
    """A percentile with its interval; None if it is withheld."""
    value = getattr(times, name)
    if value is None or not times.count:
        return None
    low, high = intervals.get(name, (None, None))
    return Estimate(value, low, high).no_narrower(bucket_width_ns(value))


def _of_part(one: Declared, name: str, point: Point) -> Estimate | None:
    times: Distribution | None = one.value_of(point)
    return None if times is None else known_percentile(times, name, point.further_intervals.get(one.figure.recorded, {}))


def throughput_of(result: Result, key: PointKey) -> Estimate | None:
    """The throughput of a load point, with an interval if it has enough repetitions; None if nothing was answered."""
    return _repeated(result, key, _REPEATED["throughput"])


def _metric(name: str, point: Point) -> float:
    """A figure of a load point; zero if unknown."""
    return point.compared()[name][1] or 0.0


_REPEATED: dict[str, _Figure] = {
    "throughput": functools.partial(_metric, "throughput"),
    CPU_TIME: functools.partial(_metric, "cpu_time"),
    OUTPUT_TOKENS: functools.partial(_metric, "output_tokens"),
}
"""The figures whose intervals come from the repetitions."""


def _repeated(result: Result, key: PointKey, figure: _Figure) -> Estimate | None:
    value, values = figure(_pooled(result, key)), _values(result, key, figure)
    if value <= 0:
        return None
    is_known = len(values) >= _FEWEST_REPETITIONS and min(values) > 0
    if not is_known:
        return Estimate(value, None, None)
    return _with_interval_of(geometric_mean(values), value).no_narrower(value * _one_request(result, key))


def _one_request(result: Result, key: PointKey) -> float:
    """One request as a share of a repetition's: what a figure that is the same in all repetitions is known to at best."""
    return 1 / max(min((point.requests.ok for point in result.points if point.key == key), default=0), 1)


def _values(result: Result, key: PointKey, figure: _Figure) -> list[float]:
    return [figure(point) for point in result.points if point.key == key]


def _repeated_change(change: Estimate | None, first: Result, second: Result, key: PointKey, figure: _Figure) -> Estimate | None:
    base, other = _values(first, key, figure), _values(second, key, figure)
    if change is None or not base or not other or min(*base, *other) <= 0:
        return change
    if min(len(base), len(other)) < _FEWEST_REPETITIONS:
        return Estimate(change.value, None, None)
    one_request = _one_request(first, key) + _one_request(second, key)
    return _with_interval_of(ratio_of_means(base, other), change.value).no_narrower(change.value * one_request)


def _repeated_degrees(first: Result, second: Result, key: PointKey, figure: _Figure) -> int | None:
    base, other = _values(first, key, figure), _values(second, key, figure)
    is_known = min(len(base), len(other)) >= _FEWEST_REPETITIONS and min(*base, *other) > 0
    return welch_degrees(base, other) if is_known else None


def change_at(row: MetricRow, number: int, confidence: float) -> Estimate | None:
    """A change whose interval has another confidence than 95 %: as much wider as Student's or the normal distribution asks for."""
    change, degrees = row.changes[number], row.degrees[number] if row.degrees else None
    if change is None:
        return None
    at, usual = (
        normal_quantile((1 + one) / 2) if degrees is None else student_t_quantile((1 + one) / 2, degrees)
        for one in (confidence, CONFIDENCE)
    )
    if row.is_ratio:
        return change.scaled(at / usual)
    low, high = (None if end is None else change.value + (end - change.value) * at / usual for end in (change.low, change.high))
    return Estimate(change.value, low, high)


def _with_interval_of(mean: Estimate, value: float) -> Estimate:
    """The pooled value, with the relative interval of the repetitions' mean."""
    if mean.low is None or mean.high is None:
        return Estimate(value, None, None)
    return Estimate(value, value * mean.low / mean.value, value * mean.high / mean.value)


def error_rate_of(point: Point) -> Estimate | None:
    """The share of the scheduled requests that failed; None without any."""
    return error_rate(point) if point.requests.judged else None


def change_of(unit: str, base: Estimate | None, other: Estimate | None) -> Estimate | None:
    """The ratio of a figure to that of the first result, or for shares the difference; None if either lacks it."""
    if base is None or other is None:
        return None
    if unit == "share":
        return difference_of(base, other)
    return ratio_of(base, other) if base.value > 0 and other.value > 0 else None
