"""ModelStreamInfer through tritonclient and grpcio: rows G9 to G12 of the conformance checklist."""

import asyncio
import queue
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.grpc.aio
from tritonclient.grpc import InferInput
from tritonclient.grpc import service_pb2 as triton

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol.message import InferRequest, InferResponse
from perfkit.protocol.tensor import Datatype, tensor_from_array
from server_stub.grpc.stream import Stream
from server_stub.inference.definition import ModelDefinition
from server_stub.log import Log
from server_stub.models.repeat import RepeatModel
from server_stub.settings import Settings
from tests.conditions import wait_until


@pytest.fixture
def stream(server):
    """A stream of tritonclient, and a function that returns the next result."""
    came: queue.Queue[Any] = queue.Queue()
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
        client.start_stream(lambda result, error: came.put(error or result))
        yield client, lambda: came.get(timeout=30)
        client.stop_stream()
    assert came.empty()


def given(name, values, datatype):
    array = np.array(values, {"INT32": np.int32, "UINT32": np.uint32}[datatype])
    return InferInput(name, list(array.shape), datatype).set_data_from_numpy(array)


def repeat_inputs(values):
    return [given("IN", values, "INT32"), given("DELAY", [0] * len(values), "UINT32"), given("WAIT", [0], "UINT32")]


def simple_inputs(value=1):
    return [given(name, [[value] * 16], "INT32") for name in ("INPUT0", "INPUT1")]


def final(result):
    return result.get_response().parameters["triton_final_response"].bool_param


def test_G9_an_error_is_a_message_and_the_stream_continues(stream):
    client, receive = stream
    client.async_stream_infer("nope", simple_inputs(), request_id="1")
    client.async_stream_infer("simple", simple_inputs()[:1], request_id="2")
    client.async_stream_infer("simple", simple_inputs(3), request_id="3")
    assert str(receive()) == "Request for unknown model: 'nope' is not found"
    assert "[request id: 2] expected 2 inputs but got 1 inputs for model 'simple'" in str(receive())
    result = receive()
    assert (result.get_response().id, final(result), result.as_numpy("OUTPUT0")[0, 0]) == ("3", True, 6)


def test_responses_of_ordinary_models_keep_the_order_of_the_requests(stream):
    client, receive = stream
    for number in range(100):
        model, inputs = ("simple", simple_inputs(number)) if number % 2 else ("simple_sequence", [given("INPUT", [[number]], "INT32")])
        client.async_stream_infer(
            model, inputs, request_id=str(number), sequence_id=90_001 + number, sequence_start=True, sequence_end=True
        )
    assert [receive().get_response().id for _ in range(100)] == [str(number) for number in range(100)]


def test_G10_repeat_sends_one_response_per_value(stream):
    client, receive = stream
    values = list(range(100, 110))
    client.async_stream_infer("repeat_int32", repeat_inputs(values), request_id="r")
    client.async_stream_infer("simple", simple_inputs())
    results = [receive() for _ in range(11)]
    replies = [result for result in results if result.get_response().model_name == "repeat_int32"]
    assert [(reply.as_numpy("OUT").item(), reply.as_numpy("IDX").item(), final(reply)) for reply in replies] == [
        (value, index, False) for index, value in enumerate(values)
    ]


@pytest.mark.parametrize("count", [10, 0])
def test_G11_an_empty_final_response_is_sent_on_request(stream, count):
    client, receive = stream
    client.async_stream_infer("repeat_int32", repeat_inputs([7] * count), request_id="r", enable_empty_final_response=True)
    results = [receive() for _ in range(count + 1)]
    assert [final(result) for result in results] == [False] * count + [True]
    last = results[-1].get_response()
    assert (last.model_name, last.model_version, last.id, len(last.outputs)) == ("repeat_int32", "", "r", 0)


def test_the_single_response_of_an_ordinary_model_is_final(stream):
    client, receive = stream
    client.async_stream_infer("simple", simple_inputs(), enable_empty_final_response=True)
    client.async_stream_infer("simple", simple_inputs(), request_id="2")
    assert [receive().get_response().id, receive().get_response().id] == ["", "2"]


def test_G12_a_unary_call_to_a_decoupled_model_is_rejected(triton_grpc, wire):
    with pytest.raises(tritonclient.grpc.InferenceServerException, match="ModelInfer RPC doesn't support models with decoupled") as error:
        triton_grpc.infer("repeat_int32", repeat_inputs([1]))
    assert error.value.status() == "StatusCode.UNIMPLEMENTED"
    answer = wire.infer({"inputs": []}, model="repeat_int32")
    assert (answer.status, answer.json) == (501, {"error": "HTTP end point doesn't support models with decoupled transaction policy"})
    assert "Accept-Encoding" not in answer.headers
    assert wire.get("/v2/models/repeat_int32/config").json["model_transaction_policy"] == {"decoupled": True}


