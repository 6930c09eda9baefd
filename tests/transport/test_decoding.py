"""Complete answers with invalid contents: decoding them raises an error that says what is wrong."""

import time
from typing import Any

import pytest
from tritonclient.grpc import service_pb2

from perfkit.errors import ProtocolError
from perfkit.target.address import Address
from perfkit.transport.base import Outcome, Reply
from perfkit.transport.grpc.reference import ReferenceGrpcTransport
from perfkit.transport.http.calls import HttpResponse
from perfkit.transport.http.reference import ReferenceHttpTransport
from perfkit.transport.http.transport import WireHttpTransport
from perfkit.transport.options import TransportOptions
from tests.transport.clients import client_of

ENGINES: dict[str, Any] = {"wire": WireHttpTransport, "reference": ReferenceHttpTransport}


def document(datatype="INT32", shape="[2]", rest=',"data":[3,4]'):
    return f'{{"model_name":"m","outputs":[{{"name":"y","datatype":"{datatype}","shape":{shape}{rest}}}]}}'.encode()


def binary(size):
    return document(rest=f',"parameters":{{"binary_data_size":{size}}}')


BODIES = {
    "an empty body": (b"", b"", "failed to parse the response JSON buffer"),
    "truncated JSON": (b'{"outputs":', b"", "failed to parse the response JSON buffer"),
    "HTML": (b"<html>", b"", "failed to parse the response JSON buffer"),
    "a list": (b"[]", b"", "failed to parse the response JSON buffer: not an object"),
    "not UTF-8": (b"\xff\xfe", b"", "failed to parse the response JSON buffer"),
    "fewer elements than the shape": (document(shape="[3]"), b"", r"tensor 'y' of shape \[3\] holds 2 elements"),
    "a negative shape": (document(shape="[-2]"), b"", "Unable to parse 'shape'"),
    "an unknown datatype": (document("INT31"), b"", "invalid datatype for output y"),
    "elements of another type": (document(rest=',"data":["a","b"]'), b"", "tensor 'y'"),
    "less binary data than declared": (binary(8), bytes(4), "unexpected size for output 'y', expecting 4 additional bytes"),
    "more binary data than declared": (binary(8), bytes(12), "4 bytes follow the last output"),
}


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("engine", ENGINES)
def test_an_invalid_body_is_a_protocol_error(run, engine, body):
    text, data, message_pattern = BODIES[body]
    headers = {"content-length": str(len(text + data)), **({"inference-header-content-length": str(len(text))} if data else {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode()
    chunks = [b"HTTP/1.1 200 OK\r\n", head, b"\r\n", text, data]

    async def main():
        transport = client_of(ENGINES[engine], Address("http", "127.0.0.1", 1), TransportOptions(timeout_ns=10**9), time.monotonic_ns)
        payload = [chunk for chunk in chunks if chunk] if engine == "wire" else HttpResponse(200, headers, text + data)
        with pytest.raises(ProtocolError, match=message_pattern):
            transport.decode(Reply(Outcome.OK, 0, 1, payload))
        await transport.aclose()

    run(main())


def message(raw, datatype="INT32"):
    response = service_pb2.ModelInferResponse(model_name="m", raw_output_contents=raw)
    response.outputs.add(name="y", datatype=datatype, shape=[2])
    return response.SerializeToString()


@pytest.mark.parametrize(
    ("answer", "message_pattern"),
    [
        (b"\xff", "the bytes are not a ModelInferResponse"),
        (message([bytes(8)])[:-3], "the bytes are not a ModelInferResponse"),
        (message([]), "unable to find data for output tensor 'y'"),
        (message([bytes(8)], "INT31"), "invalid datatype for output y"),
    ],
    ids=["garbage", "cut", "no data", "an unknown datatype"],
)
def test_an_invalid_message_is_a_protocol_error(run, answer, message_pattern):
    async def main():
        transport = client_of(
            ReferenceGrpcTransport, Address("grpc", "127.0.0.1", 1), TransportOptions(timeout_ns=10**9), time.monotonic_ns
        )
        with pytest.raises(ProtocolError, match=message_pattern):
            transport.decode(Reply(Outcome.OK, 0, 1, answer))

    run(main())
