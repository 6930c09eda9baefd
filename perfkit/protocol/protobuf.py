"""v2 over gRPC: `ModelInfer` messages in both directions, and the paths of the calls.

This module converts between the messages of `v2_pb2` and the values of `message`.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeVar

from google.protobuf.message import DecodeError, Message

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol import v2_pb2, wire_format
from perfkit.protocol.config_keys import config_keys
from perfkit.protocol.message import (
    IndexedModel,
    InferRequest,
    InferResponse,
    ModelConfig,
    ModelMetadata,
    Parameter,
    Parameters,
    RequestedOutput,
    SharedSlot,
    TensorMetadata,
    composing_model,
    highest_sequence_id,
)
from perfkit.protocol.statistics import DURATIONS, ModelStatistics, TotalTime
from perfkit.protocol.tensor import Buffer, Datatype, Tensor, tensor_from_array, tensor_to_array

_AnyMessage = TypeVar("_AnyMessage", bound=Message)
SERVICE = "inference.GRPCInferenceService"
_MAX_MESSAGE_BYTES = 2**31 - 2**20  # protobuf's limit, less what surrounds the tensors
_LARGE_BYTES = 2**16  # from this size, raw contents are kept away from protobuf, which would copy them
RAW_INPUTS_TAG = 7 << 3 | 2
"""The tag of `raw_input_contents`, the last field of a `ModelInferRequest`."""
_RAW_OUTPUTS_TAG = 6 << 3 | 2  # of raw_output_contents, the last field of a `ModelInferResponse`

# the fields of typed contents and their datatypes; error messages name the first, which is the widest
_FIELD_DATATYPES = {
    "bool_contents": (Datatype.BOOL,),
    "int_contents": (Datatype.INT32, Datatype.INT16, Datatype.INT8),
    "int64_contents": (Datatype.INT64,),
    "uint_contents": (Datatype.UINT32, Datatype.UINT16, Datatype.UINT8),
    "uint64_contents": (Datatype.UINT64,),
    "fp32_contents": (Datatype.FP32,),
    "fp64_contents": (Datatype.FP64,),
    "bytes_contents": (Datatype.BYTES,),
}
_CONTENTS_FIELDS = {datatype: field for field, datatypes in _FIELD_DATATYPES.items() for datatype in datatypes}
# parameters defined by the protocol, with the fields they may use
_EMPTY_FINAL_RESPONSE = "triton_enable_empty_final_response"
_KNOWN_PARAMETERS = {
    _EMPTY_FINAL_RESPONSE: ("bool_param",),
    "sequence_start": ("bool_param",),
    "sequence_end": ("bool_param",),
    "sequence_id": ("int64_param", "string_param"),
    "priority": ("int64_param", "uint64_param"),
    "timeout": ("int64_param",),
}


def method_path(rpc: str) -> str:
    """The HTTP/2 path of a call: `/inference.GRPCInferenceService/ModelInfer`."""
    return f"/{SERVICE}/{rpc}"


def encode_infer_request(request: InferRequest) -> bytes:
    """A `ModelInferRequest` with raw contents, or with typed ones if there are `plain_inputs`: they cannot be mixed.

    Raises ProtocolError if a tensor has no typed contents.
    """
    message = v2_pb2.ModelInferRequest(model_name=request.model, model_version=request.version, id=request.id)
    _fill_parameters(message.parameters, request.parameters)
    if (size_bytes := sum(len(tensor.raw) for tensor in request.inputs)) >= _MAX_MESSAGE_BYTES:
        raise ProtocolError(f"a gRPC message holds less than 2 GiB, but the request's tensors have {size_bytes:,} bytes")
    for tensor in request.inputs:
        described = message.inputs.add(name=tensor.name, datatype=tensor.datatype.value, shape=tensor.shape)
        _fill_parameters(described.parameters, request.input_parameters.get(tensor.name, {}))
        if slot := request.input_slots.get(tensor.name):
            _fill_slot(described.parameters, slot)
        elif request.plain_inputs:
            _fill_contents(described, tensor)
    for output in request.outputs:
        requested = message.outputs.add(name=output.name)
        if output.classes:
            requested.parameters["classification"].int64_param = output.classes
        if output.slot is not None:
            _fill_slot(requested.parameters, output.slot)
    raw_inputs = [] if request.plain_inputs else [tensor for tensor in request.inputs if tensor.name not in request.input_slots]
    return b"".join(_serialized(message, RAW_INPUTS_TAG, raw_inputs))


class ParsedInferRequest(NamedTuple):
    """A `ModelInferRequest` and its raw contents, which its own field lacks if they are large."""

    message: v2_pb2.ModelInferRequest
    raw_contents: Sequence[Buffer]
    encoded: bytes
    """What the message was parsed from."""


def parse_infer_request(encoded: Buffer) -> ParsedInferRequest:
    """Parse a `ModelInferRequest`; large raw contents remain in `encoded`, as views. Raises ProtocolError if it is not one."""
    rest, contents = wire_format.split(encoded, RAW_INPUTS_TAG) if len(encoded) >= _LARGE_BYTES else (bytes(encoded), ())
    message = _parsed(v2_pb2.ModelInferRequest, rest)
    return ParsedInferRequest(message, contents or message.raw_input_contents, rest)


def decode_infer_request(encoded: bytes) -> InferRequest:
    """Reads a `ModelInferRequest`, with raw or typed contents; raises ProtocolError if it is invalid."""
    return read_infer_request(parse_infer_request(encoded))


def read_infer_request(parsed: ParsedInferRequest) -> InferRequest:
    """The request in a parsed message; raises ProtocolError if it is invalid."""
    message = parsed.message
    outputs = []
    for requested in message.outputs:
        classes = 0
        if "classification" in requested.parameters:
            classes = requested.parameters["classification"].int64_param
            if requested.parameters["classification"].WhichOneof("parameter_choice") != "int64_param":
                raise ProtocolError("invalid value type for 'classification' parameter, expected int64_param")
            if classes <= 0:  # contrary to its message, Triton refuses 0 as well
                raise ProtocolError("invalid value for 'classification' parameter, expected >= 0")
        outputs.append(RequestedOutput(requested.name, classes, binary=True))
        _refuse_shared_memory(requested.parameters)
    for given in message.inputs:
        _refuse_shared_memory(given.parameters)
    _check_parameters(message.parameters)
    return InferRequest(
        model=message.model_name,
        version=message.model_version,
        id=message.id,
        parameters=_parameters(message.parameters),
        inputs=_tensors(message.inputs, parsed.raw_contents, "input", f" for model '{message.model_name}'"),
        outputs=tuple(outputs),
    )


def describe_infer_request(encoded: bytes) -> tuple[str, str, dict[str, list[int]], bool]:
    """The model, its version, and the shapes of the inputs of a `ModelInferRequest`, and whether its contents are typed.

    Raises ProtocolError if the bytes are no such message; tensors in shared memory are no error here.
    """
    message = _parsed(v2_pb2.ModelInferRequest, encoded)
    is_typed = any(one.HasField("contents") for one in message.inputs)
    return message.model_name, message.model_version, {one.name: list(one.shape) for one in message.inputs}, is_typed


def raw_contents(described: v2_pb2.ModelInferRequest.InferInputTensor, model: str) -> bytes:
    """An input's typed contents as raw bytes; raises ProtocolError if they are missing or of another datatype."""
    return bytes(_typed_tensor(described, "input", f" for model '{model}'").raw)


