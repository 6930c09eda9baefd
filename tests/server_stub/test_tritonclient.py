"""Unmodified tritonclient, with all four of its clients, against the server."""

import asyncio
import contextlib
import http.client
import json
import socket
import threading

import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio
from tritonclient.utils import InferenceServerException, triton_to_np_dtype

from server_stub.models import NAMES

LIBRARIES = {"http": tritonclient.http, "grpc": tritonclient.grpc, "http.aio": tritonclient.http.aio, "grpc.aio": tritonclient.grpc.aio}
INF, NAN = np.inf, np.nan
VALUES = {
    "BOOL": [True, False, True],
    "UINT8": [0, 1, 255],
    "UINT16": [0, 1, 2**16 - 1],
    "UINT32": [0, 1, 2**32 - 1],
    "UINT64": [0, 1, 2**64 - 1],
    "INT8": [-128, 0, 127],
    "INT16": [-(2**15), 0, 2**15 - 1],
    "INT32": [-(2**31), 0, 2**31 - 1],
    "INT64": [-(2**63), 0, 2**63 - 1],
    "FP16": [65504.0, -(2.0**-24), -INF],
    "BF16": [1.0, -3.0, INF],
    "FP32": [3.4028234663852886e38, -(2.0**-149), -0.0],
    "FP64": [1.7976931348623157e308, 5e-324, NAN],
    "BYTES": [b"", b"a\x00b", "ü".encode()],
}


class Flavour:
    """One of tritonclient's clients, called synchronously even if it is asynchronous."""

    def __init__(self, name, server):
        self.name, self.library = name, LIBRARIES[name]
        self._is_asynchronous = name.endswith("aio")
        self.is_http = name.startswith("http")
        self._url = f"127.0.0.1:{server.http_port if self.is_http else server.grpc_port}"

    def call(self, method, *arguments, **keys):
        """Call a method of a new client."""
        if not self._is_asynchronous:
            with self.library.InferenceServerClient(self._url) as client:
                return getattr(client, method)(*arguments, **keys)

        async def ask():
            async with self.library.InferenceServerClient(self._url) as client:
                return await getattr(client, method)(*arguments, **keys)

        return asyncio.run(ask())

    def input(self, name, array, datatype, **keys):
        given = self.library.InferInput(name, list(array.shape), datatype)
        return given.set_data_from_numpy(array, **keys) or given

    def describe(self, method, *arguments):
        """The result of a call as plain values, the same for both protocols."""
        return self.call(method, *arguments) if self.is_http else self.call(method, *arguments, as_json=True)


@pytest.fixture(params=LIBRARIES)
def flavour(request, server):
    return Flavour(request.param, server)


def array_of(datatype):
    values = np.array([VALUES[datatype]], dtype=ml_dtypes.bfloat16 if datatype == "BF16" else triton_to_np_dtype(datatype))
    assert values.shape == (1, 3)
    return values


def vectors(flavour, **keys):
    first, second = np.arange(16, dtype=np.int32)[np.newaxis], np.full((1, 16), 10, np.int32)
    return [flavour.input("INPUT0", first, "INT32", **keys), flavour.input("INPUT1", second, "INT32", **keys)], first, second


@pytest.mark.parametrize("datatype", VALUES)
def test_every_datatype_is_returned_unchanged(flavour, datatype):
    given = array_of(datatype)
    answer = flavour.call("infer", f"identity_{datatype.lower()}", [flavour.input("INPUT0", given, datatype)], request_id="42")
    came = answer.as_numpy("OUTPUT0")
    assert came.dtype == given.dtype
    np.testing.assert_array_equal(came, given)
    assert (answer.get_response()["id"] if flavour.is_http else answer.get_response().id) == "42"


@pytest.mark.parametrize("datatype", [datatype for datatype in VALUES if datatype not in ("FP16", "BF16", "FP64", "FP32")])
def test_every_datatype_with_a_json_form_is_returned_unchanged(server, datatype):
    flavour, given = Flavour("http", server), array_of(datatype)
    if datatype == "BYTES":  # tritonclient decodes the elements itself
        given = np.array([["", "a\x00b", "ü"]], dtype=object)
    asked = tritonclient.http.InferRequestedOutput("OUTPUT0", binary_data=False)
    inputs = [flavour.input("INPUT0", given, datatype, binary_data=False)]
    came = flavour.call("infer", f"identity_{datatype.lower()}", inputs, outputs=[asked]).as_numpy("OUTPUT0")
    assert came.tolist() == given.tolist()


@pytest.mark.parametrize("datatype", VALUES)
def test_I17_an_empty_tensor_is_returned_empty(flavour, datatype):
    empty = array_of(datatype)[:, :0]
    came = flavour.call("infer", f"identity_{datatype.lower()}", [flavour.input("INPUT0", empty, datatype)]).as_numpy("OUTPUT0")
    assert (came.shape, came.dtype) == ((1, 0), empty.dtype)


