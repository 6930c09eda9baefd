"""v2 over gRPC: literal bytes, and tritonclient's messages and descriptors on the other end of each."""

import contextlib
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, json_format
from google.protobuf.descriptor import Descriptor, EnumDescriptor, FieldDescriptor
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import InferInput, InferRequestedOutput, InferResult, model_config_pb2, service_pb2
from tritonclient.grpc._utils import _get_inference_request

import perfkit.protocol
from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol import protobuf, v2_pb2
from perfkit.protocol.message import ComposingModel, InferRequest, InferResponse, Parameter, RequestedOutput
from perfkit.protocol.statistics import DURATIONS
from perfkit.protocol.tensor import Datatype, Tensor, encode_bytes_elements
from tests.protocol.samples import ARRAYS, METADATA, our_tensor

SOURCES = pathlib.Path(perfkit.protocol.__file__).parent
INVALID, INTERNAL = ErrorKind.INVALID_ARGUMENT, ErrorKind.INTERNAL

REQUEST = InferRequest(
    "m", (Tensor("A", Datatype.INT8, (2,), b"\x01\xff"),), (RequestedOutput("X", 3, binary=True),), "1", "42", {"p": True}
)
REQUEST_BYTES = bytes.fromhex(
    "0a01 6d"  # 1 model_name "m"
    "1201 31"  # 2 model_version "1"
    "1a02 3432"  # 3 id "42"
    "2207 0a0170 1202 0801"  # 4 parameters {"p": {1 bool_param: true}}
    "2a0c 0a0141 1204494e5438 1a0102"  # 5 inputs {1 name "A", 2 datatype "INT8", 3 shape [2]}
    "3219 0a0158 1214 0a0e636c617373696669636174696f6e 1202 1003"  # 6 outputs {1 name "X", 2 {"classification": {2 int64_param: 3}}}
    "3a02 01ff"  # 7 raw_input_contents
)
RESPONSE = InferResponse("m", "1", (Tensor("X", Datatype.BOOL, (1, 1), b"\x01"),), "42", {"f": 0.5})
RESPONSE_BYTES = bytes.fromhex(
    "0a01 6d 1201 31 1a02 3432"
    "220e 0a0166 1209 21000000000000e03f"  # 4 parameters {"f": {4 double_param: 0.5}}
    "2a0d 0a0158 1204424f4f4c 1a020101"  # 5 outputs {name "X", datatype "BOOL", shape [1, 1]}
    "3201 01"  # 6 raw_output_contents
)


def test_a_request_is_these_bytes_in_both_directions():
    assert protobuf.encode_infer_request(REQUEST) == REQUEST_BYTES
    assert protobuf.decode_infer_request(REQUEST_BYTES) == REQUEST


def test_a_response_is_these_bytes_in_both_directions():
    assert b"".join(protobuf.encode_infer_response(RESPONSE)) == RESPONSE_BYTES
    assert protobuf.decode_infer_response(RESPONSE_BYTES) == RESPONSE


def test_an_empty_version_and_id_take_no_bytes():
    assert protobuf.encode_infer_request(InferRequest("m", ())) == b"\x0a\x01m"
    assert protobuf.decode_infer_request(b"\x0a\x01m") == InferRequest("m", ())


def test_our_service_has_the_calls_of_tritonclients_with_the_same_messages():
    theirs, ours = (
        {
            f"/{call.containing_service.full_name}/{name}": (
                call.input_type.full_name, call.output_type.full_name, call.client_streaming, call.server_streaming
            )
            for name, call in file.services_by_name["GRPCInferenceService"].methods_by_name.items()
        }
        for file in (service_pb2.DESCRIPTOR, v2_pb2.DESCRIPTOR)
    )  # fmt: skip
    assert ours == theirs
    assert protobuf.method_path("ModelInfer") in ours


# typed contents

TYPED = [
    ("BOOL", "bool_contents", [True, False], "01 00"),
    ("INT8", "int_contents", [-1, 127], "ff 7f"),
    ("INT16", "int_contents", [-2, 32767], "feff ff7f"),
    ("INT32", "int_contents", [-2, 2**31 - 1], "feffffff ffffff7f"),
    ("INT64", "int64_contents", [-2, 2**53 + 1], "feffffffffffffff 0100000000002000"),
    ("UINT8", "uint_contents", [1, 255], "01 ff"),
    ("UINT16", "uint_contents", [1, 65535], "0100 ffff"),
    ("UINT32", "uint_contents", [1, 2**32 - 1], "01000000 ffffffff"),
    ("UINT64", "uint64_contents", [1, 2**63 + 1], "0100000000000000 0100000000000080"),
    ("FP32", "fp32_contents", [1.5, -0.0], "0000c03f 00000080"),
    ("FP64", "fp64_contents", [0.1, -2.0], "9a9999999999b93f 00000000000000c0"),
    ("BYTES", "bytes_contents", [b"a\x00", b""], "02000000 6100 00000000"),
]


