"""Compressed requests and answers; the standard library is the other side."""

import asyncio
import gzip
import json
import random
import time
import zlib
from typing import Any

import numpy as np
import pytest

from perfkit.api_v2.client import make_client
from perfkit.clock import MonotonicClock
from perfkit.errors import ProtocolError, TargetError
from perfkit.protocol import protobuf, rest
from perfkit.protocol.compression import BodyTooLargeError, decompress
from perfkit.protocol.message import InferRequest, InferResponse
from perfkit.protocol.tensor import Datatype, tensor_from_array
from perfkit.target.address import Address
from perfkit.transport.base import Outcome, Reply
from perfkit.transport.grpc.reference import ReferenceGrpcTransport
from perfkit.transport.grpc.transport import WireGrpcTransport
from perfkit.transport.http.calls import HttpResponse
from perfkit.transport.http.reference import ReferenceHttpTransport
from perfkit.transport.http.transport import WireHttpTransport
from perfkit.transport.options import TransportOptions
from tests.json_server import JsonHandler, serving
from tests.transport import servers
from tests.transport.clients import client_of

ZEROS = tensor_from_array("x", Datatype.FP32, np.zeros((1, 10_000), np.float32))
REQUEST = InferRequest("m", (ZEROS,))
COMPRESS: dict[str, Any] = {"gzip": gzip.compress, "deflate": zlib.compress}
DECOMPRESS: dict[str, Any] = {"gzip": gzip.decompress, "deflate": zlib.decompress}


def answer(encoding):
    headers, buffers = rest.encode_infer_response(InferResponse("m", "1", (ZEROS,)), {"x": True})
    body = COMPRESS[encoding](b"".join(buffers))
    lines = [f"{name}: {value}" for name, value in {**headers, "Content-Encoding": encoding, "Content-Length": str(len(body))}.items()]
    return "\r\n".join(["HTTP/1.1 200 OK", *lines, "", ""]).encode() + body


@pytest.mark.parametrize("encoding", COMPRESS)
@pytest.mark.parametrize("engine", [WireHttpTransport, ReferenceHttpTransport])
def test_http_bodies_are_compressed_in_both_directions(run, engine, encoding):
    seen: list[bytes] = []

    async def main():
        async with servers.scripted_server(servers.answering(answer(encoding), seen=seen)) as address:
            transport = client_of(engine, address, TransportOptions(timeout_ns=10**10, compression=encoding), time.monotonic_ns)
            reply = await transport.send(transport.prepare(REQUEST))
            await transport.aclose()
            return reply.outcome, transport.decode(reply)

    outcome, response = run(main())
    assert outcome is Outcome.OK
    assert [bytes(output.raw) for output in response.outputs] == [bytes(ZEROS.raw)]
    head, _, body = seen[0].partition(b"\r\n\r\n")
    headers = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
    plain_headers, plain_body = rest.encode_infer_request(REQUEST)
    assert headers[b"content-encoding"] == headers[b"accept-encoding"] == encoding.encode()
    assert headers[b"inference-header-content-length"] == plain_headers["Inference-Header-Content-Length"].encode()
    assert DECOMPRESS[encoding](body) == b"".join(plain_body)
    assert len(body) < len(ZEROS.raw) / 10


@pytest.mark.parametrize("body", [COMPRESS["gzip"](b'{"error":"too busy"}'), b'{"error":"too busy"}'], ids=["compressed", "plain"])
def test_an_error_is_decoded_even_if_it_is_not_compressed_as_declared(body):
    async def main():
        transport = client_of(WireHttpTransport, servers.NOWHERE, TransportOptions(timeout_ns=10**10), time.monotonic_ns)
        head = b"HTTP/1.1 503 Busy\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body)
        with pytest.raises(ProtocolError, match="HTTP 503: too busy"):
            transport.decode(Reply(Outcome.REJECTED, 0, 0, [head + body]))

    asyncio.run(main())


def test_an_answer_that_cannot_be_decompressed_is_an_error():
    async def main():
        transport = client_of(ReferenceHttpTransport, servers.NOWHERE, TransportOptions(timeout_ns=10**10), time.monotonic_ns)
        for encoding in ("gzip", "br"):
            with pytest.raises(ProtocolError, match=r"cannot be decompressed|is compressed as 'br'; perfkit reads gzip and deflate"):
                transport.decode(Reply(Outcome.OK, 0, 0, HttpResponse(200, {"content-encoding": encoding}, b"junk")))
        await transport.aclose()

    asyncio.run(main())