def test_I16_strings_with_nul_and_empty_strings_are_returned(flavour):
    given = np.array([[b"a\x00", b"", b"\xff\xfe"], [b"", b"\x00", b"x" * 1000]], dtype=object)
    came = flavour.call("infer", "simple_identity", [flavour.input("INPUT0", given, "BYTES")]).as_numpy("OUTPUT0")
    assert came.tolist() == given.tolist()


def test_I17_an_empty_tensor_has_no_binary_part(wire):
    document = {
        "inputs": [{"name": "INPUT0", "datatype": "BYTES", "shape": [1, 0], "parameters": {"binary_data_size": 0}}],
        "outputs": [{"name": "OUTPUT0", "parameters": {"binary_data": True}}],
    }
    text = json.dumps(document).encode()
    answer = wire.send("POST", "/v2/models/simple_identity/infer", text, {"Inference-Header-Content-Length": str(len(text))})
    assert answer.status == 200
    assert "Inference-Header-Content-Length" not in answer.headers
    assert answer.json["outputs"] == [{"name": "OUTPUT0", "datatype": "BYTES", "shape": [1, 0], "parameters": {"binary_data_size": 0}}]


def test_the_curl_example_on_simple(server):
    """JSON sent as `curl -d` does, with curl's content type for forms."""
    numbers = list(range(1, 17))
    document = {"inputs": [{"name": name, "shape": [1, 16], "datatype": "INT32", "data": [numbers]} for name in ("INPUT0", "INPUT1")]}
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    connection.request("POST", "/v2/models/simple/infer", json.dumps(document), headers)
    answer = json.loads(connection.getresponse().read())
    connection.close()
    assert [(one["name"], one["data"]) for one in answer["outputs"]] == [
        ("OUTPUT0", [2 * number for number in numbers]),
        ("OUTPUT1", [0] * 16),
    ]


@pytest.mark.parametrize(("model", "datatype"), [("simple", "INT32"), ("simple_int8", "INT8")])
def test_sums_and_differences(flavour, model, datatype):
    first = np.array([range(16), range(16, 32)], triton_to_np_dtype(datatype))
    second = np.full((2, 16), 3, first.dtype)
    answer = flavour.call("infer", model, [flavour.input("INPUT0", first, datatype), flavour.input("INPUT1", second, datatype)])
    np.testing.assert_array_equal(answer.as_numpy("OUTPUT0"), first + second)
    np.testing.assert_array_equal(answer.as_numpy("OUTPUT1"), first - second)


def test_sums_and_differences_of_decimal_strings(flavour):
    first, second = ([[b"%d" % (number * factor) for number in range(16)]] for factor in (10**30, -7))
    inputs = [flavour.input(name, np.array(texts, dtype=object), "BYTES") for name, texts in (("INPUT0", first), ("INPUT1", second))]
    answer = flavour.call("infer", "simple_string", inputs)
    assert answer.as_numpy("OUTPUT0").tolist() == [[b"%d" % (number * (10**30 - 7)) for number in range(16)]]
    assert answer.as_numpy("OUTPUT1").tolist() == [[b"%d" % (number * (10**30 + 7)) for number in range(16)]]


def test_a_string_that_is_not_a_number_is_rejected(flavour):
    texts = np.array([[b"1"] * 15 + [b"one"]], dtype=object)
    inputs = [flavour.input(name, texts, "BYTES") for name in ("INPUT0", "INPUT1")]
    with pytest.raises(InferenceServerException, match=r"input 'INPUT0' holds b'one', which is not a decimal number") as refused:
        flavour.call("infer", "simple_string", inputs)
    assert refused.value.status() == ("400" if flavour.is_http else "StatusCode.INVALID_ARGUMENT")


def test_all_request_parameters_are_accepted(flavour):
    inputs, first, second = vectors(flavour)
    outputs = [flavour.library.InferRequestedOutput("OUTPUT1")]
    answer = flavour.call(
        "infer", "simple", inputs, model_version="1", outputs=outputs, request_id="r-1", priority=2, timeout=10**6,
        parameters={"text": "x", "flag": True, "number": -3},
    )  # fmt: skip
    np.testing.assert_array_equal(answer.as_numpy("OUTPUT1"), first - second)
    assert answer.as_numpy("OUTPUT0") is None


