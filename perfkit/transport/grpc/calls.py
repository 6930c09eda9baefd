"""The v2 calls over gRPC that both engines share, and refusals."""

import abc
import contextlib
from collections.abc import Mapping, Sequence
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from perfkit.errors import ErrorKind, MissingEndpointError, ProtocolError, TargetError
from perfkit.protocol import protobuf, v2_pb2
from perfkit.protocol.decoded_size import check_entries
from perfkit.protocol.message import IndexedModel, ModelConfig, ModelMetadata, RegionKind, ServerMetadata, SharedRegion
from perfkit.protocol.statistics import ModelStatistics
from perfkit.target.address import Address
from perfkit.transport.base import RegionRefusal, Reply, may_pass
from perfkit.transport.limits import MAX_DESCRIPTION_BYTES

_M = TypeVar("_M", bound=Message)
_MAX_ENTRIES = 10_000  # versions, tensors
_MISSING = "UNIMPLEMENTED"
_RESTRICTED = ("UNAUTHENTICATED", "PERMISSION_DENIED")


class RefusedError(TargetError):
    """The server answered a call with an error; `reason` is its status and message, such as `NOT_FOUND: no such model`."""

    def __init__(self, address: Address, rpc: str, reason: str) -> None:
        self.reason, self.status = reason, reason.partition(":")[0]
        self.is_restricted = self.status in _RESTRICTED or "restricted" in reason.lower()  # Triton's status for it is UNAVAILABLE
        message = f"{address}: {'access to ' if self.is_restricted else ''}{rpc} is refused: {address.sanitize(reason)}"
        if self.is_restricted:
            message += ": give the credentials that the server, or a proxy in front of it, asks for in target.headers"
        super().__init__(message, may_pass=may_pass(self.status) and not self.is_restricted)


