"""What the lean server answers: the same bytes to every request of a path, made before the first one comes."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from perfkit.calibration.grpc_frames import stream_pieces
from perfkit.protocol import http2, protobuf, rest, v2_pb2
from perfkit.protocol.message import InferResponse, ModelMetadata, TensorMetadata
from perfkit.protocol.tensor import Datatype, tensor_from_array

MODEL, VERSION, INPUT, OUTPUT = "lean", "1", "INPUT0", "OUTPUT0"
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
class GrpcAnswer:
    """An answer's frames without their stream's number; the first on a connection says that its blocks use no table."""

    pieces: tuple[bytes, ...]
    first_pieces: tuple[bytes, ...]
    data_bytes: int
    """So much of the client's window it takes."""


def http_answers() -> dict[str, bytes]:
    """Whole HTTP responses by path."""
    config = {"name": MODEL, "platform": "canned", "backend": "canned", "max_batch_size": 0}
    tensors = {
        "input": [{"name": INPUT, "data_type": "TYPE_FP32", "dims": [-1]}],
        "output": [{"name": OUTPUT, "data_type": "TYPE_FP32", "dims": [len(OUTPUT_VALUES)]}],
    }
    times = {one.name: {"count": 0, "ns": 0} for one in v2_pb2.InferStatistics.DESCRIPTOR.fields}
    counts = {"name": MODEL, "version": VERSION, "last_inference": 0, "inference_count": 0, "execution_count": 0}
    of_model = {
        "": _json(rest.encode_model_metadata(METADATA)),
        "ready": _response(b""),
        "config": _json(config | tensors),
        "stats": _json({"model_stats": [{**counts, "inference_stats": times, "batch_stats": []}]}),
        "infer": _inference(),
    }
    paths = {rest.model_path(MODEL, version, action): answer for action, answer in of_model.items() for version in ("", VERSION)}
    server = _json({"name": MODEL, "version": VERSION, "extensions": _EXTENSIONS})
    return {"/v2": server, "/v2/health/live": _response(b""), "/v2/health/ready": _response(b""), **paths}


def http_refusal(path: str) -> bytes:
    """The response to any other path."""
    return _response(rest.encode_error(f"there is nothing at {path}"), "application/json", status="404 Not Found")


def grpc_answers() -> dict[str, GrpcAnswer]:
    """Answers by the path of the call; whatever the request holds."""
    config = v2_pb2.ModelConfig(
        name=MODEL,
        platform="canned",
        backend="canned",
        input=[v2_pb2.ModelInput(name=INPUT, data_type=v2_pb2.DataType.Value("TYPE_FP32"), dims=[-1])],
        output=[v2_pb2.ModelOutput(name=OUTPUT, data_type=v2_pb2.DataType.Value("TYPE_FP32"), dims=[len(OUTPUT_VALUES)])],
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
    encoded["ModelInfer"] = protobuf.encode_infer_response(_RESPONSE)
    return {protobuf.method_path(name): _grpc_answer(message) for name, message in encoded.items()}


def grpc_refusal(path: str) -> GrpcAnswer:
    """The answer to any other call: status 12, UNIMPLEMENTED."""
    trailers = [*_RESPONSE_HEADERS, ("grpc-status", "12"), ("grpc-message", f"there is no call {path}".replace("%", "%25"))]
    block = http2.encode_headers(trailers)
    return GrpcAnswer(stream_pieces([(*_LAST_HEADERS, block)]), stream_pieces([(*_LAST_HEADERS, http2.NO_TABLE + block)]), 0)


def _grpc_answer(message: bytes) -> GrpcAnswer:
    block, data = http2.encode_headers(_RESPONSE_HEADERS), b"\x00" + len(message).to_bytes(4) + message
    rest_of_it = [(http2.DATA, 0, data), (*_LAST_HEADERS, http2.encode_headers([("grpc-status", "0")]))]
    return GrpcAnswer(
        stream_pieces([(*_HEADERS, block), *rest_of_it]), stream_pieces([(*_HEADERS, http2.NO_TABLE + block), *rest_of_it]), len(data)
    )


def _inference() -> bytes:
    headers, body = rest.encode_infer_response(_RESPONSE, {OUTPUT: True})
    return _response(b"".join(body), "application/octet-stream", {name: value for name, value in headers.items() if name != "Content-Type"})


def _json(document: Mapping[str, Any]) -> bytes:
    return _response(json.dumps(document).encode(), "application/json")


def _response(body: bytes, content_type: str = "text/plain", headers: Mapping[str, str] | None = None, *, status: str = "200 OK") -> bytes:
    lines = {"Content-Type": content_type, "Content-Length": str(len(body)), **(headers or {})}
    return "\r\n".join((f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in lines.items()), "", "")).encode("latin-1") + body
