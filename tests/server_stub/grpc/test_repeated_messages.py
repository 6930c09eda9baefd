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
from server_stub.inference.layouts import whole_request
from server_stub.inference.repetition import MAX_REMEMBERED

# model_name "m", an input "a" INT8 of shape [2], one "b" INT8 of shape [1], and their data
HEAD = b"\x0a\x01m" + b"\x2a\x0c\x0a\x01a\x12\x04INT8\x1a\x01\x02" + b"\x2a\x0c\x0a\x01b\x12\x04INT8\x1a\x01\x01"


def message(first, second, head=HEAD):
    return head + b"\x3a\x02" + first + b"\x3a\x01" + second


def read(messages, encoded):
    """The request in a message, and whether it was known; it is remembered, as the front end does it once it has answered it."""
    known = messages.find(encoded)
    if known is None:
        request = protobuf.read_infer_request(protobuf.parse_infer_request(encoded))
        messages.add(encoded, request)
        return request, False
    return whole_request(known.request(encoded)), True


def named(model):
    """The message of another model whose name is that long."""
    return message(b"xy", b"z", HEAD.replace(b"\x01m", bytes([len(model)]) + model))


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


def test_of_messages_that_all_differ_one_in_a_hundred_displaces_the_oldest_of_its_length():
    messages, known = RepeatedMessages(), [named(b"known-%d" % number) for number in range(4)]
    others = [named(b"other%02d" % number) for number in range(100)]
    assert {len(one) for one in (*known, *others)} == {len(known[0])}
    for one in known:
        read(messages, one)
    assert not any(read(messages, one)[1] for one in others[:-1])
    assert [messages.find(one) is not None for one in (*known, *others)] == [True] * 4 + [False] * 100
    read(messages, others[-1])
    assert [messages.find(one) is not None for one in (*known, *others)] == [False] + [True] * 3 + [False] * 99 + [True]
    assert read(messages, known[0]) == (protobuf.decode_infer_request(known[0]), False), "it is read like a new one"


def test_a_message_that_is_added_twice_takes_one_place():
    """Two calls may read it before either is answered."""
    messages, known = RepeatedMessages(), [named(b"known-%d" % number) for number in range(4)]
    for one in known:
        for _ in range(4):
            messages.add(one, protobuf.decode_infer_request(one))
    assert all(messages.find(one) is not None for one in known)


def test_once_a_thousand_messages_are_known_they_are_forgotten():
    messages = RepeatedMessages()
    inputs = (Tensor("a", Datatype.INT8, (1,), b"x"),)
    known = [
        protobuf.encode_infer_request(InferRequest(f"{number:04}", inputs, id="i" * (number // 4)))  # four of each length
        for number in range(MAX_REMEMBERED)
    ]
    further = protobuf.encode_infer_request(InferRequest("m", inputs, id="i" * 300))
    for one in known:
        read(messages, one)
    assert all(messages.find(one) is not None for one in known)
    read(messages, further)
    assert not any(messages.find(one) is not None for one in known)
    assert messages.find(further) is not None


def test_what_is_remembered_of_a_message_does_not_hold_its_data():
    messages, inputs = RepeatedMessages(), (Tensor("a", Datatype.INT8, (100_000,), bytes(100_000)),)
    memory = bytearray(protobuf.encode_infer_request(InferRequest("m", inputs)))
    read(messages, memoryview(memory))
    known = messages.find(bytes(memory))
    assert known is not None
    assert [tensor.raw for tensor in known.template.request.inputs] == [b""]
    memory.append(0)  # raises BufferError while anything holds a view


@pytest.mark.parametrize(("field_count", "is_known"), [(5, True), (500, False)])
def test_a_message_of_many_fields_is_not_remembered(field_count, is_known):
    """Field 15 is none of a request; there is little time for such a message, since it may have millions of them."""
    messages, encoded = RepeatedMessages(), message(b"xy", b"z", HEAD + b"\x78\x00" * field_count)
    read(messages, encoded)
    assert read(messages, encoded) == (protobuf.decode_infer_request(encoded), is_known)


@pytest.mark.parametrize(("output_count", "is_known"), [(14, True), (15, False)])
def test_a_message_of_many_tensors_is_not_remembered(output_count, is_known):
    messages, encoded = RepeatedMessages(), message(b"xy", b"z", HEAD + b"\x32\x00" * output_count)
    read(messages, encoded)
    request, was_known = read(messages, encoded)
    assert (request.outputs, was_known) == ((RequestedOutput("", binary=True),) * output_count, is_known)


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
