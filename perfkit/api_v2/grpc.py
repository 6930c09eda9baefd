"""v2 over gRPC: requests as calls, answers, and a server's descriptions and administration; the messages of `ModelStreamInfer`."""

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.message import DecodeError

from perfkit.errors import MissingEndpointError, ProtocolError, TargetError
from perfkit.protocol import protobuf, v2_pb2, wire_format
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
from perfkit.transport.base import AnswerSigns, Reply
from perfkit.transport.grpc.calls import GrpcTransport, RefusedError, RpcCall
from perfkit.transport.options import MAX_DESCRIPTION_BYTES, TransportOptions
from perfkit.transport.streamed_answer import StreamedMessages, StreamedResponse

_LARGE_BYTES = 1 << 16
_MODEL_NAME, _REQUEST_ID, _INFER_RESPONSE, _RAW_OUTPUTS = 1 << 3 | 2, 3 << 3 | 2, 2 << 3 | 2, 6 << 3 | 2  # tags
_BARE_TAGS = frozenset(field << 3 | 2 for field in (3, 4, 5, 6))
"""Id, parameters, outputs and raw outputs of a ModelInferResponse, which a ModelStreamInferResponse does not have."""
_WRAPPED = bytes((_INFER_RESPONSE,))
_FINAL = "triton_final_response"
# before the response's first field: the head of a gRPC message; of a stream's message, without that head, a tag and a length of up to 5 bytes
_HEAD_BYTES, _LATEST_IN_STREAM = 5, 6


def streamed_message(request: InferRequest) -> bytes:
    """The message of a streamed request without an id, which asks for a final response even if it is empty; raises ProtocolError."""
    parameters = {"triton_enable_empty_final_response": True, **request.parameters}
    return protobuf.encode_infer_request(dataclasses.replace(request, parameters=parameters, id=""))


def id_field(request_id: str) -> bytes:
    """The field `id` of a ModelInferRequest; fields may come in any order."""
    encoded = request_id.encode()
    return wire_format.field_head(_REQUEST_ID, len(encoded)) + encoded


def read_streamed_response(message: bytes, limit_bytes: int) -> StreamedResponse:
    """What a message says; raises ProtocolError if it cannot be parsed, or holds too many fields.

    It is a ModelStreamInferResponse, or a bare ModelInferResponse as MLServer sends it.
    """
    if _is_bare(message):
        described, _ = wire_format.split(message, _RAW_OUTPUTS)
        check_protobuf_fields(described, limit_bytes)
        return _said_by(_parsed_response(described))
    if len(message) < _LARGE_BYTES:
        parsed = _parsed(message)
    else:  # protobuf would copy the tensors
        rest, responses = wire_format.split(message, _INFER_RESPONSE)
        parsed = _parsed(rest)
        for encoded in responses:
            described, _ = wire_format.split(bytes(encoded), _RAW_OUTPUTS)
            check_protobuf_fields(described, limit_bytes)
            parsed.infer_response.MergeFrom(_parsed_response(described))
    response = _said_by(parsed.infer_response)
    return response._replace(error=parsed.error_message, is_response=False, model="") if parsed.error_message else response


def _said_by(response: v2_pb2.ModelInferResponse) -> StreamedResponse:
    final = parameters[_FINAL].bool_param if _FINAL in (parameters := response.parameters) else None
    return StreamedResponse(response.id, "", bool(response.outputs) or final is not True, final, response.model_name)


def _is_bare(message: bytes) -> bool:
    """Whether a message is a ModelInferResponse: its first field, the model's name, has the number of another message's error."""
    if message.startswith(_WRAPPED):
        return False
    try:
        return any(field.tag in _BARE_TAGS for field in wire_format.fields(message))
    except ProtocolError:
        return False


def decode_streamed_response(message: bytes, limit_bytes: int) -> InferResponse:
    """The response in a message; raises ProtocolError."""
    if _is_bare(message):
        check_protobuf_fields(message, limit_bytes)
        return protobuf.decode_infer_response(message)
    _, responses = wire_format.split(message, _INFER_RESPONSE)
    encoded = bytes(responses[-1]) if responses else _parsed(message).infer_response.SerializeToString()
    check_protobuf_fields(encoded, limit_bytes)
    return protobuf.decode_infer_response(encoded)


def _parsed(message: bytes) -> v2_pb2.ModelStreamInferResponse:
    try:
        return v2_pb2.ModelStreamInferResponse.FromString(message)
    except DecodeError as error:
        raise ProtocolError(f"the stream's message is not a ModelStreamInferResponse: {error}") from None


