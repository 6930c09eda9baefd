"""The server's gRPC side: the service of `v2.proto`, on grpc.aio."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import grpc
import grpc.aio
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol import protobuf, v2_pb2
from perfkit.protocol.message import InferRequest, InferResponse
from server_stub import shared_requests
from server_stub.grpc_administration import GrpcAdministration, Method
from server_stub.grpc_server import GrpcServer
from server_stub.grpc_stream import Stream, StreamFailureError
from server_stub.identity import server_metadata
from server_stub.limits import Limits
from server_stub.log import Log
from server_stub.model import Model
from server_stub.repository import Repository
from server_stub.settings import Settings
from server_stub.shared_memory import Regions, Slot, without_slots
from server_stub.tls import Identity

_STATUS = {
    ErrorKind.INVALID_ARGUMENT: grpc.StatusCode.INVALID_ARGUMENT,
    ErrorKind.NOT_FOUND: grpc.StatusCode.NOT_FOUND,
    ErrorKind.ALREADY_EXISTS: grpc.StatusCode.ALREADY_EXISTS,
    ErrorKind.UNAVAILABLE: grpc.StatusCode.UNAVAILABLE,
    ErrorKind.UNSUPPORTED: grpc.StatusCode.UNIMPLEMENTED,
    ErrorKind.INTERNAL: grpc.StatusCode.INTERNAL,
}
_LONGEST_DETAILS = 2000  # clients take no more than some KiB of trailers
_HEALTH_SERVICE = "grpc.health.v1.Health"
# grpc.health.v1.HealthCheckResponse with its one field, status = 1: SERVING is 1, NOT_SERVING 2
_SERVING, _NOT_SERVING = b"\x08\x01", b"\x08\x02"

_Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"
_GRPC_ERRORS = ("triton_grpc_error", "true")  # metadata that asks for a status where a stream would tell of a model's error


class GrpcFront:
    """Answers v2 over gRPC from a repository of models."""

    def __init__(
        self, repository: Repository, regions: Regions, settings: Settings, *, limits: Limits | None = None, log: Log | None = None
    ) -> None:
        self._repository, self._regions, self._limits = repository, regions, limits or Limits()
        self._calls = 0
        self._refusal = f"the server has {self._limits.max_calls} calls, which are all it takes"
        self._log = log or Log(settings)
        methods: dict[str, Method] = {
            "ServerLive": self._live,
            "ServerReady": self._ready,
            "ModelReady": self._model_ready,
            "ServerMetadata": self._server_metadata,
            "ModelMetadata": self._model_metadata,
            "ModelConfig": self._config,
            "ModelStatistics": self._statistics,
            "ModelInfer": self._infer,
            "RepositoryIndex": self._index,
            **GrpcAdministration(repository, regions, settings).methods(),
        }
        handlers = self._handlers(methods)
        handlers["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(self._stream)
        services = [
            grpc.method_handlers_generic_handler(protobuf.SERVICE, handlers),
            grpc.method_handlers_generic_handler(_HEALTH_SERVICE, self._handlers({"Check": self._health})),
        ]
        self._server = GrpcServer(services, self._limits, self._log)

    async def start(self, host: str, port: int, tls: Identity | None = None) -> int:
        """Listens, and gives the port; raises OSError where it cannot."""
        return await self._server.start(host, port, tls)

    async def stop(self) -> None:
        """Stops listening and returns when the calls in flight are answered, or the time for it has passed."""
        await self._server.stop()

    async def _live(self, encoded: bytes) -> bytes:
        return v2_pb2.ServerLiveResponse(live=True).SerializeToString()

    async def _ready(self, encoded: bytes) -> bytes:
        return v2_pb2.ServerReadyResponse(ready=self._repository.is_ready).SerializeToString()

    async def _health(self, encoded: bytes) -> bytes:
        return _SERVING if self._repository.is_ready else _NOT_SERVING

    async def _model_ready(self, encoded: bytes) -> bytes:
        asked = v2_pb2.ModelReadyRequest.FromString(encoded)
        return v2_pb2.ModelReadyResponse(ready=self._repository.is_model_ready(asked.name, asked.version)).SerializeToString()

    async def _server_metadata(self, encoded: bytes) -> bytes:
        metadata = server_metadata(is_shared_memory_allowed=self._regions.is_allowed)
        return v2_pb2.ServerMetadataResponse(
            name=metadata.name, version=metadata.version, extensions=metadata.extensions
        ).SerializeToString()

    async def _model_metadata(self, encoded: bytes) -> bytes:
        asked = v2_pb2.ModelMetadataRequest.FromString(encoded)
        metadata = self._repository.find(asked.name, asked.version).definition.metadata()
        return protobuf.model_metadata_message(metadata).SerializeToString()

    async def _config(self, encoded: bytes) -> bytes:
        asked = v2_pb2.ModelConfigRequest.FromString(encoded)
        config = self._repository.find(asked.name, asked.version).definition.config_message()
        return v2_pb2.ModelConfigResponse(config=config).SerializeToString()

    async def _statistics(self, encoded: bytes) -> bytes:
        asked = v2_pb2.ModelStatisticsRequest.FromString(encoded)
        document: dict[str, Any] = self._repository.statistics(asked.name, asked.version)
        message: Message = json_format.ParseDict(document, v2_pb2.ModelStatisticsResponse())
        return message.SerializeToString()

    async def _index(self, encoded: bytes) -> bytes:
        asked = v2_pb2.RepositoryIndexRequest.FromString(encoded)
        document = {"models": self._repository.index(ready=asked.ready)}
        message: Message = json_format.ParseDict(document, v2_pb2.RepositoryIndexResponse())
        return message.SerializeToString()

    async def _infer(self, encoded: bytes) -> bytes:
        arrived_ns = time.monotonic_ns()
        request, model, slots = self._read(encoded)
        if model.definition.is_decoupled:
            raise ProtocolError("ModelInfer RPC doesn't support models with decoupled transaction policy", ErrorKind.UNSUPPORTED)
        return await model.infer(request, arrived_ns, lambda response: protobuf.encode_infer_response(without_slots(response, slots)))

    def _read(self, encoded: bytes) -> tuple[InferRequest, Model, Mapping[str, Slot]]:
        encoded, slots = shared_requests.read_grpc(encoded, self._regions)
        request = protobuf.decode_infer_request(encoded)
        return request, self._repository.find(request.model, request.version), slots

    def _open(self, encoded: bytes) -> tuple[InferRequest, Model, Callable[[InferResponse], InferResponse]]:
        request, model, slots = self._read(encoded)
        return request, model, lambda response: without_slots(response, slots)

    async def _stream(self, requests: AsyncIterator[bytes], context: _Context) -> None:
        if self._calls >= self._limits.max_calls:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, self._refusal)
        metadata: Any = context.invocation_metadata() or ()
        stream = Stream(self._open, context.write, self._log, ends_with_errors=_GRPC_ERRORS in {(key, value) for key, value in metadata})
        self._calls += 1
        try:
            await stream.serve(requests)
        except StreamFailureError as failure:
            await context.abort(_STATUS[failure.error.kind], str(failure)[:_LONGEST_DETAILS])
        finally:
            self._calls -= 1

    def _handlers(self, methods: Mapping[str, Method]) -> "dict[str, grpc.RpcMethodHandler[bytes, bytes]]":
        return {name: grpc.unary_unary_rpc_method_handler(self._answering(name, method)) for name, method in methods.items()}

    def _answering(self, name: str, method: Method) -> Callable[[bytes, _Context], Awaitable[bytes]]:
        """The method with its failures turned into gRPC statuses."""

        async def answer(encoded: bytes, context: _Context) -> bytes:
            if self._calls >= self._limits.max_calls:
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, self._refusal)
            arrived_ns, status = time.monotonic_ns(), grpc.StatusCode.OK
            self._calls += 1
            try:
                return await method(encoded)
            except ProtocolError as error:
                status, text = _STATUS[error.kind], str(error)
            except DecodeError as error:
                status, text = grpc.StatusCode.INTERNAL, f"the message cannot be parsed: {error}"
            except Exception as error:  # noqa: BLE001 - a fault in one call must not end the server
                self._log.fault(error)
                status, text = grpc.StatusCode.INTERNAL, f"the server failed: {error}"
            finally:
                self._calls -= 1
                self._log.request("gRPC", name, status.name, time.monotonic_ns() - arrived_ns)
            await context.abort(status, text[:_LONGEST_DETAILS])
            raise AssertionError("abort raises")

        return answer
