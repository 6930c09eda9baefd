"""A v2 server that does the least work possible, so that calibration measures the client: it sends canned responses.

    python -m perfkit.calibration.canned_server [--cpus 0,1]

It finds where a request ends, and does not read it any further. Its responses are complete and made ahead of time: the same bytes for every
request of a path. It prints its ports as a line of JSON and ends with its stdin.
"""

import argparse
import asyncio
import collections
import dataclasses
import functools
import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np

from perfkit.machine.cpus import pinned
from perfkit.override import override
from perfkit.process.message_stream import opened_stdin
from perfkit.protocol import http2, protobuf, rest, rest_models, v2_pb2
from perfkit.protocol.http2 import HeaderBlockReader, Headers, Http2Error
from perfkit.protocol.message import InferResponse, ModelMetadata, TensorMetadata
from perfkit.protocol.tensor import Datatype, tensor_from_array

Frame = tuple[int, int, bytes]
"""Kind, flags and payload of an HTTP/2 frame."""

MODEL, VERSION, INPUT, OUTPUT = "canned", "1", "INPUT0", "OUTPUT0"
OUTPUT_VALUES = tuple(float(value) for value in range(32))
METADATA = ModelMetadata(
    MODEL, (VERSION,), "canned", (TensorMetadata(INPUT, "FP32", (-1,)),), (TensorMetadata(OUTPUT, "FP32", (len(OUTPUT_VALUES),)),)
)
_EXTENSIONS = ("binary_tensor_data", "model_configuration", "statistics")
_RESPONSE = InferResponse(MODEL, VERSION, (tensor_from_array(OUTPUT, Datatype.FP32, np.array(OUTPUT_VALUES, np.float32)),))
_HEADERS = (http2.HEADERS, http2.END_HEADERS)
_LAST_HEADERS = (http2.HEADERS, http2.END_HEADERS | http2.END_STREAM)
_RESPONSE_HEADERS = [(":status", "200"), ("content-type", "application/grpc")]


@dataclasses.dataclass(frozen=True, slots=True)
class GrpcResponse:
    """Frames without their stream's number; the first response of a connection announces that its header blocks use no table."""

    pieces: tuple[bytes, ...]
    first_pieces: tuple[bytes, ...]
    data_bytes: int
    """The number of bytes that count against the client's flow-control window."""


def http_responses() -> dict[str, bytes]:
    """Whole HTTP responses by path."""
    config = {"name": MODEL, "platform": "canned", "backend": "canned", "max_batch_size": 0}
    tensors = {
        "input": [{"name": INPUT, "data_type": "TYPE_FP32", "dims": [-1]}],
        "output": [{"name": OUTPUT, "data_type": "TYPE_FP32", "dims": [len(OUTPUT_VALUES)]}],
    }
    times = {field.name: {"count": 0, "ns": 0} for field in v2_pb2.InferStatistics.DESCRIPTOR.fields}
    counts = {"name": MODEL, "version": VERSION, "last_inference": 0, "inference_count": 0, "execution_count": 0}
    responses = {
        "": _json(rest_models.encode_model_metadata(METADATA)),
        "ready": _response(b""),
        "config": _json(config | tensors),
        "stats": _json({"model_stats": [{**counts, "inference_stats": times, "batch_stats": []}]}),
        "infer": _inference(),
    }
    paths = {rest.model_path(MODEL, version, action): response for action, response in responses.items() for version in ("", VERSION)}
    server = _json({"name": MODEL, "version": VERSION, "extensions": _EXTENSIONS})
    return {"/v2": server, "/v2/health/live": _response(b""), "/v2/health/ready": _response(b""), **paths}


def http_error(path: str) -> bytes:
    """The response for any other path: 404."""
    return _response(rest.encode_error(f"there is nothing at {path}"), "application/json", status="404 Not Found")


def grpc_responses() -> dict[str, GrpcResponse]:
    """Responses by the path of the call."""
    config = v2_pb2.ModelConfig(
        name=MODEL,
        platform="canned",
        backend="canned",
        input=[v2_pb2.ModelInput(name=INPUT, data_type="TYPE_FP32", dims=[-1])],
        output=[v2_pb2.ModelOutput(name=OUTPUT, data_type="TYPE_FP32", dims=[len(OUTPUT_VALUES)])],
    )
    messages = {
        "ServerLive": v2_pb2.ServerLiveResponse(live=True),
        "ServerReady": v2_pb2.ServerReadyResponse(ready=True),
        "ModelReady": v2_pb2.ModelReadyResponse(ready=True),
        "ServerMetadata": v2_pb2.ServerMetadataResponse(name=MODEL, version=VERSION, extensions=_EXTENSIONS),
        "ModelMetadata": protobuf.model_metadata_message(METADATA),
        "ModelConfig": v2_pb2.ModelConfigResponse(config=config),
        "ModelStatistics": v2_pb2.ModelStatisticsResponse(model_stats=[v2_pb2.ModelStatistics(name=MODEL, version=VERSION)]),
    }
    encoded = {name: message.SerializeToString() for name, message in messages.items()}
    encoded["ModelInfer"] = b"".join(protobuf.encode_infer_response(_RESPONSE))
    return {protobuf.method_path(name): _grpc_response(message) for name, message in encoded.items()}


