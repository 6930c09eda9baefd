"""The times of a server's stages from its page of metrics: histograms, summaries, and counters of times with a count.

Names are those of the servers' own sources and documents: KServe (`kserve/metrics.py`), MLServer (`mlserver/handlers/dataplane.py`), OpenVINO
Model Server (`model_metric_reporter.cpp`), Triton (docs/user_guide/metrics.md), vLLM (docs/design/metrics.md), and NVIDIA Dynamo (its metrics
catalog). Of a histogram, Prometheus' text and OpenMetrics give cumulative counts up to bounds (`_bucket`, `le`), `_sum` and `_count`.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from perfkit.figures.resources import GpuFigures, MetricFigures, ServerTimeFigures, Stage
from perfkit.stats.percentiles import is_withheld
from perfkit.telemetry.messages import ModelVersion
from perfkit.units import NS_PER_S

if TYPE_CHECKING:  # Prometheus' library is for the sampler process alone
    from perfkit.telemetry.prometheus.page import Sample

_PERCENTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_UNITS_NS = {
    "_seconds": NS_PER_S, "_milliseconds": 10**6, "_microseconds": 10**3, "_nanoseconds": 1, "_s": NS_PER_S, "_ms": 10**6, "_us": 10**3, "_ns": 1,
}  # fmt: skip
_MOST_BUCKETS, _MOST_READINGS, _LONGEST_NS = 1000, 2048, 1e17


@dataclasses.dataclass(frozen=True, slots=True)
class TimeSource:
    """A metric that has the times of a stage."""

    stage: Stage
    metric: str
    model_labels: tuple[str, ...] = ()
    """The labels that may name the model."""
    labels: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Labels that a sample must have besides."""
    count: str = ""
    """The metric that counts the times of a counter; empty for a histogram or summary, which has a count of its own."""

    @property
    def unit_ns(self) -> int:
        """The unit by the end of the name; a second, Prometheus' base unit, without one."""
        return next((unit_ns for end, unit_ns in _UNITS_NS.items() if self.metric.endswith(end)), NS_PER_S)

    @property
    def parts(self) -> Mapping[str, str]:
        """The names of its samples, and whether each is a `sum`, a `count` or a `bucket`."""
        if not self.count:
            return {f"{self.metric}_{part}": part for part in ("sum", "count", "bucket")}
        return {f"{name}{end}": part for name, part in ((self.metric, "sum"), (self.count, "count")) for end in ("", "_total")}


def _triton(stage: Stage, name: str) -> TimeSource:
    return TimeSource(stage, f"nv_inference_{name}_duration_us", ("model",), count="nv_inference_request_success")


KNOWN_SOURCES: tuple[TimeSource, ...] = (
    TimeSource("first_response", "nv_inference_first_response_histogram_ms", ("model",)),
    _triton("queue", "queue"),
    _triton("preprocess", "compute_input"),
    _triton("inference", "compute_infer"),
    _triton("postprocess", "compute_output"),
    _triton("total", "request"),
    TimeSource("queue", "vllm:request_queue_time_seconds", ("model_name",)),
    TimeSource("inference", "vllm:request_inference_time_seconds", ("model_name",)),
    TimeSource("first_response", "vllm:time_to_first_token_seconds", ("model_name",)),
    TimeSource("total", "vllm:e2e_request_latency_seconds", ("model_name",)),
    TimeSource("preprocess", "request_preprocess_seconds", ("model_name",)),
    TimeSource("inference", "request_predict_seconds", ("model_name",)),
    TimeSource("postprocess", "request_postprocess_seconds", ("model_name",)),
    TimeSource("explain", "request_explain_seconds", ("model_name",)),
    TimeSource("total", "model_infer_request_duration", ("model",)),
    TimeSource("queue", "ovms_wait_for_infer_req_time_us", ("name",)),
    TimeSource("inference", "ovms_inference_time_us", ("name",)),
    TimeSource("total", "ovms_request_time_us", ("name",)),
    TimeSource("queue", "dynamo_request_plane_queue_seconds"),
    TimeSource("preprocess", "dynamo_frontend_stage_duration_seconds", labels={"stage": "preprocess"}),
    TimeSource("inference", "dynamo_component_request_duration_seconds", ("model",)),
    TimeSource("postprocess", "dynamo_frontend_stage_duration_seconds", labels={"stage": "postprocess"}),
    TimeSource("first_response", "dynamo_frontend_time_to_first_token_seconds", ("model",)),
    TimeSource("total", "dynamo_frontend_request_duration_seconds", ("model",)),
)  # fmt: skip
"""What is known of servers; of several metrics of one stage the first that counted anything is taken."""


