"""v2 over HTTP: literal bodies in both directions, and tritonclient's own codec on the other end of each."""

import contextlib
import dataclasses
import json
import math
import re
import urllib.parse

import numpy as np
import pytest
import tritonclient.http
import tritonclient.utils
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2
from tritonclient.http import InferInput, InferRequestedOutput

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol import protobuf, rest, rest_models
from perfkit.protocol.message import ComposingModel, InferRequest, InferResponse, ModelConfig, ModelMetadata, RequestedOutput
from perfkit.protocol.tensor import Datatype, Tensor, tensor_from_array, tensor_to_array, tensor_to_json
from tests.protocol.samples import ARRAYS, METADATA, our_tensor

INVALID, INTERNAL = ErrorKind.INVALID_ARGUMENT, ErrorKind.INTERNAL
JSON_HEADERS = {"Content-Type": "application/json"}
FIRST = Tensor("A", Datatype.INT32, (1, 2), b"\x01\x00\x00\x00\xfe\xff\xff\xff")
SECOND = Tensor("B", Datatype.BYTES, (2,), b"\x01\x00\x00\x00a\x00\x00\x00\x00")
EMPTY = Tensor("C", Datatype.FP32, (1, 0), b"")
HALF = Tensor("H", Datatype.FP16, (2,), b"\x00\x3c\x00\xc0")


def binary_headers(head):
    return {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(head))}


# request, whether its inputs are binary, JSON part, bytes behind it
REQUESTS = {
    "binary, all outputs": (
        InferRequest("m", (FIRST, SECOND)),
        True,
        (
            b'{"inputs":[{"name":"A","datatype":"INT32","shape":[1,2],"parameters":{"binary_data_size":8}},'
            b'{"name":"B","datatype":"BYTES","shape":[2],"parameters":{"binary_data_size":9}}],"parameters":{"binary_data_output":true}}'
        ),
        b"\x01\x00\x00\x00\xfe\xff\xff\xff\x01\x00\x00\x00a\x00\x00\x00\x00",
    ),
    "JSON, all outputs": (
        InferRequest("m", (FIRST, SECOND), binary_output=False),
        False,
        (
            b'{"inputs":[{"name":"A","datatype":"INT32","shape":[1,2],"data":[1,-2]},'
            b'{"name":"B","datatype":"BYTES","shape":[2],"data":["a",""]}]}'
        ),
        b"",
    ),
    "binary inputs, JSON outputs": (
        InferRequest("m", (HALF,), binary_output=False),
        True,
        b'{"inputs":[{"name":"H","datatype":"FP16","shape":[2],"parameters":{"binary_data_size":4}}]}',
        b"\x00\x3c\x00\xc0",
    ),
    "listed outputs of every kind, id and parameters": (
        InferRequest(
            "m",
            (FIRST,),
            outputs=(RequestedOutput("X", binary=True), RequestedOutput("Y", binary=False), RequestedOutput("Z", classes=3, binary=True)),
            id="42",
            parameters={"priority": 1, "half": 0.5, "on": True, "who": "me"},
            binary_output=False,
        ),
        True,
        (
            b'{"id":"42","inputs":[{"name":"A","datatype":"INT32","shape":[1,2],"parameters":{"binary_data_size":8}}],'
            b'"outputs":[{"name":"X","parameters":{"binary_data":true}},{"name":"Y","parameters":{"binary_data":false}},'
            b'{"name":"Z","parameters":{"binary_data":true,"classification":3}}],'
            b'"parameters":{"priority":1,"half":0.5,"on":true,"who":"me"}}'
        ),
        b"\x01\x00\x00\x00\xfe\xff\xff\xff",
    ),
    "an empty tensor has a size and no bytes": (
        InferRequest("m", (EMPTY,)),
        True,
        (
            b'{"inputs":[{"name":"C","datatype":"FP32","shape":[1,0],"parameters":{"binary_data_size":0}}],'
            b'"parameters":{"binary_data_output":true}}'
        ),
        b"",
    ),
    "no input at all": (InferRequest("m", (), binary_output=False), True, b'{"inputs":[]}', b""),
    "names beyond ASCII are escaped": (
        InferRequest("m", (Tensor("ü", Datatype.BYTES, (1,), b"\x03\x00\x00\x00\xe2\x82\xac"),), binary_output=False),
        False,
        b'{"inputs":[{"name":"\\u00fc","datatype":"BYTES","shape":[1],"data":["\\u20ac"]}]}',
        b"",
    ),
}