def encode_infer_response(response: InferResponse) -> Sequence[Buffer]:
    """A `ModelInferResponse` with raw contents, in pieces: large tensors are not copied."""
    return _serialized(_response_message(response), _RAW_OUTPUTS_TAG, response.outputs)


def infer_response_heads(response: InferResponse) -> Sequence[bytes]:
    """What precedes each output's data in `encode_infer_response`; there is at least one output."""
    heads = [wire_format.field_head(_RAW_OUTPUTS_TAG, len(tensor.raw)) for tensor in response.outputs]
    return [_response_message(response).SerializeToString() + heads[0], *heads[1:]]


def decode_infer_response(encoded: bytes) -> InferResponse:
    """Reads a `ModelInferResponse`, with raw or typed contents; raises ProtocolError if it is invalid."""
    message = _parsed(v2_pb2.ModelInferResponse, encoded)
    return InferResponse(
        model=message.model_name,
        version=message.model_version,
        id=message.id,
        parameters=_parameters(message.parameters),
        outputs=_tensors(message.outputs, message.raw_output_contents, "output", ""),
    )


def model_metadata(message: v2_pb2.ModelMetadataResponse) -> ModelMetadata:
    """The metadata in a `ModelMetadataResponse`; raises ProtocolError if a dimension is below -1."""
    for one in (*message.inputs, *message.outputs):
        if min(one.shape, default=0) < -1:
            raise ProtocolError(f"the server's model metadata is not v2: tensor '{one.name}' has the shape {list(one.shape)}")
    inputs, outputs = (
        tuple(TensorMetadata(one.name, one.datatype, tuple(one.shape)) for one in some) for some in (message.inputs, message.outputs)
    )
    return ModelMetadata(message.name, tuple(message.versions), message.platform, inputs, outputs)


def model_index(message: v2_pb2.RepositoryIndexResponse) -> tuple[IndexedModel, ...]:
    """The models in a `RepositoryIndexResponse`."""
    # MLServer writes `State.READY`
    return tuple(IndexedModel(one.name, one.version, one.state.removeprefix("State."), one.reason) for one in message.models)