@pytest.mark.parametrize(("datatype", "field", "values", "raw"), TYPED)
def test_typed_contents_are_read_as_the_same_bytes(datatype, field, values, raw):
    expected = Tensor("A", Datatype[datatype], (1, 2), bytes.fromhex(raw))
    request = service_pb2.ModelInferRequest(model_name="m")
    getattr(request.inputs.add(name="A", datatype=datatype, shape=[1, 2]).contents, field).extend(values)
    assert protobuf.decode_infer_request(request.SerializeToString()).inputs == (expected,)
    response = service_pb2.ModelInferResponse(model_name="m")
    getattr(response.outputs.add(name="A", datatype=datatype, shape=[1, 2]).contents, field).extend(values)
    assert protobuf.decode_infer_response(response.SerializeToString()).outputs == (expected,)


@pytest.mark.parametrize(("datatype", "field", "values", "raw"), TYPED)
def test_plain_inputs_go_as_typed_contents(datatype, field, values, raw):
    tensor = Tensor("A", Datatype[datatype], (1, 2), bytes.fromhex(raw))
    encoded = protobuf.encode_infer_request(InferRequest("m", (tensor,), plain_inputs=frozenset({"A"})))
    theirs = service_pb2.ModelInferRequest.FromString(encoded)
    assert list(getattr(theirs.inputs[0].contents, field)) == values
    assert [name.name for name, _ in theirs.inputs[0].contents.ListFields()] == [field]
    assert not theirs.raw_input_contents
    assert protobuf.decode_infer_request(encoded).inputs == (tensor,)


def test_one_plain_input_makes_all_contents_typed():
    tensors = (Tensor("A", Datatype.INT8, (1,), b"\x01"), Tensor("B", Datatype.INT8, (0,), b""))
    theirs = service_pb2.ModelInferRequest.FromString(
        protobuf.encode_infer_request(InferRequest("m", tensors, plain_inputs=frozenset({"A"})))
    )
    assert [one.HasField("contents") for one in theirs.inputs] == [True, True]
    assert not theirs.raw_input_contents


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_a_half_float_cannot_go_as_typed_contents(datatype):
    request = InferRequest("m", (Tensor("A", Datatype[datatype], (1,), b"\x00\x00"),), plain_inputs=frozenset({"A"}))
    with pytest.raises(ProtocolError, match=f"^{datatype} has no typed contents: send input 'A' as raw_input_contents$"):
        protobuf.encode_infer_request(request)


@pytest.mark.parametrize("datatype", [name for name, _, _, _ in TYPED])
def test_empty_contents_are_an_empty_tensor(datatype):
    """Triton wants them there in a request; an answer may leave them out."""
    expected = (Tensor("A", Datatype[datatype], (0,), b""),)
    request = service_pb2.ModelInferRequest()
    request.inputs.add(name="A", datatype=datatype, shape=[0])
    assert refusal(protobuf.decode_infer_request, request)[0].startswith("unable to find data for input tensor 'A'")
    request.inputs[0].contents.SetInParent()
    assert protobuf.decode_infer_request(request.SerializeToString()).inputs == expected
    response = service_pb2.ModelInferResponse()
    response.outputs.add(name="A", datatype=datatype, shape=[0])
    assert protobuf.decode_infer_response(response.SerializeToString()).outputs == expected


def refusal(decode, message):
    with pytest.raises(ProtocolError) as refused:
        decode(message.SerializeToString())
    return str(refused.value), refused.value.kind


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_half_floats_have_no_typed_contents(datatype):
    request = service_pb2.ModelInferRequest()
    request.inputs.add(name="A", datatype=datatype, shape=[1]).contents.fp32_contents.append(1)
    text = f"unexpected explicit tensor data for input tensor 'A' for model '' of type 'FP32', expected datatype '{datatype}'"
    assert refusal(protobuf.decode_infer_request, request) == (text, INVALID)
    request.inputs[0].contents.Clear()
    request.inputs[0].contents.SetInParent()
    assert refusal(protobuf.decode_infer_request, request)[0] == f"{datatype} has no typed contents: send input 'A' as raw_input_contents"