# response, which outputs are binary, JSON part, bytes behind it
RESPONSES = {
    "all binary": (
        InferResponse("m", "1", (FIRST, SECOND)),
        {"A": True, "B": True},
        (
            b'{"model_name":"m","model_version":"1","outputs":[{"name":"A","datatype":"INT32","shape":[1,2],'
            b'"parameters":{"binary_data_size":8}},{"name":"B","datatype":"BYTES","shape":[2],"parameters":{"binary_data_size":9}}]}'
        ),
        b"\x01\x00\x00\x00\xfe\xff\xff\xff\x01\x00\x00\x00a\x00\x00\x00\x00",
    ),
    "all JSON": (
        InferResponse("m", "1", (FIRST, SECOND)),
        {"A": False, "B": False},
        (
            b'{"model_name":"m","model_version":"1","outputs":[{"name":"A","datatype":"INT32","shape":[1,2],"data":[1,-2]},'
            b'{"name":"B","datatype":"BYTES","shape":[2],"data":["a",""]}]}'
        ),
        b"",
    ),
    "mixed, with id and parameters": (
        InferResponse("m", "7", (HALF, FIRST), id="42", parameters={"sequence_id": 5, "sequence_start": False}),
        {"H": True, "A": False},
        (
            b'{"model_name":"m","model_version":"7","id":"42","parameters":{"sequence_id":5,"sequence_start":false},'
            b'"outputs":[{"name":"H","datatype":"FP16","shape":[2],"parameters":{"binary_data_size":4}},'
            b'{"name":"A","datatype":"INT32","shape":[1,2],"data":[1,-2]}]}'
        ),
        b"\x00\x3c\x00\xc0",
    ),
    "with no binary output but an empty one there is no length header": (
        InferResponse("m", "1", (EMPTY,)),
        {"C": True},
        (
            b'{"model_name":"m","model_version":"1","outputs":[{"name":"C","datatype":"FP32","shape":[1,0],'
            b'"parameters":{"binary_data_size":0}}]}'
        ),
        b"",
    ),
    "NaN and infinity are bare, as Triton writes them": (
        InferResponse("m", "1", (Tensor("F", Datatype.FP32, (3,), bytes.fromhex("0000c07f 0000807f 000080ff")),)),
        {"F": False},
        b'{"model_name":"m","model_version":"1","outputs":[{"name":"F","datatype":"FP32","shape":[3],"data":[NaN,Infinity,-Infinity]}]}',
        b"",
    ),
}


def encoding(cases):
    return pytest.mark.parametrize(("message", "binary", "head", "blobs"), cases.values(), ids=cases.keys())


def decoding(cases):
    bodies = [(message, head, blobs) for message, _, head, blobs in cases.values()]
    return pytest.mark.parametrize(("message", "head", "blobs"), bodies, ids=cases.keys())


def header_length(headers):
    length = headers.get("Inference-Header-Content-Length")
    return None if length is None else int(length)


def sent(request, *, binary):
    """The request with all inputs and outputs as binary data, or all as JSON."""
    if binary:
        return request
    names = frozenset(tensor.name for tensor in request.inputs)
    return dataclasses.replace(request, binary_output=False, plain_inputs=names)


@encoding(REQUESTS)
def test_a_request_becomes_this_body(message, binary, head, blobs):
    headers, buffers = rest.encode_infer_request(sent(message, binary=binary))
    assert b"".join(buffers) == head + blobs
    assert headers == (binary_headers(head) if blobs else JSON_HEADERS)


@decoding(REQUESTS)
def test_this_body_becomes_the_request(message, head, blobs):
    assert rest.decode_infer_request("m", "", head + blobs, len(head) if blobs else None) == message
    assert rest.decode_infer_request("m", "", bytearray(head + blobs), len(head)) == message


@encoding(RESPONSES)
def test_a_response_becomes_this_body(message, binary, head, blobs):
    headers, buffers = rest.encode_infer_response(message, binary)
    assert b"".join(buffers) == head + blobs
    assert headers == (binary_headers(head) if blobs else JSON_HEADERS)


@decoding(RESPONSES)
def test_this_body_becomes_the_response(message, head, blobs):
    assert rest.decode_infer_response(head + blobs, len(head) if blobs else None) == message
    assert rest.decode_infer_response(memoryview(head + blobs), len(head)) == message


def test_large_tensors_are_neither_copied_nor_joined():
    request = InferRequest("m", (FIRST, SECOND))
    _, buffers = rest.encode_infer_request(request)
    assert [id(buffer) for buffer in buffers[1:]] == [id(FIRST.raw), id(SECOND.raw)]
    body = b"".join(buffers)
    decoded = rest.decode_infer_request("m", "", body, len(buffers[0]))
    assert all(isinstance(tensor.raw, memoryview) and tensor.raw.obj is body for tensor in decoded.inputs)


def test_the_path_gives_model_and_version():
    request = rest.decode_infer_request("resnet", "3", b'{"inputs":[]}', None)
    assert (request.model, request.version) == ("resnet", "3")


def test_an_output_without_encoding_follows_the_request():
    request = InferRequest("m", (FIRST,), outputs=(RequestedOutput("X"),))
    for binary in (True, False):
        headers, buffers = rest.encode_infer_request(sent(request, binary=binary))
        document = json.loads(bytes(buffers[0]))
        assert document["outputs"] == [{"name": "X", "parameters": {"binary_data": binary}}]
        assert "parameters" not in document
        assert rest.decode_infer_request("m", "", b"".join(buffers), header_length(headers)).outputs[0].binary is binary


def test_binary_output_is_not_requested_without_the_extension():
    _, buffers = rest.encode_infer_request(sent(InferRequest("m", (FIRST,)), binary=False))
    assert json.loads(bytes(buffers[0])) == {"inputs": [{"name": "A", "datatype": "INT32", "shape": [1, 2], "data": [1, -2]}]}


def test_json_and_binary_tensors_mix_in_one_request():
    request = InferRequest("m", (FIRST, SECOND), (RequestedOutput("X", binary=False), RequestedOutput("Y")), plain_inputs=frozenset({"A"}))
    headers, buffers = rest.encode_infer_request(request)
    assert json.loads(bytes(buffers[0])) == {
        "inputs": [
            {"name": "A", "datatype": "INT32", "shape": [1, 2], "data": [1, -2]},
            {"name": "B", "datatype": "BYTES", "shape": [2], "parameters": {"binary_data_size": 9}},
        ],
        "outputs": [{"name": "X", "parameters": {"binary_data": False}}, {"name": "Y", "parameters": {"binary_data": True}}],
    }
    assert buffers[1:] == [SECOND.raw]
    assert header_length(headers) == len(buffers[0])
    assert rest.decode_infer_request("m", "", b"".join(buffers), header_length(headers)).inputs == (FIRST, SECOND)