@pytest.mark.parametrize("flavour", ["http", "http.aio"], indirect=True)
@pytest.mark.parametrize("algorithm", ["gzip", "deflate"])
def test_I11_I12_requests_and_replies_are_compressed(flavour, algorithm):
    inputs, first, second = vectors(flavour)
    answer = flavour.call("infer", "simple", inputs, request_compression_algorithm=algorithm, response_compression_algorithm=algorithm)
    np.testing.assert_array_equal(answer.as_numpy("OUTPUT0"), first + second)


def test_A1_the_asynchronous_http_client_decodes_compressed_responses(server):
    flavour = Flavour("http.aio", server)
    inputs, first, second = vectors(flavour)
    assert flavour.call("get_server_metadata")["name"] == "triton"
    assert flavour.call("get_model_metadata", "simple")["name"] == "simple"
    np.testing.assert_array_equal(flavour.call("infer", "simple", inputs).as_numpy("OUTPUT0"), first + second)
    with pytest.raises(InferenceServerException, match="Request for unknown model: 'nope' is not found"):
        flavour.call("infer", "nope", inputs)


class CountingProxy:
    """A proxy that counts the bytes that the client sends."""

    def __init__(self, port):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets = [self._listener]
        self.port, self.sent_bytes, self._target = self._listener.getsockname()[1], 0, port
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self):
        near, _ = self._listener.accept()
        far = socket.create_connection(("127.0.0.1", self._target))
        self._sockets += [near, far]
        for source, sink, counts in ((near, far, True), (far, near, False)):
            self._threads.append(threading.Thread(target=self._pass_on, args=(source, sink, counts), daemon=True))
            self._threads[-1].start()

    def _pass_on(self, source, sink, counts):
        with contextlib.suppress(OSError):  # either side may close first
            while data := source.recv(1 << 16):
                self.sent_bytes += len(data) * counts
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def close(self):
        for thread in tuple(self._threads):
            thread.join(30)
        for one in self._sockets:
            one.close()


@pytest.mark.parametrize("algorithm", ["gzip", "deflate", None])
def test_G7_a_compressed_call_is_answered(server, algorithm):
    zeros = np.zeros((1, 1 << 18), np.float32)
    given = tritonclient.grpc.InferInput("INPUT0", list(zeros.shape), "FP32").set_data_from_numpy(zeros)
    proxy = CountingProxy(server.grpc_port)
    with tritonclient.grpc.InferenceServerClient(f"127.0.0.1:{proxy.port}") as client:
        came = client.infer("identity_fp32", [given], compression_algorithm=algorithm).as_numpy("OUTPUT0")
    proxy.close()
    np.testing.assert_array_equal(came, zeros)
    assert (proxy.sent_bytes < zeros.nbytes / 10) == (algorithm is not None)


@pytest.mark.parametrize(
    ("model", "key", "last"), [("simple_sequence", 77, 7), ("simple_sequence", "text", 7), ("simple_dyna_sequence", 78, 85)]
)
def test_Q2_sequences(flavour, model, key, last):
    key = f"{key}-{flavour.name}" if isinstance(key, str) else key
    answers = []
    for index, value in enumerate((0, 11, 7)):
        given = flavour.input("INPUT", np.array([[value]], np.int32), "INT32")
        answer = flavour.call("infer", model, [given], sequence_id=key, sequence_start=index == 0, sequence_end=index == 2)
        answers.append(answer.as_numpy("OUTPUT").item())
    assert answers == [1, 11, last]


def test_tritonclient_reads_server_and_model_metadata(flavour):
    assert flavour.call("is_server_live")
    assert flavour.call("is_server_ready")
    assert flavour.call("is_model_ready", "identity_bf16", "1")
    assert flavour.describe("get_server_metadata")["name"] == "triton"
    assert flavour.describe("get_model_metadata", "simple_string")["inputs"][0]["datatype"] == "BYTES"
    config = flavour.describe("get_model_config", "identity_bf16")
    config = config if flavour.is_http else config["config"]
    assert config["input"][0]["data_type"] == "TYPE_BF16"
    assert flavour.describe("get_inference_statistics", "simple")["model_stats"][0]["name"] == "simple"
    index = flavour.describe("get_model_repository_index")
    index = index if flavour.is_http else index["models"]
    assert [(one["name"], one["version"], one["state"]) for one in index] == [(name, "1", "READY") for name in NAMES]


@pytest.mark.parametrize(
    ("model", "message", "status"),
    [
        ("nope", "Request for unknown model: 'nope' is not found", ("404", "StatusCode.NOT_FOUND")),
        ("densenet_onnx", "expected 1 inputs but got 2 inputs for model 'densenet_onnx'", ("400", "StatusCode.INVALID_ARGUMENT")),
    ],
)
def test_errors_have_tritons_messages(flavour, model, message, status):
    with pytest.raises(InferenceServerException, match=message) as refused:
        flavour.call("infer", model, vectors(flavour)[0])
    assert refused.value.status() in status
