"""Complete responses made ahead of time: the same bytes for every request of a path."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from perfkit.protocol import http2, protobuf, rest, v2_pb2
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
        "": _json(rest.encode_model_metadata(METADATA)),
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
