"""A v2 server over HTTP or gRPC whose words about itself are a test's: absurd shapes, absurd statistics."""

import contextlib
import dataclasses
import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent import futures
from typing import Any

import grpc

from perfkit.protocol import v2_pb2
from tests.json_server import JsonHandler, serving

TENSOR: dict[str, Any] = {"name": "x", "datatype": "FP32", "shape": [1]}


@dataclasses.dataclass
class Described:
    """What the server says: metadata, configuration, and the statistics, as JSON, of reading 0, 1, 2, …; None for no statistics.

    Inference is answered with zeros, whatever was sent, for outputs without an open dimension; over HTTP, all requests after the
    first with the bytes of `flood`, of which the last are repeated until the client closes. Pages whose path ends with one of
    `dripping` arrive byte by byte, one every 0.2 s.
    """

    inputs: Sequence[dict[str, Any]] = (TENSOR,)
    outputs: Sequence[dict[str, Any]] = ({**TENSOR, "name": "y"},)
    config: dict[str, Any] = dataclasses.field(default_factory=lambda: {"max_batch_size": 0})
    statistics: Callable[[int], bytes] | None = None
    flood: tuple[bytes, bytes] | None = None
    dripping: tuple[str, ...] = ()
    readings: int = 0
    inferences: int = 0
    lock: threading.Lock = dataclasses.field(default_factory=threading.Lock)

    @property
    def metadata(self) -> dict[str, Any]:
        return {"name": "m", "versions": ["1"], "platform": "p", "inputs": list(self.inputs), "outputs": list(self.outputs)}

    def next_statistics(self) -> bytes | None:
        with self.lock:
            self.readings += 1
            return None if self.statistics is None else self.statistics(self.readings - 1)

    def answered(self) -> list[dict[str, Any]]:
        with self.lock:
            self.inferences += 1
        return [{**output, "data": [0.0] * _count(output["shape"])} for output in self.outputs]


def statistics_document(success: object = 0, *, ns: object = 0, failed: object = 0, executions: object = None) -> bytes:
    """A statistics answer with these values, which need not be numbers."""
    times = {"count": success, "ns": ns}
    names = ("success", "queue", "compute_input", "compute_infer", "compute_output")
    stats = {**dict.fromkeys(names, times), "fail": {"count": failed, "ns": 0}}
    executed = success if executions is None else executions
    entry = {"name": "m", "version": "1", "inference_count": success, "execution_count": executed, "inference_stats": stats}
    return json.dumps({"model_stats": [entry]}).encode()


@contextlib.contextmanager
def http_server(described: Described) -> Iterator[str]:
    """Its URL, for as long as the block."""

    class Handler(JsonHandler):
        def do_GET(self):
            if self.path.endswith(described.dripping):
                self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
                while True:
                    self.wfile.write(b" ")
                    time.sleep(0.2)
            if self.path == "/v2":
                self.answer(200, {"name": "hostile", "version": "1", "extensions": ["binary_tensor_data"]})
            elif self.path.endswith("/ready") or self.path.endswith("/live"):
                self.answer_bytes(200, b"")
            elif self.path.endswith("/config"):
                self.answer(200, described.config)
            elif self.path.endswith("/stats"):
                body = described.next_statistics()
                self.answer_bytes(404 if body is None else 200, body or b"{}")
            else:
                self.answer(200, described.metadata)

        def do_POST(self):
            self.body()
            if described.flood is not None and described.inferences:
                start, block = described.flood
                self.wfile.write(start)
                while block:
                    self.wfile.write(block)
            self.answer(200, {"model_name": "m", "model_version": "1", "outputs": described.answered()})

    with serving(Handler) as port:
        yield f"http://127.0.0.1:{port}"


@contextlib.contextmanager
def grpc_server(described: Described) -> Iterator[str]:
    """Its URL, for as long as the block; statistics are those of the HTTP server, where protobuf can hold them."""

    def infer(_: bytes, __: Any) -> bytes:
        message = v2_pb2.ModelInferResponse(model_name="m", model_version="1")
        for output in described.answered():
            message.outputs.add(name=output["name"], datatype=output["datatype"], shape=output["shape"])
            message.raw_output_contents.append(bytes(4 * len(output["data"])))
        return message.SerializeToString()

    def metadata(_: bytes, __: Any) -> bytes:
        message = v2_pb2.ModelMetadataResponse(name="m", versions=["1"], platform="p")
        for field, tensors in ((message.inputs, described.inputs), (message.outputs, described.outputs)):
            for tensor in tensors:
                field.add(**tensor)
        return message.SerializeToString()

    def statistics(_: bytes, context: grpc.ServicerContext) -> bytes:
        body = described.next_statistics()
        if body is None:
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "no statistics")
        message = v2_pb2.ModelStatisticsResponse()
        for entry in json.loads(body or b"{}")["model_stats"]:
            times = {name: v2_pb2.StatisticDuration(**total) for name, total in entry.pop("inference_stats").items()}
            message.model_stats.add(**entry, inference_stats=v2_pb2.InferStatistics(**times))
        return message.SerializeToString()

    config = v2_pb2.ModelConfigResponse(config=v2_pb2.ModelConfig(max_batch_size=described.config.get("max_batch_size", 0)))
    answers: dict[str, Callable[[bytes, Any], bytes]] = {
        "ServerMetadata": lambda *_: v2_pb2.ServerMetadataResponse(name="hostile", version="1").SerializeToString(),
        "ServerReady": lambda *_: v2_pb2.ServerReadyResponse(ready=True).SerializeToString(),
        "ModelReady": lambda *_: v2_pb2.ModelReadyResponse(ready=True).SerializeToString(),
        "ModelConfig": lambda *_: config.SerializeToString(),
        "ModelMetadata": metadata,
        "ModelStatistics": statistics,
        "ModelInfer": infer,
    }
    handlers: dict[str, Any] = {name: grpc.unary_unary_rpc_method_handler(answer) for name, answer in answers.items()}
    with futures.ThreadPoolExecutor(4) as threads:
        server = grpc.server(threads)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("inference.GRPCInferenceService", handlers),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            yield f"grpc://127.0.0.1:{port}"
        finally:
            server.stop(None).wait()


def _count(shape: Sequence[int]) -> int:
    """The values of an answer; a single one for shapes that nobody should believe."""
    count = math.prod(max(size, 1) for size in shape)
    return count if count <= 4096 else 1