@pytest.mark.parametrize(
    ("body", "ready"),
    [(b"", True), (b"null", True), (b'{"name":"m","ready":true}', True), (b'{"name":"m","ready":false}', False), (b"[]", True)],
)
def test_a_readiness_answer_may_say_not_ready(body, ready):
    assert rest_models.decode_ready(body) is ready


def test_members_outside_the_protocol_are_ignored_in_answers():
    """MLServer and KServe add content types, nulls and objects."""
    body = (
        b'{"model_name":"m","id":"x","parameters":{"headers":{"a":"b"},"kept":1},"outputs":[{"name":"y","datatype":"INT8","shape":[1],'
        b'"parameters":{"content_type":"np","extra":[1]},"data":[5]}]}'
    )
    response = rest.decode_infer_response(body, None)
    assert response.outputs == (Tensor("y", Datatype.INT8, (1,), b"\x05"),)
    assert response.parameters == {"kept": 1}


def test_half_floats_are_sent_and_read_as_json_by_a_client_and_refused_by_a_server():
    """MLServer takes and gives them; Triton does neither, and a server that is as strict says so."""
    _, body = rest.encode_infer_request(sent(InferRequest("m", (HALF,)), binary=False))
    assert json.loads(bytes(body[0]))["inputs"][0]["data"] == [1.0, -2.0]
    with pytest.raises(ProtocolError, match="receiving FP16 data via JSON is not supported") as refused:
        rest.decode_infer_request("m", "", body[0], None)
    assert refused.value.kind is ErrorKind.INVALID_ARGUMENT
    answer = json.dumps({"model_name": "m", "outputs": [{"name": "H", "datatype": "FP16", "shape": [2], "data": [1, -2]}]}).encode()
    assert rest.decode_infer_response(answer, None).outputs == (HALF,)
    with pytest.raises(ProtocolError, match="FP16 has no JSON form: use binary data for 'H'"):
        rest.encode_infer_response(InferResponse("m", "1", (HALF,)), {"H": False})


def test_parameters_of_an_input_stand_beside_those_of_its_encoding():
    request = InferRequest("m", (HALF, FIRST), input_parameters={"H": {"content_type": "np", "n": 2}})
    document = json.loads(bytes(rest.encode_infer_request(request)[1][0]))
    assert document["inputs"][0]["parameters"] == {"content_type": "np", "n": 2, "binary_data_size": 4}
    assert document["inputs"][1]["parameters"] == {"binary_data_size": len(FIRST.raw)}
    message = service_pb2.ModelInferRequest.FromString(protobuf.encode_infer_request(request))
    assert message.inputs[0].parameters["content_type"].string_param == "np"
    assert message.inputs[0].parameters["n"].int64_param == 2
    assert not message.inputs[1].parameters


@pytest.mark.parametrize(
    ("parameters", "binary"),
    [("", False), (',"parameters":{}', False), (',"parameters":{"binary_data":true}', True), (',"parameters":null', False)],
)
def test_a_listed_output_is_json_unless_it_requests_binary_data(parameters, binary):
    body = b'{"inputs":[],"outputs":[{"name":"X"%s}],"parameters":{"binary_data_output":true}}' % parameters.encode()
    request = rest.decode_infer_request("m", "", body, None)
    assert request.outputs == (RequestedOutput("X", binary=binary),)
    assert request.binary_output is True
    assert request.parameters == {}


def test_json_and_binary_inputs_mix_and_the_bytes_follow_the_order_of_inputs():
    head = (
        b'{"inputs":[{"name":"H","datatype":"FP16","shape":[2],"parameters":{"binary_data_size":4}},'
        b'{"name":"B","datatype":"BYTES","shape":[2],"data":["a",""]},'
        b'{"name":"A","datatype":"INT32","shape":[1,2],"parameters":{"binary_data_size":8}}]}'
    )
    request = rest.decode_infer_request("m", "", head + bytes(HALF.raw) + bytes(FIRST.raw), len(head))
    assert request.inputs == (HALF, SECOND, FIRST)


def one_input(**members):
    entry = {"name": "A", "datatype": "INT32", "shape": [2], "data": [1, 2], **members}
    return {"inputs": [{key: value for key, value in entry.items() if value is not ...}]}


def binary_input(size):
    return one_input(data=..., parameters={"binary_data_size": size})


def one_output(**parameters):
    return {"inputs": [], "outputs": [{"name": "X", "parameters": parameters}]}


