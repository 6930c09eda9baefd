"""What the figures of a stored result must satisfy before they are believed: ranges, sums, order, and the shape of what is read.

A result is a file that others may have edited or damaged. The checks follow from the definitions of the figures, so every result that
perfkit writes passes them.
"""

import functools
import itertools
import math
import pathlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from perfkit.errors import ResultError
from perfkit.figures.declaration import declared, value_at
from perfkit.load.load_plan import MAX_IN_FLIGHT
from perfkit.result.counts import Requests, Retries
from perfkit.result.distribution import QUANTILES, Distribution
from perfkit.result.load import ClosedLoad, ColdStartLoad, IdleLoad, Load, MixedLoad, OpenLoad, RampLoad
from perfkit.result.model import Point, PointKey, Result
from perfkit.result.scan import scan_problems
from perfkit.result.search import Search
from perfkit.result.surge import surge_problems
from perfkit.scenario.slo import FURTHER_TIMES
from perfkit.spans.breakdown import BANDS, Breakdown
from perfkit.spans.split import PARTS
from perfkit.stats.buckets import LONGEST_TIME_NS

HIGHEST_RATE_PER_S = 1e9
"""One request in a nanosecond, the unit of every time."""
_LONGEST_S = 10 * 366 * 86_400.0
_ROUNDING = 1e-6
_SHORTEST_MEAN_NS = 512
_TIMESTAMP = re.compile(
    r"(?P<year>\d{4})-(?P<month>\d\d)-(?P<day>\d\d)T(?P<hour>\d\d):(?P<minute>\d\d):\d\d(\.\d{1,9})?(\+00:00|Z)", re.ASCII
)
# of a number by the end of its name; the first match holds
_HIGHEST = (
    ("_bytes_per_s", 1e15), ("inferences_per_s", 1e15), ("_per_s", HIGHEST_RATE_PER_S), ("error_rate", 1.0), ("machine_cpu_share", 1.5),
    ("steal_share", 1.5), ("utilization_mean", 1.5), ("clock_offset_ns", 1e18), ("_s", _LONGEST_S), ("_ns", _LONGEST_S * 1e9),
)  # fmt: skip
_MAY_BE_NEGATIVE = (
    "energy_above_idle_j", "energy_above_idle_per_inference_j", "temperature_max_celsius", "value", "low", "high", "clock_offset_ns", "clock_drift_ppm",
)  # fmt: skip
_LEVELS = {
    "closed": "concurrency",
    "ramp": "concurrency",
    "open": "rate_per_s",
    "idle": "gap_s",
    "cold_start": "requests",
    "mixed": "rate_per_s",
}
_SECTIONS = {
    "scenario": ("target", "server", "workload", "load", "measure", "gate", "metrics"),
    "environment": ("generator", "source", "target"),
}
"""The parts that perfkit itself reads from a result's free-form mappings; each is a mapping where it exists."""
_MOST_INFERENCES = 1_000_000
"""The largest batch size that is plausible."""
_Problem = tuple[str, str]
"""A key, by dots, and what is wrong with its value."""


def check_result(file: pathlib.Path, result: Result) -> None:
    """Raises ResultError, which names the file and the key, for the first figure that no run could have written."""
    refuse(file, problems(result))


def refuse(file: pathlib.Path, found: Iterable[_Problem]) -> None:
    """Raises ResultError for the first problem."""
    for key, problem in found:
        raise ResultError(f"{file}: {key}: {problem}; the file was damaged or edited: restore it, or measure again")


