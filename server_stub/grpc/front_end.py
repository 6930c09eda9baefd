"""The gRPC front end: the service of `v2.proto`."""

import functools
import time
from collections.abc import AsyncIterator, Callable, Sequence

from google.protobuf import json_format
from google.protobuf.message import DecodeError, Message

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol import protobuf, v2_pb2
from perfkit.protocol.grpc_call import Status
from perfkit.protocol.message import InferRequest, InferResponse
from perfkit.protocol.tensor import Buffer
from server_stub.devices.host_memory import HostMemory
from server_stub.grpc.administration import GrpcAdministration, Method
from server_stub.grpc.calls import Call, Methods, StatusError, UnaryMethod, status_error
from server_stub.grpc.connections import GrpcPort
from server_stub.grpc.stream import Stream, StreamFailureError, StreamTracing
from server_stub.inference.model import Model
from server_stub.log import Log
from server_stub.options import Limits, TlsIdentity
from server_stub.receiving import ReceivingThreads
from server_stub.repository.repository import Repository
from server_stub.settings import Settings, server_metadata
from server_stub.shared_memory.regions import SharedMemoryRegions
from server_stub.shared_memory.shared_tensors import resolve_grpc_request
from server_stub.tracing.traceparent import KEY
from server_stub.tracing.tracer import Tracer

_HEALTH_CHECK = "/grpc.health.v1.Health/Check"
# encoded grpc.health.v1.HealthCheckResponse: field 1, status, is SERVING (1) or NOT_SERVING (2)
_SERVING, _NOT_SERVING = b"\x08\x01", b"\x08\x02"
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
        memory: HostMemory | None = None,
        threads: ReceivingThreads | None = None,
    ) -> None:
        self._repository, self._regions = repository, regions
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
        paths = {protobuf.method_path(name): _unary(name, method) for name, method in methods.items()}
        unary = {_HEALTH_CHECK: self._health, **paths, protobuf.method_path("ModelInfer"): self._infer}
        served = Methods(
            {path: functools.partial(self._respond, path.rpartition("/")[2], method) for path, method in unary.items()},
            {protobuf.method_path("ModelStreamInfer"): self._stream},
        )
        self._port = GrpcPort(served, limits or Limits(), memory or HostMemory(), threads or ReceivingThreads(0))

    async def start(self, host: str, port: int, tls: TlsIdentity | None = None) -> int:
        """Listen, and return the port. Raises OSError if that fails."""
        return await self._port.start(host, port, tls)

    async def stop(self) -> None:
        """Stop listening, and wait until the calls in flight are answered or `stop_timeout_s` has passed."""
        await self._port.stop()

    async def _live(self, _: v2_pb2.ServerLiveRequest) -> Message:
        return v2_pb2.ServerLiveResponse(live=True)

    async def _ready(self, _: v2_pb2.ServerReadyRequest) -> Message:
        return v2_pb2.ServerReadyResponse(ready=self._repository.is_ready)

    async def _health(self, _request: Buffer, _call: Call) -> Sequence[Buffer]:
        return [_SERVING if self._repository.is_ready else _NOT_SERVING]

    async def _model_ready(self, request: v2_pb2.ModelReadyRequest) -> Message:
        return v2_pb2.ModelReadyResponse(ready=self._repository.is_model_ready(request.name, request.version))

    async def _server_metadata(self, _: v2_pb2.ServerMetadataRequest) -> Message:
        metadata = server_metadata(is_shared_memory_allowed=self._regions.is_allowed)
        return v2_pb2.ServerMetadataResponse(name=metadata.name, version=metadata.version, extensions=metadata.extensions)

    async def _model_metadata(self, request: v2_pb2.ModelMetadataRequest) -> Message:
        return protobuf.model_metadata_message(self._repository.find(request.name, request.version).definition.metadata())

    async def _config(self, request: v2_pb2.ModelConfigRequest) -> Message:
        return v2_pb2.ModelConfigResponse(config=self._repository.find(request.name, request.version).definition.config_message())

    async def _statistics(self, request: v2_pb2.ModelStatisticsRequest) -> Message:
        return json_format.ParseDict(self._repository.statistics(request.name, request.version), v2_pb2.ModelStatisticsResponse())

    async def _index(self, request: v2_pb2.RepositoryIndexRequest) -> Message:
        return json_format.ParseDict({"models": self._repository.index(ready=request.ready)}, v2_pb2.RepositoryIndexResponse())

    async def _infer(self, encoded: Buffer, call: Call) -> Sequence[Buffer]:
        arrived_ns, trace = time.monotonic_ns(), None
        request, model, finish = self._read(encoded)
        if model.definition.is_decoupled:
            raise ProtocolError("ModelInfer RPC doesn't support models with decoupled transaction policy", ErrorKind.UNSUPPORTED)
        if self._tracer.is_on:
            trace = self._tracer.start("GRPC", request.model, call.metadata.get(KEY, ""), arrived_ns, arrived_ns)
        try:
            return await model.infer(request, arrived_ns, lambda response: protobuf.encode_infer_response(finish(response)), trace)
        finally:
            if trace is not None:
                call.on_sent(functools.partial(self._tracer.finish, trace, time.monotonic_ns()))

    def _read(self, encoded: Buffer) -> tuple[InferRequest, Model, Callable[[InferResponse], InferResponse]]:
        parsed, shared = resolve_grpc_request(protobuf.parse_infer_request(encoded), self._regions)
        request = shared.fill(protobuf.read_infer_request(parsed))
        return request, self._repository.find(request.model, request.version), shared.finish

    async def _stream(self, requests: AsyncIterator[Buffer], call: Call) -> None:
        tracing = StreamTracing(self._tracer, call.metadata.get(KEY, ""))
        ends_with_errors = call.metadata.get(_GRPC_ERRORS[0]) == _GRPC_ERRORS[1]
        try:
            await Stream(self._read, call.write, self._log, tracing, ends_with_errors=ends_with_errors).serve(requests)
        except Exception as error:  # noqa: BLE001 - an error in one call must not end the server
            raise self._refusal(error) from None

    async def _respond(self, name: str, method: UnaryMethod, encoded: Buffer, call: Call) -> Sequence[Buffer]:
        """The response of a unary method; its exceptions become gRPC statuses."""
        arrived_ns, status = time.monotonic_ns(), Status.OK
        try:
            return await method(encoded, call)
        except Exception as error:  # noqa: BLE001 - as above
            refusal = self._refusal(error)
            status = refusal.status
            raise refusal from None
        finally:
            self._log.request("gRPC", name, status.name, time.monotonic_ns() - arrived_ns)

    def _refusal(self, error: Exception) -> StatusError:
        match error:
            case ProtocolError():
                return status_error(error)
            case StreamFailureError():
                return status_error(error.error)
            case DecodeError():
                return StatusError(Status.INTERNAL, f"the message cannot be parsed: {error}")
            case _:
                self._log.internal_error(error)
                return StatusError(Status.INTERNAL, f"the server failed: {error}")


def _unary(name: str, method: Method) -> UnaryMethod:
    """A method that takes and returns messages, as one of bytes; raises DecodeError."""
    request: type[Message] = getattr(v2_pb2, f"{name}Request")

    async def respond(encoded: Buffer, _call: Call) -> Sequence[Buffer]:
        return [(await method(request.FromString(bytes(encoded)))).SerializeToString()]

    return respond
