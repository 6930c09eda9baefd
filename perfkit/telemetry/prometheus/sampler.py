"""Metrics of a Prometheus server, sampled: GPUs told by their driver's exporters, and every figure that is known or asked for."""

import dataclasses
import fnmatch
import http.client
import itertools
import math
import urllib.request
from collections.abc import Sequence

from perfkit.clock import Clock
from perfkit.errors import MeasurementWarning
from perfkit.telemetry.messages import MetricsPageConfig
from perfkit.telemetry.prometheus.figures import MetricFigures, MetricsFigures
from perfkit.telemetry.prometheus.gpu import MetricsGpu, gpu_uuid
from perfkit.telemetry.prometheus.page import Page, Sample, parse_page
from perfkit.telemetry.series import SamplerReport, Series, SeriesBuffer
from perfkit.units import NS_PER_S

_KNOWN = ("nv_", "DCGM_FI_")
_NO_SERIES = ("_bucket", "_created")
_TIMEOUT_S, _LARGEST_BYTES, _MOST_SERIES = 5.0, 2**24, 500


@dataclasses.dataclass(slots=True)
class _Kept:
    track: SeriesBuffer
    is_counter: bool


class MetricsSampler:
    """Reads one page every so often; see `Sampler`.

    Kept are Triton's metrics, of the target's model where they are of a model, the DCGM exporter's, and those whose names
    match one of the scenario's.
    """

    def __init__(self, watched: MetricsPageConfig, clock: Clock) -> None:
        self.notes: list[str] = []
        self._watched, self._clock = watched, clock
        headers = {"Accept": "text/plain;version=0.0.4"} | ({"Authorization": watched.authorization} if watched.authorization else {})
        self._request = urllib.request.Request(watched.url, headers=headers)  # noqa: S310 - the scenario allows http and https alone
        # the load goes straight to its target, and so does this
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._kept: dict[tuple[str, tuple[tuple[str, str], ...]], _Kept] = {}
        self._gpus: dict[str, MetricsGpu] = {}
        self._said: set[str] = set()

    def start(self) -> bool:
        """See `Sampler.start`; a page that is not there yet may come."""
        self.sample()
        return True

    def sample(self) -> int:
        """See `Sampler.sample`."""
        began_ns = self._clock.now_ns()
        try:
            page = parse_page(self._fetch())
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            self._say("unreadable", f"The metrics at {self._watched.url} could not be read ({reason}); they are asked for again.")
        else:
            self._take(self._clock.now_ns(), page)
        return began_ns + self._watched.interval_ns

    def window(self, start_ns: int, end_ns: int) -> SamplerReport[MetricsFigures]:
        """See `Sampler.window`; counters are read between samples on a straight line, the last one being taken now."""
        self.sample()
        figures, series, warnings = list[MetricFigures](), list[Series](), list[MeasurementWarning]()
        for kept in self._kept.values():
            part = kept.track.between(start_ns, end_ns)
            if part.values:
                series.append(part)
                figures.append(one := self._figures(kept, part, start_ns, end_ns))
                if one.kind == "counter" and _falls(kept.track, start_ns, end_ns):
                    warnings.append(
                        MeasurementWarning("metrics_reset", f"The counter {part.name} fell within the window: its server was restarted.")
                    )
        gpus = [told for gpu in self._gpus.values() if (told := gpu.figures(start_ns, end_ns))]
        for gpu in self._gpus.values():
            series += gpu.series(start_ns, end_ns)
            gpu.forget_before(start_ns)
        for kept in self._kept.values():
            kept.track.forget_before(start_ns)
        if not series:
            warnings.append(
                MeasurementWarning("metrics_missing", f"Nothing was read from the metrics at {self._watched.url} within the window.")
            )
        throttled = [f"{told.name or told.uuid} for {told.throttled_share:.0%} of the window" for told in gpus if told.throttled_share]
        if throttled:
            warnings.append(MeasurementWarning("gpu_throttled", f"GPUs lowered their clocks: {', '.join(throttled)}."))
        return SamplerReport(MetricsFigures(tuple(gpus), tuple(figures)), tuple(series), tuple(dict.fromkeys(warnings)))

    def latest(self) -> Sequence[Series]:
        """See `Sampler.latest`."""
        found = [series for kept in self._kept.values() if (series := kept.track.whole().last())]
        return [*found, *(series for gpu in self._gpus.values() for series in gpu.latest())]

    def close(self) -> None:
        """See `Sampler.close`; nothing is held."""

    def _fetch(self) -> str:
        with self._opener.open(self._request, timeout=_TIMEOUT_S) as answer:
            body: bytes = answer.read(_LARGEST_BYTES + 1)
        if len(body) > _LARGEST_BYTES:
            raise ValueError(f"more than {_LARGEST_BYTES:,} bytes")
        return body.decode("utf-8", errors="replace")

    def _take(self, now_ns: int, page: Page) -> None:
        if page.passed_over:
            lines = "1 line" if page.passed_over == 1 else f"{page.passed_over} lines"
            self._say("broken", f"{lines} of the metrics at {self._watched.url} could not be read, and were passed over.")
        for sample in page.samples:
            if not math.isfinite(sample.value):  # an exporter's word for what it does not know
                continue
            uuid = gpu_uuid(sample)
            if uuid is not None:
                self._gpus.setdefault(uuid, MetricsGpu(uuid, sample.labels)).take(now_ns, sample)
            elif self._is_wanted(sample):
                self._keep(now_ns, sample)

    def _is_wanted(self, sample: Sample) -> bool:
        if sample.name.endswith(_NO_SERIES) or "quantile" in sample.labels:
            return False
        if any(fnmatch.fnmatchcase(sample.name, name) for name in self._watched.names):
            return True
        return sample.name.startswith(_KNOWN) and sample.labels.get("model", self._watched.model) == self._watched.model

    def _keep(self, now_ns: int, sample: Sample) -> None:
        key = (sample.name, tuple(sorted(sample.labels.items())))
        if key not in self._kept and len(self._kept) >= _MOST_SERIES:
            self._say("many", f"The metrics at {self._watched.url} are more than {_MOST_SERIES} series: those behind that are left out.")
            return
        is_counter = sample.kind == "counter" or (sample.kind in ("histogram", "summary") and sample.name.endswith(("_sum", "_count")))
        kept = self._kept.setdefault(key, _Kept(SeriesBuffer(sample.name, "", sample.labels), is_counter))
        kept.track.add(now_ns, sample.value)

    def _figures(self, kept: _Kept, part: Series, start_ns: int, end_ns: int) -> MetricFigures:
        labels = dict(part.labels)
        if not kept.is_counter:
            return MetricFigures(part.name, labels, "gauge", mean=part.mean, min=min(part.values), max=max(part.values))
        before, after, seen = kept.track.at(start_ns), kept.track.at(end_ns), kept.track.span_ns
        is_covered = seen is not None and seen[1] + self._watched.interval_ns >= end_ns
        if not is_covered or before is None or after is None or _falls(kept.track, start_ns, end_ns):
            return MetricFigures(part.name, labels, "counter")
        rise = after - before
        return MetricFigures(part.name, labels, "counter", rise=rise, per_s=rise * NS_PER_S / max(end_ns - start_ns, 1))

    def _say(self, what: str, sentence: str) -> None:
        if what not in self._said:
            self._said.add(what)
            self.notes.append(sentence)


def _falls(counter: SeriesBuffer, start_ns: int, end_ns: int) -> bool:
    """Whether it falls within the span, or on the way into it or out of it."""
    values = counter.around(start_ns, end_ns).values
    return any(later < earlier for earlier, later in itertools.pairwise(values))