def test_a_tensor_without_contents_or_with_those_of_another_field_is_refused():
    request = service_pb2.ModelInferRequest(model_name="m")
    request.inputs.add(name="A", datatype="INT32", shape=[1])
    text = "unable to find data for input tensor 'A' for model 'm' in request."
    assert refusal(protobuf.decode_infer_request, request) == (text, INVALID)
    request.inputs[0].contents.int64_contents.append(1)
    text = "unexpected explicit tensor data for input tensor 'A' for model 'm' of type 'INT64', expected datatype 'INT32'"
    assert refusal(protobuf.decode_infer_request, request) == (text, INVALID)


@pytest.mark.parametrize(
    ("key", "field", "value", "text"),
    [
        ("triton_x", "bool_param", True, "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following keys"),
        ("triton_enable_empty_final_response", "int64_param", 1, "invalid value type for 'triton_enable_empty_final_response' parameter, expected bool_param."),
        ("sequence_start", "int64_param", 1, "invalid value type for 'sequence_start' parameter, expected bool_param."),
        ("sequence_id", "double_param", 1.0, "invalid value type for 'sequence_id' parameter, expected int64_param or string_param."),
        ("priority", "string_param", "1", "invalid value type for 'priority' parameter, expected int64_param or uint64_param."),
        ("priority", "int64_param", -1, "invalid value for 'priority', expected value >= 0."),
        ("timeout", "uint64_param", 1, "invalid value type for 'timeout' parameter, expected int64_param."),
    ],
)  # fmt: skip
def test_a_parameter_of_the_wrong_type_is_refused_as_triton_refuses_it(key, field, value, text):
    request = service_pb2.ModelInferRequest()
    setattr(request.parameters[key], field, value)
    assert refusal(protobuf.decode_infer_request, request)[0].startswith(text)


def test_G8_the_key_that_the_cpp_client_always_sends_is_taken():
    request = service_pb2.ModelInferRequest()
    request.parameters["triton_enable_empty_final_response"].bool_param = True
    assert protobuf.decode_infer_request(request.SerializeToString()).parameters == {"triton_enable_empty_final_response": True}


@pytest.mark.parametrize(
    ("datatype", "field", "value"), [("INT8", "int_contents", 300), ("UINT8", "uint_contents", 256), ("INT16", "int_contents", -32769)]
)
def test_typed_contents_that_do_not_fit_are_refused(datatype, field, value):
    request = service_pb2.ModelInferRequest()
    getattr(request.inputs.add(name="A", datatype=datatype, shape=[1]).contents, field).append(value)
    assert refusal(protobuf.decode_infer_request, request) == (f"tensor 'A': some values do not fit {datatype}", INVALID)


def test_an_unknown_datatype_is_refused():
    for raw in ([], [b""]):
        request = service_pb2.ModelInferRequest(raw_input_contents=raw)
        request.inputs.add(name="A", datatype="STRING", shape=[0])
        text, kind = refusal(protobuf.decode_infer_request, request)
        assert text.startswith("invalid datatype for input A")
        assert kind is INVALID


def test_both_forms_at_once_are_refused():
    request = service_pb2.ModelInferRequest(raw_input_contents=[bytes(4), bytes(4)])
    request.inputs.add(name="A", datatype="INT32", shape=[1])
    request.inputs.add(name="B", datatype="INT32", shape=[1]).contents.int_contents.append(1)
    text, kind = refusal(protobuf.decode_infer_request, request)
    assert "contents field must not be specified when using raw_input_contents" in text
    assert kind is INVALID
    response = service_pb2.ModelInferResponse(raw_output_contents=[bytes(4)])
    response.outputs.add(name="X", datatype="INT32", shape=[1]).contents.int_contents.append(1)
    text, kind = refusal(protobuf.decode_infer_response, response)
    assert text == "contents field must not be specified when using raw_output_contents for 'X'"
    assert kind is INVALID


def test_empty_contents_beside_raw_ones_are_passed_over_in_answers_alone():
    """MLServer answers so."""
    response = service_pb2.ModelInferResponse(raw_output_contents=[b"a"])
    response.outputs.add(name="X", datatype="INT8", shape=[1]).contents.SetInParent()
    assert protobuf.decode_infer_response(response.SerializeToString()).outputs == (Tensor("X", Datatype.INT8, (1,), b"a"),)
    request = service_pb2.ModelInferRequest(raw_input_contents=[b"a"])
    request.inputs.add(name="A", datatype="INT8", shape=[1]).contents.SetInParent()
    assert refusal(protobuf.decode_infer_request, request)[0].startswith("contents field must not be specified")


