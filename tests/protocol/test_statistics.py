"""Statistics as Triton writes them, and as its own client's messages encode them."""

import json

import pytest
from tritonclient.grpc import service_pb2

from perfkit.errors import ProtocolError
from perfkit.protocol import protobuf, v2_pb2
from perfkit.protocol.statistics import DURATIONS, ModelStatistics, TotalTime, decode_model_statistics

# what Triton 2.51 answers to GET /v2/models/simple/stats, with two batches of its list left out
TRITON = (
    b'{"model_stats":[{"name":"simple","version":"1","last_inference":1763700000123,"inference_count":12,"execution_count":5,'
    b'"inference_stats":{"success":{"count":7,"ns":7001},"fail":{"count":1,"ns":5},"queue":{"count":7,"ns":702},'
    b'"compute_input":{"count":6,"ns":603},"compute_infer":{"count":6,"ns":6004},"compute_output":{"count":6,"ns":605},'
    b'"cache_hit":{"count":1,"ns":16},"cache_miss":{"count":6,"ns":67}},"batch_stats":[],"memory_usage":[],"response_stats":{}}]}'
)
EXPECTED = ModelStatistics(
    "1", 12, 5, TotalTime(7, 7001), TotalTime(1, 5), TotalTime(7, 702), TotalTime(6, 603), TotalTime(6, 6004), TotalTime(6, 605), TotalTime(1, 16), TotalTime(6, 67),
)  # fmt: skip


def test_a_rest_answer_is_read():
    assert decode_model_statistics(TRITON) == (EXPECTED,)


def test_a_grpc_answer_is_read_as_tritonclient_encodes_it():
    theirs = service_pb2.ModelStatisticsResponse()
    one = theirs.model_stats.add(name="simple", version="1", inference_count=12, execution_count=5)
    for name in DURATIONS:
        total = getattr(EXPECTED, name)
        getattr(one.inference_stats, name).count, getattr(one.inference_stats, name).ns = total.count, total.ns
    message = v2_pb2.ModelStatisticsResponse.FromString(theirs.SerializeToString())
    assert protobuf.model_statistics(message) == (EXPECTED,)


def test_missing_counts_are_zero_and_numbers_may_be_text():
    body = b'{"model_stats":[{"version":3,"inference_count":"9","inference_stats":{"success":{"count":"2"}}}]}'
    assert decode_model_statistics(body) == (ModelStatistics("3", 9, 0, TotalTime(2, 0)),)


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b'{"model_stats":3}', b'{"model_stats":[{}]}', b'{"model_stats":[{"inference_stats":{"queue":7}}]}', b"\xff",
     b'{"model_stats":[{"inference_stats":{"queue":{"count":"many"}}}]}', b"[" * 100_000],
)  # fmt: skip
def test_invalid_statistics_are_refused(body):
    with pytest.raises(ProtocolError, match="statistics are not v2"):
        decode_model_statistics(body)


@pytest.mark.parametrize(
    "value",
    [
        "92" + "0" * 40,
        "1" + "0" * 400,
        "9.2e41",
        "-1",
        "NaN",
        "Infinity",
        "1e400",
        "1.5",
        '"many"',
        '"-1"',
        "true",
        "null",
        "[1]",
        str(2**64),
    ],
)
@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("inference_count", '{{"inference_count":{},"inference_stats":{{}}}}'),
        ("inference_stats.queue.ns", '{{"inference_stats":{{"queue":{{"ns":{}}}}}}}'),
    ],
)  # fmt: skip
def test_a_count_that_is_none_is_refused_with_the_fields_name(field, text, value):
    with pytest.raises(ProtocolError, match=f"{field} is .{{1,50}}, which is no count of 64 bits"):
        decode_model_statistics(f'{{"model_stats":[{text.format(value)}]}}'.encode())


def test_the_largest_count_of_64_bits_is_read_as_a_number_a_float_and_a_text():
    largest, float_below = 2**64 - 1, 2.0**63
    body = f'{{"model_stats":[{{"inference_count":{largest},"execution_count":"{largest}","inference_stats":{{"fail":{{"ns":{float_below!r}}}}}}}]}}'
    assert decode_model_statistics(body.encode()) == (ModelStatistics("", largest, largest, fail=TotalTime(0, 2**63)),)


def test_versions_add_up():
    total = ModelStatistics.added([EXPECTED, EXPECTED])
    assert (total.inferences, total.executions, total.success, total.cache_miss) == (24, 10, TotalTime(14, 14002), TotalTime(12, 134))
    assert json.loads(TRITON)["model_stats"][0]["inference_count"] * 2 == total.inferences
