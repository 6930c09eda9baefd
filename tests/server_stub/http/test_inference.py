"""Inference over HTTP: rows I1 to I15 of the conformance checklist. I16 and I17 are in test_tritonclient."""

import gzip
import json
import socket
import zlib

import numpy as np
import pytest
from tritonclient.http import InferInput, InferRequestedOutput

from perfkit.errors import ProtocolError
from perfkit.protocol.compression import choose_encoding, decompress
from server_stub.http.inference import MAX_JSON_BYTES

FIRST, SECOND = list(range(16)), [10] * 16
SUM, DIFFERENCE = [value + 10 for value in FIRST], [value - 10 for value in FIRST]


def json_input(name, values, shape=(1, 16)):
    return {"name": name, "datatype": "INT32", "shape": list(shape), "data": values}


def binary_input(name, size_bytes=64, shape=(1, 16)):
    return {"name": name, "datatype": "INT32", "shape": list(shape), "parameters": {"binary_data_size": size_bytes}}


def raw(values):
    return np.array(values, "<i4").tobytes()


def both(**members):
    return {"inputs": [json_input("INPUT0", FIRST), json_input("INPUT1", SECOND)], **members}


def outputs(answer):
    return {one["name"]: one for one in answer.json["outputs"]}


def test_I1_json(wire):
    answer = wire.infer(both())
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json == {
        "model_name": "simple",
        "model_version": "1",
        "outputs": [json_input("OUTPUT0", SUM), json_input("OUTPUT1", DIFFERENCE)],
    }


def test_I2_nested_json_data_equals_flat_data(wire):
    assert wire.infer({"inputs": [json_input("INPUT0", [FIRST]), json_input("INPUT1", SECOND)]}).json == wire.infer(both()).json


def test_I3_binary(wire):
    document = {"inputs": [binary_input("INPUT0"), binary_input("INPUT1")], "parameters": {"binary_data_output": True}}
    answer = wire.infer(document, binary=raw(FIRST) + raw(SECOND))
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/octet-stream"
    length = int(answer.headers["Inference-Header-Content-Length"])
    assert [one["parameters"]["binary_data_size"] for one in json.loads(answer.body[:length])["outputs"]] == [64, 64]
    assert answer.body[length:] == raw(SUM) + raw(DIFFERENCE)


def test_I4_json_and_binary_inputs_mix(wire):
    document = {"inputs": [json_input("INPUT0", FIRST), binary_input("INPUT1")]}
    assert outputs(wire.infer(document, binary=raw(SECOND)))["OUTPUT0"]["data"] == SUM


def test_I5_json_and_binary_outputs_mix(wire):
    answer = wire.infer(both(outputs=[{"name": "OUTPUT0", "parameters": {"binary_data": True}}, {"name": "OUTPUT1"}]))
    assert outputs(answer)["OUTPUT0"]["parameters"] == {"binary_data_size": 64}
    assert outputs(answer)["OUTPUT1"]["data"] == DIFFERENCE
    assert answer.body.endswith(raw(SUM))


def test_I6_binary_data_output_makes_unlisted_outputs_binary(wire):
    answer = wire.infer(both(parameters={"binary_data_output": True}))
    assert all("data" not in one for one in answer.json["outputs"])
    assert answer.body.endswith(raw(SUM) + raw(DIFFERENCE))


def test_I7_a_listed_output_stays_json_despite_binary_data_output(wire):
    answer = wire.infer(both(outputs=[{"name": "OUTPUT0"}], parameters={"binary_data_output": True}))
    assert answer.json["outputs"] == [json_input("OUTPUT0", SUM)]


def test_I8_only_requested_outputs_are_returned(wire):
    assert list(outputs(wire.infer(both(outputs=[{"name": "OUTPUT1"}])))) == ["OUTPUT1"]


def test_I9_the_id_is_echoed_unless_empty(wire):
    assert wire.infer(both(id="42")).json["id"] == "42"
    assert "id" not in wire.infer(both(id="")).json


