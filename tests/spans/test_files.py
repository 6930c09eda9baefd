"""OTLP lines of the collector's file exporter, and trace files of Triton 2.51, shortened."""

import json

import pytest

from perfkit.errors import UsageError
from perfkit.spans.formats import read_json, read_spans_file
from perfkit.spans.server_times import ServerTimes, server_times
from tests.spans.bodies import HTTP_SPANS, TRACE, body

PREFIX = "aa" * 8
TIMES = server_times(read_json(body(HTTP_SPANS)).spans)


def stamps(number, **events):
    return [{"id": number, "timestamps": [{"name": name, "ns": ns}]} for name, ns in events.items()]


# an entry for each event, in the order in which they were written
HTTP = [
    *stamps(1, HTTP_RECV_START=885_763, HTTP_RECV_END=905_504),
    {"id": 1, "model_name": "bounded_queue", "model_version": 1, "request_id": "req-1"},
    *stamps(1, REQUEST_START=1_061_573, QUEUE_START=1_081_623, INFER_RESPONSE_COMPLETE=85_389_160, COMPUTE_START=1_335_453),
    *stamps(1, COMPUTE_INPUT_END=3_157_608, COMPUTE_OUTPUT_START=84_901_204, COMPUTE_END=85_476_284, REQUEST_END=85_501_444),
    *stamps(1, HTTP_SEND_START=87_220_681, HTTP_SEND_END=87_247_874),
]
GRPC_ENSEMBLE = [
    {"id": 12, "model_name": "classify", "model_version": 1, "request_id": "pipe", "parent_id": 10},
    *stamps(12, REQUEST_START=8_152, QUEUE_START=8_195, COMPUTE_START=8_275, COMPUTE_INPUT_END=8_311, COMPUTE_OUTPUT_START=22_027),
    *stamps(12, COMPUTE_END=22_348, REQUEST_END=22_370),
    {"id": 11, "model_name": "resize", "model_version": 1, "request_id": "pipe", "parent_id": 10},
    *stamps(11, REQUEST_START=1_814, QUEUE_START=1_821, COMPUTE_START=1_919, COMPUTE_INPUT_END=1_966, COMPUTE_OUTPUT_START=8_096),
    *stamps(11, COMPUTE_END=8_248, REQUEST_END=8_261),
    {"id": 10, "model_name": "pipeline", "model_version": 1, "request_id": "pipe"},
    *stamps(10, REQUEST_START=1_748, QUEUE_START=1_770, REQUEST_END=22_385, GRPC_WAITREAD_START=36, GRPC_WAITREAD_END=1_685),
    *stamps(10, INFER_RESPONSE_COMPLETE=22_128, GRPC_SEND_START=22_131, GRPC_SEND_END=24_558),
]


@pytest.fixture
def read(tmp_path):
    def read_text(text, prefix=PREFIX):
        path = tmp_path / "spans"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return read_spans_file(path, prefix)

    return read_text


def test_lines_of_otlp_are_joined_by_trace_and_repeated_spans_read_once(read):
    strangers = body([{**written, "traceId": "bb" * 16} for written in HTTP_SPANS])
    lines = [body(HTTP_SPANS[:1]), strangers, b"", body(HTTP_SPANS), b'{"resourceMetrics":[]}', body(HTTP_SPANS)[:-30]]
    found = read(b"\n".join(lines))
    assert {trace: server_times(spans) for trace, spans in found.spans.items()} == {TRACE: TIMES}
    assert (found.strangers, found.malformed) == (3, 1)


def test_a_trace_file_of_triton_by_request_id_on_its_own_clock(read):
    found = read(json.dumps(HTTP))
    expected = ServerTimes(885_763, 87_220_681, 1_081_623, 85_389_160, 253_830, 1_822_155, 81_743_596, 487_956)
    assert {key: server_times(spans) for key, spans in found.spans.items()} == {"req-1": expected}


def test_an_ensemble_in_a_trace_file_of_triton(read):
    # `classify` was queued while `resize` still wrote its output, to 8,248
    infer, compute_input, output = (8_096 - 1_966) + (22_027 - 8_311), 47 + 36, 152 + 101
    queue = (1_919 - 1_821) + (8_275 - 8_248)
    assert {key: server_times(spans) for key, spans in read(json.dumps(GRPC_ENSEMBLE)).spans.items()} == {
        "pipe": ServerTimes(1_685, 22_131, 1_770, 22_128, queue, compute_input, infer, output)
    }


def test_what_a_trace_file_of_triton_lacks_is_counted(read):
    orphan, circle = {"id": 5, "parent_id": 4, "request_id": "x"}, [{"id": 7, "parent_id": 8}, {"id": 8, "parent_id": 7}]
    wrong = [5, {"timestamps": []}, {"id": 6, "timestamps": 5}, {"id": 6, "timestamps": [{"name": "A", "ns": "1"}]}]
    found = read(json.dumps([*HTTP, orphan, *circle, *wrong]))
    assert (set(found.spans), found.strangers, found.malformed) == ({"req-1"}, 4, 4)


@pytest.mark.parametrize("text", ["[", "[1,", "{", "no JSON", "[" * 100_000, '{"resourceSpans":5}'])
def test_a_file_of_another_kind_is_refused(read, text):
    with pytest.raises(UsageError, match=r"spans: (is no trace file of Triton|expected OTLP traces in JSON lines)"):
        read(text)


def test_a_file_that_is_missing_or_a_folder_is_refused(tmp_path):
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_spans_file(tmp_path / "missing")
    with pytest.raises(UsageError, match="cannot be read: Is a directory"):
        read_spans_file(tmp_path)


def test_an_empty_file_has_no_spans(read):
    assert read("").spans == {}
