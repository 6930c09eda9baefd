"""What is seen of every answer without decoding it, on the bytes that servers write."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.api_v2.client import make_client
from perfkit.clock import ManualClock
from perfkit.protocol import protobuf
from perfkit.protocol.message import InferRequest, InferResponse, ModelMetadata, TensorMetadata
from perfkit.protocol.tensor import Datatype, tensor_from_array
from perfkit.scenario.workload import Check
from perfkit.target.address import Address
from perfkit.transport.base import Outcome, Reply
from perfkit.transport.options import StreamOptions, TransportOptions
from perfkit.transport.streamed_answer import StreamedAnswer
from perfkit.workers.answer_check import AnswerCheck
from perfkit.workload.expectation import Expectation

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


def make_check(tmp_path, protocol, model, *, share=0.0, stream=None, is_decoupled=False, has_one_response=False):
    metadata = ModelMetadata(model, ("1",), "", (), (TensorMetadata("o", "FP32", (1,)),))
    expectation = Expectation.of((InferRequest(model, ()),), metadata, Check(), None, tmp_path)
    if stream and protocol == "http":
        expectation = expectation.of_events(is_decoupled=is_decoupled)
    expectation.has_one_response = has_one_response
    clock, options = ManualClock(), TransportOptions(timeout_ns=10**9, stream=stream)

    async def make():
        return make_client(Address(protocol, "127.0.0.1", 1), options, clock)

    client = clock.run(make())
    decoded, decode = [], client.decode

    def count(reply):
        decoded.append(reply)
        return decode(reply)

    client.decode = count
    return AnswerCheck(client, expectation, share=share, at_most_per_s=1e9), decoded


def document(model, **others):
    return {"model_name": model, "model_version": "1", "outputs": [{"name": "o", "datatype": "FP32", "shape": [1], "data": [1]}], **others}


def http_answer(body, *, splits=()):
    whole = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    ends = [0, *sorted({at % len(whole) for at in splits} - {0}), len(whole)]
    return [whole[begin:end] for begin, end in itertools.pairwise(ends)]


def grpc_answer(model, output="o"):
    outputs = (tensor_from_array(output, Datatype.FP32, np.ones(1, np.float32)),)
    message = b"".join(map(bytes, protobuf.encode_infer_response(InferResponse(model, "1", outputs))))
    return None, [b"\x00" + len(message).to_bytes(4) + message]


def judged(check, payload):
    reply = Reply(Outcome.OK, 0, 1, payload)
    assert not check(reply), "it is no part of the sample"
    return reply.outcome, reply.error


@given(
    names=st.tuples(NAMES, NAMES).filter(lambda pair: pair[0] != pair[1]),
    order=st.permutations(["model_name", "model_version", "outputs", "id"]),
    separators=st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", " :\t")]),
    is_ascii=st.booleans(),
    splits=st.lists(st.integers(1, 400), max_size=2),
)
def test_an_answer_of_another_model_is_found_however_its_json_is_written(tmp_path_factory, names, order, separators, is_ascii, splits):
    check, decoded = make_check(tmp_path_factory.getbasetemp(), "http", names[0])

    def answer(model, **others):
        members = document(model, id="7")
        written = {name: members[name] for name in order} | others
        return http_answer(json.dumps(written, separators=separators, ensure_ascii=is_ascii).encode(), splits=splits)

    for _ in range(3):
        assert judged(check, answer(names[0])) == (Outcome.OK, "")
    assert len(decoded) == 1, "the first sound answer teaches what the others look like"
    outcome, error = judged(check, answer(names[1]))
    assert (outcome, error) == (Outcome.INVALID_OUTPUT, f"the answer is of the model '{names[1]}', where '{names[0]}' was asked")
    outcome, error = judged(check, answer(names[0], error="out of memory"))
    assert (outcome, error) == (Outcome.INVALID_OUTPUT, "the answer is broken: it holds an error: out of memory")
    assert judged(check, http_answer(b'{"error":{"code":7}}')) == (
        Outcome.INVALID_OUTPUT,
        'the answer is broken: it holds an error: {"code": 7}',
    )
    assert judged(check, answer(names[0])) == (Outcome.OK, "")


@given(names=st.tuples(NAMES, NAMES).filter(lambda pair: pair[0] != pair[1]))
def test_an_answer_of_another_model_is_found_over_grpc(tmp_path_factory, names):
    check, decoded = make_check(tmp_path_factory.getbasetemp(), "grpc", names[0])
    for _ in range(3):
        assert judged(check, grpc_answer(names[0], names[0])) == (Outcome.OK, "")
    assert len(decoded) == 1
    expected = (Outcome.INVALID_OUTPUT, f"the answer is of the model '{names[1]}', where '{names[0]}' was asked")
    assert judged(check, grpc_answer(names[1], names[0])) == expected, "an output has the name of the model that was asked"


def test_a_server_that_names_no_model_or_compresses_is_left_to_the_sample(tmp_path):
    check, decoded = make_check(tmp_path, "http", "m")
    nameless = {name: value for name, value in document("m").items() if name != "model_name"}
    for _ in range(3):
        assert judged(check, http_answer(json.dumps(nameless).encode())) == (Outcome.OK, "")
    assert len(decoded) == 1
    assert judged(check, http_answer(b'{"error":"oops"}'))[0] is Outcome.INVALID_OUTPUT


def test_an_output_named_error_is_no_error(tmp_path):
    check, decoded = make_check(tmp_path, "http", "m")
    body = json.dumps({**document("m"), "outputs": [{"name": "error", "datatype": "FP32", "shape": [1], "data": [1]}]}).encode()
    for _ in range(3):
        assert judged(check, http_answer(body)) == (Outcome.OK, "")
    assert len(decoded) == 1


@pytest.mark.parametrize("first_read", [110, 3000])
def test_of_a_large_answer_only_the_first_bytes_are_read_and_an_error_is_found_in_them(tmp_path, first_read):
    check, _ = make_check(tmp_path, "http", "m")
    client = check._client  # its transport is not connected

    def answer(size, **others):
        return http_answer(json.dumps({**document("m"), **others, "pad": "x" * size}).encode(), splits=[first_read, 60_000])

    start = client.transport.received(Reply(Outcome.OK, 0, 1, payload := answer(90_000)))
    assert len(start) == (first_read if first_read >= 2048 else first_read + 2 * 2048)
    assert b"".join(payload).startswith(start[: first_read + 2048])
    for _ in range(3):
        assert judged(check, answer(90_000)) == (Outcome.OK, "")
    assert judged(check, answer(90_001, error="oops")) == (Outcome.INVALID_OUTPUT, "the answer is broken: it holds an error: oops")


def test_answers_that_all_look_different_are_left_to_the_sample_in_the_end(tmp_path):
    """Two replicas write the name in two ways: to decode every second answer would slow the load down."""
    check, decoded = make_check(tmp_path, "http", "m")
    for number in range(1000):
        body = json.dumps(document("m"), separators=((",", ":") if number % 2 else (", ", ": "))).encode()
        assert judged(check, http_answer(body)) == (Outcome.OK, "")
    assert len(decoded) == 101


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_the_first_response_of_a_stream_is_of_the_model_that_was_asked(tmp_path, protocol):
    check, _ = make_check(tmp_path, protocol, "m", stream=StreamOptions())

    def streamed(model):
        answer = StreamedAnswer()
        if protocol == "http":
            answer.add(json.dumps({"model_name": model, "text_output": "a"}).encode(), 20, 1)
        else:
            message = grpc_answer(model, output="m")[1][0][5:]
            answer.add(b"\x12" + bytes([len(message)]) + message, len(message), 1)
        return answer

    for _ in range(2):
        assert judged(check, streamed("m")) == (Outcome.OK, "")
    assert judged(check, streamed("other")) == (Outcome.INVALID_OUTPUT, "the answer is of the model 'other', where 'm' was asked")


@pytest.mark.parametrize(("protocol", "is_decoupled", "is_wrong"), [("http", False, True), ("http", True, False), ("grpc", False, False)])
def test_a_stream_of_events_without_one_is_wrong_unless_the_model_is_decoupled(tmp_path, protocol, is_decoupled, is_wrong):
    """Over HTTP a server has no way to say that there is no response; over gRPC the transport knows that it did."""
    check, _ = make_check(tmp_path, protocol, "m", stream=StreamOptions(), is_decoupled=is_decoupled)
    fault = (Outcome.INVALID_OUTPUT, "the stream ended without a response, and without saying that there is none")
    assert judged(check, None) == (fault if is_wrong else (Outcome.OK, ""))


@pytest.mark.parametrize("has_one_response", [True, False])
@pytest.mark.parametrize("responses", [1, 2, 1000])
def test_a_streamed_request_with_several_responses_is_wrong_where_the_configuration_says_one(tmp_path, has_one_response, responses):
    check, _ = make_check(tmp_path, "http", "m", stream=StreamOptions(), has_one_response=has_one_response)
    answer = StreamedAnswer()
    for number in range(responses):
        answer.add(json.dumps({"model_name": "m", "text_output": "a"}).encode(), 20, number)
    reply = answer.complete(0, responses, "")
    assert not check(reply)
    fault = f"the request had {responses:,} responses, where the model's configuration says one"
    is_wrong = has_one_response and responses > 1
    assert (reply.outcome, reply.error) == ((Outcome.INVALID_OUTPUT, fault) if is_wrong else (Outcome.OK, ""))
