"""The sampler of a page of Prometheus metrics: GPUs as exporters describe them, and every known or listed metric."""

import asyncio
import dataclasses
import fnmatch
import math
from collections.abc import Sequence

from perfkit.clock import Clock, MonotonicClock
from perfkit.errors import MeasurementWarning, PerfkitError
from perfkit.figures.resources import MetricFigures
from perfkit.override import override
from perfkit.target.redaction import redact
from perfkit.telemetry.messages import MetricsPageConfig
from perfkit.telemetry.prometheus.page import Page, PageGpu, Sample, gpu_uuid, parse_page
from perfkit.telemetry.prometheus.server_times import PageReport, ServerTimesReader, sources_for
from perfkit.telemetry.series import Sampler, SamplerReport, Series, SeriesBuffer, falls, newest
from perfkit.transport.http.transport import read_page
from perfkit.transport.options import METRICS_LIMIT
from perfkit.units import NS_PER_S

_KNOWN_PREFIXES = ("nv_", "DCGM_FI_")
_START_TIME = "process_start_time_seconds"  # of Prometheus' client libraries
_IGNORED_SUFFIXES = ("_bucket", "_created")
_TIMEOUT_NS, _MAX_METRICS, _MAX_GPUS = 2 * NS_PER_S, 500, 256
# counters of bytes and nanoseconds stay far below it, and sums and products of such values remain finite
_LARGEST = 1e30


@dataclasses.dataclass(slots=True)
class _Metric:
    buffer: SeriesBuffer
    is_counter: bool