def _parsed_response(message: bytes) -> v2_pb2.ModelInferResponse:
    try:
        return v2_pb2.ModelInferResponse.FromString(message)
    except DecodeError as error:
        raise ProtocolError(f"the stream's message holds no ModelInferResponse: {error}") from None


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

    def signs(self, start: bytes, response: InferResponse) -> AnswerSigns:
        """The field with the model's name, the first one as protobuf writes it; an error has no message.

        An output's name is a field with the same bytes, behind it.
        """
        name = response.model.encode()
        field = wire_format.field_head(_MODEL_NAME, len(name)) + name
        latest = _LATEST_IN_STREAM if self._is_streamed else _HEAD_BYTES
        is_there = name and start.find(field, 0, latest + len(field)) >= 0
        return AnswerSigns(field if is_there else b"", None, latest)

    def answer_bytes(self, message: bytes) -> int:
        """The size of an answer."""
        return len(message)

    async def server_metadata(self, transport: GrpcTransport) -> ServerMetadata:
        try:
            answer = await _call(transport, "ServerMetadata")
        except RefusedError as error:
            raise _missing(transport, "ServerMetadata", error) or error from None
        return ServerMetadata(answer.name, answer.version, tuple(answer.extensions))

    async def is_ready(self, transport: GrpcTransport, model: str, version: str) -> bool:
        try:
            return bool((await _call(transport, "ModelReady", name=model, version=version)).ready)
        except RefusedError as error:
            if error.is_restricted or error.may_pass:
                raise
            if (missing := _missing(transport, "ModelReady", error)) and not await self.server_refusal(transport):
                raise missing from None
            return False

    async def server_refusal(self, transport: GrpcTransport) -> str:
        try:
            is_ready = (await _call(transport, "ServerReady")).ready
        except RefusedError as error:
            return "" if error.status == _MISSING or error.is_restricted else f"ServerReady: {transport.address.sanitize(error.reason)}"
        return "" if is_ready else "ServerReady: false"

    async def model_metadata(self, transport: GrpcTransport, model: str, version: str) -> ModelMetadata:
        try:
            return protobuf.model_metadata(await _call(transport, "ModelMetadata", name=model, version=version))
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
            return protobuf.model_config(await _call(transport, "ModelConfig", name=model, version=version))
        except RefusedError as error:
            if error.may_pass:
                raise
            raise MissingEndpointError(str(error), f"ModelConfig: {transport.address.sanitize(error.reason)}") from None
        except ProtocolError as error:
            raise TargetError(f"{transport.address}: {error}") from None

    async def model_config_text(self, transport: GrpcTransport, model: str, version: str) -> str:
        what = "the text of a configuration is read over HTTP"
        raise MissingEndpointError(f"{transport.address}: {what}", what)

    async def model_index(self, transport: GrpcTransport) -> tuple[IndexedModel, ...]:
        try:
            return protobuf.model_index(await _call(transport, "RepositoryIndex"))
        except RefusedError:
            return ()

    async def load_model(self, transport: GrpcTransport, model: str, config: str) -> str:
        parameters = {"config": v2_pb2.ModelRepositoryParameter(string_param=config)} if config else {}
        return await _change(transport, "RepositoryModelLoad", model_name=model, parameters=parameters)

    async def unload_model(self, transport: GrpcTransport, model: str) -> str:
        return await _change(transport, "RepositoryModelUnload", model_name=model)

    async def change_trace_settings(self, transport: GrpcTransport, settings: Mapping[str, Sequence[str]]) -> str:
        values = {name: v2_pb2.TraceSettingRequest.SettingValue(value=list(given)) for name, given in settings.items()}
        return await _change(transport, "TraceSetting", settings=values)

    async def model_statistics(self, transport: GrpcTransport, model: str, version: str) -> tuple[ModelStatistics, ...]:
        try:
            return protobuf.model_statistics(await _call(transport, "ModelStatistics", name=model, version=version))
        except RefusedError as error:
            if error.is_restricted or error.may_pass:
                raise
            return ()

    async def register_region(self, transport: GrpcTransport, region: SharedRegion) -> RegionRefusal | None:
        memory = {"key": region.key} if region.kind == "system" else {"raw_handle": region.handle, "device_id": region.device_id}
        try:
            await _call(transport, _region_rpc(region.kind, "Register"), name=region.name, byte_size=region.byte_size, **memory)
        except RefusedError as error:
            return RegionRefusal(transport.address.sanitize(error.reason), is_unsupported=error.status == _MISSING)
        return None

    async def unregister_region(self, transport: GrpcTransport, kind: RegionKind, name: str) -> None:
        with contextlib.suppress(RefusedError):
            await _call(transport, _region_rpc(kind, "Unregister"), name=name)

    async def region_names(self, transport: GrpcTransport, kind: RegionKind) -> tuple[str, ...]:
        try:
            return tuple((await _call(transport, _region_rpc(kind, "Status"))).regions)
        except RefusedError:
            return ()


def _region_rpc(kind: RegionKind, action: str) -> str:
    return f"{kind.capitalize()}SharedMemory{action}"


def _missing(transport: GrpcTransport, rpc: str, error: RefusedError) -> MissingEndpointError | None:
    """The error for a call that the server does not implement; None for any other refusal."""
    if error.status != _MISSING:
        return None
    return MissingEndpointError(str(error), f"{rpc}: {transport.address.sanitize(error.reason)}")


async def _change(transport: GrpcTransport, rpc: str, **fields: Any) -> str:
    """Makes a call that changes something; the server's words if it refuses, otherwise empty."""
    try:
        await _call(transport, rpc, **fields)
    except RefusedError as error:
        return transport.address.sanitize(error.reason)
    return ""


async def _call(transport: GrpcTransport, rpc: str, **fields: Any) -> Any:
    """The answer to a call whose message has these fields: a message of `v2_pb2` named like the call."""
    request, response = getattr(v2_pb2, f"{rpc}Request"), getattr(v2_pb2, f"{rpc}Response")
    message = await transport.exchange(RpcCall(protobuf.method_path(rpc), request(**fields).SerializeToString()))
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
