"""Requests with tensors in shared memory, and the calls that register it, against literal JSON and tritonclient's messages."""

import base64
import dataclasses
import json

import pytest
from tritonclient.grpc import service_pb2

from perfkit.errors import ProtocolError
from perfkit.protocol import protobuf, rest
from perfkit.protocol.message import InferRequest, RequestedOutput, SharedRegion, SharedSlot
from perfkit.protocol.tensor import Datatype, Tensor

PLAIN = Tensor("A", Datatype.INT32, (1,), b"\x01\x00\x00\x00")
SHARED = Tensor("B", Datatype.INT32, (2,), b"")
REQUEST = InferRequest(
    "m", (PLAIN, SHARED), (RequestedOutput("Y", slot=SharedSlot("out", 64, 4)),), input_slots={"B": SharedSlot("in", 0, 8)}
)
IN, OUT = (
    {"shared_memory_region": name, "shared_memory_offset": offset, "shared_memory_byte_size": size}
    for name, offset, size in (("in", 0, 8), ("out", 64, 4))
)
ANSWER = b'{"model_name":"m","model_version":"1","outputs":[{"name":"Y","datatype":"INT32","shape":[1]}]}'


def test_http_requests_name_the_slots_and_carry_only_the_other_tensors():
    headers, body = rest.encode_infer_request(REQUEST)
    assert json.loads(bytes(body[0])) == {
        "inputs": [
            {"name": "A", "datatype": "INT32", "shape": [1], "parameters": {"binary_data_size": 4}},
            {"name": "B", "datatype": "INT32", "shape": [2], "parameters": IN},
        ],
        "outputs": [{"name": "Y", "parameters": OUT}],
    }
    assert body[1:] == [b"\x01\x00\x00\x00"]
    assert headers["Inference-Header-Content-Length"] == str(len(body[0]))


def test_grpc_requests_name_the_slots_and_carry_only_the_other_tensors():
    for request, has_raw in ((REQUEST, True), (dataclasses.replace(REQUEST, plain_inputs=frozenset("A")), False)):
        message = service_pb2.ModelInferRequest.FromString(protobuf.encode_infer_request(request))
        assert list(message.raw_input_contents) == ([b"\x01\x00\x00\x00"] if has_raw else [])
        assert list(message.inputs[0].contents.int_contents) == ([] if has_raw else [1])
        for tensor, place in ((message.inputs[1], IN), (message.outputs[0], OUT)):
            assert tensor.parameters["shared_memory_region"].string_param == place["shared_memory_region"]
            assert tensor.parameters["shared_memory_offset"].int64_param == place["shared_memory_offset"]
            assert tensor.parameters["shared_memory_byte_size"].int64_param == place["shared_memory_byte_size"]


def test_an_http_answer_may_lack_data_only_where_outputs_are_in_shared_memory():
    assert rest.decode_infer_response(ANSWER, None, has_slots=True).outputs == (Tensor("Y", Datatype.INT32, (1,), b""),)
    with pytest.raises(ProtocolError, match="no field is set"):
        rest.decode_infer_response(ANSWER, None)
    both = ANSWER.replace(b'"shape":[1]', b'"shape":[1],"data":[5]')
    assert rest.decode_infer_response(both, None, has_slots=True).outputs[0].raw == b"\x05\x00\x00\x00"


def test_regions_are_registered_by_key_or_by_handle():
    system, cuda = SharedRegion("r s", 100), SharedRegion("g", 100, bytes(range(64)), 3)
    assert rest.region_path(system.kind, "register", system.name) == "/v2/systemsharedmemory/region/r%20s/register"
    assert json.loads(rest.encode_region(system)) == {"key": "/r s", "offset": 0, "byte_size": 100}
    assert rest.region_path(cuda.kind, "status") == "/v2/cudasharedmemory/status"
    document = json.loads(rest.encode_region(cuda))
    assert base64.b64decode(document["raw_handle"]["b64"]) == bytes(range(64))
    assert (document["device_id"], document["byte_size"]) == (3, 100)
    assert rest.decode_region_names(b'[{"name":"a","key":"/a"},{"name":"b"}]') == ("a", "b")
    for body in (b"{}x", b"[1]", b'[{"key":"a"}]'):
        with pytest.raises(ProtocolError, match="not v2"):
            rest.decode_region_names(body)
