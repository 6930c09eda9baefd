"""Which requests the front ends parse only once."""

import json
import types
from typing import Any

import numpy as np
import pytest

from perfkit.errors import ProtocolError
from perfkit.protocol import protobuf, rest, v2_pb2
from perfkit.protocol.grpc_call import Status
from server_stub.grpc.calls import StatusError
from server_stub.grpc.front_end import GrpcFrontEnd
from server_stub.http.inference import HttpInference, RequestHead
from server_stub.log import Log
from server_stub.options import Options
from server_stub.repository.sources import open_repository
from server_stub.service import Service
from server_stub.settings import Settings
from server_stub.shared_memory.regions import SharedMemoryRegions
from server_stub.tracing.tracer import Tracer


@pytest.fixture(scope="module")
def service():
    repository = open_repository(Options(models=("simple", "identity_fp32", "repeat_int32")), 1)
    repository.load()
    yield Service(repository, SharedMemoryRegions(is_allowed=False), Log(Settings()))
    repository.close()


@pytest.fixture
def parsed(monkeypatch):
    """What is parsed as a request, in both protocols."""
    seen = []

    def count(module, name):
        parse = getattr(module, name)

        def counted(*arguments):
            seen.append(name)
            return parse(*arguments)

        monkeypatch.setattr(module, name, counted)

    count(protobuf, "parse_infer_request")
    count(rest, "decode_infer_request")
    return seen


def over_grpc(service):
    """A function that answers requests of one front end."""
    infer: Any = GrpcFrontEnd(service).methods.unary[protobuf.method_path("ModelInfer")]

    async def answer(shape, values, **typed):
        inputs = [{"name": name, "datatype": "INT32", "shape": shape, **typed} for name in ("INPUT0", "INPUT1")]
        raw = [] if typed else [values.tobytes()] * 2
        message = v2_pb2.ModelInferRequest(model_name="simple", inputs=inputs, raw_input_contents=raw)
        pieces = await infer(message.SerializeToString(), types.SimpleNamespace(metadata={}))
        return v2_pb2.ModelInferResponse.FromString(b"".join(pieces)).raw_output_contents[0]

    return answer


def over_http(service):
    front = HttpInference(service)

    async def answer(shape, values):
        inputs = [
            {"name": name, "datatype": "INT32", "shape": shape, "parameters": {"binary_data_size": values.nbytes}}
            for name in ("INPUT0", "INPUT1")
        ]
        head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
        response = await front.respond("simple", "", head + values.tobytes() * 2, 0, str(len(head)))
        return bytes(response.body[1])

    return answer


@pytest.mark.parametrize("over", [over_grpc, over_http])
async def test_a_request_is_parsed_again_until_its_model_has_answered_one_like_it(service, parsed, over):
    answer = over(service)
    for times in (1, 2, 3):
        with pytest.raises((ProtocolError, StatusError), match="unexpected shape for input 'INPUT0'"):
            await answer([1, 15], np.zeros(15, np.int32))
        assert len(parsed) == times, "what does not fit the model is not remembered"
    parsed.clear()
    for number in range(3):
        values = np.full(16, number, np.int32)
        assert await answer([1, 16], values) == (2 * values).tobytes()
    assert len(parsed) == 1


async def test_typed_contents_are_parsed_each_time(service, parsed):
    answer = over_grpc(service)
    for number in range(3):
        values = np.full(16, number, np.int32)
        assert await answer([1, 16], values, contents={"int_contents": values.tolist()}) == (2 * values).tobytes()
    assert len(parsed) == 3


def infer_message(values, **members):
    inputs = [{"name": name, "datatype": "INT32", "shape": [1, 16]} for name in ("INPUT0", "INPUT1")]
    return v2_pb2.ModelInferRequest(
        model_name="simple", inputs=inputs, raw_input_contents=[values.tobytes()] * 2, **members
    ).SerializeToString()


async def test_a_message_like_an_answered_one_is_answered_at_once_as_the_method_answers_it(service):
    front = GrpcFrontEnd(service)
    path, values = protobuf.method_path("ModelInfer"), np.arange(16, dtype=np.int32)
    infer, at_once = front.methods.unary[path], front.methods.at_once[path]
    call: Any = types.SimpleNamespace(metadata={})
    message, other = infer_message(values, id="7"), infer_message(values + 1, id="7")

    def executed():
        return service.repository.find("simple").statistics()["execution_count"]

    assert at_once(message) is None
    expected = b"".join(await infer(other, call))
    before = executed()
    await infer(message, call)
    assert [at_once(infer_message(values, id="77")), at_once(message[:-1])] == [None, None]
    for times in (2, 3, 4):
        answer = at_once(other)
        assert isinstance(answer, list)
        assert executed() == before + times
        assert b"".join(answer) == expected


@pytest.mark.parametrize("observed", ["log", "trace"])
async def test_what_is_logged_or_traced_is_not_answered_at_once(service, observed):
    service = Service(service.repository, service.regions, Log(Settings(), write=lambda _: None), tracer=Tracer())
    front = GrpcFrontEnd(service)
    path, message = protobuf.method_path("ModelInfer"), infer_message(np.arange(16, dtype=np.int32))
    call: Any = types.SimpleNamespace(metadata={})
    await front.methods.unary[path](message, call)
    assert front.methods.at_once[path](message) is not None
    if observed == "log":
        service.log.settings.set_log({"log_verbose_level": 1})
    else:
        service.tracer.settings.is_on = True
    assert front.methods.at_once[path](message) is None