def model_statistics(message: v2_pb2.ModelStatisticsResponse) -> tuple[ModelStatistics, ...]:
    """The statistics in a `ModelStatisticsResponse`, one value for each version."""
    versions = []
    for entry in message.model_stats:
        times = {name: getattr(entry.inference_stats, name) for name in DURATIONS}
        totals = {name: TotalTime(total.count, total.ns) for name, total in times.items()}
        versions.append(ModelStatistics(entry.version, entry.inference_count, entry.execution_count, **totals))
    return tuple(versions)


def model_config(message: v2_pb2.ModelConfigResponse) -> ModelConfig:
    """The configuration in a `ModelConfigResponse`; its digest includes fields that `v2.proto` does not define.

    Raises ProtocolError if the batch size is negative.
    """
    from google.protobuf import json_format  # only a server with configurations needs it

    config = message.config
    if config.max_batch_size < 0:
        raise ProtocolError(f"the server's model configuration is not v2: its max_batch_size is {config.max_batch_size}")
    # the order of a map's entries differs after each start of a server
    encoded = config.SerializeToString(deterministic=True)
    fields = sorted(encoded[field.start : field.end] for field in wire_format.fields(encoded))
    required = frozenset(one.name for one in config.input if not one.optional)
    models = dict.fromkeys(composing_model(step.model_name, step.model_version) for step in config.ensemble_scheduling.step)
    sha256 = hashlib.sha256(b"".join(fields)).hexdigest()
    controls = [control for one in config.sequence_batching.control_input for control in one.control]
    names = {number: name for name, number in v2_pb2.DataType.items()}  # a newer server may have others
    id_types = [names.get(one.data_type, "") for one in controls if one.kind == one.CONTROL_SEQUENCE_CORRID]
    is_decoupled, has_sequences = config.model_transaction_policy.decoupled, config.HasField("sequence_batching")
    shapes = {one.name: tuple(one.dims) for one in config.input} | {one.name: tuple(one.dims) for one in config.output}
    highest_id = highest_sequence_id(id_types)
    keys = config_keys(json_format.MessageToDict(config, preserving_proto_field_name=True))
    return ModelConfig(config.max_batch_size, sha256, required, tuple(models), is_decoupled, has_sequences, highest_id, shapes, keys)


def model_metadata_message(metadata: ModelMetadata) -> v2_pb2.ModelMetadataResponse:
    """The `ModelMetadataResponse` for a model's metadata."""
    message = v2_pb2.ModelMetadataResponse(name=metadata.name, versions=metadata.versions, platform=metadata.platform)
    for field, some in ((message.inputs, metadata.inputs), (message.outputs, metadata.outputs)):
        for one in some:
            field.add(name=one.name, datatype=one.datatype, shape=one.shape)
    return message


def _response_message(response: InferResponse) -> v2_pb2.ModelInferResponse:
    message = v2_pb2.ModelInferResponse(model_name=response.model, model_version=response.version, id=response.id)
    _fill_parameters(message.parameters, response.parameters)
    for tensor in response.outputs:
        message.outputs.add(name=tensor.name, datatype=tensor.datatype.value, shape=tensor.shape)
    return message


def _serialized(message: v2_pb2.ModelInferRequest | v2_pb2.ModelInferResponse, tag: int, tensors: Sequence[Tensor]) -> Sequence[Buffer]:
    """The pieces of the message with the tensors' bytes as raw contents, its last field; one piece if it is small."""
    parts: list[Buffer] = [message.SerializeToString()]
    size_bytes = 0
    for tensor in tensors:
        size_bytes += len(tensor.raw)
        parts += (wire_format.field_head(tag, len(tensor.raw)), tensor.raw)
    return parts if size_bytes >= _LARGE_BYTES else [b"".join(parts)]


def _parsed(kind: type[_AnyMessage], encoded: bytes) -> _AnyMessage:
    try:
        return kind.FromString(encoded)
    except DecodeError as error:
        raise ProtocolError(f"the bytes are not a {kind.DESCRIPTOR.name}: {error}", ErrorKind.INTERNAL) from None


_Described = v2_pb2.ModelInferRequest.InferInputTensor | v2_pb2.ModelInferResponse.InferOutputTensor


def _tensors(described: Sequence[_Described], raw: Sequence[Buffer], what: str, where: str) -> tuple[Tensor, ...]:
    """The tensors of a message; `where` names the model in error messages."""
    if not raw:
        return tuple(_typed_tensor(one, what, where) for one in described)
    for one in described:
        # MLServer's answers have empty contents besides the raw ones; in a request Triton refuses that
        if one.HasField("contents") and (what == "input" or one.contents.ListFields()):
            raise ProtocolError(f"contents field must not be specified when using raw_{what}_contents for '{one.name}'{where}")
    if len(raw) < len(described):
        raise _no_data(described[len(raw)].name, what, where)
    return tuple(
        Tensor(one.name, _datatype(one, what), tuple(one.shape), part) for one, part in zip(described, raw, strict=False)
    )  # like Triton, ignores surplus entries


