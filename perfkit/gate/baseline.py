"""Baselines, `perfkit.baseline/1`: runs of one scenario to compare later runs with, in a file small enough for version control.

The unit is the run, a server started and measured: requests and repetitions within a run share its process.
"""

import json
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field

from perfkit.errors import IncomparableError, ResultError, UsageError
from perfkit.gate.verdict import MOST, Probability
from perfkit.recorder.histogram import encode
from perfkit.result.checks import HIGHEST_RATE_PER_S, refuse, time_problems, timestamp_problems
from perfkit.result.distribution import PERCENTILES
from perfkit.result.file import RESULT_FILE, parse_document, read_result
from perfkit.result.fingerprint import build_of, canonical_scenario, commit_of, fingerprint, fingerprint_differences, host_of, starts_server
from perfkit.result.interval_log import read_times
from perfkit.result.json_file import read_json
from perfkit.result.load import Load
from perfkit.result.model import Protocol, Result
from perfkit.result.output_folder import write_whole
from perfkit.result.part import Part
from perfkit.result.scan import NOT_COMPARED
from perfkit.stats.buckets import EMPTY, BucketCounts

SCHEMA = "perfkit.baseline/1"
_FAMILY = SCHEMA.partition("/")[0] + "/"
_Rate = Annotated[float, Field(ge=0, le=HIGHEST_RATE_PER_S)]
_FAULTY_WARNINGS = ("not_steady",)  # with one of these a run's figures are not those of a steady system


class BaselinePoint(Part):
    """One load point of one run, its repetitions pooled."""

    protocol: Protocol
    load: Load
    throughput_per_s: _Rate
    times_ns: dict[str, int | None]
    """Response times; for a closed loop service times."""
    scheduled: Annotated[int, Field(le=MOST)]
    ok: Annotated[int, Field(ge=0)]
    checked: Annotated[int, Field(ge=0)] = 0
    """How many answers were checked at random; `wrong` of them were wrong."""
    wrong: Annotated[int, Field(ge=0)] = 0

    @property
    def title(self) -> str:
        """Protocol and load in words."""
        return f"{self.protocol}, {self.load.title}"


class BaselineRepetition(Part):
    """One repetition of a load point."""

    protocol: Protocol
    load: Load
    repetition: int
    duration_s: Annotated[float, Field(ge=0)]
    throughput_per_s: _Rate
    error_rate: Probability
    times_ns: dict[str, int | None]
    hdr: str = ""
    """The histogram of its times: the HDR V2 payload in base64; empty without a log."""


class BaselineRun(Part):
    """One result."""

    started_at: str
    commit: str
    build: str
    host_id: str
    seed: int | None
    points: tuple[BaselinePoint, ...]
    """Load points, repetitions pooled."""
    repetitions: tuple[BaselineRepetition, ...]
    """Each repetition of each load point."""
    faults: tuple[str, ...] = ()
    """Sentences that say why its figures cannot be gated."""
    starts_server: bool | None = None
    """Whether perfkit started the server for this run."""


class Baseline(Part):
    """The content of a baseline file; a single result is a baseline of one run."""

    schema_version: Annotated[str, Field(alias="schema")] = SCHEMA
    name: str
    scenario: dict[str, Any]
    """The keys that decide what is measured."""
    fingerprint: dict[str, Any]
    """The facts that must be equal for figures to be comparable."""
    runs: tuple[BaselineRun, ...]
    metrics: tuple[str, ...] | None = None
    """The gated metrics, from the scenario's `gate.metrics`; None for all."""

    @property
    def hosts(self) -> tuple[str, ...]:
        """The ids of the machines it was measured on."""
        return tuple(dict.fromkeys(run.host_id for run in self.runs))

    @property
    def build(self) -> str:
        """The server's build if all runs name the same one; empty otherwise."""
        builds = {run.build for run in self.runs}
        return builds.pop() if len(builds) == 1 else ""


def baseline_from_result(result: Result, histograms: Mapping[tuple[int, int], BucketCounts] | None = None) -> Baseline:
    """Make a baseline of one run; `histograms` are the repetitions' times by the summary's index and the repetition."""
    order = [point.key for point in result.summary]
    repetitions = []
    for point in result.points:
        key, number = point.key, point.repetition or 0
        histogram = (histograms or {}).get((order.index(key), number)) if key in order else None
        times_ns = {name: getattr(point.times, name) for name in PERCENTILES}
        own = {"repetition": number, "times_ns": times_ns, "hdr": "" if histogram is None else encode(histogram)}
        repetitions.append(BaselineRepetition.model_validate({**dict(point), **own}))
    points = []
    for point in result.summary:
        times_ns = {name: getattr(point.times, name) if point.times.count else None for name in PERCENTILES}
        own = {"times_ns": times_ns, "wrong": point.checked_answers.wrong}
        points.append(BaselinePoint.model_validate({**dict(point), **dict(point.requests), **own, "scheduled": point.requests.judged}))
    seed = (result.scenario.get("workload") or {}).get("seed")
    run = BaselineRun(
        started_at=result.started_at,
        commit=commit_of(result),
        build=build_of(result),
        host_id=host_of(result),
        seed=seed if isinstance(seed, int) else None,
        points=tuple(points),
        repetitions=tuple(repetitions),
        faults=tuple(_faults(result)),
        starts_server=starts_server(result),
    )
    metrics = (result.scenario.get("gate") or {}).get("metrics")
    return Baseline(
        name=str(result.scenario.get("name") or "result"),
        scenario=canonical_scenario(result.scenario),
        fingerprint=fingerprint(result),
        runs=(run,),
        metrics=None if metrics is None else tuple(metrics),
    )


