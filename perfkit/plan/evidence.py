"""The evidence of a plan: the results read, grouped by configuration, with their logs in batches."""

import contextlib
import dataclasses
import itertools
import pathlib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from perfkit.errors import ResultError, UsageError
from perfkit.plan.repeated_arrivals import leave_out_repeated, sent_points
from perfkit.result.file import read_result
from perfkit.result.fingerprint import gpus_of, hardware_of, server_cold_start_s
from perfkit.result.interval_log import MissingLogError, read_all_times
from perfkit.result.json_file import as_mapping
from perfkit.result.load import ClosedLoad, OpenLoad
from perfkit.result.model import Point, Protocol, Result
from perfkit.result.sweep import configurations
from perfkit.stats.buckets import BucketCounts

KEPT_UP = "kept up"
"""The state of a point at which the target kept up with the arrival rate."""
_SEED = re.compile(r",?\bseed=\d+")
_BATCHES = 20
_GPUS, _HARDWARE = "GPUs", "hardware"
_FAILING = ("overloaded", "not_steady")


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """A result that a plan uses."""

    label: str
    folder: pathlib.Path
    result: Result


@dataclasses.dataclass(frozen=True, slots=True)
class OpenPoint:
    """One repetition at a rate; `run` numbers the results, each of which is a separate start of the server."""

    measured: Point
    run: int
    batches: tuple[BucketCounts, ...]
    """Its response times in consecutive parts of the window; empty without a log."""
    part_batches: Mapping[str, tuple[BucketCounts, ...]] = dataclasses.field(default_factory=dict)
    """The same of every other kind of time in the log, such as `first token time`."""

    def times_of(self, recorded: str) -> tuple[BucketCounts, ...]:
        """The same of the time that is recorded under this name, such as `first_token_time`; empty without any in the log."""
        return self.part_batches.get(recorded.replace("_", " "), ())

    @property
    def rate_per_s(self) -> float:
        """The arrival rate."""
        return self.measured.load.level

    @property
    def state(self) -> str:
        """`KEPT_UP`, or why its percentiles are not those of a steady state: `overloaded`, `not steady`, `not valid`."""
        if not self.measured.valid:
            return "not valid"
        codes = {warning.code for warning in self.measured.warnings}
        return next((code.replace("_", " ") for code in _FAILING if code in codes), KEPT_UP)


@dataclasses.dataclass(frozen=True, slots=True)
class Evidence:
    """All measurements of one configuration over one protocol."""

    name: str
    label: str
    protocol: Protocol
    model: str
    batch_size: int
    settings: str
    """The server's options and the batch size, as text."""
    sources: tuple[str, ...]
    open_points: tuple[OpenPoint, ...]
    """Without those whose arrivals repeat those of another."""
    closed_points: tuple[Point, ...]
    single_request_batches: tuple[BucketCounts, ...]
    """Service times at concurrency 1, where no request waits; empty if it was not measured."""
    cold_starts_s: tuple[float, ...] = ()
    """The times from the start of the server until it was ready, of the results whose server perfkit started."""
    notes: tuple[str, ...] = ()
    """Sentences about the sources that a reader must know."""
    hardware: str = ""
    """What the model ran on, such as `4 × H100`; empty if unknown."""
    measured_on: str = ""
    """The date of the latest result, such as `2026-01-31`."""
    repeated: tuple[str, ...] = ()
    """Sentences about the results whose arrivals repeat those of others, with the remedy; they are among the notes, too."""
    scenario: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    """The scenario of the first source."""

    @property
    def runs(self) -> int:
        """The number of results with an open loop that counts, each a restart of the server."""
        return len({point.run for point in self.open_points})