def problems(result: Result) -> Iterator[_Problem]:
    """What is wrong with a result; nothing for one that a run has written."""
    if not result.points:
        yield "points", "there is no load point, so nothing was measured"
    yield from timestamp_problems("started_at", result.started_at)
    for number, one in enumerate(result.resumptions):
        yield from timestamp_problems(f"resumptions.{number}.at", one.at)
        if not (one.after_points > 0 and 0 <= one.paused_s < _LONGEST_S):
            yield f"resumptions.{number}", f"after {one.after_points} load points and {one.paused_s:g} s, no run was resumed"
    yield from _section_problems(result)
    pooled = {point.key: point for point in result.summary}
    if len(pooled) < len(result.summary):
        yield "summary", "a load point occurs twice"
    repetitions: dict[PointKey, list[Point]] = {key: [] for key in pooled}
    for number, point in enumerate(result.points):
        if (key := point.key) not in repetitions:
            yield f"points.{number}.load", f"the summary lacks this load point, {point.title}"
            return
        repetitions[key].append(point)
        yield from _prefixed(f"points.{number}", _point_problems(point, repetitions=1))
    for number, point in enumerate(result.summary):
        parts = repetitions[point.key]
        yield from _prefixed(f"summary.{number}", _point_problems(point, max(len(parts), 1)))
        yield from _prefixed(f"summary.{number}", _pooling_problems(point, parts))
    if result.search is not None:
        yield from _prefixed("search", _search_problems(result.search))


def timestamp_problems(key: str, text: str) -> Iterator[_Problem]:
    """Whether a text is an instant in UTC as perfkit writes it, from 1677 to 2262: 64 bits of nanoseconds before or after 1970."""
    match = _TIMESTAMP.fullmatch(text)
    limits = {"year": (1677, 2262), "month": (1, 12), "day": (1, 31), "hour": (0, 23), "minute": (0, 59)}
    if match is None or not all(low <= int(match[name]) <= high for name, (low, high) in limits.items()):
        yield key, f"expected an instant in UTC such as 2026-01-31T12:00:00.000+00:00, found {text[:50]!r}"


def time_problems(key: str, times_ns: Mapping[str, int | None]) -> Iterator[_Problem]:
    """Whether percentiles, by name, are times of up to an hour that do not fall as the percentile rises."""
    known = [(name, value) for name in QUANTILES if (value := times_ns.get(name)) is not None]
    for name, value in known:
        if not 0 <= value <= LONGEST_TIME_NS:
            yield f"{key}.{name}", f"{value} ns is no time of a request, which lasts up to an hour"
    for (lower, low), (higher, high) in itertools.pairwise(known):
        if low > high:
            yield f"{key}.{higher}", f"{high} is below {lower}, {low}"


def _section_problems(result: Result) -> Iterator[_Problem]:
    for key, names in _SECTIONS.items():
        document: Mapping[str, Any] = getattr(result, key)
        for name in names:
            if not isinstance(document.get(name) or {}, Mapping):
                yield f"{key}.{name}", f"expected a mapping, found {type(document[name]).__name__}"
    load = result.scenario.get("load") or {}
    for kind in ("closed", "open", "search", "idle", "cold_start") if isinstance(load, Mapping) else ():
        if not isinstance(load.get(kind) or {}, Mapping):
            yield f"scenario.load.{kind}", f"expected a mapping, found {type(load[kind]).__name__}"
    workload = result.scenario.get("workload")
    size = (workload.get("batch_size") if isinstance(workload, Mapping) else None) or 1
    if not (isinstance(size, int) and 1 <= size <= _MOST_INFERENCES):
        yield "scenario.workload.batch_size", f"expected a whole number from 1 to {_MOST_INFERENCES:,}, found {str(size)[:50]}"
    gpus = result.environment.get("gpus") or []
    if not (isinstance(gpus, list) and all(isinstance(gpu, Mapping) for gpu in gpus)):
        yield "environment.gpus", "expected a list of mappings"


