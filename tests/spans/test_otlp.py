"""OTLP bodies: literal JSON, protobuf encoded by hand, and bodies that are none."""

import json

import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from perfkit.errors import ProtocolError
from perfkit.spans.formats import SpansRead, read_json, read_protobuf
from perfkit.spans.span import EventTimes, Span
from tests.spans.bodies import HTTP_SPANS, TRACE, body, request, span

PREFIX = "aa" * 8
LITERAL = b"""{"resourceSpans":[{"resource":{"attributes":[]},"scopeSpans":[{"scope":{"name":"triton-server"},"spans":[
{"attributes":[{"key":"triton.model_name","value":{"stringValue":"m"}},{"key":"triton.trace_id","value":{"intValue":"-1"}},
{"key":"ratio","value":{"doubleValue":0.5}},{"key":"ok","value":{"boolValue":true}},{"key":"list","value":{"arrayValue":{}}}],
"endTimeUnixNano":"1795439334938431083","events":[{"name":"E","timeUnixNano":"1795439334811065649"},
{"name":"E","timeUnixNano":1795439334811065650}],"kind":2,"name":"m","parentSpanId":"00000000000000A1","spanId":"7102037352889CDD",
"startTimeUnixNano":1795439334811065649,"traceId":"AAAAAAAAAAAAAAAA00000000000000A1"}]}]}]}"""
SPAN = Span(
    TRACE,
    "7102037352889cdd",
    "00000000000000a1",
    "m",
    1795439334811065649,
    1795439334938431083,
    {"E": EventTimes(1795439334811065649, 1795439334811065650)},
)


def field(number, content):
    """A length-delimited field of protobuf; the number is below 16 and the length below 128."""
    return bytes([number << 3 | 2, len(content)]) + content


def fixed64(number, value):
    return bytes([number << 3 | 1]) + value.to_bytes(8, "little")


TRACE_ID, SPAN_ID = bytes.fromhex(TRACE), bytes.fromhex(SPAN.span_id)


def protobuf_span(trace_id=TRACE_ID, span_id=SPAN_ID):
    """One span, field by field from the numbers in opentelemetry/proto/trace/v1/trace.proto."""
    event = fixed64(1, SPAN.start_ns) + field(2, b"E")
    return field(1, trace_id) + field(2, span_id) + field(5, b"m") + fixed64(7, SPAN.start_ns) + fixed64(8, SPAN.end_ns) + field(11, event)


def protobuf_body(spans):
    return b"".join(field(1, field(2, field(2, span))) for span in spans)


def test_json_with_numbers_as_texts_or_numbers_and_ids_in_either_case():
    assert read_json(LITERAL) == SpansRead([SPAN])
    assert read_json(LITERAL, PREFIX) == SpansRead([SPAN])


def test_protobuf_encoded_by_hand():
    events = {"E": EventTimes(SPAN.start_ns, SPAN.start_ns)}
    expected = Span(TRACE, SPAN.span_id, "", "m", SPAN.start_ns, SPAN.end_ns, events)
    assert read_protobuf(protobuf_body([protobuf_span()]), PREFIX) == SpansRead([expected])


def test_json_and_protobuf_of_the_same_request_hold_the_same_spans():
    document = request(HTTP_SPANS)
    message = ExportTraceServiceRequest()
    for scope in document["resourceSpans"][0]["scopeSpans"]:
        scope["spans"] = []
    json_format.ParseDict(document, message)
    for written in HTTP_SPANS:
        added = message.resource_spans[0].scope_spans[0].spans.add()
        others = {key: value for key, value in written.items() if not key.endswith("Id")}
        json_format.ParseDict(others, added)  # its mapping of JSON has bytes in base64, OTLP's has ids in hexadecimal digits
        added.trace_id, added.span_id = bytes.fromhex(written["traceId"]), bytes.fromhex(written["spanId"])
        added.parent_span_id = bytes.fromhex(written["parentSpanId"])
    assert read_protobuf(message.SerializeToString()) == read_json(body(HTTP_SPANS))


