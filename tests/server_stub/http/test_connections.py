"""Misbehaving clients fail their own requests only, never the server or the requests of others."""

import contextlib
import http.client
import json
import socket
import zlib

import pytest
import tritonclient.grpc
from tritonclient.utils import InferenceServerException

HEAD = b"POST /v2/models/simple/infer HTTP/1.1\r\nHost: x\r\n"
BODY = json.dumps(
    {"inputs": [{"name": name, "datatype": "INT32", "shape": [1, 16], "data": [1] * 16} for name in ("INPUT0", "INPUT1")]}
).encode()


@pytest.fixture(autouse=True)
def goes_on(wire):
    """After every test, the next request is answered. The session's server must end without a traceback."""
    yield
    assert wire.send("POST", "/v2/models/simple/infer", BODY).json["outputs"][0]["data"] == [2] * 16


@contextlib.contextmanager
def connected(port):
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        yield connection


BROKEN = {
    "zeros": bytes(1000),
    "no version of HTTP": b"GET / HTTP/9.9\r\n\r\n",
    "a negative length": HEAD + b"Content-Length: -5\r\n\r\n",
    "a length that is text": HEAD + b"Content-Length: x\r\n\r\n",
    "a broken chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n",
    "a header without end": HEAD + b"X: " + b"a" * 100_000 + b"\r\n\r\n",
    "HTTP/2 with a broken frame": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\x04\x00\x00\x00\x00\x00",
}


@pytest.mark.parametrize("sent", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("port", ["http_port", "grpc_port", "metrics_port"])
def test_bytes_that_are_no_http_or_http2_close_only_their_connection(server, port, sent):
    # the server may close this connection at any point
    with connected(getattr(server, port)) as connection, contextlib.suppress(OSError):
        connection.sendall(sent)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 16):
            pass


def test_a_body_that_ends_early_fails_only_its_request(server):
    with connected(server.http_port) as connection:
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY[:-10])


def test_a_slow_sender_does_not_delay_others(server, wire):
    with connected(server.http_port) as connection:
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY))
        for index in range(len(BODY)):
            connection.sendall(BODY[index : index + 1])
            if not index % 40:
                assert wire.send("POST", "/v2/models/simple/infer", BODY).status == 200
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert answer.status == 200


def test_a_client_that_does_not_read_does_not_delay_others(server, wire):
    with connected(server.http_port) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall((HEAD + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY) * 200)
        for _ in range(20):
            assert wire.send("POST", "/v2/models/simple/infer", BODY).status == 200


def test_a_body_too_large_after_decompression_is_rejected(wire):
    packing = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    bomb = b"".join([*(packing.compress(bytes(1 << 20)) for _ in range(65)), packing.flush()])
    assert len(bomb) < 1 << 17
    answer = wire.send("POST", "/v2/models/simple/infer", bomb, {"Content-Encoding": "gzip"})
    assert (answer.status, "exceeds the maximum allowed input size" in answer.json["error"]) == (400, True)


@pytest.mark.parametrize("shape", [[2**40, 16], [1, 2**62], [2**63, 2**63], [10**400, 16]])
def test_huge_shapes_are_rejected(wire, shape):
    inputs = [{"name": name, "datatype": "INT32", "shape": shape, "parameters": {"binary_data_size": 64}} for name in ("INPUT0", "INPUT1")]
    assert wire.infer({"inputs": inputs}, binary=bytes(128)).status == 400


def test_huge_shapes_are_rejected_over_grpc(triton_grpc):
    inputs = [tritonclient.grpc.InferInput(name, [2**62, 16], "INT32") for name in ("INPUT0", "INPUT1")]
    for one in inputs:
        one._raw_content = bytes(64)  # tritonclient itself would not send this
    with pytest.raises(InferenceServerException, match="batch-size must be <= 8"):
        triton_grpc.infer("simple", inputs)


def test_endlessly_nested_json_is_rejected(wire):
    assert wire.infer(b'{"inputs":' + b"[" * 200_000).status == 500
    assert (
        wire.infer(
            b'{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[1,16],"data":' + b"[" * 900 + b"1" + b"]" * 900 + b"}]}"
        ).status
        == 500
    )