def _point_problems(point: Point, repetitions: int) -> Iterator[_Problem]:
    yield from _range_problems("", point.model_dump(mode="python", exclude={"metrics", "load", "breakdown"}))
    yield from _load_problems(point.load)
    requests = point.requests
    if requests.scheduled != requests.dropped + requests.sent:
        yield "requests.scheduled", f"{requests.scheduled} is not the sum of dropped and sent, {requests.dropped} + {requests.sent}"
    if requests.sent != (total := sum(requests.outcomes.values())):
        yield "requests.sent", f"{requests.sent} is not the sum of the outcomes, {total}"
    error_rate = requests.error_rate
    if abs(point.error_rate - error_rate) > _ROUNDING:
        yield "error_rate", f"{point.error_rate} is not that of the counts, {error_rate:.6g}"
    yield from _distribution_problems(point)
    further = ((f"further_intervals.{kind}.{name}", one) for kind, named in point.further_intervals.items() for name, one in named.items())
    for name, (low, high) in (*((f"intervals.{name}", one) for name, one in point.intervals.items()), *further):
        if not 0 <= low <= LONGEST_TIME_NS or (high is not None and not low <= high <= LONGEST_TIME_NS):
            yield name, f"{low} to {high} is no interval of times in nanoseconds"
    for name in ("mean_interval_ns", "throughput_interval_per_s"):
        if (ends := getattr(point, name)) is not None and not 0 <= ends[0] <= ends[1]:
            yield name, f"{ends[0]} to {ends[1]} is no interval"
    shares: dict[str, Sequence[Any] | None] = {"replicas": point.replicas, "machines": point.machines}
    for (key, parts), (name, whole) in itertools.product(shares.items(), (("requests", requests.sent), ("ok", requests.ok))):
        if parts is not None and (total := sum(getattr(one, name) for one in parts)) != whole:
            yield key, f"their {name} are {total} together, and those of the load point {whole}"
    finished, most = point.throughput_per_s * point.duration_s, _most_finished(point, repetitions)
    if finished > most:
        yield (
            "throughput_per_s",
            f"{point.throughput_per_s:g}/s would be {finished:.6g} answers in {point.duration_s:g} s, but there were {most:,.0f} requests at most",
        )
    series = point.throughput_series_per_s
    if series and abs(sum(series) - finished) > 1 + _ROUNDING * finished:
        yield (
            "throughput_per_s",
            f"{point.throughput_per_s:g}/s over {point.duration_s:g} s is not the sum of throughput_series_per_s, {sum(series)}",
        )
    for name in ("throughput_series_per_s", "failed_series_per_s"):
        if len(getattr(point, name) or ()) > point.duration_s + 2:
            yield name, f"{len(getattr(point, name))} seconds are more than the window of {point.duration_s:g} s"
    if point.retries is not None:
        yield from _prefixed("retries", _retries_problems(point.retries, requests, point.duration_s))
    for number, incident in enumerate(point.incidents):
        if incident.end_s > point.duration_s + 2:
            yield f"incidents.{number}", f"its end at {incident.end_s:g} s is after that of the window of {point.duration_s:g} s"
    if (
        point.throughput_per_s * (1 - _ROUNDING) > point.inferences_per_s
        or point.inferences_per_s > point.throughput_per_s * _MOST_INFERENCES
    ):
        yield "inferences_per_s", f"{point.inferences_per_s:g}/s does not fit the throughput, {point.throughput_per_s:g}/s"
    if point.breakdown is not None:
        yield from _prefixed("breakdown", _breakdown_problems(point.breakdown, requests, point.duration_s))
    if point.surge is not None:
        if not isinstance(point.load, OpenLoad) or point.load.surge is None:
            yield "surge", "the load has no surge"
        else:
            yield from _prefixed("surge", surge_problems(point.surge, point.load.surge))
    if point.scan is not None:
        if isinstance(point.load, RampLoad):
            yield from _prefixed("scan", scan_problems(point.scan, point.load))
        else:
            yield "scan", "the load is no scan"
    if point.goodput_per_s is not None and point.goodput_per_s > point.throughput_per_s * (1 + _ROUNDING) + _ROUNDING:
        yield "goodput_per_s", f"{point.goodput_per_s:g}/s is above the throughput, {point.throughput_per_s:g}/s"


