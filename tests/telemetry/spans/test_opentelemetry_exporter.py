"""OpenTelemetry's own exporter sends to the receiver: an independent implementation of OTLP/HTTP."""

from typing import Any, cast

import pytest
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator

from perfkit.clock import MonotonicClock
from perfkit.spans.server_times import ServerTimes
from perfkit.telemetry.messages import SpanCounts, SpansConfig
from perfkit.telemetry.spans.receiver import SpanReceiver

RUN = 0xAA55AA55AA55AA55


class RunsIds(RandomIdGenerator):
    """Trace ids of one run, numbered."""

    def __init__(self):
        self.number = 0

    def generate_trace_id(self):
        self.number += 1
        return RUN << 64 | self.number


def by_trace(sent):
    traces: dict[str, dict[str, Any]] = {}
    for span in sent:
        traces.setdefault(f"{span.context.trace_id:032x}", {})[span.name] = span
    return traces


def expected_times(spans):
    """A model that never began to compute was queued all the time."""
    outer, model = spans["InferRequest"], spans["model"]
    queue_ns = model.end_time - model.start_time
    return ServerTimes(outer.start_time, outer.end_time, model.start_time, model.end_time, queue_ns, 0, 0, 0)


@pytest.mark.parametrize("compression", [Compression.NoCompression, Compression.Gzip])
def test_spans_of_the_sdk_arrive_whole(compression):
    receiver = SpanReceiver(SpansConfig("127.0.0.1", 0, f"{RUN:016x}", 100), MonotonicClock())
    finished, provider = InMemorySpanExporter(), TracerProvider(id_generator=RunsIds())
    provider.add_span_processor(SimpleSpanProcessor(finished))
    tracer = provider.get_tracer("server")
    for number in range(20):
        with tracer.start_as_current_span("InferRequest", attributes={"number": number}), tracer.start_as_current_span("model") as model:
            model.add_event("QUEUE_START", timestamp=cast("ReadableSpan", model).start_time)
    sent = finished.get_finished_spans()
    exporter = OTLPSpanExporter(f"http://127.0.0.1:{receiver.port}/v1/traces", compression=compression)
    try:
        assert exporter.export(sent) is SpanExportResult.SUCCESS
        trace_ids = [f"{RUN:016x}{number:016x}" for number in range(1, 21)]
        report = receiver.collected.report(trace_ids, 0.0, lambda: None)
    finally:
        exporter.shutdown()
        receiver.close()
    assert report.counts == SpanCounts(received=40)
    assert report.times == {trace_id: expected_times(spans) for trace_id, spans in by_trace(sent).items()}