@pytest.mark.parametrize(
    ("document", "kind", "text"),
    [
        (b"", INTERNAL, "failed to parse the request JSON buffer: "),
        (b'{"inputs":[', INTERNAL, "failed to parse the request JSON buffer: "),
        (b'{"inputs":[]}junk', INTERNAL, "failed to parse the request JSON buffer: Extra data"),
        (b"[]", INTERNAL, "failed to parse the request JSON buffer: not an object"),
        (b'"text"', INTERNAL, "failed to parse the request JSON buffer: not an object"),
        (b'{"a":"\xff"}', INTERNAL, "failed to parse the request JSON buffer: "),
        (b"[" * 100_000, INTERNAL, "failed to parse the request JSON buffer: "),
        ({}, INTERNAL, "Unable to parse 'inputs'"),
        ({"inputs": {}}, INTERNAL, "Unable to parse 'inputs'"),
        ({"inputs": [5]}, INVALID, "Input must set only one of the following fields"),
        (one_input(name=...), INTERNAL, "Unable to parse 'name'"),
        (one_input(name=5), INTERNAL, "Unable to parse 'name': attempt to access JSON non-string as string"),
        (one_input(datatype=...), INTERNAL, "Unable to parse 'datatype'"),
        (one_input(datatype="FLOAT"), INVALID, "invalid datatype 'FLOAT'"),
        (one_input(shape=...), INTERNAL, "Unable to parse 'shape'"),
        (one_input(shape=2), INTERNAL, "Unable to parse 'shape'"),
        *(
            (one_input(shape=[size]), INTERNAL, "Unable to parse 'shape': attempt to access JSON non-unsigned-integer")
            for size in (-2, "2", 2.0, True)
        ),
        (one_input(shape=[3]), INTERNAL, "Shape does not match true shape"),
        (one_input(data=...), INVALID, "Input must set only one of the following fields: 'data'"),
        (one_input(data=..., parameters={}), INVALID, "But no field is set"),
        (one_input(parameters={"binary_data_size": 8}), INVALID, "But set 'data' 'binary_data_size'"),
        (one_input(data=[1, True]), INTERNAL, "attempt to access JSON non-signed-integer as signed-integer: True in tensor 'A'"),
        (one_input(data=None), INTERNAL, "Unable to parse 'data': attempt to access JSON non-array as array"),
        (one_input(datatype="FP16"), INVALID, "receiving FP16 data via JSON is not supported"),
        (one_input(datatype="BF16"), INVALID, "receiving BF16 data via JSON is not supported"),
        (one_input(parameters=[]), INTERNAL, "failed to get request params.: attempt to get members for non-object"),
        (one_input(parameters={"a": []}), INVALID, "parameter 'a' has invalid type. It should be either 'int', 'bool', or 'string'."),
        *((binary_input(size), INTERNAL, "Unable to parse 'binary_data_size'") for size in (-1, 8.0, "8", True)),
        (binary_input(8), INVALID, "unexpected size for input 'A', expecting 8 additional bytes"),
        ({"inputs": [], "outputs": {}}, INTERNAL, "Unable to parse 'outputs': attempt to access JSON non-array as array"),
        ({"inputs": [], "outputs": ["X"]}, INTERNAL, "Unable to parse 'name': attempt to access non-existing object member 'name'"),
        ({"inputs": [], "outputs": [{}]}, INTERNAL, "Unable to parse 'name'"),
        *((one_output(classification=classes), INTERNAL, "Unable to set 'classification'") for classes in (-1, "3", 1.5, True)),
        ({"inputs": [], "id": 5}, INTERNAL, "Unable to parse 'id'"),
        ({"inputs": [], "parameters": "x"}, INTERNAL, "failed to get request params.: attempt to get members for non-object"),
        *(({"inputs": [], "parameters": {"a": value}}, INVALID, "parameter 'a' has invalid type.") for value in ({"b": 1}, None)),
        ({"inputs": [], "parameters": {"triton_a": 1}}, INVALID, "parameter keys starting with 'triton_' are reserved for Triton usage"),
        *(
            ({"inputs": [], "parameters": {key: value}}, INTERNAL, f"Unable to parse '{key}': attempt to access JSON non-{kind}")
            for key, value, kind in (
                ("priority", "1", "unsigned-integer"),
                ("timeout", -1, "unsigned-integer"),
                ("sequence_start", 1, "boolean"),
                ("sequence_id", 1.5, "unsigned-integer"),
                ("binary_data_output", 1, "boolean"),
            )
        ),
        (one_output(binary_data=1), INTERNAL, "Unable to parse 'binary_data': attempt to access JSON non-boolean"),
    ],
)
def test_a_broken_request_is_refused_as_triton_refuses_it(document, kind, text):
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    with pytest.raises(ProtocolError) as refused:
        rest.decode_infer_request("m", "", body, None)
    assert text in str(refused.value)
    assert refused.value.kind is kind


def test_half_a_surrogate_pair_in_a_string_is_refused():
    body = b'{"inputs":[{"name":"A","datatype":"BYTES","shape":[1],"data":["\\ud800"]}]}'
    with pytest.raises(ProtocolError, match="half of a surrogate pair") as refused:
        rest.decode_infer_request("m", "", body, None)
    assert refused.value.kind is INTERNAL


@pytest.mark.parametrize("length", [-1, -(2**31), 79, 10**9])
def test_a_header_length_outside_the_body_is_refused(length):
    body = json.dumps(one_input()).encode()
    assert len(body) == 78
    for decode in (lambda: rest.decode_infer_request("m", "", body, length), lambda: rest.decode_infer_response(body, length)):
        with pytest.raises(ProtocolError, match=re.escape(f"inference header size should be in range (0, 78), got: {length}")) as refused:
            decode()
        assert refused.value.kind is INVALID


def test_a_header_length_that_cuts_the_json_is_refused():
    body = json.dumps(one_input()).encode()
    with pytest.raises(ProtocolError, match="failed to parse the request JSON buffer") as refused:
        rest.decode_infer_request("m", "", body, len(body) - 1)
    assert refused.value.kind is INTERNAL


def test_junk_behind_a_request_is_refused_and_missing_bytes_are_counted():
    head = json.dumps(binary_input(8)).encode()
    decode = lambda blobs: rest.decode_infer_request("m", "", head + blobs, len(head))  # noqa: E731 - shorter than a def
    assert decode(bytes(8)).inputs[0].raw == bytes(8)
    for length in range(8):
        with pytest.raises(ProtocolError, match=f"unexpected size for input 'A', expecting {8 - length} additional bytes") as refused:
            decode(bytes(length))
        assert refused.value.kind is INVALID
    for length in (9, 16):
        with pytest.raises(ProtocolError, match="unexpected additional input data for model 'm'") as refused:
            decode(bytes(length))
        assert refused.value.kind is INVALID