class RpcTransport(abc.ABC):
    """The v2 calls of a gRPC engine, which adds `_exchange`."""

    def __init__(self, address: Address) -> None:
        self._address = address

    @abc.abstractmethod
    async def _exchange(self, rpc: str, message: bytes) -> bytes:
        """Makes a call; raises RefusedError with status and message, or TargetError if there is no answer."""

    def raw_failure(self, reply: Reply) -> str:
        return reply.error

    async def server_metadata(self) -> ServerMetadata:
        try:
            answer = await self._call("ServerMetadata", v2_pb2.ServerMetadataRequest(), v2_pb2.ServerMetadataResponse)
        except RefusedError as error:
            raise self._missing("ServerMetadata", error) or error from None
        return ServerMetadata(answer.name, answer.version, tuple(answer.extensions))

    async def is_ready(self, model: str, version: str) -> bool:
        try:
            if not (await self._call("ServerReady", v2_pb2.ServerReadyRequest(), v2_pb2.ServerReadyResponse)).ready:
                return False
        except RefusedError as error:
            if error.status != _MISSING:
                raise
        try:
            answer = await self._call("ModelReady", v2_pb2.ModelReadyRequest(name=model, version=version), v2_pb2.ModelReadyResponse)
        except RefusedError as error:
            if error.is_restricted or error.may_pass:
                raise
            if missing := self._missing("ModelReady", error):
                raise missing from None
            return False
        return answer.ready

    async def model_metadata(self, model: str, version: str) -> ModelMetadata:
        request = v2_pb2.ModelMetadataRequest(name=model, version=version)
        try:
            return protobuf.model_metadata(await self._call("ModelMetadata", request, v2_pb2.ModelMetadataResponse))
        except RefusedError as error:
            if error.is_restricted:
                raise
            message = f"{self._address}: the server does not offer model '{model}': {self._address.sanitize(error.reason)}"
            if error.status in (_MISSING, "NOT_FOUND"):
                raise MissingEndpointError(message, self._address.sanitize(error.reason)) from None
            raise TargetError(message, may_pass=error.may_pass) from None
        except ProtocolError as error:
            raise TargetError(f"{self._address}: {error}") from None

    async def model_config(self, model: str, version: str) -> ModelConfig:
        try:
            answer = await self._call("ModelConfig", v2_pb2.ModelConfigRequest(name=model, version=version), v2_pb2.ModelConfigResponse)
            return protobuf.model_config(answer)
        except RefusedError as error:
            if error.may_pass:
                raise
            raise MissingEndpointError(str(error), f"ModelConfig: {self._address.sanitize(error.reason)}") from None
        except ProtocolError as error:
            raise TargetError(f"{self._address}: {error}") from None

    async def model_index(self) -> tuple[IndexedModel, ...]:
        try:
            return protobuf.model_index(
                await self._call("RepositoryIndex", v2_pb2.RepositoryIndexRequest(), v2_pb2.RepositoryIndexResponse)
            )
        except RefusedError:
            return ()

    async def load_model(self, model: str) -> str:
        request = v2_pb2.RepositoryModelLoadRequest(model_name=model)
        return await self._change("RepositoryModelLoad", request, v2_pb2.RepositoryModelLoadResponse)

    async def unload_model(self, model: str) -> str:
        request = v2_pb2.RepositoryModelUnloadRequest(model_name=model)
        return await self._change("RepositoryModelUnload", request, v2_pb2.RepositoryModelUnloadResponse)

    async def change_trace_settings(self, settings: Mapping[str, Sequence[str]]) -> str:
        values = {name: v2_pb2.TraceSettingRequest.SettingValue(value=list(given)) for name, given in settings.items()}
        return await self._change("TraceSetting", v2_pb2.TraceSettingRequest(settings=values), v2_pb2.TraceSettingResponse)

    async def _change(self, rpc: str, request: Message, response: type[Message]) -> str:
        try:
            await self._call(rpc, request, response)
        except RefusedError as error:
            return self._address.sanitize(error.reason)
        return ""

    async def model_statistics(self, model: str, version: str) -> tuple[ModelStatistics, ...]:
        request = v2_pb2.ModelStatisticsRequest(name=model, version=version)
        try:
            return protobuf.model_statistics(await self._call("ModelStatistics", request, v2_pb2.ModelStatisticsResponse))
        except RefusedError as error:
            if error.is_restricted or error.may_pass:
                raise
            return ()

    async def register_region(self, region: SharedRegion) -> RegionRefusal | None:
        try:
            if region.kind == "system":
                system = v2_pb2.SystemSharedMemoryRegisterRequest(name=region.name, key=region.key, byte_size=region.byte_size)
                await self._call("SystemSharedMemoryRegister", system, v2_pb2.SystemSharedMemoryRegisterResponse)
            else:
                cuda = v2_pb2.CudaSharedMemoryRegisterRequest(
                    name=region.name, raw_handle=region.handle, device_id=region.device_id, byte_size=region.byte_size
                )
                await self._call("CudaSharedMemoryRegister", cuda, v2_pb2.CudaSharedMemoryRegisterResponse)
        except RefusedError as error:
            return RegionRefusal(self._address.sanitize(error.reason), is_unsupported=error.status == "UNIMPLEMENTED")
        return None

    async def unregister_region(self, kind: RegionKind, name: str) -> None:
        with contextlib.suppress(RefusedError):
            if kind == "system":
                system = v2_pb2.SystemSharedMemoryUnregisterRequest(name=name)
                await self._call("SystemSharedMemoryUnregister", system, v2_pb2.SystemSharedMemoryUnregisterResponse)
            else:
                cuda = v2_pb2.CudaSharedMemoryUnregisterRequest(name=name)
                await self._call("CudaSharedMemoryUnregister", cuda, v2_pb2.CudaSharedMemoryUnregisterResponse)

    async def region_names(self, kind: RegionKind) -> tuple[str, ...]:
        try:
            if kind == "system":
                system = await self._call(
                    "SystemSharedMemoryStatus", v2_pb2.SystemSharedMemoryStatusRequest(), v2_pb2.SystemSharedMemoryStatusResponse
                )
                return tuple(system.regions)
            cuda = await self._call("CudaSharedMemoryStatus", v2_pb2.CudaSharedMemoryStatusRequest(), v2_pb2.CudaSharedMemoryStatusResponse)
        except RefusedError:
            return ()
        return tuple(cuda.regions)

    def _missing(self, rpc: str, error: RefusedError) -> MissingEndpointError | None:
        """The error for a call that the server does not implement; None for any other refusal."""
        if error.status != _MISSING:
            return None
        return MissingEndpointError(str(error), f"{rpc}: {self._address.sanitize(error.reason)}")

    async def _call(self, rpc: str, request: Message, response: type[_M]) -> _M:
        message = await self._exchange(rpc, request.SerializeToString())
        if len(message) > MAX_DESCRIPTION_BYTES:
            raise TargetError(f"{self._address}: {rpc} returned {len(message):,} B, more than {MAX_DESCRIPTION_BYTES:,} B")
        try:
            check_entries(message, _MAX_ENTRIES)
        except ProtocolError as error:
            raise TargetError(f"{self._address}: {rpc}: {error}") from None
        try:
            return response.FromString(message)
        except DecodeError as error:
            raise TargetError(f"{self._address}: the answer to {rpc} is not a {response.DESCRIPTOR.name}: {error}") from None


def refusal(error: str) -> ProtocolError:
    """The error for a request that was refused with the message `error`."""
    return ProtocolError(error, ErrorKind.INVALID_ARGUMENT if error.startswith("INVALID_ARGUMENT:") else ErrorKind.INTERNAL)
