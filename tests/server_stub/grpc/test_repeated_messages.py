"""Messages that repeat are read and written as `perfkit.protocol.protobuf` does it, which does not remember anything."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.errors import ProtocolError
from perfkit.protocol import protobuf, v2_pb2
from perfkit.protocol.message import InferRequest, InferResponse, RequestedOutput
from perfkit.protocol.tensor import Datatype, Tensor, tensor_from_array
from server_stub.grpc.repeated_messages import RepeatedMessages
from server_stub.inference.layouts import with_data

# model_name "m", an input "a" INT8 of shape [2], one "b" INT8 of shape [1], and their data
HEAD = b"\x0a\x01m" + b"\x2a\x0c\x0a\x01a\x12\x04INT8\x1a\x01\x02" + b"\x2a\x0c\x0a\x01b\x12\x04INT8\x1a\x01\x01"


def message(first, second, head=HEAD):
    return head + b"\x3a\x02" + first + b"\x3a\x01" + second


def read(messages, encoded):
    """As the front end does it: a message is remembered once it has been read."""
    found = messages.find(encoded)
    if found is None:
        found = protobuf.decode_infer_request(bytes(encoded))
        messages.add(encoded, found)
        return found, False
    return with_data(*found), True


def test_the_second_message_is_read_from_the_first():
    messages = RepeatedMessages()
    assert read(messages, message(b"xy", b"z"))[1] is False
    request, is_known = read(messages, message(b"\x3a\x02", b"\x00"))
    inputs = (Tensor("a", Datatype.INT8, (2,), b"\x3a\x02"), Tensor("b", Datatype.INT8, (1,), b"\x00"))
    assert (request, is_known) == (InferRequest("m", inputs), True)


@pytest.mark.parametrize(
    "encoded",
    [
        message(b"xy", b"z", HEAD.replace(b"\x01m", b"\x01n")),
        HEAD + b"\x3a\x01x\x3a\x02yz",  # other lengths, of which the sum is the same
        message(b"xy", b"z", HEAD.replace(b"\x1a\x01\x02", b"\x1a\x01\x01")),
        message(b"xy", b"z") + b"\x12\x00",  # another field behind the data
    ],
)
def test_another_message_is_never_taken_for_a_known_one(encoded):
    messages = RepeatedMessages()
    read(messages, message(b"xy", b"z"))
    assert read(messages, encoded) == (protobuf.decode_infer_request(encoded), False)


def test_large_messages_keep_their_data_as_views():
    messages, size = RepeatedMessages(), 100_000
    inputs = (tensor_from_array("a", Datatype.INT8, np.zeros(size, np.int8)),)
    memory = bytearray(protobuf.encode_infer_request(InferRequest("m", inputs)))
    assert read(messages, memoryview(memory).toreadonly())[1] is False
    request, is_known = read(messages, memoryview(memory).toreadonly())
    assert is_known
    assert isinstance(request.inputs[0].raw, memoryview)
    memory[-1] = 7
    assert bytes(request.inputs[0].raw) == bytes(size - 1) + b"\x07"


def test_messages_that_all_differ_displace_the_known_ones_slowly():
    messages, known = RepeatedMessages(), message(b"xy", b"z")
    for number in range(3):
        read(messages, known.replace(b"m", bytes([ord("a") + number])))
    read(messages, known)
    assert [read(messages, message(b"xy", b"z", HEAD.replace(b"m", bytes([0x30 + n % 10]))))[1] for n in range(50)] == [False] * 50
    assert read(messages, known)[1] is True


NAMES = st.sampled_from(["a", "b", "INPUT0", "ü"])
TENSORS = st.builds(
    lambda name, values: tensor_from_array(name, Datatype.INT16, np.array(values, np.int16)),
    NAMES,
    st.lists(st.integers(-9, 9), max_size=3),
)
REQUESTS = st.builds(
    InferRequest,
    st.sampled_from(["m", "n"]),
    st.lists(TENSORS, max_size=3).map(tuple),
    st.lists(st.builds(RequestedOutput, NAMES, st.integers(0, 2)), max_size=2).map(tuple),
    st.sampled_from(["", "1"]),
    st.sampled_from(["", "7", "id"]),
    st.dictionaries(st.sampled_from(["priority", "mine"]), st.integers(0, 3), max_size=1),
)


@settings(max_examples=100)
@given(st.lists(REQUESTS, min_size=1, max_size=6), st.lists(st.integers(0, 5), min_size=2, max_size=12))
def test_messages_in_any_order_are_read_as_if_they_were_new(requests, order):
    messages = RepeatedMessages()
    encoded = [protobuf.encode_infer_request(request) for request in requests]
    for number in order:
        one = encoded[number % len(encoded)]
        try:
            expected = protobuf.decode_infer_request(one)
        except ProtocolError:
            assert messages.find(one) is None
        else:
            assert read(messages, one)[0] == expected


RESPONSES = st.builds(
    InferResponse,
    st.sampled_from(["m", "n"]),
    st.sampled_from(["1", "2"]),
    st.lists(TENSORS, max_size=3).map(tuple),
    st.sampled_from(["", "7"]),
    st.dictionaries(st.just("p"), st.booleans(), max_size=1),
)


@settings(max_examples=100)
@given(st.lists(RESPONSES, min_size=2, max_size=6))
def test_responses_are_the_bytes_that_protobuf_writes(responses):
    messages = RepeatedMessages()
    for response in [*responses, *responses]:
        expected = v2_pb2.ModelInferResponse(
            model_name=response.model,
            model_version=response.version,
            id=response.id,
            outputs=[
                v2_pb2.ModelInferResponse.InferOutputTensor(name=one.name, datatype="INT16", shape=one.shape) for one in response.outputs
            ],
            raw_output_contents=[bytes(one.raw) for one in response.outputs],
        )
        for key, value in response.parameters.items():
            expected.parameters[key].bool_param = value
        assert b"".join(messages.encode(response)) == expected.SerializeToString()