def test_junk_behind_a_response_is_refused_and_missing_bytes_are_counted():
    head = b'{"model_name":"m","outputs":[{"name":"X","datatype":"INT32","shape":[2],"parameters":{"binary_data_size":8}}]}'
    assert rest.decode_infer_response(head + bytes(8), len(head)).outputs[0].raw == bytes(8)
    with pytest.raises(ProtocolError, match="unexpected size for output 'X', expecting 3 additional bytes"):
        rest.decode_infer_response(head + bytes(5), len(head))
    with pytest.raises(ProtocolError, match="2 bytes follow the last output"):
        rest.decode_infer_response(head + bytes(10), len(head))


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "failed to parse the response JSON buffer"),
        (b"<html>", "failed to parse the response JSON buffer"),
        (b"null", "failed to parse the response JSON buffer: not an object"),
        (b'{"outputs":5}', "Unable to parse 'outputs'"),
        (b'{"outputs":[5]}', "Output must set only one of the following fields"),
        (b'{"outputs":[{"name":"X","datatype":"INT32","shape":[1]}]}', "Output must set only one of the following fields"),
        (
            b'{"outputs":[{"name":"X","datatype":"INT32","shape":[1],"data":[1.5]}]}',
            "attempt to access JSON non-signed-integer as signed-integer: 1.5 in tensor 'X'",
        ),
        (b'{"outputs":[],"model_name":5}', "Unable to parse 'model_name'"),
    ],
)
def test_a_broken_response_is_refused(body, text):
    with pytest.raises(ProtocolError, match=re.escape(text)):
        rest.decode_infer_response(body, None)


def test_the_nulls_and_extra_members_of_kserve_and_mlserver_are_tolerated():
    body = (
        b'{"model_name":"iris","model_version":null,"id":"7","parameters":null,"extra":[],"outputs":[{"name":"predict","shape":[2,1],'
        b'"datatype":"INT64","parameters":null,"data":[1,2]},{"name":"p","shape":[1],"datatype":"FP64","parameters":{"content_type":"np"},"data":[0.5]}]}'
    )
    assert rest.decode_infer_response(body, None) == InferResponse(
        "iris",
        "",
        (
            Tensor("predict", Datatype.INT64, (2, 1), bytes([1, *bytes(7), 2, *bytes(7)])),
            Tensor("p", Datatype.FP64, (1,), bytes.fromhex("000000000000e03f")),
        ),
        id="7",
    )


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (("resnet",), "/v2/models/resnet"),
        (("resnet", "3"), "/v2/models/resnet/versions/3"),
        (("resnet", "", "infer"), "/v2/models/resnet/infer"),
        (("resnet", "3", "infer"), "/v2/models/resnet/versions/3/infer"),
        (("a b/ü?#",), "/v2/models/a%20b%2F%C3%BC%3F%23"),
        (("a+b:1@x,(y)", "1;2"), "/v2/models/a+b:1@x,(y)/versions/1;2"),
    ],
)
def test_paths_quote_the_names_in_them(arguments, path):
    assert rest.model_path(*arguments) == path


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_a_segment_holds_any_name_and_escapes_only_what_it_may_not_hold(name):
    """`pchar` of RFC 3986, 3.3: what is in it reaches servers that decode nothing as it is."""
    segment = rest.path_segment(name)
    assert re.fullmatch(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-F]{2})+", segment)
    assert urllib.parse.unquote(segment) == name
    if re.fullmatch(r"[A-Za-z0-9._~!$&'()*+,;=:@-]+", name):
        assert segment == name


@pytest.mark.parametrize("text", ["Request for unknown model: 'x' is not found", 'with "quotes" and ü', ""])
def test_an_error_survives_its_body(text):
    assert json.loads(rest.encode_error(text)) == {"error": text}
    assert rest.decode_error(rest.encode_error(text)) == text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b'{"error":"no"}', "no"),
        (b'{"error":{"code":5}}', '{"code": 5}'),
        (b'{"detail":"Not Found"}', "Not Found"),
        (b'{"detail":[{"loc":["body"],"msg":"bad"}]}', '[{"loc": ["body"], "msg": "bad"}]'),
        (b'{"error":"first","detail":"second"}', "first"),
        (b'{"message":"other"}', '{"message":"other"}'),
        (b"  502 Bad Gateway\n", "502 Bad Gateway"),
        (
            b'Traceback (most recent call last):\n  File "model.py", line 9, in predict\n    raise RuntimeError("boom")\nRuntimeError: boom\n',
            "RuntimeError: boom",
        ),
        (b"[1]", "[1]"),
        (b"", ""),
        (b"caf\xe9", "caf\N{REPLACEMENT CHARACTER}"),
    ],
)
def test_the_sentence_is_found_in_any_servers_error_body(body, text):
    assert rest.decode_error(body) == text


METADATA_DOCUMENT = {
    "name": "simple",
    "versions": ["1", "2"],
    "platform": "onnxruntime_onnx",
    "inputs": [{"name": "INPUT0", "datatype": "INT32", "shape": [-1, 16]}],
    "outputs": [{"name": "OUTPUT0", "datatype": "BYTES", "shape": []}],
}


def test_model_metadata_is_this_document_in_both_directions():
    assert rest_models.encode_model_metadata(METADATA) == METADATA_DOCUMENT
    assert rest_models.decode_model_metadata(json.dumps(METADATA_DOCUMENT).encode()) == METADATA


