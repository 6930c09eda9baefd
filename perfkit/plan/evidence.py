"""What was measured of each configuration: the results read, told apart, and pooled by rate."""

import contextlib
import dataclasses
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from perfkit.errors import ResultError, UsageError
from perfkit.result.file import read_result
from perfkit.result.fingerprint import gpus_of
from perfkit.result.interval_log import read_times
from perfkit.result.model import ClosedLoad, OpenLoad, Point, Protocol, Result
from perfkit.result.sweep import configurations
from perfkit.stats.buckets import BucketCounts

_SEED = re.compile(r",?\bseed=\d+")
_BATCHES = 20
_GPUS = "GPUs"
_FAILING = ("overloaded", "not_steady")


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """A result that a plan rests on."""

    label: str
    folder: pathlib.Path
    result: Result


@dataclasses.dataclass(frozen=True, slots=True)
class OpenPoint:
    """One repetition at a rate; `run` counts the results, each a start of the server of its own."""

    point: Point
    run: int
    batches: tuple[BucketCounts, ...]
    """Its response times, in parts of the window one after the other; empty without a log."""

    @property
    def rate_per_s(self) -> float:
        """The arrival rate."""
        return self.point.load.level

    @property
    def state(self) -> str:
        """`kept up`, or why its percentiles say nothing that would last: `overloaded`, `not steady`, `not valid`."""
        if not self.point.valid:
            return "not valid"
        codes = {warning.code for warning in self.point.warnings}
        return next((code.replace("_", " ") for code in _FAILING if code in codes), "kept up")


@dataclasses.dataclass(frozen=True, slots=True)
class Evidence:
    """All that was measured of one configuration over one protocol."""

    name: str
    label: str
    protocol: Protocol
    model: str
    batch_size: int
    settings: str
    """What tells it from others: the server's options, the batch size."""
    sources: tuple[str, ...]
    open_points: tuple[OpenPoint, ...]
    closed_points: tuple[Point, ...]
    lone_batches: tuple[BucketCounts, ...]
    """Service times of the lowest concurrency, where one was measured: nothing waited then."""
    notes: tuple[str, ...] = ()
    """What a reader must know of its sources."""

    @property
    def runs(self) -> int:
        """How many results with an open loop, restarts of the server, stand behind it."""
        return len({one.run for one in self.open_points})


def read_sources(texts: Sequence[str]) -> list[Source]:
    """Reads `RESULT` and `LABEL=RESULT`; raises ResultError, and UsageError for a result given twice.

    A sweep's folder stands for all its results; without a label each configuration in it is called by its swept values.
    """
    sources: list[Source] = []
    for text in texts:
        label, _, path = text.partition("=") if "=" in text and not pathlib.Path(text).exists() else ("", "", text)
        for told, its_path in configurations(pathlib.Path(path)):
            result, folder = read_result(its_path)
            if any(one.folder.resolve() == folder.resolve() for one in sources):
                raise UsageError(f"{its_path}: this result is given twice; each counts as a start of the server of its own")
            if not result.points:
                raise ResultError(f"{its_path}: nothing was measured in it (status {result.status})")
            if _load(result, "open").get("shape"):
                raise UsageError(
                    f"{its_path}: its rates move (load.open.shape), so that no capacity can be told from them; measure steady ones"
                )
            sources.append(Source(label.strip() or told, folder, result))
    return sources


def gather(sources: Sequence[Source]) -> list[Evidence]:
    """The configurations, in the order in which they were given; raises UsageError where different ones are not told apart by labels."""
    by_label: dict[str, list[Source]] = {}
    for source in sources:
        by_label.setdefault(source.label, []).append(source)
    if "" in by_label and len(by_label) > 1:
        unnamed = by_label[""][0].folder
        raise UsageError(f"{unnamed}: other results have a label, and this one has none; write LABEL={unnamed}")
    gathered = []
    for label, some in by_label.items():
        _refuse_mixture(label, some)
        protocols = list(dict.fromkeys(point.protocol for source in some for point in source.result.points))
        gathered += [_evidence(label, protocol, some, len(protocols) > 1) for protocol in protocols]
    return gathered


def fingerprint(result: Result) -> dict[str, str]:
    """What must be alike for results to be one configuration."""
    scenario = result.scenario
    target, server = scenario.get("target") or {}, scenario.get("server") or {}
    facts = {
        "model": target.get("model"),
        "version": target.get("version") or None,
        "batch size": _batch_size(scenario),
        **{f"server {name}": value for name, value in sorted(server.items()) if name != "device" or value != "auto"},
        _GPUS: ", ".join(str(gpu["name"]) for gpu in gpus_of(result)) or None,
    }
    return {name: _SEED.sub("", str(value)) for name, value in facts.items() if value is not None}


