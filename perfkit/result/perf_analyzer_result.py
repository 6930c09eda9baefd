"""perf_analyzer's own results, as far as its files tell them: what they do not have is None, never 0."""

import dataclasses
import pathlib
import re
from collections.abc import Mapping
from typing import Literal

import numpy as np
import numpy.typing as npt

from perfkit.clock import instant_at
from perfkit.errors import ResultError
from perfkit.recorder.batches import batch_length_ns
from perfkit.result.checks import HIGHEST_RATE_PER_S
from perfkit.result.distribution import QUANTILES, Distribution, distribution
from perfkit.result.perf_analyzer_export import Experiment, measured_windows, read_export
from perfkit.result.perf_analyzer_files import CsvRow, Kind, read_csv
from perfkit.stats.buckets import BucketCounts
from perfkit.stats.percentiles import percentile_intervals
from perfkit.stats.ratio_interval import Estimate
from perfkit.units import NS_PER_S

Mode = Literal["concurrency", "request_rate"]
_WRITTEN_BY_PERFKIT = re.compile(r"\((perfkit [^()]*)\)")


@dataclasses.dataclass(frozen=True, slots=True)
class PerfAnalyzerLoad:
    """A load as perf_analyzer names it; the distribution of arrivals at a rate is not recorded."""

    mode: Mode
    value: float

    @property
    def title(self) -> str:
        """The load in a few words."""
        if self.mode == "concurrency":
            return f"concurrency {self.value:,.6g}"
        return f"{self.value:,.6g}/s" if self.value else "a schedule or sessions"


@dataclasses.dataclass(frozen=True, slots=True)
class PerfAnalyzerPoint:
    """A load point; all times are service times in nanoseconds, from the actual send to the last response with data."""

    load: PerfAnalyzerLoad
    percentiles_ns: Mapping[str, Estimate]
    """By names such as `p99`; those of a CSV report have no intervals."""
    mean_ns: float | None = None
    max_ns: int | None = None
    requests: int | None = None
    duration_s: float | None = None
    """The length of all windows together."""
    throughput_per_s: float | None = None
    """Requests; an export does not tell how many inferences each has."""
    inferences_per_s: float | None = None
    """Inferences of a CSV report, which does not tell how many each request has."""
    responses_per_s: float | None = None
    first_response_ns: Distribution | None = None
    """The time to the first response of requests with several responses."""
    response_gap_ns: Distribution | None = None
    service_times: BucketCounts | None = None
    further: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Other columns of a CSV report, as they stand."""
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class PerfAnalyzerResult:
    """A file that perf_analyzer wrote, or perfkit in its place."""

    file: pathlib.Path
    kind: Kind
    points: tuple[PerfAnalyzerPoint, ...]
    version: str = ""
    """The version of perf_analyzer, with that of perfkit where perfkit wrote the file; empty for a CSV report."""
    started_at: str = ""
    """When the first request was sent, in UTC; empty for a CSV report."""

    @property
    def program(self) -> str:
        """What wrote the file, with its version; a CSV report does not tell."""
        if self.kind == "CSV report":
            return "perf_analyzer or perfkit perf-analyzer"
        written = _WRITTEN_BY_PERFKIT.search(self.version)
        return written[1] if written else f"perf_analyzer {self.version}".strip()


def read_perf_analyzer(path: pathlib.Path, kind: Kind) -> PerfAnalyzerResult:
    """The contents of a file of that kind; raises ResultError."""
    if kind == "CSV report":
        return PerfAnalyzerResult(path, kind, tuple(map(_point_of_row, read_csv(path))))
    experiments, version = read_export(path)
    points = tuple(_point_of_experiment(path, one) for one in experiments)
    started_at = instant_at(min(min(one.started_ns) for one in experiments)).isoformat(timespec="milliseconds")
    return PerfAnalyzerResult(path, kind, points, version, started_at)


def _point_of_row(row: CsvRow) -> PerfAnalyzerPoint:
    return PerfAnalyzerPoint(
        load=PerfAnalyzerLoad(_mode(row.mode), row.value),
        percentiles_ns={name: Estimate(value_ns, None, None) for name, value_ns in row.percentiles_ns.items()},
        mean_ns=row.mean_ns,
        inferences_per_s=row.inferences_per_s,
        responses_per_s=row.responses_per_s,
        further=row.further,
    )


def _point_of_experiment(file: pathlib.Path, one: Experiment) -> PerfAnalyzerPoint:
    load = PerfAnalyzerLoad(_mode(one.mode), one.value)
    if not one.started_ns:
        raise ResultError(f"{file}: {load.title}: this profile export has no answered request of this load")
    started, first, last = (np.frombuffer(values, dtype=np.int64) for values in (one.started_ns, one.first_ns, one.last_ns))
    windows = measured_windows(one.boundaries_ns, started, last)
    notes = [f"{load.title}: {windows.note}."] if windows.note else []
    service_ns, duration_s = last - started, windows.length_ns / NS_PER_S
    counts = BucketCounts.of(service_ns)
    times = distribution(counts)
    intervals = percentile_intervals(_batches(service_ns, windows.positions_ns(started), windows.length_ns), tuple(QUANTILES.values()))
    throughput_per_s = windows.count_inside(last) / duration_s
    if throughput_per_s > HIGHEST_RATE_PER_S:
        raise ResultError(f"{file}: {load.title}: {throughput_per_s:.3g} requests per second are more than could be measured")
    is_streamed = len(one.gaps_ns) > 0
    if one.unanswered:
        notes.append(f"{one.unanswered:,} requests of {load.title} have no response, and are left out.")
    return PerfAnalyzerPoint(
        load=load,
        percentiles_ns={
            name: Estimate(value_ns, *((found.low_ns, found.high_ns) if (found := intervals.get(quantile)) else (None, None)))
            for name, quantile in QUANTILES.items()
            if (value_ns := getattr(times, name)) is not None
        },
        mean_ns=float(service_ns.mean()),
        max_ns=times.max,
        requests=len(one.started_ns),
        duration_s=duration_s,
        throughput_per_s=throughput_per_s,
        responses_per_s=(len(one.gaps_ns) + len(one.started_ns)) / duration_s if is_streamed else None,
        first_response_ns=distribution(BucketCounts.of(first - started)) if is_streamed else None,
        response_gap_ns=distribution(BucketCounts.of(np.frombuffer(one.gaps_ns, dtype=np.int64))) if is_streamed else None,
        service_times=counts,
        notes=tuple(notes),
    )


def _batches(service_ns: npt.NDArray[np.int64], positions_ns: npt.NDArray[np.int64], length_ns: int) -> list[BucketCounts]:
    """The service times in equal parts of the measured time, by the start of their requests."""
    batch_ns = batch_length_ns(length_ns)
    number = max(length_ns // batch_ns, 1)
    places = np.minimum(positions_ns // batch_ns, number - 1)
    order = np.argsort(places, kind="stable")
    ends = np.searchsorted(places[order], np.arange(1, number))
    return [BucketCounts.of(part) for part in np.split(service_ns[order], ends)]


def _mode(text: str) -> Mode:
    return "concurrency" if text == "concurrency" else "request_rate"