@pytest.mark.parametrize(
    ("document", "metadata"),
    [
        ({"name": "m"}, ModelMetadata("m", (), "", (), ())),
        ({"name": "m", "versions": None, "platform": None, "inputs": None, "outputs": []}, ModelMetadata("m", (), "", (), ())),
        ({"name": "m", "versions": [1]}, ModelMetadata("m", ("1",), "", (), ())),
    ],
)
def test_metadata_may_lack_members_that_other_servers_omit(document, metadata):
    assert rest_models.decode_model_metadata(json.dumps(document).encode()) == metadata


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"", "failed to parse the model metadata JSON buffer"),
        (b"[]", "failed to parse the model metadata JSON buffer: not an object"),
        (b"{}", "the server's model metadata is not v2: Unable to parse 'name'"),
        (b'{"name":"m","inputs":[{"name":"A","datatype":"INT32"}]}', "the server's model metadata is not v2: Unable to parse 'shape'"),
        (b'{"name":"m","inputs":[5]}', "the server's model metadata is not v2"),
        (b'{"name":"m","inputs":5}', "the server's model metadata is not v2"),
        (b'{"name":"m","outputs":[{"name":"A","datatype":"INT32","shape":["x"]}]}', "the server's model metadata is not v2"),
    ],
)
def test_invalid_model_metadata_is_refused(body, text):
    with pytest.raises(ProtocolError, match=re.escape(text)):
        rest_models.decode_model_metadata(body)


# properties

NAMES = st.text(min_size=1, max_size=6).filter(lambda name: name.isprintable())
SCALARS = st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text(max_size=5)
PARAMETERS = st.dictionaries(NAMES.filter(lambda name: name != "binary_data_output"), SCALARS, max_size=3)


@st.composite
def tensors(draw, *, in_json=False):
    """A tensor of any datatype, its bytes drawn (as text where it goes as JSON)."""
    datatype = draw(st.sampled_from([one for one in Datatype if not (in_json and one in (Datatype.FP16, Datatype.BF16))]))
    shape = draw(st.lists(st.integers(0, 3), max_size=3).map(tuple))
    count, name = math.prod(shape), draw(NAMES)
    if datatype is Datatype.BYTES:
        values = draw(st.lists(st.text(max_size=3), min_size=count, max_size=count))
        return Tensor(name, datatype, shape, tensor_from_array(name, datatype, values).raw)
    if datatype is Datatype.BOOL:
        return Tensor(name, datatype, shape, bytes(draw(st.lists(st.integers(0, 1), min_size=count, max_size=count))))
    size = datatype.size_bytes(count) or 0
    raw = draw(st.binary(min_size=size, max_size=size))
    if in_json and datatype.is_float:  # JSON's NaN has no payload
        raw = tensor_from_array(name, datatype, np.nan_to_num(tensor_to_array(Tensor(name, datatype, shape, raw)), nan=1.5)).raw
    return Tensor(name, datatype, shape, raw)


@st.composite
def requests(draw, *, binary):
    outputs = draw(st.lists(st.builds(RequestedOutput, NAMES, st.integers(0, 5), st.booleans()), max_size=3).map(tuple))
    return InferRequest(
        model="m",
        inputs=tuple(draw(st.lists(tensors(in_json=not binary), max_size=3))),
        outputs=outputs,
        version=draw(st.sampled_from(["", "3"])),
        id=draw(st.text(max_size=5)),
        parameters=draw(PARAMETERS),
        # where outputs are listed, or the inputs are JSON, the body does not say so
        binary_output=draw(st.booleans()) if binary and not outputs else False,
    )


@given(st.booleans().flatmap(lambda binary: st.tuples(requests(binary=binary), st.just(binary))))
def test_a_request_survives_encoding_and_decoding(drawn):
    request, binary = drawn
    headers, buffers = rest.encode_infer_request(sent(request, binary=binary))
    assert rest.decode_infer_request(request.model, request.version, b"".join(buffers), header_length(headers)) == request


@given(
    st.lists(
        st.booleans().flatmap(lambda b: st.tuples(st.just(b), tensors(in_json=not b))), max_size=3, unique_by=lambda pair: pair[1].name
    ),
    st.text(max_size=5),
    PARAMETERS,
)
def test_a_response_survives_encoding_and_decoding(outputs, identifier, parameters):
    response = InferResponse("m", "1", tuple(tensor for _, tensor in outputs), identifier, parameters)
    headers, buffers = rest.encode_infer_response(response, {tensor.name: binary for binary, tensor in outputs})
    assert rest.decode_infer_response(b"".join(buffers), header_length(headers)) == response


@given(st.binary(max_size=60), st.none() | st.integers(-5, 70))
def test_any_bytes_are_decoded_or_refused_with_a_protocol_error(body, length):
    for decode in (lambda: rest.decode_infer_request("m", "", body, length), lambda: rest.decode_infer_response(body, length)):
        with contextlib.suppress(ProtocolError):
            assert decode().model in {"m", ""}


JSON_DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3) | st.sampled_from(list(Datatype.__members__)),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "shape", "data", "parameters", "datatype"]), inner)
    ),
    max_leaves=8,
)


@given(
    st.fixed_dictionaries(
        {
            "inputs": st.lists(
                st.fixed_dictionaries(
                    {"name": st.just("A")}, optional=dict.fromkeys(["datatype", "shape", "data", "parameters"], JSON_DOCUMENTS)
                )
            )
        },
        optional=dict.fromkeys(["outputs", "parameters", "id"], JSON_DOCUMENTS),
    )
)
def test_any_json_is_decoded_or_refused_with_a_protocol_error(document):
    body = json.dumps(document).encode()
    with contextlib.suppress(ProtocolError):
        assert len(rest.decode_infer_request("m", "", body, None).inputs) == len(document["inputs"])