def _refuse_mixture(label: str, sources: Sequence[Source]) -> None:
    offered = {law: source for source in sources for point in source.result.points if (law := _arrivals(point))}
    if len(offered) > 1:
        (law, one), (other_law, other) = list(offered.items())[:2]
        raise UsageError(
            f"{one.folder} and {other.folder}: their arrivals are {law} and {other_law}, which queues tell apart; give each a label, as a={one.folder} b={other.folder}"
        )
    first = fingerprint(sources[0].result)
    for source in sources[1:]:
        found = fingerprint(source.result)
        # GPUs that were not sampled are not known, and not others
        unlike = [
            name
            for name in {**first, **found}
            if first.get(name) != found.get(name) and (name != _GPUS or (name in first and name in found))
        ]
        if unlike:
            differences = ", ".join(f"{name} {first.get(name, '(default)')} and {found.get(name, '(default)')}" for name in unlike)
            held = f"the label {label!r} holds" if label else "without labels all results are one configuration, and these are"
            raise UsageError(
                f"{sources[0].folder} and {source.folder}: {held} different ones ({differences}); tell them apart: a={sources[0].folder} b={source.folder}"
            )


def _evidence(label: str, protocol: Protocol, sources: Sequence[Source], is_one_of_several: bool) -> Evidence:
    first, facts = sources[0].result, fingerprint(sources[0].result)
    model = facts.get("model", "model")
    name = f"{label or model}{f' {protocol}' if is_one_of_several else ''}"
    opened: list[OpenPoint] = []
    closed: list[Point] = []
    lone: list[BucketCounts] = []
    for run, source in enumerate(sources):
        batches = _read_batches(source)
        for point in source.result.points:
            if point.protocol != protocol:
                continue
            of_point = batches.get((_index(source.result, point), point.repetition or 0), ())
            if isinstance(point.load, OpenLoad):
                opened.append(OpenPoint(point, run, tuple(of_point)))
            elif isinstance(point.load, ClosedLoad) and not _thinks(source.result):
                closed.append(point)
                if point.load.concurrency == 1 and point.valid:
                    lone += of_point
    return Evidence(
        name=name,
        label=label,
        protocol=protocol,
        model=model,
        batch_size=_batch_size(first.scenario),
        settings=", ".join(f"{key} {value}" for key, value in facts.items() if key != "model"),
        sources=tuple(str(source.folder) for source in sources),
        open_points=tuple(opened),
        closed_points=tuple(closed),
        lone_batches=tuple(lone),
        notes=_notes(sources, protocol),
    )


def _notes(sources: Sequence[Source], protocol: Protocol) -> tuple[str, ...]:
    told = [
        f"{source.folder}: its run was {source.result.status}; what it measured until then counts."
        for source in sources
        if source.result.status in ("interrupted", "incomplete")
    ]
    told += [
        f"{source.folder}: its closed loops have a think time, and are left out of the laws."
        for source in sources
        if _thinks(source.result)
    ]
    opened = [one for one in sources if any(point.protocol == protocol and isinstance(point.load, OpenLoad) for point in one.result.points)]
    if len(opened) > 1 and any((one.result.scenario.get("target") or {}).get("url") for one in opened):
        told.append(
            "It was measured at a server that perfkit did not start: its results count as restarts, and tell how far those differ only if it was restarted between them."
        )
    return tuple(told)


def _load(result: Result, kind: str) -> Mapping[str, Any]:
    """A variant of the scenario's load; empty where it is another one."""
    found = (result.scenario.get("load") or {}).get(kind)
    return found if isinstance(found, Mapping) else {}


def _thinks(result: Result) -> bool:
    return bool(_load(result, "closed").get("think_time", "0s") != "0s")


def _arrivals(point: Point) -> str:
    """The law of an open loop's arrivals; empty for a closed one."""
    if not isinstance(point.load, OpenLoad):
        return ""
    return point.load.arrivals if point.load.burstiness is None else f"{point.load.arrivals} of burstiness {point.load.burstiness:g}"


def _index(result: Result, point: Point) -> int:
    """The number of its load point in the log's tags: the place in the summary."""
    return next((index for index, one in enumerate(result.summary) if (one.protocol, one.load) == (point.protocol, point.load)), -1)


def _read_batches(source: Source) -> dict[tuple[int, int], list[BucketCounts]]:
    """Each repetition's times in up to 20 parts of its window, by point and repetition; empty where there is no log."""
    seconds: dict[tuple[int, int], dict[float, list[BucketCounts]]] = {}
    with contextlib.suppress(ResultError):  # a result without its log can be planned from, with less said of its luck
        for key, start_s, histogram in read_times(source.folder, source.result):
            seconds.setdefault(key, {}).setdefault(start_s, []).append(histogram.bucket_counts())
    return {key: _batched(some) for key, some in seconds.items()}


def _batched(seconds: Mapping[float, list[BucketCounts]]) -> list[BucketCounts]:
    order = sorted(seconds)
    number = min(_BATCHES, len(order))
    parts: list[list[BucketCounts]] = [[] for _ in range(number)]
    for place, start_s in enumerate(order):
        parts[place * number // len(order)] += seconds[start_s]
    return [BucketCounts.merged(part) for part in parts]


def pooled_percentile_ns(batches: Sequence[BucketCounts], quantile: float) -> float | None:
    """The percentile of all batches together; None where they are empty."""
    times = BucketCounts.merged(batches)
    return float(min(times.values_at([quantile])[0], times.max_ns)) if times.count else None


def _batch_size(scenario: Mapping[str, Any]) -> int:
    return int((scenario.get("workload") or {}).get("batch_size") or 1)