@pytest.mark.parametrize(("encoding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_I11_compressed_requests(wire, encoding, compress):
    answer = wire.send("POST", "/v2/models/simple/infer", compress(json.dumps(both()).encode()), {"Content-Encoding": encoding})
    assert answer.status == 200
    assert outputs(answer)["OUTPUT0"]["data"] == SUM


@pytest.mark.parametrize(("encoding", "window"), [("gzip", zlib.MAX_WBITS | 16), ("deflate", zlib.MAX_WBITS)])
def test_I12_compressed_replies(wire, encoding, window):
    """The header has the length of the uncompressed JSON part. `deflate` is the zlib format."""
    text = json.dumps(both(parameters={"binary_data_output": True})).encode()
    plain = wire.send("POST", "/v2/models/simple/infer", text)
    answer = wire.send("POST", "/v2/models/simple/infer", text, {"Accept-Encoding": encoding})
    assert answer.status == 200
    assert answer.headers["Content-Encoding"] == encoding
    assert zlib.decompress(answer.body, window) == plain.body
    for name in ("Inference-Header-Content-Length", "Content-Type"):
        assert answer.headers[name] == plain.headers[name]


def test_I12_only_infer_responses_are_compressed(wire):
    accept = {"Accept-Encoding": "gzip, deflate"}
    for answer in (wire.send("GET", "/v2/models/simple", headers=accept), wire.send("POST", "/v2/models/simple/infer", b"{", accept)):
        assert "Content-Encoding" not in answer.headers
        assert answer.json


@pytest.mark.parametrize(
    ("accepts", "chosen"),
    [
        ("", "identity"),
        ("gzip", "gzip"),
        ("deflate, gzip", "deflate"),
        ("gzip, deflate", "gzip"),
        ("gzip;q=0.5, deflate;q=0.8", "deflate"),
        ("gzip; q=0.5 , identity; q=0.4", "gzip"),
        ("identity, gzip", "identity"),
        ("gzip;q=0", "identity"),
        ("br, zstd", "identity"),
        ("br;q=1, gzip;q=0.1", "gzip"),
        ("*", "identity"),
        ("gzip;q=x", "identity"),
    ],
)
def test_I12_the_preferred_encoding_is_used_and_the_first_of_equals(accepts, chosen):
    assert choose_encoding(accepts) == chosen


def test_I10_a_raw_request_consists_of_the_tensor(wire):
    image = np.random.Generator(np.random.Philox(3)).random((3, 224, 224), np.float32)
    document = {
        "inputs": [{"name": "data_0", "datatype": "FP32", "shape": [3, 224, 224], "parameters": {"binary_data_size": image.nbytes}}],
        "parameters": {"binary_data_output": True},
    }
    expected = wire.infer(document, binary=image.tobytes(), model="densenet_onnx")
    answer = wire.send("POST", "/v2/models/densenet_onnx/infer", image.tobytes(), {"Inference-Header-Content-Length": "0"})
    assert answer.status == 200
    assert answer.body == expected.body
    assert answer.headers["Content-Type"] == "application/octet-stream"


@pytest.mark.parametrize(
    ("model", "body", "shape"), [("identity_int16", b"\x01\x00\x02\x00\x03\x00", [1, 3]), ("identity_fp32", b"", [1, 0])]
)
def test_I10_the_shape_of_a_raw_request_is_taken_from_its_length(wire, model, body, shape):
    headers = {"Inference-Header-Content-Length": "0"} if body else {}
    answer = wire.send("POST", f"/v2/models/{model}/infer", body, headers)
    assert answer.status == 200
    assert answer.json["outputs"][0]["shape"] == shape
    assert answer.body.endswith(body)


@pytest.mark.parametrize(
    ("model", "body", "text"),
    [
        (
            "simple",
            b"x" * 64,
            "Raw request must only have 1 input (found 1) to be deduced but got 2 inputs in 'simple' model configuration",
        ),
        ("densenet_onnx", b"x" * 64, "input byte size mismatch for input 'data_0' for model 'densenet_onnx'. Expected 602112, got 64"),
        ("simple_identity", b"text", "For BYTE datatype raw input 'INPUT0', the model must have input shape [1]"),
        ("identity_int16", b"x" * 7, "input byte size mismatch for input 'INPUT0' for model 'identity_int16'. Expected 6, got 7"),
    ],
)
def test_I10_a_raw_request_of_the_wrong_size_is_rejected(wire, model, body, text):
    answer = wire.send("POST", f"/v2/models/{model}/infer", body, {"Inference-Header-Content-Length": "0"})
    assert answer.status == 400
    assert text in answer.json["error"]


def test_json_above_the_limit_is_rejected(wire):
    answer = wire.send("POST", "/v2/models/simple/infer", b" " * (MAX_JSON_BYTES + 1))
    assert answer.status == 400
    assert answer.json["error"].startswith("request JSON size of 67108865 bytes exceeds the maximum allowed input size of 67108864")


@pytest.mark.parametrize(
    ("body", "headers", "content_type"),
    [
        (b"{", {}, "application/json"),
        (b"{}", {"Inference-Header-Content-Length": "9"}, "text/plain"),
        (b"{}", {"Content-Encoding": "br"}, "text/plain"),
    ],
)
def test_errors_of_the_http_layer_are_json_with_content_type_text(wire, body, headers, content_type):
    answer = wire.send("POST", "/v2/models/simple/infer", body, headers)
    assert answer.headers["Content-Type"].partition(";")[0] == content_type
    assert answer.json["error"]


def test_I13_other_encodings_are_501(wire):
    answer = wire.send("POST", "/v2/models/simple/infer", b"abc", {"Content-Encoding": "br"})
    assert (answer.status, answer.json) == (501, {"error": "Unsupported compression type"})
    assert answer.headers["Accept-Encoding"] == "gzip, deflate"


def test_a_corrupt_compressed_body_is_400(wire):
    for body, text in ((b"abc", "cannot be decompressed"), (gzip.compress(b"{}")[:-4], "ends too early")):
        answer = wire.send("POST", "/v2/models/simple/infer", body, {"Content-Encoding": "gzip"})
        assert answer.status == 400
        assert text in answer.json["error"]


def test_a_body_too_large_after_decompression_is_rejected():
    assert decompress(gzip.compress(bytes(1000)), "gzip", 1000) == bytes(1000)
    with pytest.raises(ProtocolError, match="exceeds the maximum allowed input size of 999 bytes"):
        decompress(gzip.compress(bytes(1000)), "gzip", 999)


def test_a_too_large_content_length_is_400(server):
    head = b"POST /v2/models/simple/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 2000000000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.http_port), timeout=30) as connection, connection.makefile("rb") as reader:
        connection.sendall(head)
        assert reader.readline() == b"HTTP/1.1 400 Bad Request\r\n"


def test_a_disconnecting_client_does_not_affect_others(server, wire):
    head = b"POST /v2/models/simple/infer HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{"
    with socket.create_connection(("127.0.0.1", server.http_port), timeout=30) as connection:
        connection.sendall(head)
    assert wire.infer(both()).status == 200


def test_I14_two_requests_on_one_socket(server):
    body = json.dumps(both()).encode()
    request = b"POST /v2/models/simple/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    with socket.create_connection(("127.0.0.1", server.http_port), timeout=30) as connection, connection.makefile("rb") as reader:
        for _ in range(2):
            connection.sendall(request)
            assert reader.readline() == b"HTTP/1.1 200 OK\r\n"
            headers = dict(line.rstrip().lower().split(b": ") for line in iter(reader.readline, b"\r\n"))
            assert json.loads(reader.read(int(headers[b"content-length"])))["model_name"] == "simple"


def test_I15_binary_needs_no_content_type(wire):
    # the standard library's client sends none
    assert wire.infer({"inputs": [binary_input("INPUT0"), binary_input("INPUT1")]}, binary=raw(FIRST) + raw(SECOND)).status == 200


def test_the_path_may_contain_a_version(wire):
    body = json.dumps(both()).encode()
    assert wire.send("POST", "/v2/models/simple/versions/1/infer", body).status == 200
    assert wire.send("POST", "/v2/models/simple/versions/9/infer", body).status == 404


def test_a_batch_is_answered_row_by_row(wire):
    document = {"inputs": [json_input("INPUT0", FIRST * 2, (2, 16)), json_input("INPUT1", SECOND * 2, (2, 16))]}
    assert outputs(wire.infer(document))["OUTPUT0"] == json_input("OUTPUT0", SUM * 2, (2, 16))


@pytest.mark.parametrize("binary", [True, False])
def test_tritonclient_gets_sums_and_differences(triton_http, binary):
    inputs = [InferInput("INPUT0", [2, 16], "INT32"), InferInput("INPUT1", [2, 16], "INT32")]
    first, second = np.arange(32, dtype=np.int32).reshape(2, 16), np.ones((2, 16), np.int32)
    inputs[0].set_data_from_numpy(first, binary_data=binary)
    inputs[1].set_data_from_numpy(second, binary_data=binary)
    asked = [InferRequestedOutput("OUTPUT0", binary_data=binary), InferRequestedOutput("OUTPUT1", binary_data=not binary)]
    result = triton_http.infer("simple", inputs, outputs=asked, request_id="7")
    assert result.get_response()["id"] == "7"
    np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), first + second)
    np.testing.assert_array_equal(result.as_numpy("OUTPUT1"), first - second)
    unasked = triton_http.infer("simple", inputs)
    np.testing.assert_array_equal(unasked.as_numpy("OUTPUT1"), first - second)
