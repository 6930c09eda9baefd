"""An OpenTelemetry receiver that keeps what it is sent, decoded by OpenTelemetry's own messages."""

import contextlib
import gzip
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.json_server import JsonHandler, serving

_MESSAGES: dict[str, Any] = {"/v1/metrics": ExportMetricsServiceRequest, "/v1/traces": ExportTraceServiceRequest}


class OtlpReceiver:
    """Where it listens, and the messages that came."""

    def __init__(self, url):
        self.url, self.received, self.headers = url, [], []

    def spans(self):
        """Every span that came."""
        return [span for one in self.received for resource in one.resource_spans for scope in resource.scope_spans for span in scope.spans]


def attributes_of(sent):
    """The attributes of a span, a resource or a data point by name."""
    return {one.key: _value(one.value) for one in sent.attributes}


def _value(value):
    kind = value.WhichOneof("value")
    return [_value(one) for one in value.array_value.values] if kind == "array_value" else getattr(value, kind)


@contextlib.contextmanager
def receiving(status=200, answer=b""):
    """A receiver on loopback for as long as the block, which answers with this status and body."""

    class Handler(JsonHandler):
        def do_POST(self):
            body = self.body()
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            receiver.headers.append(self.headers)
            receiver.received.append(_MESSAGES[self.path].FromString(body))
            self.answer_bytes(status, answer)

    with serving(Handler) as port:
        receiver = OtlpReceiver(f"http://127.0.0.1:{port}")
        yield receiver