class MetricsSampler(Sampler[PageReport]):
    """A `Sampler` of one page.

    It keeps Triton's metrics, except those of other models, the DCGM exporter's, those that the scenario lists, and the times of a server's
    stages.
    """

    def __init__(self, config: MetricsPageConfig, clock: Clock) -> None:
        super().__init__()
        self._config, self._clock = config, clock
        self._headers = {"Accept": "text/plain;version=0.0.4"} | ({"Authorization": config.authorization} if config.authorization else {})
        self._metrics: dict[tuple[str, tuple[tuple[str, str], ...]], _Metric] = {}
        self._gpus: dict[str, PageGpu] = {}
        self._start_time = SeriesBuffer(_START_TIME, "s")
        models, sources = config.mixed or ((config.model, config.version),), sources_for(config.stages)
        self._models = {name for name, _ in models}
        self._times = {one: ServerTimesReader(sources, one, config.interval_ns, is_mix=bool(config.mixed)) for one in models}

    @override
    def sample(self) -> int:
        start_ns = self._clock.now_ns()
        try:
            page = parse_page(self._fetch())
        except (PerfkitError, ValueError) as error:
            self.note_once("unreadable", f"The metrics at {self._config.url} could not be read, and perfkit keeps trying: {error}")
        else:
            self._add_page(self._clock.now_ns(), page)
        return start_ns + self._config.interval_ns

    @override
    def window(self, start_ns: int, end_ns: int) -> SamplerReport[PageReport]:
        """A last sample is taken now, and counters are linear between samples."""
        self.sample()
        figures, series, warnings = list[MetricFigures](), list[Series](), list[MeasurementWarning]()
        for metric in self._metrics.values():
            part = metric.buffer.between(start_ns, end_ns)
            if part.values:
                series.append(part)
                figures.append(self._figures(metric, part, start_ns, end_ns))
                if metric.is_counter and falls(metric.buffer.around(start_ns, end_ns).values):
                    message = f"The counter {part.name} fell within the window: its server restarted."
                    warnings.append(MeasurementWarning("metrics_reset", message))
            metric.buffer.forget_before(start_ns)
        times = {model: found for model, reader in self._times.items() if (found := reader.window(start_ns, end_ns))}
        if len(set(self._start_time.around(start_ns, end_ns).values)) > 1:
            times = {}
            warnings.append(MeasurementWarning("metrics_reset", f"{_START_TIME} changed within the window: the server restarted."))
        self._start_time.forget_before(start_ns)
        gpus = [gpu_figures for gpu in self._gpus.values() if (gpu_figures := gpu.figures(start_ns, end_ns))]
        for gpu in self._gpus.values():
            series += gpu.series(start_ns, end_ns)
            gpu.forget_before(start_ns)
        if not series and not times:
            message = (
                f"No metric that is kept was read at {self._config.url} within the window: metrics.names lists those to keep, and metrics.queue, "
                "metrics.inference and so on name those with the times of the server's stages."
            )
            warnings.append(MeasurementWarning("metrics_missing", message))
        throttled = [f"{gpu.name or gpu.uuid} for {gpu.throttled_share:.0%} of the window" for gpu in gpus if gpu.throttled_share]
        if throttled:
            warnings.append(MeasurementWarning("gpu_throttled", f"GPUs lowered their clocks: {', '.join(throttled)}."))
        return SamplerReport(PageReport(tuple(gpus), tuple(figures), times), tuple(series), tuple(dict.fromkeys(warnings)))

    @override
    def latest(self) -> Sequence[Series]:
        return newest(
            [*(metric.buffer for metric in self._metrics.values()), *(one for gpu in self._gpus.values() for one in gpu.buffers.values())]
        )

    def _fetch(self) -> str:
        page = read_page(self._config.url, self._headers, MonotonicClock.now_ns, timeout_ns=_TIMEOUT_NS, limit=METRICS_LIMIT)
        return asyncio.run(page).decode("utf-8", errors="replace")

    def _add_page(self, now_ns: int, page: Page) -> None:
        if page.invalid_lines:
            lines = "1 line" if page.invalid_lines == 1 else f"{page.invalid_lines} lines"
            self.note_once("invalid", f"{lines} of the metrics at {self._config.url} could not be parsed, and are ignored.")
        for reader in self._times.values():
            reader.add(now_ns, page.samples)
        for sample in page.samples:
            if not math.isfinite(sample.value):  # exporters write NaN for unknown values
                continue
            uuid = gpu_uuid(sample)
            is_physical = sample.kind == "counter" or (uuid is not None and "TEMP" not in sample.name)
            if abs(sample.value) > _LARGEST or (sample.value < 0 and is_physical):
                name = self._redacted(sample.name)[:100]
                self.note_once("absurd", f"Values of {name} such as {sample.value:g} at {self._config.url} are absurd, and are ignored.")
                continue
            if sample.name == _START_TIME and not sample.labels:
                self._start_time.add(now_ns, sample.value)
            if uuid is not None:
                self._add_gpu_sample(now_ns, uuid, sample)
            elif self._is_wanted(sample):
                self._add_sample(now_ns, sample)

    def _add_gpu_sample(self, now_ns: int, uuid: str, sample: Sample) -> None:
        if uuid not in self._gpus and len(self._gpus) >= _MAX_GPUS:
            message = f"The metrics at {self._config.url} describe more than {_MAX_GPUS} GPUs: only the first {_MAX_GPUS} are kept."
            self.note_once("gpus", message)
            return
        if uuid not in self._gpus:
            self._gpus[uuid] = PageGpu(self._redacted(uuid), {name: self._redacted(value) for name, value in sample.labels.items()})
        self._gpus[uuid].add(now_ns, sample)

    def _is_wanted(self, sample: Sample) -> bool:
        if sample.name.endswith(_IGNORED_SUFFIXES) or "quantile" in sample.labels:
            return False
        if any(fnmatch.fnmatchcase(sample.name, name) for name in self._config.names):
            return True
        return sample.name.startswith(_KNOWN_PREFIXES) and ("model" not in sample.labels or sample.labels["model"] in self._models)

    def _add_sample(self, now_ns: int, sample: Sample) -> None:
        key = (sample.name, tuple(sorted(sample.labels.items())))
        if key not in self._metrics and len(self._metrics) >= _MAX_METRICS:
            message = f"The metrics at {self._config.url} have more than {_MAX_METRICS} series: only the first {_MAX_METRICS} are kept."
            self.note_once("maximum", message)
            return
        if key not in self._metrics:
            is_counter = sample.kind == "counter" or (sample.kind in ("histogram", "summary") and sample.name.endswith(("_sum", "_count")))
            labels = {self._redacted(name): self._redacted(value) for name, value in sample.labels.items()}
            self._metrics[key] = _Metric(SeriesBuffer(self._redacted(sample.name), "", labels), is_counter)
        self._metrics[key].buffer.add(now_ns, sample.value)

    def _redacted(self, text: str) -> str:
        return redact(text, self._config.secrets)

    def _figures(self, metric: _Metric, part: Series, start_ns: int, end_ns: int) -> MetricFigures:
        labels, buffer = dict(part.labels), metric.buffer
        if not metric.is_counter:
            return MetricFigures(part.name, labels, "gauge", mean=part.mean, min=min(part.values), max=max(part.values))
        before, after, span_ns = buffer.at(start_ns), buffer.at(end_ns), buffer.span_ns
        is_covered = span_ns is not None and span_ns[1] + self._config.interval_ns >= end_ns
        if not is_covered or before is None or after is None or falls(buffer.around(start_ns, end_ns).values):
            return MetricFigures(part.name, labels, "counter")
        rise = after - before
        return MetricFigures(part.name, labels, "counter", rise=rise, per_s=rise * NS_PER_S / max(end_ns - start_ns, 1))