def test_too_few_raw_entries_are_refused_and_surplus_ones_ignored():
    request = service_pb2.ModelInferRequest()
    for name in ("A", "B"):
        request.inputs.add(name=name, datatype="INT8", shape=[1])
    request.raw_input_contents.append(b"a")
    assert refusal(protobuf.decode_infer_request, request) == ("unable to find data for input tensor 'B' for model '' in request.", INVALID)
    request.raw_input_contents.extend([b"b", b"surplus"])
    assert [tensor.raw for tensor in protobuf.decode_infer_request(request.SerializeToString()).inputs] == [b"a", b"b"]
    response = service_pb2.ModelInferResponse(raw_output_contents=[b"a"])
    for name in ("X", "Y"):
        response.outputs.add(name=name, datatype="INT8", shape=[1])
    assert refusal(protobuf.decode_infer_response, response) == ("unable to find data for output tensor 'Y' in answer.", INVALID)


@pytest.mark.parametrize("encoded", [b"\x0a", b"\x0a\x05m", b"\xff\xff", b"\x0a\x01\xff", REQUEST_BYTES[:-1]])
def test_bytes_that_are_no_message_are_refused(encoded):
    for decode, name in ((protobuf.decode_infer_request, "ModelInferRequest"), (protobuf.decode_infer_response, "ModelInferResponse")):
        with pytest.raises(ProtocolError, match=f"^the bytes are not a {name}: ") as refused:
            decode(encoded)
        assert refused.value.kind is INTERNAL


@pytest.mark.parametrize(
    ("field", "value"),
    [("int64_param", 0), ("int64_param", -1), ("bool_param", True), ("string_param", "3"), ("double_param", 3.0), ("uint64_param", 3)],
)
def test_a_classification_that_is_no_positive_integer_is_refused(field, value):
    request = service_pb2.ModelInferRequest()
    setattr(request.outputs.add(name="X").parameters["classification"], field, value)
    text = f"invalid value{'' if field == 'int64_param' else ' type'} for 'classification' parameter, expected "
    text += ">= 0" if field == "int64_param" else "int64_param"
    assert refusal(protobuf.decode_infer_request, request) == (text, INVALID)


def test_a_parameter_without_a_value_is_refused():
    request = service_pb2.ModelInferRequest()
    request.parameters["p"].SetInParent()
    assert refusal(protobuf.decode_infer_request, request) == (
        "invalid value type for 'p' parameter, expected int64_param, bool_param, or string_param.",
        INVALID,
    )


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (True, "bool_param"), (-(2**63), "int64_param"), (2**63 - 1, "int64_param"), (2**63, "uint64_param"), (2**64 - 1, "uint64_param"),
        ("", "string_param"), (0.0, "double_param"), (1.0, "double_param"),
    ],
)  # fmt: skip
def test_a_parameter_has_the_field_of_its_type(value, field):
    encoded = protobuf.encode_infer_request(InferRequest("m", (), parameters={"p": value}))
    parameter = service_pb2.ModelInferRequest.FromString(encoded).parameters["p"]
    assert parameter.WhichOneof("parameter_choice") == field
    assert getattr(parameter, field) == value
    assert protobuf.decode_infer_request(encoded).parameters == {"p": value}


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1])
def test_a_parameter_beyond_64_bits_is_refused(value):
    with pytest.raises(ProtocolError, match=f"parameter 'p': {value} does not fit 64 bits"):
        protobuf.encode_infer_request(InferRequest("m", (), parameters={"p": value}))


# tritonclient's messages on the other end


def their_input(name, datatype):
    return InferInput(name, list(ARRAYS[datatype].shape), datatype).set_data_from_numpy(ARRAYS[datatype])


def their_request(inputs, **arguments):
    defaults = {
        "model_version": "", "request_id": "", "outputs": None, "sequence_id": 0, "sequence_start": False, "sequence_end": False,
        "priority": 0, "timeout": None, "parameters": None,
    }  # fmt: skip
    return _get_inference_request(model_name="m", inputs=inputs, **{**defaults, **arguments})


@pytest.mark.parametrize("datatype", list(ARRAYS))
def test_tritonclients_request_is_read_and_ours_is_the_same_message(datatype):
    theirs = their_request([their_input("A", datatype), their_input("B", "BYTES")])
    ours = InferRequest("m", (our_tensor("A", datatype), our_tensor("B", "BYTES")))
    assert protobuf.decode_infer_request(theirs.SerializeToString()) == ours
    assert service_pb2.ModelInferRequest.FromString(protobuf.encode_infer_request(ours)) == theirs


