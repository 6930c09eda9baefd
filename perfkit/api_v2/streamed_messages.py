"""The messages of `ModelStreamInfer`: those of requests, and what those of responses say about their requests."""

import dataclasses

from google.protobuf.message import DecodeError

from perfkit.errors import ProtocolError
from perfkit.protocol import protobuf, v2_pb2, wire_format
from perfkit.protocol.decoded_size import check_protobuf_fields
from perfkit.protocol.message import InferRequest, InferResponse
from perfkit.transport.base import StreamedResponse

_LARGE_BYTES = 1 << 16
_REQUEST_ID, _INFER_RESPONSE, _RAW_OUTPUTS = 3 << 3 | 2, 2 << 3 | 2, 6 << 3 | 2  # tags
_BARE_TAGS = frozenset(field << 3 | 2 for field in (3, 4, 5, 6))
"""Id, parameters, outputs and raw outputs of a ModelInferResponse, which a ModelStreamInferResponse does not have."""
_BARE = (
    "the server answers ModelStreamInfer with bare ModelInferResponse messages, as MLServer does, and not with ModelStreamInferResponse as "
    "Triton and the bundled server do: its streams cannot be measured"
)
_FINAL = "triton_final_response"


def streamed_message(request: InferRequest) -> bytes:
    """The message of a streamed request without an id, which asks for a final response even if it is empty; raises ProtocolError."""
    parameters = {"triton_enable_empty_final_response": True, **request.parameters}
    return protobuf.encode_infer_request(dataclasses.replace(request, parameters=parameters, id=""))


def id_field(request_id: str) -> bytes:
    """The field `id` of a ModelInferRequest; fields may come in any order."""
    encoded = request_id.encode()
    return wire_format.field_head(_REQUEST_ID, len(encoded)) + encoded


def read_streamed_response(message: bytes, limit_bytes: int) -> StreamedResponse:
    """What a message says; raises ProtocolError if it cannot be parsed, holds too many fields, or is a bare ModelInferResponse."""
    try:
        response = _read(message, limit_bytes)
    except ProtocolError:
        _refuse_bare(message)
        raise
    if response.error:  # what a bare response has there is the model's name
        _refuse_bare(message)
    return response


def _read(message: bytes, limit_bytes: int) -> StreamedResponse:
    if len(message) < _LARGE_BYTES:
        parsed = _parsed(message)
    else:  # protobuf would copy the tensors
        rest, responses = wire_format.split(message, _INFER_RESPONSE)
        parsed = _parsed(rest)
        for encoded in responses:
            described, _ = wire_format.split(bytes(encoded), _RAW_OUTPUTS)
            check_protobuf_fields(described, limit_bytes)
            parsed.infer_response.MergeFrom(_parsed_response(described))
    response = parsed.infer_response
    final = parameters[_FINAL].bool_param if _FINAL in (parameters := response.parameters) else None
    if parsed.error_message:
        return StreamedResponse(response.id, parsed.error_message, False, final)
    return StreamedResponse(response.id, "", bool(response.outputs) or final is not True, final)


def _refuse_bare(message: bytes) -> None:
    try:
        is_bare = any(field.tag in _BARE_TAGS for field in wire_format.fields(message))
    except ProtocolError:
        return
    if is_bare:
        raise ProtocolError(_BARE)


def decode_streamed_response(message: bytes, limit_bytes: int) -> InferResponse:
    """The response in a message; raises ProtocolError."""
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