def _retries_problems(retries: Retries, requests: Requests, duration_s: float) -> Iterator[_Problem]:
    if retries.attempts != requests.sent + retries.retries:
        yield "attempts", f"{retries.attempts} is not the sum of the requests sent and the retries, {requests.sent} + {retries.retries}"
    if retries.retries != (total := sum(retries.by_cause.values())):
        yield "by_cause", f"its sum, {total}, is not the number of retries, {retries.retries}"
    if retries.amplification is not None and abs(retries.amplification * requests.sent - retries.attempts) > _ROUNDING * retries.attempts:
        yield "amplification", f"{retries.amplification:g} is not attempts ÷ requests sent, {retries.attempts} ÷ {requests.sent}"
    series, again = retries.attempts_series_per_s or (), retries.retries_series_per_s or ()
    if max(len(series), len(again)) > duration_s + 2:
        yield "attempts_series_per_s", f"{max(len(series), len(again))} seconds are more than the window of {duration_s:g} s"
    if len(series) != len(again) or any(few > many for few, many in zip(again, series, strict=True)):
        yield "retries_series_per_s", "in some second there are more retries than attempts"


def _load_problems(load: Load) -> Iterator[_Problem]:
    if not 0 < load.level <= HIGHEST_RATE_PER_S:
        yield f"load.{_LEVELS[load.kind]}", f"{load.level} is no load"
    if isinstance(load, OpenLoad):
        for name in ("burstiness", "max_in_flight", "speed"):
            if (value := getattr(load, name)) is not None and not 0 < value <= HIGHEST_RATE_PER_S:
                yield f"load.{name}", f"{value} is not above zero, or too large"
        if (surge := load.surge) is not None and not (load.rate_per_s < surge.rate_per_s and 0 <= surge.start_s < surge.end_s):
            yield (
                "load.surge",
                f"{surge.rate_per_s:g}/s from {surge.start_s:g} s to {surge.end_s:g} s is no surge above {load.rate_per_s:g}/s",
            )


def _most_finished(point: Point, repetitions: int) -> float:
    """A generous upper bound of the answers in a window: its own requests, and those of before it that were still in flight."""
    own = 1.1 * point.requests.sent + 1
    if isinstance(point.load, ClosedLoad | RampLoad):
        return own + point.load.concurrency * repetitions
    if isinstance(point.load, IdleLoad | ColdStartLoad):
        return own + repetitions
    if isinstance(point.load, MixedLoad):
        return own + repetitions * (point.load.concurrency + MAX_IN_FLIGHT * point.generator.workers)
    # a trace or a shape may begin with many times its rate, and all of that may be in flight when the window begins
    return own + repetitions * (point.load.max_in_flight or MAX_IN_FLIGHT * point.generator.workers)


def _distribution_problems(point: Point) -> Iterator[_Problem]:
    found = [(one.path, one.value_of(point), one.figure.counted_by) for one in declared(Point) if one.kind is Distribution]
    found += [(f"replicas.{number}.times_ns", one.times_ns, "") for number, one in enumerate(point.replicas or ())]
    found += [(f"machines.{number}.times_ns", one.times_ns, "") for number, one in enumerate(point.machines or ())]
    for key, times, counted_by in found:
        if times is None:
            continue
        count = value_at(point, counted_by) if counted_by else None
        if count is not None and times.count != count:
            yield f"{key}.count", f"{times.count} is not the number of requests with such a time, {count}"
        yield from _prefixed(key, _times_problems(times))


