"""Messages of a stream cut anywhere, and what they say, against protobuf's own parser."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2

from perfkit.api_v2.grpc import decode_streamed_response, id_field, read_streamed_response, streamed_message
from perfkit.errors import ProtocolError
from perfkit.protocol.http2 import LimitError
from perfkit.protocol.message import InferRequest
from perfkit.transport.base import Outcome
from perfkit.transport.grpc.streaming_connection import MessageSplitter
from perfkit.transport.options import AnswerLimit
from perfkit.transport.streamed_answer import StreamedAnswer, StreamedResponse

LIMIT = 1 << 25


def framed(message, flag=0):
    return bytes((flag,)) + len(message).to_bytes(4, "big") + message


@given(st.lists(st.tuples(st.binary(max_size=40), st.integers(0, 1)), max_size=8), st.lists(st.integers(1, 9), min_size=1))
def test_messages_are_found_however_their_bytes_are_cut(messages, cuts):
    found = []
    splitter = MessageSplitter(AnswerLimit(LIMIT), lambda message, is_compressed: found.append((message, int(is_compressed))))
    data, place, index = b"".join(framed(*message) for message in messages), 0, 0
    while place < len(data):
        size = cuts[index % len(cuts)]
        splitter.append(data[place : place + size])
        place, index = place + size, index + 1
    assert found == messages
    assert len(splitter) == 0


def test_a_message_that_announces_more_than_the_limit_is_refused_at_once():
    splitter = MessageSplitter(AnswerLimit(1 << 20), lambda *_: pytest.fail("there is no message"))
    with pytest.raises(LimitError):
        splitter.append(b"\0" + (1 << 21).to_bytes(4, "big"))


def test_an_incomplete_message_is_known_to_be_one():
    splitter = MessageSplitter(AnswerLimit(LIMIT), lambda *_: None)
    splitter.append(framed(b"abc")[:-1])
    assert len(splitter) > 0


def message(*, error="", final=None, outputs=0, size=4, name="7"):
    made = service_pb2.ModelStreamInferResponse(error_message=error)
    made.infer_response.id = name
    for _ in range(outputs):
        made.infer_response.outputs.add(name="y", datatype="UINT8", shape=[size])
        made.infer_response.raw_output_contents.append(b"\x07" * size)
    if final is not None:
        made.infer_response.parameters["triton_final_response"].bool_param = final
    return made.SerializeToString()


@pytest.mark.parametrize("size", [4, 1 << 15, 1 << 17, 1 << 21])
@pytest.mark.parametrize("final", [None, False, True])
def test_a_response_of_any_size_says_the_same(size, final):
    encoded = message(final=final, outputs=2, size=size)
    assert read_streamed_response(encoded, LIMIT) == StreamedResponse("7", "", True, final)
    assert [bytes(output.raw) for output in decode_streamed_response(encoded, LIMIT).outputs] == [b"\x07" * size] * 2


def test_what_is_not_a_response():
    assert read_streamed_response(message(final=True), LIMIT) == StreamedResponse("7", "", False, True)
    assert read_streamed_response(message(final=False), LIMIT) == StreamedResponse("7", "", True, False), "outputs may be in no message"
    assert read_streamed_response(message(error="oops"), LIMIT) == StreamedResponse("7", "oops", False, None)
    assert read_streamed_response(message(error="oops", final=True), LIMIT) == StreamedResponse("7", "oops", False, True)


@pytest.mark.parametrize("broken", [b"\x12\xff", b"\x0a\x05abc", message(outputs=1, size=1 << 17)[:-9]])
def test_a_damaged_message_is_a_protocol_error(broken):
    with pytest.raises(ProtocolError):
        read_streamed_response(broken, LIMIT)


@given(st.text(max_size=300).filter(lambda text: text.isprintable()))
def test_an_id_before_a_message_is_its_id(name):
    encoded = id_field(name) + streamed_message(InferRequest("m", (), id="another"))
    parsed = service_pb2.ModelInferRequest.FromString(encoded)
    assert (parsed.id, parsed.model_name) == (name, "m")


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        (("m", ""), ""),
        (("", "m", "", "m"), ""),
        (("m", "", "n"), "the stream has responses of the models 'm' and 'n'"),
        (("", "m", "n"), "the stream has responses of the models 'm' and 'n'"),
    ],
)
def test_a_response_need_not_name_its_model_but_names_no_second_one(names, fault):
    answer = StreamedAnswer()
    for at_ns, name in enumerate(names):
        answer.add(b"response", 8, at_ns, name)
    reply = answer.complete(0, 9, "")
    assert (reply.outcome, reply.error) == ((Outcome.INVALID_OUTPUT, fault) if fault else (Outcome.OK, ""))