def merge_baselines(parts: Sequence[tuple[str, Baseline]]) -> Baseline:
    """Merge labelled baselines into one with all their runs, ordered by time; raises IncomparableError if their fingerprints differ."""
    first_label, first = parts[0]
    for label, part in parts[1:]:
        if differences := fingerprint_differences(first.fingerprint, part.fingerprint):
            listed = "; ".join(difference.sentence for difference in differences)
            raise IncomparableError(f"{label} and {first_label} cannot be in one baseline: {listed}")
    runs = {(run.started_at, run.host_id): run for _, part in parts for run in part.runs}
    ordered = sorted(runs.values(), key=lambda run: run.started_at)  # all in UTC and in one format
    return first.model_copy(update={"runs": tuple(ordered)})


def read_baseline(path: pathlib.Path, *, with_histograms: bool = False) -> Baseline:
    """Read a baseline file, or a result (folder or `result.json`) as a baseline of one run; raises ResultError, and UsageError for a mix and a scan.

    `with_histograms` also reads a result's log, which a baseline file that is to be written needs.
    """
    document = _document(path)
    schema = document.get("schema") if isinstance(document, dict) else None
    if not (isinstance(schema, str) and schema.startswith(_FAMILY)):
        result, folder = read_result(path)
        if result.is_mix:
            raise UsageError(
                f"{path}: baselines and gates are for one workload, and this result is of a mix; perfkit compare shows its workloads"
            )
        if result.is_scan:
            raise UsageError(f"{path}: {NOT_COMPARED}")
        return baseline_from_result(result, _histograms(folder, result) if with_histograms else None)
    baseline = parse_document(path, document, Baseline, SCHEMA)
    if not baseline.runs:
        raise ResultError(f"{path}: runs: this baseline has no runs; make it again with `perfkit baseline`")
    refuse(path, _problems(baseline))
    return baseline


def write_baseline(path: pathlib.Path, baseline: Baseline) -> None:
    """Write the file in one step, indented so that versions can be compared line by line; raises ResultError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps(baseline.document(), indent=1) + "\n")
    except OSError as error:
        raise ResultError(f"{path}: cannot be written: {error.strerror}") from None


def _document(path: pathlib.Path) -> object:
    """The JSON of a file; None for a folder or a result, which `read_result` reads. Raises ResultError."""
    if path.is_dir() or path.name == RESULT_FILE:
        return None
    try:
        return read_json(path)
    except FileNotFoundError:  # `read_result` has the message
        return None


def _problems(baseline: Baseline) -> Iterator[tuple[str, str]]:
    """Figures of a baseline file that no run could have had."""
    for number, run in enumerate(baseline.runs):
        key = f"runs.{number}"
        yield from timestamp_problems(f"{key}.started_at", run.started_at)
        if not run.points:
            yield f"{key}.points", "there is no load point, so nothing was measured"
        if len({point.title for point in run.points}) < len(run.points):
            yield f"{key}.points", "a load point occurs twice"
        for index, point in enumerate(run.points):
            yield from _figure_problems(f"{key}.points.{index}", point)
        for index, repetition in enumerate(run.repetitions):
            yield from _figure_problems(f"{key}.repetitions.{index}", repetition)
    transport = baseline.fingerprint.get("transport") or {}
    if not (isinstance(transport, dict) and all(isinstance(one, list) and len(one) == 3 for one in transport.values())):
        yield "fingerprint.transport", "expected the engine, the path and the use of TLS for each protocol"


def _figure_problems(key: str, point: BaselinePoint | BaselineRepetition) -> Iterator[tuple[str, str]]:
    if not 0 < point.load.level <= HIGHEST_RATE_PER_S:
        yield f"{key}.load", f"{point.load.level} is no load"
    yield from time_problems(f"{key}.times_ns", point.times_ns)
    if isinstance(point, BaselinePoint) and point.ok > point.scheduled:
        yield f"{key}.ok", f"{point.ok} is not a number of the scheduled requests, {point.scheduled}"
    if isinstance(point, BaselinePoint) and point.wrong > point.checked:
        yield f"{key}.wrong", f"{point.wrong} is not a number of the checked answers, {point.checked}"


def _histograms(folder: pathlib.Path, result: Result) -> dict[tuple[int, int], BucketCounts]:
    histograms: dict[tuple[int, int], BucketCounts] = {}
    for key, _, times in read_times(folder, result):
        histograms[key] = BucketCounts.merged([histograms.get(key, EMPTY), times])
    return histograms


def _faults(result: Result) -> list[str]:
    faults = []
    if result.status != "complete":
        faults.append(f"the run is {result.status}{f': {result.status_reason}' if result.status_reason else ''}")
    for point in result.summary:
        where = point.title
        if not point.valid:
            faults.append(f"{where} is not valid: its figures may be those of the load generator or of a cold target")
        faults += [f"{where}: {warning.message}" for warning in point.warnings if warning.code in _FAULTY_WARNINGS]
    return faults