def _typed_tensor(described: _Described, what: str, where: str) -> Tensor:
    datatype, shape = _datatype(described, what), tuple(described.shape)
    if not described.HasField("contents") and (what == "input" or 0 not in shape):
        raise _no_data(described.name, what, where)
    expected = _CONTENTS_FIELDS.get(datatype, "")
    for field, _ in described.contents.ListFields():
        if field.name != expected:
            raise ProtocolError(
                f"unexpected explicit tensor data for {what} tensor '{described.name}'{where} of type '{_FIELD_DATATYPES[field.name][0].value}', "
                f"expected datatype '{datatype.value}'"
            )
    flat = tensor_from_array(described.name, datatype, list(getattr(described.contents, _contents_field(described.name, datatype, what))))
    return Tensor(described.name, datatype, shape, flat.raw)


def _datatype(described: _Described, what: str) -> Datatype:
    try:
        return Datatype.parse(described.datatype)
    except ProtocolError as error:
        raise ProtocolError(f"invalid datatype for {what} {described.name}: {error}") from None


def _no_data(name: str, what: str, where: str) -> ProtocolError:
    return ProtocolError(f"unable to find data for {what} tensor '{name}'{where} in {'request' if what == 'input' else 'answer'}.")


def _fill_contents(described: v2_pb2.ModelInferRequest.InferInputTensor, tensor: Tensor) -> None:
    field = _contents_field(tensor.name, tensor.datatype, "input")
    described.contents.SetInParent()  # an empty tensor needs contents, too
    getattr(described.contents, field).extend(tensor_to_array(tensor).ravel().tolist())


def _contents_field(name: str, datatype: Datatype, what: str) -> str:
    field = _CONTENTS_FIELDS.get(datatype)
    if field is None:
        raise ProtocolError(f"{datatype.value} has no typed contents: send {what} '{name}' as raw_{what}_contents")
    return field


def _fill_slot(parameters: Mapping[str, v2_pb2.InferParameter], slot: SharedSlot) -> None:
    parameters["shared_memory_region"].string_param = slot.region
    parameters["shared_memory_offset"].int64_param = slot.offset
    parameters["shared_memory_byte_size"].int64_param = slot.byte_size


def _refuse_shared_memory(parameters: Mapping[str, v2_pb2.InferParameter]) -> None:
    """Raises ProtocolError if a tensor names a region, none of which is ever registered here."""
    if "shared_memory_region" in parameters:
        region = parameters["shared_memory_region"].string_param
        raise ProtocolError(f"Unable to find shared memory region: '{region}'", ErrorKind.NOT_FOUND)


def _check_parameters(parameters: Mapping[str, v2_pb2.InferParameter]) -> None:
    for key, value in parameters.items():
        if key.startswith("triton_") and key != _EMPTY_FINAL_RESPONSE:
            raise ProtocolError(
                "parameter keys starting with 'triton_' are reserved for Triton usage. "
                f"Only the following keys starting with 'triton_' are allowed: {_EMPTY_FINAL_RESPONSE}"
            )
        fields, choice = _KNOWN_PARAMETERS.get(key), value.WhichOneof("parameter_choice")
        if fields and choice not in fields:
            raise ProtocolError(f"invalid value type for '{key}' parameter, expected {' or '.join(fields)}.")
        if key == "priority" and value.int64_param < 0:
            raise ProtocolError("invalid value for 'priority', expected value >= 0.")


def _fill_parameters(target: Mapping[str, v2_pb2.InferParameter], parameters: Parameters) -> None:
    for key, value in parameters.items():
        match value:
            case bool():
                target[key].bool_param = value
            case int() if -(2**63) <= value < 2**63:
                target[key].int64_param = value
            case int() if 0 < value < 2**64:
                target[key].uint64_param = value
            case int():
                raise ProtocolError(f"parameter '{key}': {value} does not fit 64 bits")
            case float():
                target[key].double_param = value
            case str():
                target[key].string_param = value


def _parameters(message: Mapping[str, v2_pb2.InferParameter]) -> dict[str, Parameter]:
    parameters: dict[str, Parameter] = {}
    for key, value in message.items():
        choice = value.WhichOneof("parameter_choice")
        if choice is None:
            raise ProtocolError(f"invalid value type for '{key}' parameter, expected int64_param, bool_param, or string_param.")
        parameters[key] = getattr(value, choice)
    return parameters