def _breakdown_problems(breakdown: Breakdown, requests: Requests, duration_s: float) -> Iterator[_Problem]:
    """Whether the parts of traced requests add up; a part may be below zero, by the error of the clocks."""
    for name in ("sampled", "without_spans", "failed", "clock_bound_ns"):
        if (getattr(breakdown, name) or 0) < 0:
            yield name, f"{getattr(breakdown, name)} is below zero"
    if breakdown.sampled + breakdown.without_spans > requests.ok:
        yield (
            "sampled",
            f"{breakdown.sampled} with spans and {breakdown.without_spans} without are more than the ok requests, {requests.ok}",
        )
    if unknown := set(breakdown.unknown) - set(PARTS):
        yield "unknown", f"{min(unknown)[:50]!r} is no part of a request's time"
    means = {name: getattr(breakdown, name) for name in ("mean", *BANDS)} | {
        f"contrast.{name}": one for name, one in breakdown.contrast.items()
    }
    slowest = {f"slowest.{number}": one for number, one in enumerate(breakdown.slowest)}
    for key, one in (means | slowest).items():
        if one is None:
            continue
        if tuple(one.parts_ns) != PARTS:
            yield f"{key}.parts_ns", f"expected the parts {', '.join(PARTS)}"
        elif one.total_ns != sum(one.parts_ns.values()):
            yield f"{key}.total_ns", f"{one.total_ns} is not the sum of the parts, {sum(one.parts_ns.values())}"
        for part, value in one.parts_ns.items():
            if abs(value) > LONGEST_TIME_NS:
                yield f"{key}.parts_ns.{part}", f"{value} ns is no part of a request, which lasts up to an hour"
    for key, one in means.items():
        if one is not None and not 0 < one.requests <= breakdown.sampled:
            yield f"{key}.requests", f"{one.requests} are none, or more than the sampled requests, {breakdown.sampled}"
        for part, (low, high) in (one.intervals_ns if one is not None else {}).items():
            if low > high:
                yield f"{key}.intervals_ns.{part}", f"{low} to {high} is no interval"
    for key, request in zip(slowest, breakdown.slowest, strict=True):
        if not (
            0 <= request.at_s <= duration_s and 0 <= request.repetition <= _MOST_INFERENCES and 0 <= request.variant <= _MOST_INFERENCES
        ):
            yield key, f"at {request.at_s:g} s, repetition {request.repetition} and variant {request.variant} are not those of a request"
    for (number, one), following in zip(slowest.items(), breakdown.slowest[1:], strict=False):
        if one.total_ns < following.total_ns:
            yield f"{number}.total_ns", f"{one.total_ns} is below that of the next, {following.total_ns}"


def _times_problems(times: Distribution) -> Iterator[_Problem]:
    if not times.count:
        if times.max or times.mean:
            yield "max", "there are figures, but no samples"
        return
    percentiles = {name: getattr(times, name) for name in QUANTILES}
    yield from time_problems("", percentiles)
    known = [value for value in percentiles.values() if value is not None]
    if not times.min <= min([*known, times.max]):
        yield "min", f"{times.min} is above another figure of the distribution"
    if not max(known, default=0) <= times.max <= LONGEST_TIME_NS:
        yield "max", f"{times.max} is below a percentile, or above an hour"
    # the mean is of the middles of the buckets, also where every time is 0
    if not times.min * (1 - _ROUNDING) <= times.mean <= max(times.max * (1 + _ROUNDING) + 1, _SHORTEST_MEAN_NS):
        yield "mean", f"{times.mean:.6g} is not between the smallest and the largest time"
    if times.stddev > times.max + 1:
        yield "stddev", f"{times.stddev:.6g} is above the largest time"


