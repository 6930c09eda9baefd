"""The top level of protobuf's wire format, against protobuf itself."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from perfkit.errors import ProtocolError
from perfkit.protocol import protobuf, v2_pb2, wire_format
from perfkit.protocol.message import InferRequest, InferResponse, RequestedOutput
from perfkit.protocol.tensor import Datatype, Tensor

RAW_INPUTS = 0x3A  # field 7, length-delimited


@st.composite
def varints(draw, numbers, max_padding=0):
    number, parts = draw(numbers), bytearray()
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    parts.append(number)
    if padding := draw(st.integers(0, max_padding)):  # the same number, longer than necessary
        parts[-1] |= 0x80
        parts += b"\x80" * (padding - 1) + b"\x00"
    return bytes(parts)


def with_length(content):
    length = len(content)
    assert length < 2**14
    return (bytes([length]) if length < 0x80 else bytes([length & 0x7F | 0x80, length >> 7])) + content


def tagged(number, kind):
    return wire_format.field_head(number << 3 | kind, 0)[:-1]


numbers = st.one_of(st.integers(1, 20), st.integers(1, 2**29 - 1))
regular = st.one_of(
    st.binary(max_size=300).map(lambda raw: b"\x3a" + with_length(raw)),
    st.builds(lambda field, text: bytes([field << 3 | 2]) + with_length(text.encode()), st.integers(1, 3), st.text(max_size=5)),
    st.text(max_size=9).map(
        lambda name: b"\x2a" + with_length(v2_pb2.ModelInferRequest.InferInputTensor(name=name, shape=[1, 2]).SerializeToString())
    ),
    st.builds(lambda number, value: tagged(number, 0) + value, numbers, varints(st.integers(0, 2**64 - 1))),
    st.builds(lambda number, value: tagged(number, 1) + value, numbers, st.binary(min_size=8, max_size=8)),
    st.builds(lambda number, value: tagged(number, 5) + value, numbers, st.binary(min_size=4, max_size=4)),
)
irregular = st.one_of(
    st.binary(max_size=6),
    st.builds(lambda number, inner: tagged(number, 3) + inner + tagged(number, 4), numbers, regular),
    st.builds(lambda tag, raw: tag + with_length(raw), varints(st.just(RAW_INPUTS), 5), st.binary(max_size=5)),
    st.builds(lambda length: b"\x3a" + length + b"x", varints(st.sampled_from([0, 1, 2**31 - 1, 2**31, 2**32 + 1, 2**64 - 1]), 5)),
    st.builds(lambda value: b"\x08" + value, varints(st.integers(0, 2**70), 5)),
)


def parsed_by_protobuf(encoded):
    """Message and raw contents, or None if protobuf refuses the bytes."""
    try:
        message = v2_pb2.ModelInferRequest.FromString(encoded)
    except DecodeError:
        return None
    contents = list(message.raw_input_contents)
    del message.raw_input_contents[:]
    return message.SerializeToString(deterministic=True), contents


def parsed_after_split(encoded):
    rest, contents = wire_format.split(encoded, RAW_INPUTS)
    parsed = parsed_by_protobuf(rest)
    if parsed is None or not contents:
        return parsed
    assert parsed[1] == []
    return parsed[0], [bytes(content) for content in contents]


@given(st.lists(st.one_of(regular, irregular), max_size=8).map(b"".join))
@example(b"\x3a\x80\x00")  # a length longer than necessary
@example(b"\xba\x00\x01a")  # a tag longer than necessary
@example(b"\x3a\x01a\x3a")
@example(b"\x00\x00\x3a\x01a")  # field 0
@example(b"\x38\x01\x3a\x01a")  # field 7 as a number
@example(b"\x80\x80\x80\x80\x80\x02\x01\x3a\x01a")  # the first tag has more than 32 bits
def test_any_bytes_are_split_as_protobuf_reads_them(encoded):
    assert parsed_after_split(encoded) == parsed_by_protobuf(encoded)


@given(st.lists(regular, max_size=8).map(b"".join))
def test_all_raw_contents_of_a_regular_message_become_views_of_it(encoded):
    parsed = parsed_by_protobuf(encoded)
    assert parsed is not None
    rest, contents = wire_format.split(encoded, RAW_INPUTS)
    assert [bytes(content) for content in contents] == parsed[1]
    assert all(content.obj is encoded for content in contents)
    assert len(rest) + sum(len(wire_format.field_head(RAW_INPUTS, len(one))) + len(one) for one in contents) == len(encoded)


@given(st.lists(regular, min_size=1, max_size=5).map(b"".join), st.data())
def test_a_message_cut_off_anywhere_is_split_as_protobuf_reads_it(encoded, data):
    cut = encoded[: data.draw(st.integers(0, len(encoded) - 1))]
    assert parsed_after_split(cut) == parsed_by_protobuf(cut)


def test_a_message_of_very_many_fields_is_left_to_protobuf():
    encoded = b"\x3a\x00" * 5000
    assert wire_format.split(encoded, RAW_INPUTS) == (encoded, [])


def test_a_group_is_refused():
    with pytest.raises(ProtocolError, match="no regular field at byte 2"):
        list(wire_format.fields(b"\x08\x01\x0b\x0c"))


LARGE = Tensor("A", Datatype.UINT8, (100_000,), bytes(range(250)) * 400)
SMALL = Tensor("B", Datatype.UINT8, (2,), memoryview(b"xy"))


def test_a_large_request_is_what_protobuf_writes_and_its_tensors_are_not_copied():
    request = InferRequest("m", (LARGE, SMALL), (RequestedOutput("X", 3, binary=True),), "1", "42", {"p": True})
    message = v2_pb2.ModelInferRequest(model_name="m", model_version="1", id="42", raw_input_contents=[bytes(LARGE.raw), b"xy"])
    message.parameters["p"].bool_param = True
    for tensor in request.inputs:
        message.inputs.add(name=tensor.name, datatype="UINT8", shape=tensor.shape)
    message.outputs.add(name="X").parameters["classification"].int64_param = 3
    encoded = protobuf.encode_infer_request(request)
    assert encoded == message.SerializeToString()
    decoded = protobuf.decode_infer_request(encoded)
    assert decoded == request
    assert all(isinstance(tensor.raw, memoryview) and tensor.raw.obj is encoded for tensor in decoded.inputs)


def test_a_large_response_is_what_protobuf_writes():
    message = v2_pb2.ModelInferResponse(model_name="m", model_version="1", raw_output_contents=[b"xy", bytes(LARGE.raw)])
    for tensor in (SMALL, LARGE):
        message.outputs.add(name=tensor.name, datatype="UINT8", shape=tensor.shape)
    assert b"".join(protobuf.encode_infer_response(InferResponse("m", "1", (SMALL, LARGE)))) == message.SerializeToString()


def test_a_large_request_that_is_cut_off_gets_protobufs_error():
    encoded = protobuf.encode_infer_request(InferRequest("m", (LARGE,)))
    with pytest.raises(ProtocolError, match="the bytes are not a ModelInferRequest: Error parsing message"):
        protobuf.decode_infer_request(encoded[:-1])