def sources_for(named: Mapping[Stage, str]) -> tuple[TimeSource, ...]:
    """The metrics that a scenario names for stages, then those that are known for the other stages."""
    return (
        *(TimeSource(stage, name, ("model", "model_name")) for stage, name in named.items()),
        *(one for one in KNOWN_SOURCES if one.stage not in named),
    )


@dataclasses.dataclass(frozen=True, slots=True)
class TimeCounts:
    """The count and the sum of a metric's times, and how many of them are at most each bound: since the server's start, or in a window."""

    count: float = 0.0
    total_ns: float = 0.0
    up_to: Mapping[float, float] = dataclasses.field(default_factory=dict)
    """Cumulative counts by bound in nanoseconds, up to infinity; empty for a metric without buckets."""

    def plus(self, other: "TimeCounts") -> "TimeCounts":
        """Both together; of different bounds, those that both have."""
        shared = self.up_to.keys() & other.up_to.keys()
        return TimeCounts(
            self.count + other.count,
            self.total_ns + other.total_ns,
            {bound: self.up_to[bound] + other.up_to[bound] for bound in sorted(shared)},
        )

    def minus(self, earlier: "TimeCounts") -> "TimeCounts":
        """The increase; a series that is new counts from 0."""
        return TimeCounts(
            self.count - earlier.count,
            self.total_ns - earlier.total_ns,
            {bound: count - earlier.up_to.get(bound, 0.0) for bound, count in self.up_to.items()},
        )

    @property
    def falls(self) -> bool:
        """Whether an increase is below 0: the server restarted."""
        return min(self.count, self.total_ns, *self.up_to.values(), 0.0) < 0

    def percentile_ns(self, quantile: float) -> tuple[float, float | None] | None:
        """The bounds of the bucket in which a percentile lies, by its nearest rank; the upper one is None above the last bound.

        None without buckets, with too few times, and for counts that do not rise with the bounds.
        """
        counts = list(self.up_to.values())
        count = counts[-1] if counts and math.isinf(max(self.up_to)) else 0.0
        if is_withheld(quantile, round(count)) or any(later < earlier for earlier, later in itertools.pairwise(counts)):
            return None
        rank, low_ns = math.ceil(round(quantile * count, 6)), 0.0  # no time is below 0
        for bound_ns, reached in self.up_to.items():
            if reached >= rank:
                return low_ns, None if math.isinf(bound_ns) else max(bound_ns, low_ns)
            low_ns = max(bound_ns, low_ns)
        return None


@dataclasses.dataclass(frozen=True, slots=True)
class ServerTime:
    """The times of a stage over a window."""

    stage: Stage
    metric: str
    counts: TimeCounts

    def figures(self) -> ServerTimeFigures:
        """The mean, and the percentiles as far as buckets give them."""
        counts = self.counts
        found = {name: counts.percentile_ns(quantile) for name, quantile in _PERCENTILES.items()}
        below = [0.0, *counts.up_to.values()]
        return ServerTimeFigures(
            self.stage,
            self.metric,
            count=round(counts.count),
            mean_ns=counts.total_ns / counts.count if counts.count else None,
            percentiles_ns={name: bounds for name, bounds in found.items() if bounds is not None},
            buckets=tuple(
                (None if math.isinf(bound_ns) else bound_ns, round(reached - before))
                for (bound_ns, reached), before in zip(counts.up_to.items(), below, strict=False)
                if reached > before
            ),
        )


def added(parts: Iterable[ServerTime]) -> tuple[ServerTime, ...]:
    """The times of several windows or pages, added up by stage and metric."""
    together: dict[tuple[Stage, str], TimeCounts] = {}
    for one in parts:
        key = (one.stage, one.metric)
        together[key] = together[key].plus(one.counts) if key in together else one.counts
    return tuple(ServerTime(stage, metric, counts) for (stage, metric), counts in together.items())


@dataclasses.dataclass(frozen=True, slots=True)
class PageReport:
    """A page of metrics over a window: its GPUs, the times of the server's stages, and its other metrics."""

    gpus: tuple[GpuFigures, ...] = ()
    metrics: tuple[MetricFigures, ...] = ()
    times: Mapping[ModelVersion, tuple[ServerTime, ...]] = dataclasses.field(default_factory=dict)
    """By model."""