# tritonclient on the other end

WITH_JSON = [name for name in ARRAYS if name not in {"FP16", "BF16"}]


def their_input(name, datatype, *, binary):
    array = ARRAYS[datatype]
    return InferInput(name, list(array.shape), datatype).set_data_from_numpy(array, binary_data=binary)


def their_body(*inputs, outputs=None, **arguments):
    return tritonclient.http.InferenceServerClient.generate_request_body(list(inputs), outputs=outputs, **arguments)


def document_and_blobs(body, length):
    length = len(body) if length is None else length
    return json.loads(body[:length]), body[length:]


def test_the_arrays_are_of_all_fourteen_datatypes():
    assert sorted(ARRAYS) == sorted(Datatype.__members__)


@pytest.mark.parametrize(("datatype", "binary"), [*((name, True) for name in ARRAYS), *((name, False) for name in WITH_JSON)])
def test_tritonclients_request_is_read_to_the_same_array(datatype, binary):
    body, length = their_body(their_input("A", datatype, binary=binary))
    assert (length is None) is not binary
    request = rest.decode_infer_request("m", "", body, length)
    assert request == InferRequest("m", (our_tensor("A", datatype),), binary_output=True)
    np.testing.assert_array_equal(tensor_to_array(request.inputs[0]), ARRAYS[datatype].astype(tensor_to_array(request.inputs[0]).dtype))


def test_tritonclients_outputs_parameters_and_mixed_inputs_are_read():
    body, length = their_body(
        their_input("A", "INT32", binary=False),
        their_input("B", "BYTES", binary=True),
        their_input("C", "FP32", binary=False),
        their_input("D", "BF16", binary=True),
        outputs=[InferRequestedOutput("X"), InferRequestedOutput("Y", binary_data=False), InferRequestedOutput("Z", class_count=3)],
        request_id="42",
        sequence_id=7,
        sequence_start=True,
        priority=2,
        timeout=1000,
        parameters={"custom": 0.5, "name": "ü"},
    )
    assert rest.decode_infer_request("m", "1", body, length) == InferRequest(
        "m",
        (our_tensor("A", "INT32"), our_tensor("B", "BYTES"), our_tensor("C", "FP32"), our_tensor("D", "BF16")),
        outputs=(RequestedOutput("X", 0, binary=True), RequestedOutput("Y", 0, binary=False), RequestedOutput("Z", 3, binary=True)),
        version="1",
        id="42",
        parameters={
            "sequence_id": 7,
            "sequence_start": True,
            "sequence_end": False,
            "priority": 2,
            "timeout": 1000,
            "custom": 0.5,
            "name": "ü",
        },
        binary_output=False,
    )


@pytest.mark.parametrize("datatype", ["INT32", "BYTES"])
def test_tritonclients_empty_input_is_read(datatype):
    array = np.empty((1, 0), dtype=tritonclient.utils.triton_to_np_dtype(datatype))
    for binary in (True, False):
        body, length = their_body(InferInput("A", [1, 0], datatype).set_data_from_numpy(array, binary_data=binary))
        assert rest.decode_infer_request("m", "", body, length).inputs == (Tensor("A", Datatype[datatype], (1, 0), b""),)


@pytest.mark.parametrize(("datatype", "binary"), [*((name, True) for name in ARRAYS), *((name, False) for name in WITH_JSON)])
def test_our_request_has_the_members_of_tritonclients(datatype, binary):
    outputs = [InferRequestedOutput("X", binary_data=binary), InferRequestedOutput("Y", binary_data=binary, class_count=2)]
    theirs = document_and_blobs(
        *their_body(their_input("A", datatype, binary=binary), outputs=outputs, request_id="42", parameters={"custom": 1})
    )
    request = InferRequest(
        "m",
        (our_tensor("A", datatype),),
        outputs=(RequestedOutput("X"), RequestedOutput("Y", classes=2)),
        id="42",
        parameters={"custom": 1},
    )
    headers, buffers = rest.encode_infer_request(sent(request, binary=binary))
    assert document_and_blobs(b"".join(buffers), header_length(headers)) == theirs


def test_our_request_for_all_outputs_has_the_members_of_tritonclients():
    theirs = document_and_blobs(*their_body(their_input("A", "INT8", binary=True), their_input("B", "BYTES", binary=True)))
    headers, buffers = rest.encode_infer_request(InferRequest("m", (our_tensor("A", "INT8"), our_tensor("B", "BYTES"))))
    assert document_and_blobs(b"".join(buffers), header_length(headers)) == theirs


@pytest.mark.parametrize("others_binary", [True, False])
@pytest.mark.parametrize(("datatype", "binary"), [*((name, True) for name in ARRAYS), *((name, False) for name in WITH_JSON)])
def test_tritonclient_reads_our_response_to_the_same_array(datatype, binary, others_binary):
    tensor = our_tensor("X", datatype)
    response = InferResponse("m", "1", (our_tensor("before", "INT8"), tensor, our_tensor("behind", "BYTES")), id="42")
    headers, buffers = rest.encode_infer_response(response, {"before": others_binary, "X": binary, "behind": others_binary})
    body = b"".join(buffers)
    result = tritonclient.http.InferenceServerClient.parse_response_body(body, header_length=header_length(headers))
    array = result.as_numpy("X")
    if datatype == "BYTES" and not binary:  # its JSON strings stay text
        array = np.array([text.encode() for text in array.flat], dtype=object).reshape(array.shape)
    assert array.dtype == ARRAYS[datatype].dtype
    np.testing.assert_array_equal(array, ARRAYS[datatype])
    np.testing.assert_array_equal(result.as_numpy("before"), ARRAYS["INT8"])
    assert result.as_numpy("behind").shape == ARRAYS["BYTES"].shape
    assert (result.get_response()["model_name"], result.get_response()["model_version"], result.get_response()["id"]) == ("m", "1", "42")