def _pooling_problems(pooled: Point, parts: Sequence[Point]) -> Iterator[_Problem]:
    """Whether a load point's pooled counts are the sums of its repetitions'."""
    if not parts:
        yield "load", f"no repetition has this load point, {pooled.title}"
        return
    for name in Requests.model_fields:
        if (total := sum(getattr(part.requests, name) for part in parts)) != getattr(pooled.requests, name):
            yield f"requests.{name}", f"{getattr(pooled.requests, name)} is not the sum over the repetitions, {total}"
    for name in ("duration_s", "finished"):
        own, *others = (one.duration_s * (one.throughput_per_s if name == "finished" else 1.0) for one in (pooled, *parts))
        if not math.isclose(own, sum(others), rel_tol=1e-4, abs_tol=1e-3):
            key = "throughput_per_s" if name == "finished" else name
            yield key, f"{getattr(pooled, key):.6g} does not fit the repetitions"
    if pooled.times.count and pooled.times.max != max(part.times.max for part in parts):
        yield "service_time_ns.max", f"{pooled.times.max} is not the largest of the repetitions' times"


def _search_problems(search: Search) -> Iterator[_Problem]:
    ends = [("low_per_s", search.low_per_s), ("capacity_per_s", search.capacity_per_s), ("high_per_s", search.high_per_s)]
    known = [(name, value) for name, value in ends if value is not None]
    for name, value in [*known, *((f"probes.{number}.rate_per_s", probe.rate_per_s) for number, probe in enumerate(search.probes))]:
        if not 0 < value <= HIGHEST_RATE_PER_S:
            yield name, f"{value} is not a rate"
    for (lower, low), (higher, high) in itertools.pairwise(known):
        if low > high * (1 + _ROUNDING):
            yield higher, f"{high:g} is below {lower}, {low:g}"
    for name in ("confidence", "precision"):
        if not 0 <= getattr(search, name) <= 1:
            yield name, f"{getattr(search, name)} is not a share"
    for number, probe in enumerate(search.probes):
        for name, one in probe.limits.items():
            if not (0 <= one.unknown <= one.beyond <= one.count and 0 <= one.allowed_share <= 1):
                found = f"{one.beyond} of {one.count} requests and {one.allowed_share:g} allowed"
                yield f"probes.{number}.limits.{name}", f"{found}: expected shares between 0 and 1"
    for number, added in enumerate(search.added_time):
        if not (0 < added.after_probes <= len(search.probes) and 0 < added.budget_s < _LONGEST_S):
            yield f"added_time.{number}", f"{added.budget_s:g} s after {added.after_probes} of {len(search.probes)} probes were not added"
    of_parts = {f"{key}.{percentile}" for key in FURTHER_TIMES for percentile in QUANTILES}
    if not set(search.slo) <= {*QUANTILES, "error_rate", *of_parts}:
        yield "slo", f"expected limits on percentiles or error_rate, found {', '.join(search.slo)[:100]}"
    if (curve := search.curve) is not None and not (0 < curve.centre_per_s <= HIGHEST_RATE_PER_S and 0 <= curve.floor <= 1):
        yield "curve", "its centre is not a rate, or its floor is not a share"


def _range_problems(key: str, values: Mapping[Any, Any] | Sequence[Any]) -> Iterator[_Problem]:
    """Numbers below zero, or larger than anything that could be measured."""
    is_list = not isinstance(values, Mapping)
    for name, value in enumerate(values) if isinstance(values, Sequence) else values.items():
        if isinstance(value, dict | tuple | list):
            yield from _range_problems(f"{key}.{name}" if key else str(name), value)
        elif type(value) in (int, float):
            lowest, highest = _limits(key.rpartition(".")[2] if is_list else name)
            if not lowest <= value <= highest:
                yield (
                    f"{key}.{name}" if key else str(name),
                    f"{value} is {'below zero' if value < lowest else 'more than could be measured'}",
                )


@functools.cache
def _limits(name: str) -> tuple[float, float]:
    """The lowest and the highest plausible number of this name."""
    highest = next((limit for end, limit in _HIGHEST if name.endswith(end)), 1e18) * (1 + _ROUNDING)
    return (-highest if name in _MAY_BE_NEGATIVE else 0.0), highest


def _prefixed(prefix: str, found: Iterable[_Problem]) -> Iterator[_Problem]:
    for key, problem in found:
        yield f"{prefix}.{key}".replace("..", "."), problem