def test_tritonclients_outputs_and_parameters_are_read_and_ours_are_the_same_message():
    custom: dict[str, Parameter] = {"custom": 0.5, "name": "ü", "on": False, "n": -1}
    theirs = their_request(
        [their_input("A", "INT32")],
        model_version="3",
        request_id="42",
        outputs=[InferRequestedOutput("X"), InferRequestedOutput("Z", class_count=3)],
        sequence_id=7,
        sequence_start=True,
        timeout=1000,
        parameters=custom,
    )
    ours = InferRequest(
        "m",
        (our_tensor("A", "INT32"),),
        outputs=(RequestedOutput("X", 0, binary=True), RequestedOutput("Z", 3, binary=True)),
        version="3",
        id="42",
        parameters={"sequence_id": 7, "sequence_start": True, "sequence_end": False, "timeout": 1000, **custom},
    )
    assert protobuf.decode_infer_request(theirs.SerializeToString()) == ours
    assert service_pb2.ModelInferRequest.FromString(protobuf.encode_infer_request(ours)) == theirs


def test_tritonclients_priority_is_read_as_a_number():
    request = their_request([], priority=5, sequence_id="s")
    assert request.parameters["priority"].uint64_param == 5
    parameters = protobuf.decode_infer_request(request.SerializeToString()).parameters
    assert parameters == {"priority": 5, "sequence_id": "s", "sequence_start": False, "sequence_end": False}


@pytest.mark.parametrize("datatype", list(ARRAYS))
def test_tritonclient_reads_our_response_to_the_same_array(datatype):
    outputs = (our_tensor("before", "INT8"), our_tensor("X", datatype), Tensor("empty", Datatype.FP32, (1, 0), b""))
    encoded = b"".join(protobuf.encode_infer_response(InferResponse("m", "1", outputs, "42", {"p": 1})))
    message = service_pb2.ModelInferResponse.FromString(encoded)
    assert (message.model_name, message.model_version, message.id, message.parameters["p"].int64_param) == ("m", "1", "42", 1)
    assert len(message.raw_output_contents) == 3
    result = InferResult(message)
    assert result.as_numpy("X").dtype == ARRAYS[datatype].dtype
    np.testing.assert_array_equal(result.as_numpy("X"), ARRAYS[datatype])
    np.testing.assert_array_equal(result.as_numpy("before"), ARRAYS["INT8"])
    assert result.as_numpy("empty").shape == (1, 0)


def test_a_response_made_with_tritonclients_messages_is_read():
    message = service_pb2.ModelInferResponse(model_name="m", model_version="1", id="42")
    message.outputs.add(name="X", datatype="FP32", shape=[2, 1])
    message.outputs.add(name="S", datatype="BYTES", shape=[1])
    message.raw_output_contents.extend([np.array([1.5, -2], "<f4").tobytes(), encode_bytes_elements([b"0.5:1:cat"])])
    message.parameters["triton_final_response"].bool_param = True
    assert protobuf.decode_infer_response(message.SerializeToString()) == InferResponse(
        "m",
        "1",
        (
            Tensor("X", Datatype.FP32, (2, 1), bytes.fromhex("0000c03f 000000c0")),
            Tensor("S", Datatype.BYTES, (1,), b"\x09\x00\x00\x000.5:1:cat"),
        ),
        "42",
        {"triton_final_response": True},
    )


NAMES = st.text(max_size=6)
SCALARS = st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=5)
PARAMETERS = st.dictionaries(NAMES, SCALARS, max_size=3)
TENSORS = st.builds(
    Tensor, NAMES, st.sampled_from(Datatype), st.lists(st.integers(0, 2**63 - 1), max_size=3).map(tuple), st.binary(max_size=9)
)
OUTPUTS = st.builds(RequestedOutput, NAMES, st.integers(0, 2**63 - 1), st.just(True))
REQUESTS = st.builds(
    InferRequest,
    NAMES,
    st.lists(TENSORS, max_size=3).map(tuple),
    st.lists(OUTPUTS, max_size=3).map(tuple),
    version=NAMES,
    id=NAMES,
    parameters=PARAMETERS,
)


def fields_of(message):
    """A message's fields in a form that messages of two pools have alike."""
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