@pytest.mark.parametrize("parent", ["", None, "0000000000000000"])
def test_a_span_without_a_parent(parent):
    assert read_json(body([span("c" * 16, parent, "x", [], 1, 2)])).spans[0].parent_id == ""


def test_spans_of_other_traces_are_counted_whether_the_body_holds_the_runs_or_not():
    strangers = [{**written, "traceId": "bb" * 16} for written in HTTP_SPANS]
    assert read_json(body(strangers), PREFIX) == SpansRead(strangers=3)
    mixed = read_json(body([*strangers, *HTTP_SPANS]), PREFIX)
    assert (len(mixed.spans), mixed.strangers, mixed.malformed) == (3, 3, 0)
    assert read_protobuf(protobuf_body([protobuf_span(b"\xbb" * 16)] * 2), PREFIX) == SpansRead(strangers=2)


@pytest.mark.parametrize(
    "damage",
    [
        {"traceId": "aa"},
        {"traceId": 5},
        {"spanId": None},
        {"spanId": "x" * 16},
        {"parentSpanId": 7},
        {"name": 7},
        {"startTimeUnixNano": "0"},
        {"startTimeUnixNano": "-5"},
        {"startTimeUnixNano": "9" * 5000},
        {"startTimeUnixNano": 1.5},
        {"endTimeUnixNano": "1"},
        {"endTimeUnixNano": str(2**64)},
        {"endTimeUnixNano": True},
        {"events": {}},
        {"events": [5]},
        {"events": [{"name": "E", "timeUnixNano": []}]},
    ],
)
def test_a_malformed_span_is_counted_and_the_others_are_read(damage):
    read = read_json(body([{**HTTP_SPANS[0], **damage}, 5, HTTP_SPANS[1]]))
    assert (len(read.spans), read.malformed) == (1, 2)


def test_malformed_spans_in_protobuf_are_counted():
    read = read_protobuf(protobuf_body([protobuf_span(b"\xaa" * 15), protobuf_span(span_id=b""), protobuf_span()]))
    assert (len(read.spans), read.malformed) == (1, 2)


@pytest.mark.parametrize("instant_ns", [0, 2**63, 2**64 - 1])
def test_an_event_at_no_possible_instant_is_left_out(instant_ns):
    [read] = read_json(body([{**HTTP_SPANS[0], "events": [{"name": "E", "timeUnixNano": str(instant_ns)}]}])).spans
    assert read.events == {}
    document = ExportTraceServiceRequest.FromString(protobuf_body([protobuf_span()]))
    document.resource_spans[0].scope_spans[0].spans[0].events.add(name="F", time_unix_nano=instant_ns)
    [read] = read_protobuf(document.SerializeToString()).spans
    assert "F" not in read.events


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"{",
        b"[]",
        b"5",
        b'{"resourceSpans":5}',
        b'{"resourceSpans":[{"scopeSpans":[{"spans":{}}]}]}',
        b'{"resourceSpans":[5]}',
        b"[" * 100_000,
        b"\xff\xfe\xfd",
    ],
)
def test_a_body_that_is_no_otlp_is_refused(wrong):
    with pytest.raises(ProtocolError, match="no OTLP trace request in JSON"):
        read_json(wrong)


def test_protobuf_that_breaks_off_is_refused():
    with pytest.raises(ProtocolError, match="no OTLP trace request in protobuf"):
        read_protobuf(protobuf_body([protobuf_span()])[:-1])


@pytest.mark.parametrize("empty", [b"{}", b'{"resourceSpans":null}', b'{"resourceSpans":[{"scopeSpans":[{}]}]}'])
def test_an_empty_request_holds_no_spans(empty):
    assert read_json(empty, PREFIX) == SpansRead()
    assert read_protobuf(b"") == SpansRead()


def test_what_is_kept_of_a_span_is_bounded():
    events = [{"name": f"{number}{'e' * 1000}", "timeUnixNano": "1"} for number in range(1000)]
    [read] = read_json(json.dumps(request([{**HTTP_SPANS[0], "name": "n" * 1000, "events": events}])).encode()).spans
    assert (len(read.name), len(read.events), max(map(len, read.events))) == (256, 64, 256)
