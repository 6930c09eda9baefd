"""perf_analyzer's own results, as far as its files tell them: what they do not have is None, never 0."""

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Literal

import numpy as np

from perfkit.clock import instant_at
from perfkit.errors import ResultError
from perfkit.recorder.batches import batch_length_ns
from perfkit.result.checks import HIGHEST_RATE_PER_S
from perfkit.result.distribution import QUANTILES, Distribution, distribution
from perfkit.result.perf_analyzer_csv import CsvRow, read_csv
from perfkit.result.perf_analyzer_export import Experiment, read_export
from perfkit.result.perf_analyzer_files import Kind
from perfkit.stats.buckets import BucketCounts
from perfkit.stats.percentile_interval import percentile_intervals
from perfkit.stats.ratio_interval import Estimate
from perfkit.units import NS_PER_S, format_duration_ns, format_rate_per_s

Mode = Literal["concurrency", "request_rate"]

_IDLE_SHARE, _IDLE_GAPS = 0.05, 3


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
    """Of all windows together."""
    throughput_per_s: float | None = None
    """Requests; an export does not tell how many inferences each has."""
    inferences_per_s: float | None = None
    """Of a CSV report, which does not tell how many each request has."""
    responses_per_s: float | None = None
    first_response_ns: Distribution | None = None
    """Of requests with several responses."""
    response_gap_ns: Distribution | None = None
    service_times: BucketCounts | None = None
    further: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Other columns of a CSV report, as they stand."""
    notes: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class PerfAnalyzerResult:
    """A file that perf_analyzer wrote."""

    file: pathlib.Path
    kind: Kind
    points: tuple[PerfAnalyzerPoint, ...]
    version: str = ""
    """Of perf_analyzer; empty for a CSV report."""
    started_at: str = ""
    """When the first request was sent, in UTC; empty for a CSV report."""


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
    start_ns, end_ns, notes = _measured_ns(one, int(started.min()), int(first.min()), int(last.max()))
    service_ns = last - started
    counts, batch_ns = BucketCounts.of(service_ns), batch_length_ns(end_ns - start_ns)
    numbers = np.clip((started - start_ns) // batch_ns, 0, max((end_ns - start_ns) // batch_ns - 1, 0))
    order = np.argsort(numbers, kind="stable")
    ends = np.searchsorted(numbers[order], np.arange(1, int((end_ns - start_ns) // batch_ns)))
    batches = [BucketCounts.of(part) for part in np.split(service_ns[order], ends)]
    intervals = percentile_intervals(batches, tuple(QUANTILES.values()))
    times = distribution(counts)
    duration_s = (end_ns - start_ns) / NS_PER_S
    throughput_per_s = int(((last >= start_ns) & (last <= end_ns)).sum()) / duration_s
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


def _measured_ns(one: Experiment, started_ns: int, first_ns: int, last_ns: int) -> tuple[int, int, list[str]]:
    """The span of all windows, and notes. Where windows have no bounds, it is that from the first request to the last response.

    With `--request-count` perf_analyzer's only window ends up to a second after the last response, when it comes to look; the span then ends
    with that response.
    """
    if len(one.boundaries_ns) < 2 or one.boundaries_ns[0] >= min(one.boundaries_ns[-1], last_ns):
        return started_ns, max(last_ns, started_ns + 1), []
    start_ns, end_ns = one.boundaries_ns[0], one.boundaries_ns[-1]
    idle_ns, gap_ns = end_ns - last_ns, (last_ns - first_ns) / max(len(one.last_ns) - 1, 1)
    if len(one.boundaries_ns) == 2 and idle_ns > max(_IDLE_SHARE * (end_ns - start_ns), _IDLE_GAPS * gap_ns):
        told = format_rate_per_s(len(one.last_ns) * NS_PER_S / (end_ns - start_ns))
        text = (
            f"the throughput is that until the last response: perf_analyzer's window goes on for {format_duration_ns(idle_ns)} after it, as"
        )
        note = f"{PerfAnalyzerLoad(_mode(one.mode), one.value).title}: {text} with --request-count, so that it reported {told}."
        return start_ns, last_ns, [note]
    return start_ns, end_ns, []


def _mode(text: str) -> Mode:
    return "concurrency" if text == "concurrency" else "request_rate"