def read_sources(texts: Sequence[str]) -> list[Source]:
    """Read `RESULT` and `LABEL=RESULT`; raises ResultError, and UsageError for a result given twice.

    A sweep's folder stands for all its results; without a label, each of its configurations is named by its swept values.
    """
    sources: list[Source] = []
    for text in texts:
        label, _, path = text.partition("=") if "=" in text and not pathlib.Path(text).exists() else ("", "", text)
        for swept_values, result_path in configurations(pathlib.Path(path)):
            result, folder = read_result(result_path)
            if any(source.folder.resolve() == folder.resolve() for source in sources):
                raise UsageError(f"{result_path}: this result is given twice; each result must be a separate start of the server")
            if not result.points:
                raise ResultError(f"{result_path}: this result has no measurements (status {result.status})")
            if result.is_mix:
                raise UsageError(f"{result_path}: a plan is for one workload, and this result is of a mix; measure each workload by itself")
            if _load(result, "open").get("shape"):
                raise UsageError(
                    f"{result_path}: its rates change over time (load.open.shape), so they give no capacity; measure constant rates"
                )
            sources.append(Source(label.strip() or swept_values, folder, result))
    return sources


def gather_evidence(sources: Sequence[Source]) -> list[Evidence]:
    """Group the sources by configuration, in the given order; raises UsageError if different ones do not have different labels."""
    by_label: dict[str, list[Source]] = {}
    for source in sources:
        by_label.setdefault(source.label, []).append(source)
    if "" in by_label and len(by_label) > 1:
        unnamed = by_label[""][0].folder
        raise UsageError(f"{unnamed}: this result has no label, but others have; write LABEL={unnamed}")
    gathered = []
    for label, labelled in by_label.items():
        _refuse_mixture(label, labelled)
        protocols = list(dict.fromkeys(point.protocol for source in labelled for point in source.result.points))
        gathered += [_evidence(label, protocol, labelled, len(protocols) > 1) for protocol in protocols]
    return gathered


def configuration_facts(result: Result) -> dict[str, str]:
    """The facts, by name, that must be equal for results to be one configuration."""
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


def _shared_facts(result: Result) -> dict[str, str]:
    """The facts of `configuration_facts`, and the hardware if it is known."""
    hardware = hardware_of(result)
    return {**configuration_facts(result), **({_HARDWARE: hardware} if hardware else {})}


def _refuse_mixture(label: str, sources: Sequence[Source]) -> None:
    by_arrivals = {law: source for source in sources for point in source.result.points if (law := _arrivals(point))}
    if len(by_arrivals) > 1:
        (law, first), (other_law, other) = list(by_arrivals.items())[:2]
        raise UsageError(
            f"{first.folder} and {other.folder}: their arrivals differ ({law} and {other_law}); give each a label, such as "
            f"a={first.folder} b={other.folder}"
        )
    facts = _shared_facts(sources[0].result)
    for source in sources[1:]:
        others = _shared_facts(source.result)
        # hardware that is not in a result, such as GPUs that were not sampled, is unknown, not different
        unknown = {_GPUS, _HARDWARE} - (facts.keys() & others.keys())
        if different := [name for name in {**facts, **others} if facts.get(name) != others.get(name) and name not in unknown]:
            if _GPUS in different and _HARDWARE in different:
                different.remove(_HARDWARE)
            listed = ", ".join(f"{name} {facts.get(name, '(default)')} and {others.get(name, '(default)')}" for name in different)
            rule = f"the results labelled {label!r}" if label else "results without labels"
            raise UsageError(
                f"{sources[0].folder} and {source.folder}: {rule} must be of one configuration, and these differ ({listed}); give each a "
                f"label, such as a={sources[0].folder} b={source.folder}"
            )


