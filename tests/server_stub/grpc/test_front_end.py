"""The gRPC front end: rows G1 to G5 and G8 of the conformance checklist, and tritonclient."""

from typing import Any

import grpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as triton

FIRST, SECOND = np.arange(16, dtype=np.int32), np.full(16, 10, np.int32)


@pytest.fixture
def call(server):
    """Calls a method of the service by name, with tritonclient's messages."""
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc_port}", options=[("grpc.max_send_message_length", -1)]) as opened:
        channel: Any = opened  # grpcio's stubs do not type generic calls

        def invoke(method, message, reply=triton.ModelInferResponse):
            encoded = message if isinstance(message, bytes) else message.SerializeToString()
            return reply.FromString(channel.unary_unary(f"/inference.GRPCInferenceService/{method}")(encoded, timeout=30))

        yield invoke


def request(**members):
    message = triton.ModelInferRequest(model_name="simple", **members)
    for name in ("INPUT0", "INPUT1"):
        message.inputs.add(name=name, datatype="INT32", shape=[1, 16])
    return message


def test_G1_the_server_is_live_and_ready(triton_grpc):
    assert triton_grpc.is_server_live()
    assert triton_grpc.is_server_ready()
    assert triton_grpc.is_model_ready("simple")
    assert triton_grpc.is_model_ready("simple", "1")


def test_G2_raw_contents(call):
    response = call("ModelInfer", request(raw_input_contents=[FIRST.tobytes(), SECOND.tobytes()], id="42"))
    assert (response.model_name, response.model_version, response.id) == ("simple", "1", "42")
    assert [(one.name, one.datatype, list(one.shape)) for one in response.outputs] == [
        ("OUTPUT0", "INT32", [1, 16]),
        ("OUTPUT1", "INT32", [1, 16]),
    ]
    assert list(response.raw_output_contents) == [(FIRST + SECOND).tobytes(), (FIRST - SECOND).tobytes()]


def test_G3_typed_contents_get_raw_outputs(call):
    message = request()
    for one, values in zip(message.inputs, (FIRST, SECOND), strict=True):
        one.contents.int_contents.extend(values.tolist())
    response = call("ModelInfer", message)
    assert list(response.raw_output_contents) == [(FIRST + SECOND).tobytes(), (FIRST - SECOND).tobytes()]


def rejection(call, method, message):
    with pytest.raises(grpc.RpcError) as error:
        call(method, message)
    assert isinstance(error.value, grpc.Call)
    return error.value.code(), error.value.details()


def test_G4_raw_and_typed_contents_exclude_each_other(call):
    message = request(raw_input_contents=[FIRST.tobytes(), SECOND.tobytes()])
    message.inputs[0].contents.int_contents.extend(FIRST.tolist())
    assert rejection(call, "ModelInfer", message)[0] is grpc.StatusCode.INVALID_ARGUMENT


def test_G5_an_unknown_model(call):
    expected = grpc.StatusCode.NOT_FOUND, "Request for unknown model: 'nope' is not found"
    assert rejection(call, "ModelInfer", triton.ModelInferRequest(model_name="nope")) == expected
    assert rejection(call, "ModelReady", triton.ModelReadyRequest(name="nope")) == expected
    assert rejection(call, "ModelMetadata", triton.ModelMetadataRequest(name="nope")) == expected
    assert rejection(call, "ModelConfig", triton.ModelConfigRequest(name="nope")) == expected
    code, text = rejection(call, "ModelStatistics", triton.ModelStatisticsRequest(name="nope"))
    assert (code, text) == (grpc.StatusCode.INVALID_ARGUMENT, "requested model 'nope' is not available")


def test_G8_a_unary_call_may_request_an_empty_final_response(call):
    message = request(raw_input_contents=[FIRST.tobytes(), SECOND.tobytes()])
    message.parameters["triton_enable_empty_final_response"].bool_param = True
    assert len(call("ModelInfer", message).raw_output_contents) == 2
    message.parameters["triton_other"].bool_param = True
    code, text = rejection(call, "ModelInfer", message)
    assert (code, "are reserved for Triton usage" in text) == (grpc.StatusCode.INVALID_ARGUMENT, True)


def test_contents_after_the_last_input_are_ignored(call):
    contents = [FIRST.tobytes(), SECOND.tobytes(), b"more"]
    assert len(call("ModelInfer", request(raw_input_contents=contents)).raw_output_contents) == 2


@pytest.mark.parametrize(("version", "code"), [("9", grpc.StatusCode.NOT_FOUND), ("x", grpc.StatusCode.INVALID_ARGUMENT)])
def test_an_unknown_version(call, version, code):
    assert rejection(call, "ModelReady", triton.ModelReadyRequest(name="simple", version=version))[0] is code


def test_a_request_that_does_not_fit_the_model(call):
    code, text = rejection(call, "ModelInfer", request(raw_input_contents=[FIRST.tobytes(), SECOND[:8].tobytes()]))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "input byte size mismatch for input 'INPUT1' for model 'simple'. Expected 64, got 32" in text


def test_bytes_that_are_not_a_message_are_an_internal_error(call):
    for method in ("ModelInfer", "ModelReady"):
        assert rejection(call, method, b"\xff\xff")[0] is grpc.StatusCode.INTERNAL


def test_an_unknown_method_is_unimplemented(call):
    assert rejection(call, "ModelThink", b"")[0] is grpc.StatusCode.UNIMPLEMENTED


def test_metadata_is_the_same_as_over_http(triton_grpc, triton_http):
    for model in ("simple", "densenet_onnx"):
        over_grpc = triton_grpc.get_model_metadata(model, as_json=True)
        over_http = triton_http.get_model_metadata(model)
        for one in over_grpc["inputs"] + over_grpc["outputs"]:
            one["shape"] = [int(size) for size in one["shape"]]  # protobuf's JSON has int64 as strings
        assert over_grpc == over_http
    server = triton_grpc.get_server_metadata()
    assert (server.name, list(server.extensions)) == ("triton", triton_http.get_server_metadata()["extensions"])


def test_the_config_of_densenet(triton_grpc):
    config = triton_grpc.get_model_config("densenet_onnx").config
    (given,) = config.input
    assert (config.name, config.platform, config.max_batch_size) == ("densenet_onnx", "onnxruntime_onnx", 0)
    assert (given.name, list(given.dims), list(given.reshape.shape)) == ("data_0", [3, 224, 224], [1, 3, 224, 224])
    assert (given.format, given.data_type) == (2, 11)  # FORMAT_NCHW, TYPE_FP32 in Triton's model_config.proto