@given(REQUESTS)
def test_any_request_survives_and_tritonclient_reads_the_same_fields(request):
    encoded = protobuf.encode_infer_request(request)
    assert protobuf.decode_infer_request(encoded) == request
    theirs = service_pb2.ModelInferRequest.FromString(encoded)
    assert fields_of(theirs) == fields_of(v2_pb2.ModelInferRequest.FromString(encoded))
    assert list(theirs.raw_input_contents) == [tensor.raw for tensor in request.inputs]
    assert [tuple(one.shape) for one in theirs.inputs] == [tensor.shape for tensor in request.inputs]


@given(st.builds(InferResponse, NAMES, NAMES, st.lists(TENSORS, max_size=3).map(tuple), NAMES, PARAMETERS))
def test_any_response_survives_and_tritonclient_reads_the_same_fields(response):
    encoded = b"".join(protobuf.encode_infer_response(response))
    assert protobuf.decode_infer_response(encoded) == response
    theirs = service_pb2.ModelInferResponse.FromString(encoded)
    assert fields_of(theirs) == fields_of(v2_pb2.ModelInferResponse.FromString(encoded))
    assert list(theirs.raw_output_contents) == [tensor.raw for tensor in response.outputs]


@given(st.binary(max_size=40))
def test_any_bytes_are_decoded_or_refused_with_a_protocol_error(encoded):
    for decode, theirs in (
        (protobuf.decode_infer_request, service_pb2.ModelInferRequest),
        (protobuf.decode_infer_response, service_pb2.ModelInferResponse),
    ):
        with contextlib.suppress(ProtocolError):
            assert decode(encoded).model == theirs.FromString(encoded).model_name


def test_metadata_is_the_message_of_tritonclient_in_both_directions():
    theirs = service_pb2.ModelMetadataResponse(name="simple", versions=["1", "2"], platform="onnxruntime_onnx")
    theirs.inputs.add(name="INPUT0", datatype="INT32", shape=[-1, 16])
    theirs.outputs.add(name="OUTPUT0", datatype="BYTES", shape=[])
    encoded = protobuf.model_metadata_message(METADATA).SerializeToString()
    assert service_pb2.ModelMetadataResponse.FromString(encoded) == theirs
    assert protobuf.model_metadata(v2_pb2.ModelMetadataResponse.FromString(theirs.SerializeToString())) == METADATA


def their_config():
    response = service_pb2.ModelConfigResponse()
    config = response.config
    config.name, config.platform, config.backend, config.max_batch_size = "simple", "onnxruntime_onnx", "onnxruntime", 8
    config.default_model_filename = "model.onnx"
    tensor = config.input.add(name="INPUT0", data_type=model_config_pb2.TYPE_INT32, dims=[3, 224, 224], optional=True)
    tensor.format = model_config_pb2.ModelInput.FORMAT_NCHW
    tensor.reshape.shape.extend([1, 3])
    config.output.add(name="OUTPUT0", data_type=model_config_pb2.TYPE_BF16, dims=[-1], label_filename="labels.txt")
    return response


def our_digest(response):
    return protobuf.model_config(v2_pb2.ModelConfigResponse.FromString(response.SerializeToString()))


@pytest.mark.parametrize(
    ("datatype", "highest"),
    [
        (model_config_pb2.TYPE_INT32, 2**31 - 1), (model_config_pb2.TYPE_UINT32, 2**32 - 1),
        (model_config_pb2.TYPE_UINT64, None), (model_config_pb2.TYPE_STRING, None),
    ],
)  # fmt: skip
def test_a_configuration_tells_which_ids_of_sequences_the_model_gets_whole(datatype, highest):
    theirs, kinds = their_config(), model_config_pb2.ModelSequenceBatching.Control
    batching = theirs.config.sequence_batching
    batching.control_input.add(name="S").control.add(kind=kinds.CONTROL_SEQUENCE_START, int32_false_true=[0, 1])
    batching.control_input.add(name="I").control.add(kind=kinds.CONTROL_SEQUENCE_CORRID, data_type=datatype)
    assert our_digest(theirs).highest_sequence_id == highest
    assert our_digest(their_config()).highest_sequence_id is None


def test_a_configurations_digest_hangs_on_all_that_tritons_proto_knows_and_on_no_order():
    theirs, again, other = their_config(), their_config(), their_config()
    assert our_digest(theirs).max_batch_size == 8
    for response, keys in ((theirs, "abc"), (again, "cab"), (other, "abc")):
        for key in keys:
            response.config.parameters[key].string_value = key
            response.config.cc_model_filenames[key] = key  # a map that our own proto leaves out
    assert our_digest(theirs) == our_digest(again)
    other.config.optimization.priority = 1  # which our own proto leaves out as well
    assert our_digest(theirs).sha256 != our_digest(other).sha256
    # the same fields in another order on the wire
    config = theirs.config.SerializeToString()
    swapped = v2_pb2.ModelConfigResponse.FromString(
        service_pb2.ModelConfigResponse(config=model_config_pb2.ModelConfig()).SerializeToString()
    )
    swapped.config.MergeFromString(config)
    assert protobuf.model_config(swapped) == our_digest(theirs)