def _evidence(label: str, protocol: Protocol, sources: Sequence[Source], is_one_of_several: bool) -> Evidence:
    first, facts = sources[0].result, configuration_facts(sources[0].result)
    model = facts.get("model", "model")
    name = f"{label or model}{f' {protocol}' if is_one_of_several else ''}"
    sent = [sent_points(run, source.folder, source.result, protocol) for run, source in enumerate(sources)]
    counted, repeated = leave_out_repeated(sent)
    counted_ids = {id(one.point) for one in counted}
    opened: list[OpenPoint] = []
    closed: list[Point] = []
    single: list[BucketCounts] = []
    for run, source in enumerate(sources):
        batches = _read_batches(source)
        for point in source.result.points:
            if point.protocol != protocol:
                continue
            of_kinds = batches.get((_index(source.result, point), point.repetition or 0), {})
            of_point = of_kinds.get(point.times_name, ())
            if id(point) in counted_ids:
                opened.append(OpenPoint(point, run, of_point, of_kinds))
            elif isinstance(point.load, ClosedLoad) and not _has_think_time(source.result):
                closed.append(point)
                if point.load.concurrency == 1 and point.valid:
                    single += of_point
    return Evidence(
        name=name,
        label=label,
        protocol=protocol,
        model=model,
        batch_size=_batch_size(first.scenario),
        settings=", ".join(f"{key} {value}" for key, value in facts.items() if key != "model"),
        sources=tuple(str(source.folder) for source in sources),
        scenario=first.scenario,
        open_points=tuple(opened),
        closed_points=tuple(closed),
        single_request_batches=tuple(single),
        cold_starts_s=tuple(time_s for source in sources if (time_s := server_cold_start_s(source.result)) is not None),
        notes=tuple(_notes(sources, {point.run for point in opened}, repeated)),
        hardware=next((hardware for source in sources if (hardware := hardware_of(source.result))), ""),
        measured_on=max(source.result.started_at for source in sources)[: len("2026-01-31")],
        repeated=repeated,
    )


def _notes(sources: Sequence[Source], counted_runs: Collection[int], repeated: Sequence[str]) -> Iterator[str]:
    yield from repeated
    for source in sources:
        if source.result.status in ("interrupted", "incomplete"):
            yield f"{source.folder}: its run was {source.result.status}; the measurements up to then are used."
        if source.result.status == "unsuccessful":
            yield f"{source.folder}: most requests of a load point failed, so its times are those of the few that did not."
    for source in sources:
        if _has_think_time(source.result):
            yield f"{source.folder}: its closed loops have a think time, and are left out of the scalability law."
    opened = [sources[run] for run in sorted(counted_runs)]
    if len(opened) > 1 and any({"url", "urls"} & (source.result.scenario.get("target") or {}).keys() for source in opened):
        yield "perfkit did not start the server: each result counts as a restart, which is right only if the server was restarted between them."


def _load(result: Result, kind: str) -> Mapping[str, Any]:
    return as_mapping((result.scenario.get("load") or {}).get(kind))


def _has_think_time(result: Result) -> bool:
    return bool(_load(result, "closed").get("think_time", "0s") != "0s")


def _arrivals(point: Point) -> str:
    if not isinstance(point.load, OpenLoad):
        return ""
    return point.load.arrivals if point.load.burstiness is None else f"{point.load.arrivals} of burstiness {point.load.burstiness:g}"


def _index(result: Result, point: Point) -> int:
    """The point's index in the summary, which the tags of the log use."""
    keys = [pooled.key for pooled in result.summary]
    return keys.index(point.key) if point.key in keys else -1


def _read_batches(source: Source) -> dict[tuple[int, int], dict[str, tuple[BucketCounts, ...]]]:
    """Each repetition's times in up to 20 parts of its window, by point and repetition, and then by kind; empty without a log."""
    seconds: dict[tuple[int, int], dict[str, dict[float, list[BucketCounts]]]] = {}
    with contextlib.suppress(MissingLogError):  # without its log a result can still be planned, with intervals from its repetitions alone
        for key, kind, start_s, times in read_all_times(source.folder, source.result):
            seconds.setdefault(key, {}).setdefault(kind, {}).setdefault(start_s, []).append(times)
    return {key: {kind: _merge_seconds(of_kind) for kind, of_kind in kinds.items()} for key, kinds in seconds.items()}


def _merge_seconds(seconds: Mapping[float, list[BucketCounts]]) -> tuple[BucketCounts, ...]:
    order = sorted(seconds)
    number = min(_BATCHES, len(order))
    parts = itertools.groupby(enumerate(order), key=lambda item: item[0] * number // len(order))
    return tuple(BucketCounts.merged([counts for _, start_s in part for counts in seconds[start_s]]) for _, part in parts)


def pooled_percentile_ns(batches: Sequence[BucketCounts], quantile: float) -> float | None:
    """The percentile of all batches together; None if they are empty."""
    times = BucketCounts.merged(batches)
    return float(min(times.values_at([quantile])[0], times.max_ns)) if times.count else None


def _batch_size(scenario: Mapping[str, Any]) -> int:
    return int((scenario.get("workload") or {}).get("batch_size") or 1)
