"""v2 over gRPC: requests as calls, answers, and a server's descriptions and administration."""

import contextlib
from collections.abc import Mapping, Sequence
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from perfkit.api_v2.streamed_messages import decode_streamed_response, id_field, read_streamed_response, streamed_message
from perfkit.errors import MissingEndpointError, ProtocolError, TargetError
from perfkit.protocol import protobuf, v2_pb2
from perfkit.protocol.decoded_size import check_entries, check_protobuf_fields
from perfkit.protocol.message import (
    IndexedModel,
    InferRequest,
    InferResponse,
    ModelConfig,
    ModelMetadata,
    RegionKind,
    RegionRefusal,
    ServerMetadata,
    SharedRegion,
)
from perfkit.protocol.statistics import ModelStatistics
from perfkit.transport.base import Reply
from perfkit.transport.grpc.calls import GrpcTransport, RefusedError, RpcCall
from perfkit.transport.limits import MAX_DESCRIPTION_BYTES
from perfkit.transport.options import TransportOptions
from perfkit.transport.streamed_answer import StreamedMessages

_M = TypeVar("_M", bound=Message)
_MAX_ENTRIES = 10_000  # versions, tensors
_MISSING = "UNIMPLEMENTED"


class RpcCalls:
    """The calls of v2 over gRPC, each to the one address of a transport. `Client` says what they return and raise."""

    API = StreamedMessages(id_field, read_streamed_response)
    """What a transport must know of them."""

    def __init__(self, options: TransportOptions) -> None:
        self._is_streamed, self._limit_bytes = options.stream is not None, options.answer_limit.max_bytes

    def infer(self, request: InferRequest) -> RpcCall:
        """The call of a request; raises ProtocolError if a tensor has no form in protobuf."""
        if self._is_streamed:
            return RpcCall(protobuf.method_path("ModelStreamInfer"), streamed_message(request), request.id)
        return RpcCall(protobuf.method_path("ModelInfer"), protobuf.encode_infer_request(request))

    def decode(self, reply: Reply, message: bytes) -> InferResponse:
        """The answer to a request, of a stream the first response; raises ProtocolError if it is invalid."""
        if self._is_streamed:
            return decode_streamed_response(message, self._limit_bytes)
        check_protobuf_fields(message, self._limit_bytes)
        return protobuf.decode_infer_response(message)

    def answer_bytes(self, message: bytes) -> int:
        """The size of an answer."""
        return len(message)

    async def server_metadata(self, transport: GrpcTransport) -> ServerMetadata:
        try:
            answer = await self._call(transport, "ServerMetadata", v2_pb2.ServerMetadataRequest(), v2_pb2.ServerMetadataResponse)
        except RefusedError as error:
            raise self._missing(transport, "ServerMetadata", error) or error from None
        return ServerMetadata(answer.name, answer.version, tuple(answer.extensions))

    async def is_ready(self, transport: GrpcTransport, model: str, version: str) -> bool:
        try:
            if not (await self._call(transport, "ServerReady", v2_pb2.ServerReadyRequest(), v2_pb2.ServerReadyResponse)).ready:
                return False
        except RefusedError as error:
            if error.status != _MISSING:
                raise
        try:
            answer = await self._call(
                transport, "ModelReady", v2_pb2.ModelReadyRequest(name=model, version=version), v2_pb2.ModelReadyResponse
            )
        except RefusedError as error:
            if error.is_restricted or error.may_pass:
                raise
            if missing := self._missing(transport, "ModelReady", error):
                raise missing from None
            return False
        return answer.ready

    async def model_metadata(self, transport: GrpcTransport, model: str, version: str) -> ModelMetadata:
        request = v2_pb2.ModelMetadataRequest(name=model, version=version)
        try:
            return protobuf.model_metadata(await self._call(transport, "ModelMetadata", request, v2_pb2.ModelMetadataResponse))
        except RefusedError as error:
            if error.is_restricted:
                raise
            message = f"{transport.address}: the server does not offer model '{model}': {transport.address.sanitize(error.reason)}"
            if error.status in (_MISSING, "NOT_FOUND"):
                raise MissingEndpointError(message, transport.address.sanitize(error.reason)) from None
            raise TargetError(message, may_pass=error.may_pass) from None
        except ProtocolError as error:
            raise TargetError(f"{transport.address}: {error}") from None

    async def model_config(self, transport: GrpcTransport, model: str, version: str) -> ModelConfig:
        try:
            answer = await self._call(
                transport, "ModelConfig", v2_pb2.ModelConfigRequest(name=model, version=version), v2_pb2.ModelConfigResponse
            )
            return protobuf.model_config(answer)
        except RefusedError as error:
            if error.may_pass:
                raise
            raise MissingEndpointError(str(error), f"ModelConfig: {transport.address.sanitize(error.reason)}") from None
        except ProtocolError as error:
            raise TargetError(f"{transport.address}: {error}") from None

    async def model_index(self, transport: GrpcTransport) -> tuple[IndexedModel, ...]:
        try:
            return protobuf.model_index(
                await self._call(transport, "RepositoryIndex", v2_pb2.RepositoryIndexRequest(), v2_pb2.RepositoryIndexResponse)
            )
        except RefusedError:
            return ()

    async def load_model(self, transport: GrpcTransport, model: str) -> str:
        request = v2_pb2.RepositoryModelLoadRequest(model_name=model)
        return await self._change(transport, "RepositoryModelLoad", request, v2_pb2.RepositoryModelLoadResponse)

    async def unload_model(self, transport: GrpcTransport, model: str) -> str:
        request = v2_pb2.RepositoryModelUnloadRequest(model_name=model)
        return await self._change(transport, "RepositoryModelUnload", request, v2_pb2.RepositoryModelUnloadResponse)

    async def change_trace_settings(self, transport: GrpcTransport, settings: Mapping[str, Sequence[str]]) -> str:
        values = {name: v2_pb2.TraceSettingRequest.SettingValue(value=list(given)) for name, given in settings.items()}
        return await self._change(transport, "TraceSetting", v2_pb2.TraceSettingRequest(settings=values), v2_pb2.TraceSettingResponse)

    async def _change(self, transport: GrpcTransport, rpc: str, request: Message, response: type[Message]) -> str:
        try:
            await self._call(transport, rpc, request, response)
        except RefusedError as error:
            return transport.address.sanitize(error.reason)
        return ""

    async def model_statistics(self, transport: GrpcTransport, model: str, version: str) -> tuple[ModelStatistics, ...]:
        request = v2_pb2.ModelStatisticsRequest(name=model, version=version)
        try:
            return protobuf.model_statistics(await self._call(transport, "ModelStatistics", request, v2_pb2.ModelStatisticsResponse))
        except RefusedError as error:
            if error.is_restricted or error.may_pass:
                raise
            return ()

    async def register_region(self, transport: GrpcTransport, region: SharedRegion) -> RegionRefusal | None:
        try:
            if region.kind == "system":
                system = v2_pb2.SystemSharedMemoryRegisterRequest(name=region.name, key=region.key, byte_size=region.byte_size)
                await self._call(transport, "SystemSharedMemoryRegister", system, v2_pb2.SystemSharedMemoryRegisterResponse)
            else:
                cuda = v2_pb2.CudaSharedMemoryRegisterRequest(
                    name=region.name, raw_handle=region.handle, device_id=region.device_id, byte_size=region.byte_size
                )
                await self._call(transport, "CudaSharedMemoryRegister", cuda, v2_pb2.CudaSharedMemoryRegisterResponse)
        except RefusedError as error:
            return RegionRefusal(transport.address.sanitize(error.reason), is_unsupported=error.status == "UNIMPLEMENTED")
        return None

    async def unregister_region(self, transport: GrpcTransport, kind: RegionKind, name: str) -> None:
        with contextlib.suppress(RefusedError):
            if kind == "system":
                system = v2_pb2.SystemSharedMemoryUnregisterRequest(name=name)
                await self._call(transport, "SystemSharedMemoryUnregister", system, v2_pb2.SystemSharedMemoryUnregisterResponse)
            else:
                cuda = v2_pb2.CudaSharedMemoryUnregisterRequest(name=name)
                await self._call(transport, "CudaSharedMemoryUnregister", cuda, v2_pb2.CudaSharedMemoryUnregisterResponse)

    async def region_names(self, transport: GrpcTransport, kind: RegionKind) -> tuple[str, ...]:
        try:
            if kind == "system":
                system = await self._call(
                    transport, "SystemSharedMemoryStatus", v2_pb2.SystemSharedMemoryStatusRequest(), v2_pb2.SystemSharedMemoryStatusResponse
                )
                return tuple(system.regions)
            cuda = await self._call(
                transport, "CudaSharedMemoryStatus", v2_pb2.CudaSharedMemoryStatusRequest(), v2_pb2.CudaSharedMemoryStatusResponse
            )
        except RefusedError:
            return ()
        return tuple(cuda.regions)

    def _missing(self, transport: GrpcTransport, rpc: str, error: RefusedError) -> MissingEndpointError | None:
        """The error for a call that the server does not implement; None for any other refusal."""
        if error.status != _MISSING:
            return None
        return MissingEndpointError(str(error), f"{rpc}: {transport.address.sanitize(error.reason)}")

    async def _call(self, transport: GrpcTransport, rpc: str, request: Message, response: type[_M]) -> _M:
        message = await transport.exchange(RpcCall(protobuf.method_path(rpc), request.SerializeToString()))
        if len(message) > MAX_DESCRIPTION_BYTES:
            raise TargetError(f"{transport.address}: {rpc} returned {len(message):,} B, more than {MAX_DESCRIPTION_BYTES:,} B")
        try:
            check_entries(message, _MAX_ENTRIES)
        except ProtocolError as error:
            raise TargetError(f"{transport.address}: {rpc}: {error}") from None
        try:
            return response.FromString(message)
        except DecodeError as error:
            raise TargetError(f"{transport.address}: the answer to {rpc} is not a {response.DESCRIPTOR.name}: {error}") from None