def test_a_configuration_names_required_inputs_and_the_models_of_an_ensemble():
    theirs = their_config()
    theirs.config.input.add(name="INPUT1")
    for name, version in (("b", -1), ("a", 3), ("b", -1)):
        theirs.config.ensemble_scheduling.step.add(model_name=name, model_version=version, input_map={"INPUT0": "x", "INPUT1": "y"})
    config = our_digest(theirs)
    assert config.required_inputs == {"INPUT1"}
    assert config.composing_models == (ComposingModel("b"), ComposingModel("a", "3"))


def their_statistics():
    response = service_pb2.ModelStatisticsResponse()
    statistics = response.model_stats.add(
        name="simple", version="1", last_inference=1700000000000, inference_count=16, execution_count=2**63
    )
    for number, name in enumerate(DURATIONS, 1):
        duration = getattr(statistics.inference_stats, name)
        duration.count, duration.ns = number, number * 10**12
    batch = statistics.batch_stats.add(batch_size=8)
    batch.compute_infer.count, batch.compute_infer.ns = 2, 3
    return response


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (service_pb2.ServerLiveResponse(live=True), v2_pb2.ServerLiveResponse),
        (service_pb2.ServerReadyResponse(ready=True), v2_pb2.ServerReadyResponse),
        (service_pb2.ModelReadyRequest(name="m", version="1"), v2_pb2.ModelReadyRequest),
        (
            service_pb2.ServerMetadataResponse(name="triton", version="2.51.0", extensions=["statistics", "sequence"]),
            v2_pb2.ServerMetadataResponse,
        ),
        (their_config(), v2_pb2.ModelConfigResponse),
        (their_statistics(), v2_pb2.ModelStatisticsResponse),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, type) else "",
)
def test_tritonclients_messages_are_ours_with_the_same_fields_and_back(theirs, ours):
    message = ours.FromString(theirs.SerializeToString())
    assert fields_of(message) == fields_of(theirs) != {}
    assert type(theirs).FromString(message.SerializeToString()) == theirs


def test_fields_that_we_leave_out_are_skipped():
    response = service_pb2.ModelStatisticsResponse()
    statistics = response.model_stats.add(name="simple", inference_count=3)
    statistics.response_stats["0"].success.count = 1
    statistics.memory_usage.add(type="GPU", byte_size=5)
    read = v2_pb2.ModelStatisticsResponse.FromString(response.SerializeToString()).model_stats[0]
    assert fields_of(read) == {"name": "simple", "inference_count": "3"}


# descriptors

THEIR_FILES = (service_pb2.DESCRIPTOR, model_config_pb2.DESCRIPTOR)


def all_messages(messages):
    for message in messages:
        yield message
        yield from all_messages(message.nested_types)


def all_enums(file):
    yield from file.enum_types_by_name.values()
    for message in all_messages(file.message_types_by_name.values()):
        yield from message.enum_types


OUR_MESSAGES: dict[str, Descriptor] = {one.full_name: one for one in all_messages(v2_pb2.DESCRIPTOR.message_types_by_name.values())}
OUR_ENUMS: dict[str, EnumDescriptor] = {one.full_name: one for one in all_enums(v2_pb2.DESCRIPTOR)}
THEIR_MESSAGES: dict[str, Descriptor] = {
    one.full_name: one for file in THEIR_FILES for one in all_messages(file.message_types_by_name.values())
}
THEIR_ENUMS: dict[str, EnumDescriptor] = {one.full_name: one for file in THEIR_FILES for one in all_enums(file)}


def described(field: FieldDescriptor):
    return {
        "number": field.number,
        "type": field.type,
        "repeated": field.is_repeated,
        "packed": field.is_packed,
        "presence": field.has_presence,
        "message": field.message_type and field.message_type.full_name,
        "enum": field.enum_type and field.enum_type.full_name,
        "oneof": field.containing_oneof and field.containing_oneof.name,
        "map": bool(field.message_type and field.message_type.GetOptions().map_entry),
    }


def test_the_walk_over_our_descriptors_finds_the_nested_messages_too():
    assert {"inference.ModelInferRequest.InferInputTensor", "inference.ModelInferRequest.ParametersEntry"} <= OUR_MESSAGES.keys()
    assert "inference.ModelInput.Format" in OUR_ENUMS


