"""The v2 calls over gRPC that both engines share, and refusals."""

import abc
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from perfkit.errors import ErrorKind, ProtocolError, TargetError
from perfkit.protocol import protobuf, v2_pb2
from perfkit.protocol.decoded_size import check_entries
from perfkit.protocol.message import IndexedModel, ModelConfig, ModelMetadata, ServerMetadata
from perfkit.protocol.statistics import ModelStatistics
from perfkit.target.address import Address
from perfkit.transport.base import Reply, may_pass
from perfkit.transport.limits import MAX_DESCRIPTION_BYTES

_M = TypeVar("_M", bound=Message)
_MAX_ENTRIES = 10_000  # versions, tensors
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
        answer = await self._call("ServerMetadata", v2_pb2.ServerMetadataRequest(), v2_pb2.ServerMetadataResponse)
        return ServerMetadata(answer.name, answer.version, tuple(answer.extensions))

    async def is_ready(self, model: str, version: str) -> bool:
        if not (await self._call("ServerReady", v2_pb2.ServerReadyRequest(), v2_pb2.ServerReadyResponse)).ready:
            return False
        try:
            answer = await self._call("ModelReady", v2_pb2.ModelReadyRequest(name=model, version=version), v2_pb2.ModelReadyResponse)
        except RefusedError as error:
            if error.is_restricted or error.may_pass:
                raise
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
            return ModelConfig()
        except ProtocolError as error:
            raise TargetError(f"{self._address}: {error}") from None

    async def model_index(self) -> tuple[IndexedModel, ...]:
        try:
            return protobuf.model_index(
                await self._call("RepositoryIndex", v2_pb2.RepositoryIndexRequest(), v2_pb2.RepositoryIndexResponse)
            )
        except RefusedError:
            return ()

    async def model_statistics(self, model: str, version: str) -> tuple[ModelStatistics, ...]:
        request = v2_pb2.ModelStatisticsRequest(name=model, version=version)
        try:
            return protobuf.model_statistics(await self._call("ModelStatistics", request, v2_pb2.ModelStatisticsResponse))
        except RefusedError as error:
            if error.is_restricted or error.may_pass:
                raise
            return ()

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
