import json

import numpy as np

from benchmarks.peers.canned import LARGE_MODEL, MODEL, OUTPUTS, framed, grpc_answers, http_answers
from perfkit.protocol import protobuf, rest, v2_pb2
from perfkit.protocol.tensor import tensor_to_array


def test_canned_inference_responses_decode_as_v2():
    files, lengths = http_answers()
    responses = [rest.decode_infer_response(files[model], lengths[model]) for model in (MODEL, LARGE_MODEL)]
    responses.append(protobuf.decode_infer_response(grpc_answers()["ModelInfer"][5:]))
    assert [response.model for response in responses] == ["simple", "large", "simple"]
    for response in responses:
        assert [tensor.name for tensor in response.outputs] == list(OUTPUTS)
        for tensor in response.outputs:
            np.testing.assert_array_equal(tensor_to_array(tensor), [range(16)])


def test_both_protocols_have_the_same_model_metadata():
    files, _ = http_answers()
    metadata = rest.decode_model_metadata(files["simple.json"])
    message = v2_pb2.ModelMetadataResponse.FromString(grpc_answers()["ModelMetadata"][5:])
    assert protobuf.model_metadata(message) == metadata
    assert json.loads(files["large.json"])["name"] == "large"


def test_messages_have_a_grpc_frame():
    assert framed(b"\x08\x01") == b"\x00\x00\x00\x00\x02\x08\x01"
    assert grpc_answers()["ServerLive"] == b"\x00\x00\x00\x00\x02\x08\x01"
