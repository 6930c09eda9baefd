"""Live metrics of a run, which the sampler process serves over HTTP in Prometheus' text format or as OpenMetrics.

Names end in base units as Prometheus recommends (prometheus.io/docs/practices/naming): seconds, ratio, bytes, joules, watts, hertz.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import prometheus_client
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.registry import Collector, CollectorRegistry

from perfkit.clock import MonotonicClock
from perfkit.stats.buckets import BucketCounts
from perfkit.telemetry.bounded_server import BoundedHandler, BoundedServer
from perfkit.telemetry.messages import IntervalTimes, LiveMetric
from perfkit.telemetry.series import Series
from perfkit.units import NS_PER_S

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS_CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
_PREFIX = "perfkit_"
# a series' unit: the suffix of the series' name, the OpenMetrics base unit, and the factor that converts to it
_BASE_UNITS = {
    "ns": ("_ns", "seconds", 1e-9),
    "s": ("_s", "seconds", 1.0),
    "share": ("_share", "ratio", 1.0),
    "W": ("_w", "watts", 1.0),
    "J": ("_j", "joules", 1.0),
    "MHz": ("_mhz", "hertz", 1e6),
    "bytes": ("_bytes", "bytes", 1.0),
    "celsius": ("_celsius", "celsius", 1.0),
    "per_s": ("_per_s", "per_second", 1.0),
    "bytes_per_s": ("_bytes_per_s", "bytes_per_second", 1.0),
}
_STATED_UNITS = ("bytes_per_second", "per_second", "seconds", "ratio", "watts", "joules", "hertz", "bytes", "celsius")
# only the newest Prometheus servers accept other characters
_INVALID_IN_NAME, _INVALID_IN_LABEL = re.compile(r"[^A-Za-z0-9_:]"), re.compile(r"[^A-Za-z0-9_]")
_QUANTILES = (0.5, 0.9, 0.99)


class LiveRun(Collector):
    """The live metrics of a run: those it published, request times of the newest second, and each series' newest sample."""

    def __init__(self, latest: Callable[[], Iterable[Series]]) -> None:
        self._latest = latest
        self._published: dict[str, Sequence[LiveMetric]] = {}
        self._timed, self._newest_second = 0, (-1, -1)
        self._parts: dict[str, list[BucketCounts]] = {}
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def publish(self, key: str, metrics: Sequence[LiveMetric]) -> None:
        """Replaces the metrics published under a key; metrics of one name have one kind."""
        self._published = {**self._published, key: metrics}

    def add_times(self, interval: IntervalTimes) -> None:
        """Adds one worker's times of one second; the newest second's are merged and published."""
        self._timed += interval.times["service_time"].count if "service_time" in interval.times else 0
        second = (interval.point, interval.index)
        if second > self._newest_second:
            self._newest_second, self._parts = second, {}
        if second == self._newest_second:
            for name, counts in interval.times.items():
                self._parts.setdefault(name, []).append(counts)
        self.publish("times", self._time_metrics())

    def collect(self) -> Iterator[Metric]:
        """The families of all metrics, as a `prometheus_client` registry asks for them."""
        metrics = [metric for published in self._published.values() for metric in published]
        families: dict[str, list[LiveMetric]] = {}
        for metric in (*metrics, *map(_series_metric, self._latest())):
            families.setdefault(_PREFIX + _INVALID_IN_NAME.sub("_", metric.name), []).append(metric)
        for name, members in families.items():
            kind = members[0].kind
            # `generate_latest` adds the suffix of counters again
            stem = name.removesuffix("_total") if kind == "counter" else name
            family = Metric(stem, members[0].documentation, kind, next((unit for unit in _STATED_UNITS if stem.endswith(f"_{unit}")), ""))
            # a page with two samples of the same labels is not valid
            samples = {tuple(sorted(_labels(member).items())): member.value for member in members}
            for labels, value in samples.items():
                family.add_sample(name, dict(labels), value)
            yield family

    def page(self, *, is_openmetrics: bool = False) -> bytes:
        """All metrics in Prometheus' text format, or as OpenMetrics 1.0."""
        if is_openmetrics:
            page: bytes = generate_openmetrics(self._registry)  # type: ignore[no-untyped-call] # the library leaves this function without types
            return page
        return prometheus_client.generate_latest(self._registry)

    def _time_metrics(self) -> list[LiveMetric]:
        documentation = "Requests of the measured windows whose times are recorded."
        metrics = [LiveMetric("requests_timed_total", documentation, "counter", {}, self._timed)]
        for name, parts in self._parts.items():
            counts = BucketCounts.merged(parts)
            if counts.count:
                documentation = f"Percentiles of the {name.replace('_', ' ')} over the newest complete second."
                for quantile, value_ns in zip(_QUANTILES, counts.values_at(_QUANTILES), strict=True):
                    labels = {"quantile": f"{quantile:g}"}
                    metrics.append(LiveMetric(f"{name}_seconds", documentation, "gauge", labels, value_ns / NS_PER_S))
        return metrics


class Exposition:
    """Serves a run's `/metrics` until it is closed; raises OSError if it cannot listen."""

    def __init__(self, listen: tuple[str, int], run: LiveRun) -> None:
        class Handler(BoundedHandler):
            def do_GET(self) -> None:  # noqa: N802 - the library's name
                if not self.server.has_come(self.connection):
                    self.close_connection = True
                    return
                is_metrics = self.path.partition("?")[0] in ("/metrics", "/")
                is_openmetrics = "application/openmetrics-text" in self.headers.get("Accept", "")
                body = run.page(is_openmetrics=is_openmetrics) if is_metrics else b"perfkit's metrics are at /metrics\n"
                self.send_response(200 if is_metrics else 404)
                content_type = OPENMETRICS_CONTENT_TYPE if is_openmetrics else CONTENT_TYPE
                self.send_header("Content-Type", content_type if is_metrics else "text/plain; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        server = BoundedServer(listen, Handler, MonotonicClock())
        self.port: int = server.server_address[1]
        self.close = server.serve("metrics")
        """Stops listening."""


def _series_metric(series: Series) -> LiveMetric:
    """The newest sample of a series in its base unit; without a unit, as from the target's own page, it is unchanged."""
    suffix, unit, factor = _BASE_UNITS.get(series.unit, ("", "", 1.0))
    name = f"{series.name.removesuffix(suffix)}_{unit}" if unit else series.name
    return LiveMetric(name, f"The newest sample of {series.name}.", "gauge", series.labels, series.values[-1] * factor)


def _labels(metric: LiveMetric) -> dict[str, str]:
    return {_INVALID_IN_LABEL.sub("_", name): value for name, value in metric.labels.items()}
