"""Payloads: what Triton's own client sends over both protocols, as a payload and back."""

import json

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http

from perfkit.errors import ProtocolError
from perfkit.protocol.message import InferRequest
from perfkit.protocol.protobuf import describe_infer_request
from perfkit.protocol.tensor import Datatype, tensor_to_array
from perfkit.trace.payloads import decode_payload, payload_name, payload_of_grpc, payload_of_http

VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


def http_body(*, request_id="", binary=True):
    given = triton_http.InferInput("X", [2, 3], "FP32")
    given.set_data_from_numpy(VALUES, binary_data=binary)
    text = triton_http.InferInput("T", [1], "BYTES")
    text.set_data_from_numpy(np.array([b"\xc3\xa4"], dtype=object), binary_data=binary)
    outputs = [triton_http.InferRequestedOutput("Y", binary_data=False, class_count=3)]
    body, length = triton_http.InferenceServerClient.generate_request_body(
        [given, text], outputs=outputs, request_id=request_id, priority=2
    )
    return body, length


def grpc_message(*, request_id=""):
    given = triton_grpc.InferInput("X", [2, 3], "FP32")
    given.set_data_from_numpy(VALUES)
    from tritonclient.grpc._utils import _get_inference_request

    request = _get_inference_request(
        model_name="m", inputs=[given], model_version="", request_id=request_id, outputs=None, sequence_id=0, sequence_start=False,
        sequence_end=False, priority=0, timeout=None, parameters={"b": 1, "a": "z"},
    )  # fmt: skip
    return request.SerializeToString()


def document_of(body, length):
    return json.loads(body[:length])


@pytest.mark.parametrize("binary", [True, False])
def test_a_request_over_http_comes_back_as_it_was(binary):
    body, length = http_body(binary=binary)
    request = decode_payload(payload_of_http(document_of(body, length), body, length), "m", "3")
    assert (request.model, request.version, request.parameters, request.id) == ("m", "3", {"priority": 2}, "")
    assert tensor_to_array(request.inputs[0]).tolist() == VALUES.tolist()
    assert tensor_to_array(request.inputs[1]).tolist() == ["ä".encode()]
    assert request.plain_inputs == (frozenset() if binary else {"X", "T"})
    (output,) = request.outputs
    assert (output.name, output.classes, output.binary) == ("Y", 3, False)


def test_requests_that_differ_in_their_id_alone_have_one_payload():
    payloads = set()
    for request_id in ("one", "two"):
        body, length = http_body(request_id=request_id)
        payloads.add(payload_of_http(document_of(body, length), body, length))
    assert len(payloads) == 1
    assert len({payload_of_grpc(grpc_message(request_id=name), is_typed=False) for name in ("one", "two")}) == 1


def test_a_request_over_grpc_comes_back_as_it_was():
    message = grpc_message()
    assert describe_infer_request(message) == ("m", "", {"X": [2, 3]}, False)
    request = decode_payload(payload_of_grpc(message, is_typed=False), "m", "")
    assert isinstance(request, InferRequest)
    assert request.parameters == {"a": "z", "b": 1}
    (tensor,) = request.inputs
    assert (tensor.datatype, tensor.shape, bytes(tensor.raw)) == (Datatype.FP32, (2, 3), VALUES.tobytes())


def test_typed_contents_are_sent_as_values_again():
    from tritonclient.grpc import service_pb2

    message = service_pb2.ModelInferRequest(model_name="m")
    tensor = message.inputs.add(name="X", datatype="INT32", shape=[2])
    tensor.contents.int_contents.extend([7, -8])
    encoded = message.SerializeToString()
    assert describe_infer_request(encoded)[3] is True
    request = decode_payload(payload_of_grpc(encoded, is_typed=True), "m", "")
    assert request.plain_inputs == {"X"}
    assert tensor_to_array(request.inputs[0]).tolist() == [7, -8]


def test_tensors_in_shared_memory_are_no_payload():
    document = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1], "parameters": {"shared_memory_region": "r"}}]}
    with pytest.raises(ProtocolError):
        payload_of_http(document, json.dumps(document).encode(), None)


@pytest.mark.parametrize("payload", [b"", b"\xff\x00", b"[1]", b"{", b'{"inputs": 5}', b'{"inputs": []}trailing'])
def test_bytes_that_are_no_request_are_refused(payload):
    with pytest.raises(ProtocolError):
        decode_payload(payload, "m", "")


def test_a_payload_is_named_by_its_digest():
    # the digest of "abc" in FIPS 180-2, appendix B.1
    assert payload_name(b"abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