DOCUMENT = {
    "name": "m", "versions": ["1"], "platform": "p", "version": "2", "max_batch_size": 3, "ready": True, "model_stats": [],
    "inputs": [], "outputs": [{"name": "o", "datatype": "FP32", "shape": [1], "data": [1]}],
}  # fmt: skip
INDEX = [{"name": "m", "version": "1", "state": "READY"}]


async def _infer(client):
    return client.decode(await client.transport.send(client.prepare(InferRequest("m", ()))))


CALLS = {
    "server_metadata": lambda client: client.server_metadata(),
    "is_ready": lambda client: client.is_ready("m", ""),
    "model_metadata": lambda client: client.model_metadata("m", ""),
    "model_config": lambda client: client.model_config("m", ""),
    "model_index": lambda client: client.model_index(),
    "model_statistics": lambda client: client.model_statistics("m", ""),
    "region_names": lambda client: client.region_names("system"),
    "infer": _infer,
}


def asked(call, transform, encoding):
    """What a call returns from a server that compresses everything, which nobody asked it to."""

    class Handler(JsonHandler):
        def do_GET(self):
            document = INDEX if "index" in self.path or "status" in self.path else DOCUMENT
            body = transform(json.dumps(document).encode())
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            if encoding:
                self.send_header("Content-Encoding", encoding)
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self):
            self.body()
            self.do_GET()

    async def main(port):
        client = make_client(Address("http", "127.0.0.1", port), TransportOptions(timeout_ns=10**10), MonotonicClock())
        try:
            return await CALLS[call](client)
        finally:
            await client.aclose()

    with serving(Handler) as port:
        return asyncio.run(main(port))


@pytest.mark.parametrize("call", CALLS)
def test_compression_that_nobody_asked_for_is_understood_or_named_on_every_call(call):
    plain = asked(call, lambda body: body, "")
    for encoding, transform in (("gzip", gzip.compress), ("X-GZIP", gzip.compress), ("Deflate, identity", zlib.compress)):
        assert asked(call, transform, encoding) == plain
    for encoding in ("br", "gzip, br", "zstd"):
        with pytest.raises((ProtocolError, TargetError), match=f"is compressed as '{encoding}'; perfkit reads gzip and deflate"):
            asked(call, lambda body: body, encoding)


@pytest.mark.parametrize("engine", [WireGrpcTransport, ReferenceGrpcTransport])
@pytest.mark.parametrize("encoding", ["none", "gzip", "deflate"])
def test_grpc_messages_are_compressed(engine, encoding):
    """A message in the frames begins with a byte, 1 if it is compressed, and its length."""
    messages: list[bytes] = []

    async def read_message(reader, writer):
        await reader.readexactly(24)  # the connection's preface
        writer.write(b"\x00\x00\x00\x04\x00\x00\x00\x00\x00")  # empty SETTINGS
        data = b""
        while True:
            head = await reader.readexactly(9)
            payload = await reader.readexactly(int.from_bytes(head[:3]))
            data += payload if head[3] == 0 else b""
            if head[3] == 0 and head[4] & 1:
                messages.append(data)
                return

    async def main():
        async with servers.scripted_server(read_message) as address:
            transport = client_of(engine, address, TransportOptions(timeout_ns=10**10, compression=encoding), time.monotonic_ns)
            await transport.open(1)
            await transport.send(transport.prepare(REQUEST))
            await transport.aclose()

    asyncio.run(main())
    plain = protobuf.encode_infer_request(REQUEST)
    ((flag, *_),) = messages
    body = messages[0][5:]
    assert flag == (encoding != "none")
    assert (body if encoding == "none" else zlib.decompress(body, 47)) == plain


@pytest.mark.parametrize("size", [0, 1, 2**20 - 1, 2**20, 2**20 + 1, 3 * 2**20, 3 * 2**20 + 257])
@pytest.mark.parametrize("fill", [b"\0", b"ab" * 7, random.Random(0).randbytes(999)], ids=["zeros", "pattern", "noise"])
def test_a_body_of_any_size_up_to_its_limit_is_inflated_and_a_byte_more_is_not(fill, size):
    body = (fill * (size // len(fill) + 1))[:size]
    for packed in (zlib.compress(body), gzip.compress(body)):
        assert decompress(packed, "gzip", max(size, 1)) == body
        if size > 1:
            with pytest.raises(BodyTooLargeError):
                decompress(packed, "gzip", size - 1)
        with pytest.raises(ProtocolError, match="ends too early"):
            decompress(packed[:-1], "gzip", max(size, 1))