@pytest.mark.parametrize("name", sorted(OUR_MESSAGES))
def test_every_field_of_ours_is_tritonclients_with_the_same_number_and_type(name):
    theirs = THEIR_MESSAGES[name].fields_by_name
    ours = OUR_MESSAGES[name].fields_by_name
    assert {field: described(one) for field, one in ours.items()} == {field: described(theirs[field]) for field in ours if field in theirs}


@pytest.mark.parametrize("name", sorted(OUR_ENUMS))
def test_every_enum_of_ours_has_tritonclients_values(name):
    assert {one.name: one.number for one in OUR_ENUMS[name].values} == {one.name: one.number for one in THEIR_ENUMS[name].values}


@pytest.mark.parametrize(
    "name", ["ModelInferRequest", "ModelInferResponse", "InferParameter", "InferTensorContents", "InferStatistics", "InferBatchStatistics"]
)
def test_the_messages_on_the_measured_path_lack_no_field(name):
    assert OUR_MESSAGES[f"inference.{name}"].fields_by_name.keys() == THEIR_MESSAGES[f"inference.{name}"].fields_by_name.keys()


def test_our_messages_live_beside_tritonclients():
    assert v2_pb2.DESCRIPTOR.pool is not service_pb2.DESCRIPTOR.pool
    assert v2_pb2.ModelInferRequest is not service_pb2.ModelInferRequest


# generated files


@pytest.fixture(scope="module")
def regenerated(tmp_path_factory):
    """What protoc makes of `v2.proto` today."""
    folder = tmp_path_factory.mktemp("regenerated")
    outputs = (f"--descriptor_set_out={folder / 'v2.binpb'}", f"--pyi_out={folder}")
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", "-I", str(SOURCES), *outputs, "v2.proto"], check=True, capture_output=True)
    return folder


def test_the_descriptors_are_those_of_the_proto_file(regenerated):
    kept, made = (descriptor_pb2.FileDescriptorSet.FromString((folder / "v2.binpb").read_bytes()) for folder in (SOURCES, regenerated))
    assert [file.name for file in kept.file] == ["v2.proto"]
    assert kept == made, "v2.binpb is not up to date: run make proto"


def test_the_types_are_those_of_the_proto_file(regenerated):
    assert (SOURCES / "v2_pb2.pyi").read_text() == (regenerated / "v2_pb2.pyi").read_text(), "v2_pb2.pyi is not up to date: run make proto"


def test_the_stubs_match_the_runtime_module():
    in_types = set(re.findall(r"^class (?!_)(\w+)\(", (SOURCES / "v2_pb2.pyi").read_text(), re.MULTILINE))
    at_run_time = {*v2_pb2.DESCRIPTOR.message_types_by_name, *v2_pb2.DESCRIPTOR.enum_types_by_name}
    assert in_types == at_run_time
    assert all(hasattr(v2_pb2, name) for name in in_types)
    assert v2_pb2.DataType.Value("TYPE_BF16") == 14


def test_a_dimension_below_minus_one_is_refused():
    message = v2_pb2.ModelMetadataResponse(name="m")
    message.outputs.add(name="y", datatype="FP32", shape=[3, -2])
    with pytest.raises(ProtocolError, match=r"model metadata is not v2: tensor 'y' has the shape \[3, -2\]"):
        protobuf.model_metadata(message)


def test_a_negative_batch_size_is_refused():
    with pytest.raises(ProtocolError, match="its max_batch_size is -1"):
        protobuf.model_config(v2_pb2.ModelConfigResponse(config=v2_pb2.ModelConfig(max_batch_size=-1)))


def test_tensors_beyond_the_size_of_a_message_are_refused_before_they_are_copied():
    class Large(bytes):
        def __len__(self):
            return 2**30

    tensors = tuple(Tensor(name, Datatype.UINT8, (2**30,), Large()) for name in "ab")
    with pytest.raises(ProtocolError, match="holds less than 2 GiB, but the request's tensors have 2,147,483,648 bytes"):
        protobuf.encode_infer_request(InferRequest("m", tensors))


def test_states_of_mlserver_are_read_without_the_name_of_their_type():
    message = v2_pb2.RepositoryIndexResponse()
    for state in ("State.UNAVAILABLE", "READY"):
        message.models.add(name="m", state=state)
    assert [one.state for one in protobuf.model_index(message)] == ["UNAVAILABLE", "READY"]