async def test_a_model_at_its_limit_refuses_at_once_in_the_same_words(service):
    front = GrpcFrontEnd(service)
    path, message = protobuf.method_path("ModelInfer"), infer_message(np.arange(16, dtype=np.int32))
    call: Any = types.SimpleNamespace(metadata={})
    await front.methods.unary[path](message, call)
    in_flight = service.repository.find("simple").in_flight
    maximum, in_flight.maximum = in_flight.maximum, 0
    try:
        refusal = front.methods.at_once[path](message)
        with pytest.raises(StatusError) as error:
            await front.methods.unary[path](message, call)
    finally:
        in_flight.maximum = maximum
    assert isinstance(refusal, StatusError)
    assert (refusal.status, str(refusal)) == (error.value.status, str(error.value))


async def test_a_known_message_to_a_model_that_has_been_unloaded_is_refused_at_once_in_the_same_words():
    repository = open_repository(Options(models=("simple",), is_explicit=True), 1)
    repository.load()
    front = GrpcFrontEnd(Service(repository, SharedMemoryRegions(is_allowed=False), Log(Settings(), write=lambda _: None)))
    path, message = protobuf.method_path("ModelInfer"), infer_message(np.arange(16, dtype=np.int32))
    call: Any = types.SimpleNamespace(metadata={})
    await front.methods.unary[path](message, call)
    await repository.unload_model("simple")
    refusal = front.methods.at_once[path](message)
    assert isinstance(refusal, StatusError)
    assert (refusal.status, str(refusal)) == (Status.NOT_FOUND, "Request for unknown model: 'simple' has no available versions")
    repository.close()


def http_request(values, header_length=None, **members):
    inputs = [
        {"name": name, "datatype": "INT32", "shape": [1, 16], "parameters": {"binary_data_size": values.nbytes}}
        for name in ("INPUT0", "INPUT1")
    ]
    json_part = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}, **members}).encode()
    body = json_part + values.tobytes() * 2
    return RequestHead("simple", "", len(body), str(len(json_part)) if header_length is None else header_length), body


async def test_a_body_like_an_answered_one_is_answered_at_once_as_any_other(service):
    front, values = HttpInference(service), np.arange(16, dtype=np.int32)

    def executed():
        return service.repository.find("simple").statistics()["execution_count"]

    assert front.answer_at_once(*http_request(values, id="7")) is None
    before = executed()
    await front.respond_to(*http_request(values, id="7"))
    for request in (
        http_request(values, id="77"),
        http_request(values, "x", id="7"),
        http_request(values, "0", id="7"),
        http_request(values, "9999", id="7"),
        (http_request(values, id="7")[0], http_request(values, id="7")[1][:-1]),
        (http_request(values, id="7")[0]._replace(header_length=None), http_request(values, id="7")[1]),
        (http_request(values, id="7")[0]._replace(model="nope"), http_request(values, id="7")[1]),
    ):
        assert front.answer_at_once(*request) is None
    usual = await front.respond_to(*http_request(values + 1, id="7"))
    for times in (3, 4, 5):
        answer = front.answer_at_once(*http_request(values + 1, id="7"))
        assert answer is not None
        assert executed() == before + times
        assert answer._replace(body=[b"".join(answer.body)]) == usual._replace(body=[b"".join(usual.body)])


@pytest.mark.parametrize(
    "members",
    [
        {"parameters": {"binary_data_output": False}},
        {"outputs": [{"name": "OUTPUT1", "parameters": {"binary_data": True}}, {"name": "OUTPUT0", "parameters": {"binary_data": False}}]},
        {"outputs": [{"name": "OUTPUT1", "parameters": {"binary_data": True}}]},
        {"outputs": [{"name": "OUTPUT0", "parameters": {"classification": 2}}]},
    ],
    ids=["JSON", "JSON and binary", "one output", "classes"],
)
async def test_forms_of_outputs_are_the_same_at_once(service, members):
    front = HttpInference(service)
    await front.respond_to(*http_request(np.arange(16, dtype=np.int32), **members))
    for number in range(4):
        values = np.arange(16, dtype=np.int32) * number
        usual, answer = await front.respond_to(*http_request(values, **members)), front.answer_at_once(*http_request(values, **members))
        assert answer is not None
        assert answer._replace(body=[b"".join(answer.body)]) == usual._replace(body=[b"".join(usual.body)])


@pytest.mark.parametrize("observed", ["log", "trace", "regions"])
async def test_a_body_is_not_answered_at_once_if_it_is_logged_or_traced_or_may_be_in_shared_memory(service, observed, tmp_path):
    service = Service(
        service.repository, SharedMemoryRegions(tmp_path, is_allowed=True), Log(Settings(), write=lambda _: None), tracer=Tracer()
    )
    front, request = HttpInference(service), http_request(np.arange(16, dtype=np.int32))
    await front.respond_to(*request)
    assert front.answer_at_once(*request) is not None
    if observed == "log":
        service.log.settings.set_log({"log_verbose_level": 1})
    elif observed == "trace":
        service.tracer.settings.is_on = True
    else:
        (tmp_path / "region").write_bytes(bytes(4))
        service.regions.register("r", "/region", 0, 4)
    assert front.answer_at_once(*request) is None


async def test_a_model_at_its_limit_refuses_a_body_at_once_in_the_same_words(service):
    front, request = HttpInference(service), http_request(np.arange(16, dtype=np.int32))
    await front.respond_to(*request)
    in_flight = service.repository.find("simple").in_flight
    maximum, in_flight.maximum = in_flight.maximum, 0
    try:
        answers = front.answer_at_once(*request), await front.respond_to(*request)
    finally:
        in_flight.maximum = maximum
    assert answers[0] == answers[1]
    assert answers[1].status == 503
