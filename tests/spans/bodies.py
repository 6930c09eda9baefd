"""What Triton 2.51 sent, shortened: its events with other ids, and times counted in microseconds from an instant."""

import json

TRACE = "aa" * 8 + "00000000000000a1"
ORIGIN_NS = 1_795_439_334_000_000_000


def at(microseconds):
    """An instant in Unix nanoseconds."""
    return ORIGIN_NS + microseconds * 1000


def span(span_id, parent, name, events, start, end, *, trace=TRACE, attributes=None):
    """A span as Triton writes it in JSON; `events` are pairs of a name and microseconds."""
    written = {
        "endTimeUnixNano": str(at(end)),
        "events": [{"name": event, "timeUnixNano": str(at(instant))} for event, instant in events],
        "kind": 2,
        "name": name,
        "parentSpanId": parent,
        "spanId": span_id,
        "startTimeUnixNano": str(at(start)),
        "traceId": trace,
    }
    return {"attributes": attributes, **written} if attributes else written


def request(spans):
    """The document of an OTLP trace request with one resource."""
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "triton-inference-server"}}]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": "triton-server"}, "spans": spans}]}]}


def body(spans):
    return json.dumps(request(spans)).encode()


def compute(span_id, parent, start, input_end, output_start, end, **options):
    events = [("COMPUTE_START", start), ("COMPUTE_INPUT_END", input_end), ("COMPUTE_OUTPUT_START", output_start), ("COMPUTE_END", end)]
    return span(span_id, parent, "compute", events, start, end, **options)


def model(span_id, parent, name, start, queue_start, end, **options):
    events = [("REQUEST_START", start), ("QUEUE_START", queue_start), ("REQUEST_END", end)]
    attributes = [
        {"key": "triton.model_name", "value": {"stringValue": name}},
        {"key": "triton.model_version", "value": {"intValue": "1"}},
        {"key": "triton.request_id", "value": {"stringValue": "req-1"}},
    ]
    return span(span_id, parent, name, events, start, end, attributes=attributes, **options)


def http_front_end(span_id, receive, start, complete, send, end, **options):
    events = [
        ("HTTP_RECV_START", receive),
        ("HTTP_RECV_END", receive + 20),
        ("INFER_RESPONSE_COMPLETE", complete),
        ("HTTP_SEND_START", send),
        ("HTTP_SEND_END", send + 20),
    ]
    return span(span_id, "00000000000000a1", "InferRequest", events, start, end, **options)


# the Python backend over HTTP: COMPUTE_END and REQUEST_END come after the answer was sent
HTTP_SPANS = [
    compute("441395b4d09dc741", "7102037352889cdd", 811_203, 811_385, 938_121, 938_316),
    model("7102037352889cdd", "78527d27339408c0", "bounded_queue", 811_065, 811_091, 938_431),
    http_front_end("78527d27339408c0", 810_650, 810_733, 938_191, 938_233, 938_435),
]
