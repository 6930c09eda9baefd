"""Answers of few bytes that would become very many objects are not decoded."""

import pytest

from perfkit.errors import ProtocolError
from perfkit.protocol import v2_pb2
from perfkit.protocol.decoded_size import check_entries, check_json_values, check_protobuf_fields

MIB = 1 << 20
Output = v2_pb2.ModelInferResponse.InferOutputTensor


def output(**fields):
    return v2_pb2.ModelInferResponse(outputs=[Output(name="y", **fields)]).SerializeToString()


@pytest.mark.parametrize("value", [b"[],", b"{},", b"1,"])
def test_very_many_json_values_are_refused(value):
    with pytest.raises(ProtocolError, match=r"about \d,\d{3},\d{3} JSON values, more than 2,000,000"):
        check_json_values(b"[" + value * 2_000_001 + b"0]", MIB)


def test_a_larger_limit_of_answers_allows_more_json_values():
    check_json_values(b"[" + b"1," * 3_000_000 + b"0]", 48_000_064)


# the lambdas: megabytes that test processes which only collect this file need not make
@pytest.mark.parametrize(
    "encode",
    [
        lambda: b"\x2a\x00" * 600_000,
        lambda: b"\x22\x00" * 600_000,
        lambda: b"\x32\x00" * 600_000,
        lambda: output(shape=[1] * 1_100_000),
        lambda: output(contents=v2_pb2.InferTensorContents(bytes_contents=[b""] * 600_000)),
        lambda: output(contents=v2_pb2.InferTensorContents(int64_contents=[1] * 9_000_000)),
    ],
    ids=["outputs", "parameters", "raw contents", "dimensions", "strings", "integers"],
)
def test_very_many_fields_are_refused(encode):
    with pytest.raises(ProtocolError, match="more than 500,000 fields"):
        check_protobuf_fields(encode(), MIB)


def test_the_entries_of_a_description_are_counted_alone():
    check_entries(output(shape=[1] * 20_000), 10_000)
    with pytest.raises(ProtocolError, match="more than 10,000 fields"):
        check_entries(b"\x0a\x00" * 10_001, 10_000)


@pytest.mark.parametrize(
    "encode",
    [
        lambda: v2_pb2.ModelInferResponse(model_name="m", outputs=[Output(name="y", shape=[1, 4 * MIB])], raw_output_contents=[bytes(16 * MIB)]).SerializeToString(),
        lambda: output(contents=v2_pb2.InferTensorContents(fp32_contents=[0.5] * 1_000_000)),
        lambda: output(contents=v2_pb2.InferTensorContents(int64_contents=[1] * 4_000_000)),
        lambda: b"\x2a\x00" * 600_000 + b"\x80",
    ],
    ids=["raw", "floats", "integers", "cut off"],
)  # fmt: skip
def test_real_answers_are_not(encode):
    check_protobuf_fields(encode(), 64 * MIB)