class ServerTimesReader:
    """Keeps the readings of a page, and gives the times of a window, which are exact counts between two readings.

    `is_mix` says that the server has other models, too, whose times may be in metrics that name no model: these are left out.

    The first is the first reading in the window's first half, or else the last one before it; the last is the first one after the window's end.
    """

    def __init__(self, sources: Sequence[TimeSource], model: ModelVersion, interval_ns: int, *, is_mix: bool = False) -> None:
        self._sources, (self._model, self._version), self._interval_ns, self._is_mix = sources, model, interval_ns, is_mix
        self._readings: list[tuple[int, dict[int, TimeCounts]]] = []
        """The instants of readings, and what each source had counted, by its place in `sources`."""
        self._parts: dict[str, list[tuple[int, str]]] = {}
        for number, source in enumerate(sources):
            for name, part in source.parts.items():
                self._parts.setdefault(name, []).append((number, part))

    def add(self, now_ns: int, samples: "Iterable[Sample]") -> None:
        """Adds a reading of the page; the series of one metric, such as those of several versions, are added."""
        series: dict[tuple[int, tuple[tuple[str, str], ...]], list[tuple[str, Sample]]] = {}
        for sample in samples:
            for number, part in self._parts.get(sample.name, ()):
                if self._is_wanted(self._sources[number], sample):
                    own = tuple(sorted((name, value) for name, value in sample.labels.items() if name != "le"))
                    series.setdefault((number, own), []).append((part, sample))
        reading = dict[int, TimeCounts]()
        for (number, _), parts in series.items():
            counts = _counts(parts, self._sources[number].unit_ns)
            reading[number] = reading[number].plus(counts) if number in reading else counts
        self._readings.append((now_ns, reading))
        if len(self._readings) > _MOST_READINGS:  # of a long window the first and the last ones matter
            self._readings = [*self._readings[:-1:2], self._readings[-1]]

    def window(self, start_ns: int, end_ns: int) -> tuple[ServerTime, ...]:
        """The times of a window that has just ended; readings before its start are dropped. Nothing if readings do not cover half of it."""
        before = [one for one in self._readings if one[0] < start_ns]
        first = next((one for one in self._readings if start_ns <= one[0] <= (start_ns + end_ns) / 2), before[-1] if before else None)
        last = next((one for one in self._readings if one[0] >= end_ns), None)
        self._readings = [*before[-1:], *self._readings[len(before) :]]
        if first is None or last is None or last[0] > end_ns + 2 * self._interval_ns or first[0] < start_ns - self._interval_ns:
            return ()
        counted = [reading for at_ns, reading in self._readings if first[0] <= at_ns <= last[0]]
        found: dict[Stage, ServerTime] = {}
        for number in sorted(last[1]):
            source, steps = self._sources[number], [reading.get(number, TimeCounts()) for reading in counted]
            has_fallen = any(later.minus(earlier).falls for earlier, later in itertools.pairwise(steps))
            increase = steps[-1].minus(steps[0])
            is_time = not has_fallen and increase.count > 0 and increase.total_ns <= _LONGEST_NS * increase.count
            if is_time and source.stage not in found:
                found[source.stage] = ServerTime(source.stage, source.metric, increase)
        return tuple(found.values())

    def _is_wanted(self, source: TimeSource, sample: "Sample") -> bool:
        labels = sample.labels
        if any(labels.get(name) != value for name, value in source.labels.items()):
            return False
        named = {labels[name] for name in source.model_labels if name in labels}
        return (named == {self._model} or not (named or self._is_mix)) and (
            not self._version or labels.get("version", self._version) == self._version
        )


def _counts(samples: "Iterable[tuple[str, Sample]]", unit_ns: int) -> TimeCounts:
    """One series of a metric; values that no server counts, such as NaN, are left out."""
    count = total = 0.0
    up_to = dict[float, float]()
    for part, sample in samples:
        if not (math.isfinite(sample.value) and sample.value >= 0):
            continue
        if part == "count":
            count = sample.value
        elif part == "sum":
            total = sample.value * unit_ns
        elif (bound_ns := _bound_ns(sample.labels.get("le", ""), unit_ns)) is not None and len(up_to) < _MOST_BUCKETS:
            up_to[bound_ns] = sample.value
    return TimeCounts(count, total, dict(sorted(up_to.items())))


def _bound_ns(text: str, unit_ns: int) -> float | None:
    """The bound of a bucket; None for one that no time comes near, but infinity."""
    try:
        bound_ns = float(text) * unit_ns
    except ValueError:
        return None
    return bound_ns if abs(bound_ns) <= _LONGEST_NS or bound_ns == math.inf else None