def grpc_error(path: str) -> GrpcResponse:
    """The response for any other call: status 12, UNIMPLEMENTED."""
    trailers = [*_RESPONSE_HEADERS, ("grpc-status", "12"), ("grpc-message", f"there is no call {path}".replace("%", "%25"))]
    return GrpcResponse(*call_pieces((*_LAST_HEADERS, http2.encode_headers(trailers)), []), 0)


def _grpc_response(message: bytes) -> GrpcResponse:
    block, data = http2.encode_headers(_RESPONSE_HEADERS), b"\x00" + len(message).to_bytes(4) + message
    later_frames = [(http2.DATA, 0, data), (*_LAST_HEADERS, http2.encode_headers([("grpc-status", "0")]))]
    return GrpcResponse(*call_pieces((*_HEADERS, block), later_frames), len(data))


def _inference() -> bytes:
    headers, body = rest.encode_infer_response(_RESPONSE, {OUTPUT: True})
    return _response(b"".join(body), "application/octet-stream", {name: value for name, value in headers.items() if name != "Content-Type"})


def _json(document: Mapping[str, Any]) -> bytes:
    return _response(json.dumps(document).encode(), "application/json")


def _response(body: bytes, content_type: str = "text/plain", headers: Mapping[str, str] | None = None, *, status: str = "200 OK") -> bytes:
    lines = {"Content-Type": content_type, "Content-Length": str(len(body)), **(headers or {})}
    return "\r\n".join((f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in lines.items()), "", "")).encode("latin-1") + body


def call_pieces(headers: Frame, later: Sequence[Frame]) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
    """The bytes of frames around their stream's number, and those for the first stream of a connection, which must announce `NO_TABLE`.

    `number.join(pieces)`, of four bytes, gives the frames of a stream.
    """
    kind, flags, block = headers
    return _stream_pieces([headers, *later]), _stream_pieces([(kind, flags, http2.NO_TABLE + block), *later])


def _stream_pieces(frames: Sequence[Frame]) -> tuple[bytes, ...]:
    starts = [http2.frame_head(len(payload), kind, flags, 0)[:5] for kind, flags, payload in frames]
    payloads = [payload for _, _, payload in frames]
    return (starts[0], *(payload + start for payload, start in zip(payloads, starts[1:], strict=False)), payloads[-1])


def data_frames(data: bytes) -> list[Frame]:
    """DATA frames of at most the default size; the last one ends the stream."""
    size = http2.DEFAULT_FRAME_BYTES
    parts = [data[first : first + size] for first in range(0, len(data), size)] or [b""]
    return [(http2.DATA, http2.END_STREAM if number == len(parts) else 0, part) for number, part in enumerate(parts, 1)]


_CONTENT_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,18})[ \t]*\r\n", re.IGNORECASE)
_HEAD_END = b"\r\n\r\n"
_MAX_HEAD_BYTES, _MAX_CACHED_HEADS = 1 << 16, 1024
_WINDOW_BYTES = (1 << 30) - 1
_OPENING = http2.settings({http2.HEADER_TABLE_SIZE: 0, http2.INITIAL_WINDOW_SIZE: _WINDOW_BYTES}) + http2.number_frame(
    http2.WINDOW_UPDATE, 0, _WINDOW_BYTES - http2.DEFAULT_WINDOW_BYTES
)


class CannedHttp(asyncio.Protocol):
    """A keep-alive connection; the length of a body is given by Content-Length alone."""

    def __init__(self, responses: Mapping[str, bytes], heads: dict[bytes, tuple[int, bytes]]) -> None:
        self._responses = responses
        self._heads = heads  # a cache that connections share: clients repeat the same heads
        self._unread = b""
        self._left_bytes = 0
        self._response = b""

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    @override
    def data_received(self, data: bytes) -> None:
        while data:
            if not self._left_bytes:
                data = self._unread + data
                stop = data.find(_HEAD_END) + len(_HEAD_END)
                if stop < len(_HEAD_END):
                    self._unread = data
                    if len(data) > _MAX_HEAD_BYTES:
                        self._transport.close()
                    return
                self._unread, head, data = b"", data[:stop], data[stop:]
                self._left_bytes, self._response = self._heads.get(head) or self._read(head)
            body_bytes = min(len(data), self._left_bytes)
            self._left_bytes -= body_bytes
            if self._left_bytes:
                return
            self._transport.write(self._response)
            data = data[body_bytes:]

    def _read(self, head: bytes) -> tuple[int, bytes]:
        path = [*head.split(b" ", 2), b""][1].decode("latin-1")
        length = _CONTENT_LENGTH.search(head)
        body_and_response = (int(length[1]) if length else 0, self._responses.get(path) or http_error(path))
        if len(self._heads) >= _MAX_CACHED_HEADS:
            self._heads.clear()
        self._heads[head] = body_and_response
        return body_and_response


