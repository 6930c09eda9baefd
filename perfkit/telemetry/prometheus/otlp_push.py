"""The live metrics of a run, pushed to an OpenTelemetry receiver over OTLP/HTTP by OpenTelemetry's own exporter, which is an extra."""

import logging
import threading
from collections.abc import Iterator

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from perfkit.clock import wall_ns
from perfkit.target.address import redacted_url
from perfkit.telemetry.messages import PUSH_FAILED
from perfkit.telemetry.prometheus.exposition import LiveRun

_EVERY_S, _TIMEOUT_S = 5.0, 2.0


class OtlpPush:
    """Pushes a run's metrics at once, then every 5 s until it is closed, and then a last time.

    `url` is the receiver's, without `/v1/metrics`. Headers and certificates are those of OpenTelemetry's variables, such as
    OTEL_EXPORTER_OTLP_HEADERS. Names and labels are those of the page for Prometheus. `name` is that of a run of several, the resource's
    attribute `perfkit.run`.
    """

    def __init__(self, url: str, run: LiveRun, name: str = "") -> None:
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # a receiver that is away is noted once
        self._notes = list[str]()
        self._url, self._run, self._start_ns, self._has_failed, self._is_noted = url, run, wall_ns(), False, False
        self._attributes = {"service.name": "perfkit", **({"perfkit.run": name} if name else {})}
        self._exporter = OTLPMetricExporter(endpoint=f"{url.rstrip('/')}/v1/metrics", timeout=_TIMEOUT_S)
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._push_until_closed, name="otlp", daemon=True)
        self._thread.start()

    def take_notes(self) -> list[str]:
        """The notes since the previous call."""
        notes, self._notes = self._notes, []
        return notes

    def close(self) -> None:
        """Pushes a last time, unless the push before failed, and ends."""
        self._is_closed.set()
        if not self._has_failed:
            self._thread.join(3 * _TIMEOUT_S)
        self._exporter.shutdown(timeout_millis=0)

    def _push_until_closed(self) -> None:
        self._push()
        while not self._is_closed.wait(_EVERY_S):
            self._push()
        if not self._has_failed:
            self._push()

    def _push(self) -> None:
        try:
            self._has_failed = self._exporter.export(self._data()) is not MetricExportResult.SUCCESS
        except Exception:  # noqa: BLE001 - whatever the library raises: it must not end the telemetry
            self._has_failed = True
        if self._has_failed and not self._is_noted:
            self._is_noted = True
            self._notes.append(f"{PUSH_FAILED} {redacted_url(self._url)}; it is tried again every {_EVERY_S:g} s.")

    def _data(self) -> MetricsData:
        scope = ScopeMetrics(InstrumentationScope("perfkit"), list(self._metrics()), "")
        return MetricsData([ResourceMetrics(Resource.create(self._attributes), [scope], "")])

    def _metrics(self) -> Iterator[Metric]:
        now_ns = wall_ns()
        for family in self._run.collect():
            points = [NumberDataPoint(one.labels, self._start_ns, now_ns, one.value) for one in family.samples]
            data = Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True) if family.type == "counter" else Gauge(points)
            yield Metric(family.samples[0].name, family.documentation, "", data)
