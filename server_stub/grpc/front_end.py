"""The gRPC front end: the service of `v2.proto`, on grpc.aio."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import grpc
import grpc.aio
from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol import protobuf, v2_pb2
from perfkit.protocol.compression import BodyTooLargeError
from perfkit.protocol.message import InferRequest, InferResponse
from server_stub.grpc.administration import GrpcAdministration, Method
from server_stub.grpc.compression import inflate, inflate_all
from server_stub.grpc.server import GrpcServer
from server_stub.grpc.stream import Stream, StreamFailureError, StreamTracing
from server_stub.inference.model import Model
from server_stub.log import Log
from server_stub.options import Limits, TlsIdentity
from server_stub.repository.repository import Repository
from server_stub.settings import Settings, server_metadata
from server_stub.shared_memory.regions import SharedMemoryRegions
from server_stub.shared_memory.shared_tensors import resolve_grpc_request
from server_stub.tracing.request_trace import RequestTrace
from server_stub.tracing.traceparent import KEY
from server_stub.tracing.tracer import Tracer

# the kinds are named as gRPC's statuses, but for one
_STATUS = {kind: grpc.StatusCode["UNIMPLEMENTED" if kind is ErrorKind.UNSUPPORTED else kind.name] for kind in ErrorKind}
_MAX_DETAILS = 2000  # clients accept only a few KiB of trailers
_HEALTH_SERVICE = "grpc.health.v1.Health"
# encoded grpc.health.v1.HealthCheckResponse: field 1, status, is SERVING (1) or NOT_SERVING (2)
_SERVING, _NOT_SERVING = b"\x08\x01", b"\x08\x02"

_Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"
_ContextMethod: TypeAlias = Callable[[bytes, _Context], Awaitable[bytes]]
_GRPC_ERRORS = ("triton_grpc_error", "true")  # metadata by which a client wants a stream to end at a model's error


class GrpcFrontEnd:
    """Serves the models of a repository over gRPC."""

    def __init__(
        self,
        repository: Repository,
        regions: SharedMemoryRegions,
        settings: Settings,
        *,
        limits: Limits | None = None,
        log: Log | None = None,
        tracer: Tracer | None = None,
    ) -> None:
        self._repository, self._regions, self._limits = repository, regions, limits or Limits()
        self._calls = 0
        self._too_many_calls = f"the server has reached its limit of {self._limits.max_calls} calls"
        self._log, self._tracer = log or Log(settings), tracer or Tracer()
        methods: dict[str, Method] = {
            "ServerLive": self._live,
            "ServerReady": self._ready,
            "ModelReady": self._model_ready,
            "ServerMetadata": self._server_metadata,
            "ModelMetadata": self._model_metadata,
            "ModelConfig": self._config,
            "ModelStatistics": self._statistics,
            "RepositoryIndex": self._index,
            **GrpcAdministration(repository, regions, settings, self._tracer.settings).methods(),
        }
        handlers = self._handlers(methods)
        handlers["ModelInfer"] = grpc.unary_unary_rpc_method_handler(self._with_status("ModelInfer", self._infer))
        handlers["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(self._stream)
        services = [
            grpc.method_handlers_generic_handler(protobuf.SERVICE, handlers),
            grpc.method_handlers_generic_handler(_HEALTH_SERVICE, self._handlers({"Check": self._health})),
        ]
        self._server = GrpcServer(services, self._limits, self._log)

    async def start(self, host: str, port: int, tls: TlsIdentity | None = None) -> int:
        """Listen, and return the port. Raises OSError if that fails."""
        return await self._server.start(host, port, tls)

    async def stop(self) -> None:
        """Stop listening, and wait until the calls in flight are answered or `stop_timeout_s` has passed."""
        await self._server.stop()

    async def _live(self, encoded: bytes) -> bytes:
        return v2_pb2.ServerLiveResponse(live=True).SerializeToString()

    async def _ready(self, encoded: bytes) -> bytes:
        return v2_pb2.ServerReadyResponse(ready=self._repository.is_ready).SerializeToString()

    async def _health(self, encoded: bytes) -> bytes:
        return _SERVING if self._repository.is_ready else _NOT_SERVING

    async def _model_ready(self, encoded: bytes) -> bytes:
        request = v2_pb2.ModelReadyRequest.FromString(encoded)
        return v2_pb2.ModelReadyResponse(ready=self._repository.is_model_ready(request.name, request.version)).SerializeToString()

    async def _server_metadata(self, encoded: bytes) -> bytes:
        metadata = server_metadata(is_shared_memory_allowed=self._regions.is_allowed)
        return v2_pb2.ServerMetadataResponse(
            name=metadata.name, version=metadata.version, extensions=metadata.extensions
        ).SerializeToString()

    async def _model_metadata(self, encoded: bytes) -> bytes:
        request = v2_pb2.ModelMetadataRequest.FromString(encoded)
        metadata = self._repository.find(request.name, request.version).definition.metadata()
        return protobuf.model_metadata_message(metadata).SerializeToString()

    async def _config(self, encoded: bytes) -> bytes:
        request = v2_pb2.ModelConfigRequest.FromString(encoded)
        config = self._repository.find(request.name, request.version).definition.config_message()
        return v2_pb2.ModelConfigResponse(config=config).SerializeToString()

    async def _statistics(self, encoded: bytes) -> bytes:
        request = v2_pb2.ModelStatisticsRequest.FromString(encoded)
        document: dict[str, Any] = self._repository.statistics(request.name, request.version)
        message: Message = json_format.ParseDict(document, v2_pb2.ModelStatisticsResponse())
        return message.SerializeToString()

    async def _index(self, encoded: bytes) -> bytes:
        request = v2_pb2.RepositoryIndexRequest.FromString(encoded)
        document = {"models": self._repository.index(ready=request.ready)}
        message: Message = json_format.ParseDict(document, v2_pb2.RepositoryIndexResponse())
        return message.SerializeToString()

    async def _infer(self, encoded: bytes, context: _Context) -> bytes:
        arrived_ns, trace = time.monotonic_ns(), None
        request, model, finish = self._read(encoded)
        if model.definition.is_decoupled:
            raise ProtocolError("ModelInfer RPC doesn't support models with decoupled transaction policy", ErrorKind.UNSUPPORTED)
        if self._tracer.is_on:
            trace = self._tracer.start("GRPC", request.model, _metadata(context).get(KEY, ""), arrived_ns, arrived_ns)
        try:
            return await model.infer(request, arrived_ns, lambda response: protobuf.encode_infer_response(finish(response)), trace)
        finally:
            if trace is not None:
                self._finish_when_sent(context, trace)

    def _finish_when_sent(self, context: _Context, trace: RequestTrace) -> None:
        send_started_ns = time.monotonic_ns()
        context.add_done_callback(lambda _: self._tracer.finish(trace, send_started_ns))  # type: ignore[arg-type]  # the stubs want a subclass

    def _read(self, encoded: bytes) -> tuple[InferRequest, Model, Callable[[InferResponse], InferResponse]]:
        parsed, shared = resolve_grpc_request(protobuf.parse_infer_request(encoded), self._regions)
        request = shared.fill(protobuf.read_infer_request(parsed))
        return request, self._repository.find(request.model, request.version), shared.finish

    async def _stream(self, requests: AsyncIterator[bytes], context: _Context) -> None:
        if self._calls >= self._limits.max_calls:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, self._too_many_calls)
        metadata = _metadata(context)
        tracing = StreamTracing(self._tracer, metadata.get(KEY, ""))
        stream = Stream(self._read, context.write, self._log, tracing, ends_with_errors=metadata.get(_GRPC_ERRORS[0]) == _GRPC_ERRORS[1])
        self._calls += 1
        try:
            await stream.serve(inflate_all(requests, self._limits.max_body_bytes))
        except BodyTooLargeError as error:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(error))
        except ProtocolError as error:
            await context.abort(_STATUS[error.kind], str(error)[:_MAX_DETAILS])
        except StreamFailureError as failure:
            await context.abort(_STATUS[failure.error.kind], str(failure)[:_MAX_DETAILS])
        finally:
            self._calls -= 1

    def _handlers(self, methods: Mapping[str, Method]) -> "dict[str, grpc.RpcMethodHandler[bytes, bytes]]":
        return {
            name: grpc.unary_unary_rpc_method_handler(self._with_status(name, _without_context(method))) for name, method in methods.items()
        }

    def _with_status(self, name: str, method: _ContextMethod) -> _ContextMethod:
        """A method whose exceptions become gRPC statuses."""

        async def respond(encoded: bytes, context: _Context) -> bytes:
            if self._calls >= self._limits.max_calls:
                await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, self._too_many_calls)
            arrived_ns, status = time.monotonic_ns(), grpc.StatusCode.OK
            self._calls += 1
            try:
                return await method(inflate(encoded, self._limits.max_body_bytes), context)
            except BodyTooLargeError as error:
                status, text = grpc.StatusCode.RESOURCE_EXHAUSTED, str(error)
            except ProtocolError as error:
                status, text = _STATUS[error.kind], str(error)
            except DecodeError as error:
                status, text = grpc.StatusCode.INTERNAL, f"the message cannot be parsed: {error}"
            except Exception as error:  # noqa: BLE001 - an error in one call must not end the server
                self._log.internal_error(error)
                status, text = grpc.StatusCode.INTERNAL, f"the server failed: {error}"
            finally:
                self._calls -= 1
                self._log.request("gRPC", name, status.name, time.monotonic_ns() - arrived_ns)
            await context.abort(status, text[:_MAX_DETAILS])
            raise AssertionError("abort raises")

        return respond


def _without_context(method: Method) -> _ContextMethod:
    return lambda encoded, _context: method(encoded)


def _metadata(context: _Context) -> dict[str, Any]:
    metadata: Any = context.invocation_metadata() or ()
    return dict(metadata)