def test_the_asynchronous_client_can_stream(server):
    async def main():
        async def requests():
            yield {"model_name": "repeat_int32", "inputs": repeat_inputs([1, 2])}
            yield {
                "model_name": "simple_dyna_sequence",
                "inputs": [given("INPUT", [[5]], "INT32")],
                "sequence_id": 5,
                "sequence_start": True,
            }

        async with tritonclient.grpc.aio.InferenceServerClient(f"127.0.0.1:{server.grpc_port}") as client:
            return [result.get_response().model_name async for result, _ in client.stream_infer(requests())]

    assert sorted(asyncio.run(main())) == ["repeat_int32", "repeat_int32", "simple_dyna_sequence"]


def test_bytes_that_are_not_a_message_fail_one_request(server):
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as opened:
        channel: Any = opened
        good = triton.ModelInferRequest(model_name="nope", id="x").SerializeToString()
        first, second = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")(iter([b"\xff\xff", good]), timeout=30)
    assert "not a ModelInferRequest" in triton.ModelStreamInferResponse.FromString(first).error_message
    assert triton.ModelStreamInferResponse.FromString(second).infer_response.id == "x"


def test_a_disconnecting_client_cancels_only_its_own_requests(server, triton_grpc):
    def counted():
        return triton_grpc.get_inference_statistics("repeat_int32").model_stats[0].inference_stats.fail.count

    before = counted()
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}") as opened:
        channel: Any = opened
        message = triton.ModelInferRequest(model_name="repeat_int32")
        for one in repeat_inputs([1, 2]):
            tensor = one._get_tensor()
            message.inputs.append(tensor)
            message.raw_input_contents.append(one._get_content())
        message.raw_input_contents[1] = np.array([0, 2**31], np.uint32).tobytes()
        call = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")(iter([message.SerializeToString()]))
        next(call)  # the first response; the second takes weeks
        call.cancel()
    wait_until(lambda: counted() > before)


class Failing:
    """A model that accepts a request and then fails."""

    definition = ModelDefinition("m", "", "", 0, (), ())

    async def infer(self, request, arrived_ns, encode, trace=None):
        if request.id == "bad":
            raise ProtocolError("it broke", ErrorKind.INTERNAL)
        return encode(InferResponse("m", "1", (), request.id))


def serve(ids, *, ends_with_errors):
    written: list[triton.ModelStreamInferResponse] = []

    async def requests():
        for name in ids:
            yield triton.ModelInferRequest(model_name="m", id=name).SerializeToString()

    async def write(encoded):
        written.append(triton.ModelStreamInferResponse.FromString(b"".join(encoded)))

    def open_request(encoded):
        model: Any = Failing()
        return InferRequest("m", (), id=triton.ModelInferRequest.FromString(encoded).id), model, lambda response: response

    asyncio.run(Stream(open_request, write, Log(Settings()), ends_with_errors=ends_with_errors).serve(requests()))
    return written


def test_an_error_after_acceptance_is_a_final_response():
    bad, good = serve(["bad", "good"], ends_with_errors=False)
    assert (bad.error_message, bad.infer_response.id) == ("it broke", "bad")
    assert bad.infer_response.parameters["triton_final_response"].bool_param
    assert good.infer_response.id == "good"


def test_on_request_a_status_replaces_the_error_message():
    with pytest.raises(ProtocolError, match="it broke") as failure:
        serve(["bad"], ends_with_errors=True)
    assert failure.value.kind is ErrorKind.INTERNAL


def test_repeat_waits_for_its_delays():
    slept: list[float] = []

    async def sleep(seconds):
        slept.append(seconds)

    async def main():
        model = RepeatModel(sleep, now_ns=lambda: 0)
        inputs = [("IN", Datatype.INT32, [4, 5]), ("DELAY", Datatype.UINT32, [10, 20]), ("WAIT", Datatype.UINT32, [5])]
        request = InferRequest("repeat_int32", tuple(tensor_from_array(name, datatype, values) for name, datatype, values in inputs))
        count = len([response async for response in model.responses(request, 0)])
        return count, model.statistics()

    count, statistics = asyncio.run(main())
    assert (count, slept) == (2, [0.01, 0.02, 0.005])
    assert (statistics["execution_count"], statistics["inference_stats"]["success"]["count"]) == (1, 1)