def test_tritonclient_reads_our_empty_output():
    headers, buffers = rest.encode_infer_response(InferResponse("m", "1", (EMPTY,)), {"C": True})
    result = tritonclient.http.InferenceServerClient.parse_response_body(b"".join(buffers), header_length=header_length(headers))
    assert result.as_numpy("C").shape == (1, 0)
    assert result.as_numpy("C").dtype == np.float32


@given(st.lists(tensors(), min_size=1, max_size=4, unique_by=lambda tensor: tensor.name))
def test_tritonclient_reads_any_binary_response_of_ours(outputs):
    headers, buffers = rest.encode_infer_response(
        InferResponse("m", "1", tuple(outputs)), dict.fromkeys((one.name for one in outputs), True)
    )
    result = tritonclient.http.InferenceServerClient.parse_response_body(b"".join(buffers), header_length=header_length(headers))
    for tensor in outputs:
        array = result.as_numpy(tensor.name)
        assert array.shape == tensor.shape
        if tensor.datatype is Datatype.BYTES:
            assert array.ravel().tolist() == [text.encode() for text in tensor_to_json(tensor)]
        else:
            assert array.tobytes() == tensor.raw


def test_a_configuration_is_read_with_a_digest_that_hangs_on_no_order():
    first = rest_models.decode_model_config(b'{"max_batch_size": 8, "parameters": {"a": 1, "b": [1, 2]}}')
    assert (first.max_batch_size, len(first.sha256)) == (8, 64)
    assert rest_models.decode_model_config(b'{"parameters":{"b":[1,2],"a":1},"max_batch_size":8}') == first
    assert rest_models.decode_model_config(b'{"max_batch_size": 8, "parameters": {"a": 1, "b": [2, 1]}}').sha256 != first.sha256
    assert rest_models.decode_model_config(b"{}") == ModelConfig(0, rest_models.decode_model_config(b"{}").sha256)


@pytest.mark.parametrize("body", [b"[]", b"<html>", b'{"max_batch_size": -1}', b'{"max_batch_size": "x"}', b'{"max_batch_size": 1e999}'])
def test_an_invalid_configuration_is_refused(body):
    with pytest.raises(ProtocolError, match="configuration"):
        rest_models.decode_model_config(body)


def test_a_configuration_names_required_inputs_and_the_models_of_an_ensemble():
    steps = [{"model_name": "b", "model_version": -1}, {"model_name": "a", "model_version": "3"}, {"model_name": "b", "model_version": -1}]
    inputs = [{"name": "x"}, {"name": "bias", "optional": True}]
    config = rest_models.decode_model_config(json.dumps({"input": inputs, "ensemble_scheduling": {"step": steps}}).encode())
    assert config.required_inputs == {"x"}
    assert config.composing_models == (ComposingModel("b"), ComposingModel("a", "3"))
    odd = rest_models.decode_model_config(b'{"input": {"x": 1}, "ensemble_scheduling": [1]}')  # as no server should write it
    assert (odd.required_inputs, odd.composing_models) == (frozenset(), ())


@pytest.mark.parametrize(
    ("datatype", "highest"),
    [("TYPE_INT32", 2**31 - 1), ("TYPE_UINT32", 2**32 - 1), ("TYPE_UINT64", None), ("TYPE_STRING", None), (7, None)],
)
def test_a_configuration_tells_which_ids_of_sequences_the_model_gets_whole(datatype, highest):
    start = {"name": "START", "control": [{"kind": "CONTROL_SEQUENCE_START", "data_type": "TYPE_INT32"}]}
    own = {"name": "CORRID", "control": [{"kind": "CONTROL_SEQUENCE_CORRID", "data_type": datatype}]}
    document = {"sequence_batching": {"control_input": [start, own]}}
    assert rest_models.decode_model_config(json.dumps(document).encode()).highest_sequence_id == highest


@pytest.mark.parametrize("batching", [[], {"control_input": [1, {"control": {}}]}, {"oldest": {}}])
def test_a_configuration_may_leave_the_ids_of_sequences_out(batching):
    assert rest_models.decode_model_config(json.dumps({"sequence_batching": batching}).encode()).highest_sequence_id is None


@pytest.mark.parametrize("size", [10**30, 2**63, -2, "9" * 5000, "²", True, 1.0, None])
def test_a_dimension_that_is_not_one_of_64_bits_is_refused(size):
    document = {"name": "m", "inputs": [{"name": "x", "datatype": "FP32", "shape": [1, size]}]}
    with pytest.raises(ProtocolError, match="the server's model metadata is not v2: Unable to parse 'shape': expected 64-bit dimensions"):
        rest_models.decode_model_metadata(json.dumps(document).encode())


@pytest.mark.parametrize("size", [2**31, 10**30, 1e300, "9" * 5000])
def test_a_batch_size_beyond_32_bits_is_refused(size):
    with pytest.raises(ProtocolError, match="the server's model configuration is not v2"):
        rest_models.decode_model_config(json.dumps({"max_batch_size": size}).encode())
