"""A v2 server over gRPC that answers honestly at first, and then floods the connection with frames without an end."""

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Iterator, Sequence

from perfkit.protocol import http2, v2_pb2
from perfkit.protocol.http2 import frame
from tests.transport.http2_peer import OK_HEADERS, Peer

_TENSOR = {"datatype": "FP32", "shape": [1]}
_ANSWERS = {
    "ServerMetadata": v2_pb2.ServerMetadataResponse(name="hostile", version="1"),
    "ServerReady": v2_pb2.ServerReadyResponse(ready=True),
    "ModelReady": v2_pb2.ModelReadyResponse(ready=True),
    "ModelConfig": v2_pb2.ModelConfigResponse(),
    "ModelMetadata": v2_pb2.ModelMetadataResponse(
        name="m",
        inputs=[v2_pb2.ModelMetadataResponse.TensorMetadata(name="x", datatype="FP32", shape=[1])],
        outputs=[v2_pb2.ModelMetadataResponse.TensorMetadata(name="y", datatype="FP32", shape=[1])],
    ),
    "ModelInfer": v2_pb2.ModelInferResponse(
        model_name="m",
        outputs=[v2_pb2.ModelInferResponse.InferOutputTensor(name="y", datatype="FP32", shape=[1])],
        raw_output_contents=[bytes(4)],
    ),
}


def head(stream_id: int) -> bytes:
    """The headers of an answer."""
    return frame(http2.HEADERS, 0x4, stream_id, http2.encode_headers(OK_HEADERS))


# by kind: the frames for a stream, of which the last is repeated
FLOODS = {
    "DATA": lambda stream_id: (head(stream_id), frame(http2.DATA, 0, stream_id, bytes(16_384)) * 8),
    "short DATA": lambda stream_id: (head(stream_id), frame(http2.DATA, 0, stream_id, bytes(17)) * 1000),
    "a message of 2 GB": lambda stream_id: (
        head(stream_id) + frame(http2.DATA, 0, stream_id, b"\x00" + (2_000_000_000).to_bytes(4)),
        frame(http2.DATA, 0, stream_id, bytes(16_384)) * 8,
    ),
    "PING": lambda _: (frame(http2.PING, 0, 0, bytes(8)) * 1000,),
    "SETTINGS": lambda _: (frame(http2.SETTINGS, 0, 0) * 1000,),
    "interim headers": lambda stream_id: (frame(http2.HEADERS, 0x4, stream_id, http2.encode_headers([(":status", "103")])) * 1000,),
    "CONTINUATION": lambda stream_id: (frame(http2.HEADERS, 0, stream_id, b"\x00"), frame(http2.CONTINUATION, 0, stream_id, bytes(9))),
}


async def _flood(peer: Peer, parts: Sequence[bytes]) -> None:
    peer.writer.transport.pause_reading()
    for part in itertools.chain(parts, itertools.repeat(parts[-1])):
        peer.writer.write(part)
        await peer.writer.drain()


@contextlib.contextmanager
def flooding_server(kind: str, honest: int = 1) -> Iterator[str]:
    """Its URL, for as long as the block; `honest` inferences are answered before the flood."""
    inferences = itertools.count()
    loop, ready = asyncio.new_event_loop(), threading.Event()
    ports: list[int] = []

    async def script(peer: Peer) -> None:
        while True:
            stream_id, headers, _ = await peer.requests.get()
            rpc = headers[":path"].rpartition("/")[2]
            if rpc == "ModelInfer" and next(inferences) >= honest:
                await _flood(peer, FLOODS[kind](stream_id))
            if rpc in _ANSWERS:
                peer.answer(stream_id, _ANSWERS[rpc].SerializeToString())
            else:
                peer.answer(stream_id, trailers=[("grpc-status", "12"), ("grpc-message", "not here")])

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):
            await Peer(reader, writer).serve(script)
        writer.close()

    async def listen() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
        ready.set()
        async with server:
            await server.serve_forever()

    def run() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            loop.run_until_complete(task)

    task = loop.create_task(listen())
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    ready.wait()
    try:
        yield f"grpc://127.0.0.1:{ports[0]}"
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