class CannedGrpc(asyncio.Protocol):
    """An HTTP/2 connection. A request may be as large as its stream's initial window, 1 GiB; only the connection's window is renewed."""

    def __init__(self, responses: Mapping[str, GrpcResponse], blocks: dict[bytes, GrpcResponse]) -> None:
        self._responses = responses
        self._blocks = HeaderBlockReader(self._response, blocks)
        self._unread = b""
        self._is_open = self._has_responded = False
        self._streams: dict[int, GrpcResponse] = {}
        self._block = b""  # of a HEADERS frame that goes on in CONTINUATION
        self._block_flags = 0
        self._received_bytes = 0
        self._window_bytes = http2.DEFAULT_WINDOW_BYTES
        self._queued: collections.deque[tuple[int, GrpcResponse]] = collections.deque()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)
        self._transport.write(_OPENING)

    @override
    def data_received(self, data: bytes) -> None:
        if self._unread:
            data = self._unread + data
        position, end = 0, len(data)
        if not self._is_open:
            if not data.startswith(http2.PREFACE):
                self._unread = data
                if not http2.PREFACE.startswith(data):
                    self._transport.close()
                return
            self._is_open, position = True, len(http2.PREFACE)
        try:
            while end - position >= http2.HEAD_BYTES:
                upper, lower, kind, flags, stream_id = http2.read_head(data, position)
                first = position + http2.HEAD_BYTES
                stop = first + (upper << 8 | lower)
                if stop > end:
                    break
                if kind == http2.DATA:
                    self._received_bytes += stop - first
                    if flags & http2.END_STREAM:
                        self._respond(stream_id)
                else:
                    self._take_frame(kind, flags, stream_id, data[first:stop])
                position = stop
        except Http2Error:
            self._transport.close()
            return
        self._unread = data[position:]
        if self._received_bytes > _WINDOW_BYTES // 2:
            self._transport.write(http2.number_frame(http2.WINDOW_UPDATE, 0, self._received_bytes))
            self._received_bytes = 0

    def _response(self, headers: Headers) -> GrpcResponse:
        path = dict(headers).get(":path", "")
        return self._responses.get(path) or grpc_error(path)

    def _take_frame(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        """Handles a frame other than DATA."""
        match kind:
            case http2.HEADERS:
                self._block, self._block_flags = http2.strip_padding(payload, flags), flags
                self._end_block(flags, stream_id)
            case http2.CONTINUATION:
                self._block += payload
                if len(self._block) > http2.LARGEST_HEADERS_BYTES:
                    raise Http2Error("a header block does not end")
                self._end_block(flags, stream_id)
            case http2.SETTINGS if not flags & http2.ACK:
                self._transport.write(http2.frame(http2.SETTINGS, http2.ACK, 0))
            case http2.PING if not flags & http2.ACK:
                self._transport.write(http2.frame(http2.PING, http2.ACK, 0, payload))
            case http2.WINDOW_UPDATE if not stream_id:
                self._window_bytes += int.from_bytes(payload)
                for _ in range(len(self._queued)):
                    self._write(*self._queued.popleft())
            case http2.RST_STREAM:
                self._streams.pop(stream_id, None)
            case _:
                pass  # the windows of streams are wider than any response

    def _end_block(self, flags: int, stream_id: int) -> None:
        if flags & http2.END_HEADERS:
            self._streams[stream_id] = self._blocks.look_up(self._block) or self._blocks.read(self._block)
            if self._block_flags & http2.END_STREAM:
                self._respond(stream_id)

    def _respond(self, stream_id: int) -> None:
        response = self._streams.pop(stream_id, None)
        if response is not None:  # otherwise the stream was reset
            self._write(stream_id, response)

    def _write(self, stream_id: int, response: GrpcResponse) -> None:
        if response.data_bytes > self._window_bytes:
            self._queued.append((stream_id, response))
            return
        self._window_bytes -= response.data_bytes
        self._transport.write(stream_id.to_bytes(4).join(response.pieces if self._has_responded else response.first_pieces))
        self._has_responded = True


async def serve(stdin: asyncio.StreamReader) -> None:
    """Serves on free ports of the loopback until `stdin` ends."""
    loop = asyncio.get_running_loop()
    http, grpc = http_responses(), grpc_responses()
    protocols: dict[str, Callable[[], asyncio.Protocol]]
    protocols = {"http_port": functools.partial(CannedHttp, http, {}), "grpc_port": functools.partial(CannedGrpc, grpc, {})}
    servers = {name: await loop.create_server(protocol, "127.0.0.1", 0, backlog=4096) for name, protocol in protocols.items()}
    sys.stdout.write(json.dumps({name: server.sockets[0].getsockname()[1] for name, server in servers.items()}) + "\n")
    sys.stdout.flush()
    await stdin.read()


async def _main() -> None:
    async with opened_stdin() as reader:
        await serve(reader)


if __name__ == "__main__":
    import uvloop

    parser = argparse.ArgumentParser(prog="python -m perfkit.calibration.canned_server")
    parser.add_argument("--cpus", default="", help="CPUs to run on, such as 0,1 (default: all)")
    given = parser.parse_args().cpus
    with pinned(tuple(int(cpu) for cpu in given.split(",") if cpu)):
        uvloop.run(_main())
