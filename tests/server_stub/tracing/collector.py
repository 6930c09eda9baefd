"""A collector that keeps the spans sent to it, decoded by OpenTelemetry's own messages, and the requests that make a server send them."""

import collections
import contextlib
import http.client
import http.server
import json
import queue
import threading
from typing import Any

import numpy as np
import tritonclient.grpc
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PARENT_ID = 0x00F067AA0BA902B7


class Collector:
    """Spans in OTLP's JSON form, with ids in hexadecimal as Triton sends them, from JSON and protobuf alike."""

    def __init__(self):
        collector, self._changed, self._spans, self.resources = self, threading.Condition(), [], []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.take(body, is_json=self.headers["Content-Type"] == "application/json")
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *arguments):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}/v1/traces"

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take(self, body, *, is_json):
        document = json.loads(body) if is_json else _with_hexadecimal_ids(ExportTraceServiceRequest.FromString(body))
        with self._changed:
            for resource in document["resourceSpans"]:
                self.resources.append(values(resource["resource"]))
                for scope in resource["scopeSpans"]:
                    self._spans += [{**span, "scope": scope["scope"]["name"]} for span in scope["spans"]]
            self._changed.notify_all()

    @property
    def spans(self):
        with self._changed:
            return list(self._spans)

    def trace(self, trace_id, roots=1):
        """The spans of a trace, once so many requests of it have ended."""

        def found():
            return [span for span in self._spans if span["traceId"] == f"{trace_id:032x}"]

        with self._changed:
            self._changed.wait_for(lambda: sum(span["name"] == "InferRequest" for span in found()) == roots)
            return found()


def _with_hexadecimal_ids(message):
    document = json_format.MessageToDict(message, use_integers_for_enums=True)
    for sent, shown in zip(message.resource_spans, document["resourceSpans"], strict=True):
        for scope, spans in zip(sent.scope_spans, shown["scopeSpans"], strict=True):
            for span, entry in zip(scope.spans, spans["spans"], strict=True):
                entry.update(traceId=span.trace_id.hex(), spanId=span.span_id.hex(), parentSpanId=span.parent_span_id.hex())
    return document


def values(span):
    """The attributes of a span or resource."""
    return {entry["key"]: next(iter(entry["value"].values())) for entry in span.get("attributes", ())}


def shape(spans):
    """What stays the same in every run: how often each span is there, with whose child it is, its events and its attributes' types."""
    names = {span["spanId"]: span["name"] for span in spans} | {f"{PARENT_ID:016x}": "the client's"}
    # the literal requests had other parents, which are no span of the trace either
    return collections.Counter(
        (
            span["name"],
            names.get(span["parentSpanId"], "the client's") if span.get("parentSpanId") else None,
            span["kind"],
            tuple(event["name"] for event in span.get("events", ())),
            tuple(sorted((entry["key"], *entry["value"]) for entry in span.get("attributes", ()))),
        )
        for span in spans
    )


def instants(span):
    """The first instant of each event, and the span's own, in Unix nanoseconds."""
    times = {event["name"]: int(event["timeUnixNano"]) for event in reversed(span.get("events", ()))}
    return {**times, "start": int(span["startTimeUnixNano"]), "end": int(span["endTimeUnixNano"])}


def traceparent(trace_id, flags=1):
    return f"00-{trace_id:032x}-{PARENT_ID:016x}-{flags:02x}"


SIMPLE = {
    "id": "req-1",
    "inputs": [{"name": name, "datatype": "INT32", "shape": [1, 16], "data": list(range(16))} for name in ("INPUT0", "INPUT1")],
}


def post(port, path, document, **headers):
    """The status and body of one POST on a connection of its own; an underscore in a header's name stands for a dash."""
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        named = {"Accept-Encoding": "identity"} | {name.replace("_", "-"): text for name, text in headers.items()}
        connection.request("POST", f"/{path}", json.dumps(document).encode(), named)
        answer = connection.getresponse()
        return answer.status, answer.read()


def tensor(name, values, datatype, shape=None):
    array = np.array(values, getattr(np, datatype.lower())).reshape(shape or -1)
    made = tritonclient.grpc.InferInput(name, array.shape, datatype)
    made.set_data_from_numpy(array)
    return made


def simple_tensors():
    return [tensor(name, range(16), "INT32", (1, 16)) for name in ("INPUT0", "INPUT1")]


def infer_over_grpc(port, trace_id):
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{port}") as client:
        client.infer("simple", simple_tensors(), request_id="g-1", headers={"traceparent": traceparent(trace_id)})


def infer_on_stream(port, trace_id, model, requests, *, responses):
    """Send one request after another, each of which has so many responses."""
    received: queue.Queue[Any] = queue.Queue()
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{port}") as client:
        client.start_stream(lambda result, error: received.put((result, error)), headers={"traceparent": traceparent(trace_id)})
        for number, inputs in enumerate(requests, start=1):
            client.async_stream_infer(model, inputs, request_id=f"s-{number}")
            for _ in range(responses):
                assert received.get(timeout=60)[1] is None
        client.stop_stream()
