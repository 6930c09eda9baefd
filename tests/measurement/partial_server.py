"""A v2 server over HTTP or gRPC that lacks some of its endpoints, and answers requests for them as such servers do."""

import contextlib
import dataclasses
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import numpy as np

from perfkit.protocol import protobuf, rest, v2_pb2
from perfkit.protocol.message import InferResponse
from perfkit.protocol.tensor import Datatype, tensor_from_array
from tests.json_server import JsonHandler, serving

_SERVICE = "inference.GRPCInferenceService"
_TENSOR: dict[str, Any] = {"datatype": "FP32", "shape": [1]}
_ANSWER = InferResponse("m", "1", (tensor_from_array("o", Datatype.FP32, np.array([1], dtype=np.float32)),))
_PAGE = b"<html><head><title>404 Not Found</title></head><body><h1>Not Found</h1><hr>nginx</body></html>"

HTTP_ENDPOINTS = {
    "server metadata": "/v2",
    "server readiness": "/v2/health/ready",
    "model readiness": "/v2/models/m/ready",
    "model metadata": "/v2/models/m",
    "configuration": "/v2/models/m/config",
    "statistics": "/v2/models/m/stats",
    "index": "/v2/repository/index",
    "binary tensors": "binary",
}
"""The paths by what they give; `binary` is no path, but stands for binary tensors."""
HTTP_ANSWERS: dict[str, tuple[int, bytes]] = {
    "404": (404, b'{"detail":"Not Found"}'),
    "404 empty": (404, b""),
    "404 page": (404, _PAGE),
    "405": (405, b'{"detail":"Method Not Allowed"}'),
    "501": (501, b""),
    "200 page": (200, _PAGE),
    "200 empty": (200, b""),
}
GRPC_CALLS = {
    "server metadata": "ServerMetadata",
    "server readiness": "ServerReady",
    "model readiness": "ModelReady",
    "model metadata": "ModelMetadata",
    "configuration": "ModelConfig",
    "statistics": "ModelStatistics",
    "index": "RepositoryIndex",
}
GRPC_ANSWERS = ("UNIMPLEMENTED", "empty", "page")
"""`page` is what a proxy for HTTP answers in place of the server: status 12 by its text, with words of its own."""


@dataclasses.dataclass
class Lacking:
    """What the server lacks, by the names above, and how it answers for that."""

    endpoints: frozenset[str]
    answer: str


@contextlib.contextmanager
def serving_calls(handlers):
    """The URL of a gRPC server with these handlers of v2's calls, by their names, for as long as the block."""
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"grpc://127.0.0.1:{port}"
    finally:
        server.stop(None).wait()


@contextlib.contextmanager
def partial_http_server(lacking: Lacking) -> Iterator[str]:
    """The URL of a server with the model `m`, one FP32 to one."""
    missing = {HTTP_ENDPOINTS[name] for name in lacking.endpoints}
    statistics: dict[str, Any] = {"name": "m", "version": "1", "inference_stats": {}, "inference_count": 0, "execution_count": 0}
    documents: dict[str, Any] = {
        "/v2": {"name": "partial", "version": "1", "extensions": [] if "binary" in missing else ["binary_tensor_data"]},
        "/v2/health/ready": {},
        "/v2/models/m/ready": {},
        "/v2/models/m": {
            "name": "m",
            "versions": ["1"],
            "platform": "x",
            "inputs": [{"name": "i", **_TENSOR}],
            "outputs": [{"name": "o", **_TENSOR}],
        },
        "/v2/models/m/config": {"name": "m", "max_batch_size": 0},
        "/v2/models/m/stats": {"model_stats": [statistics]},
        "/v2/repository/index": [{"name": "m", "version": "1", "state": "READY"}],
    }

    class Handler(JsonHandler):
        def do_GET(self):
            self.describe()

        def do_POST(self):
            body = self.body()
            if not self.path.endswith("/infer"):
                self.describe()
            elif "binary" in missing and "Inference-Header-Content-Length" in self.headers:
                self.answer(400, {"error": "Invalid JSON payload"})
            else:
                self.infer(body)

        def describe(self):
            if self.path in missing or self.path not in documents:
                self.answer_bytes(*HTTP_ANSWERS[lacking.answer])
            else:
                self.answer(200, documents[self.path])

        def infer(self, _body):
            statistics["inference_count"] = statistics["execution_count"] = statistics["inference_count"] + 1
            counted = {"count": statistics["inference_count"], "ns": 1000}
            statistics["inference_stats"] = dict.fromkeys(("success", "queue", "compute_input", "compute_infer", "compute_output"), counted)
            _headers, parts = rest.encode_infer_response(_ANSWER, {"o": False})
            self.answer_bytes(200, b"".join(parts))

    with serving(Handler) as port:
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def partial_grpc_server(lacking: Lacking) -> Iterator[str]:
    """The URL of the same server over gRPC."""
    missing = {GRPC_CALLS[name] for name in lacking.endpoints}
    tensor = {"name": "", "datatype": "FP32", "shape": [1]}
    answers: dict[str, Any] = {
        "ServerMetadata": v2_pb2.ServerMetadataResponse(name="partial", version="1"),
        "ServerReady": v2_pb2.ServerReadyResponse(ready=True),
        "ModelReady": v2_pb2.ModelReadyResponse(ready=True),
        "ModelMetadata": v2_pb2.ModelMetadataResponse(
            name="m", versions=["1"], platform="x", inputs=[{**tensor, "name": "i"}], outputs=[{**tensor, "name": "o"}]
        ),
        "ModelConfig": v2_pb2.ModelConfigResponse(config={"name": "m"}),
        "ModelStatistics": v2_pb2.ModelStatisticsResponse(),
        "RepositoryIndex": v2_pb2.RepositoryIndexResponse(models=[{"name": "m", "version": "1", "state": "READY"}]),
        "ModelInfer": v2_pb2.ModelInferResponse.FromString(b"".join(protobuf.encode_infer_response(_ANSWER))),
    }

    def answer(rpc):
        def serve(_request, context):
            if rpc in missing and lacking.answer == "page":
                context.abort(grpc.StatusCode.UNIMPLEMENTED, _PAGE.decode())
            return b"" if rpc in missing else answers[rpc].SerializeToString()

        return grpc.unary_unary_rpc_method_handler(serve)

    handlers = {rpc: answer(rpc) for rpc in answers if rpc not in missing or lacking.answer != "UNIMPLEMENTED"}
    with serving_calls(handlers) as url:
        yield url
