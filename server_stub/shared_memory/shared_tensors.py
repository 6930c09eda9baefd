"""Converts requests with tensors in shared memory into ordinary ones, so that decoders need not know about regions.

Inputs in regions stay there until the model is executed: they are decoded as empty, and `SharedTensors` fills them in.
"""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol import protobuf, rest, v2_pb2
from perfkit.protocol.message import InferRequest, InferResponse
from perfkit.protocol.tensor import Buffer, Tensor
from server_stub.shared_memory.regions import RegionSlice, SharedMemoryRegions, SystemSlice

_REGION, _OFFSET, _SIZE = "shared_memory_region", "shared_memory_offset", "shared_memory_byte_size"
_MARK = _REGION.encode()


class SharedTensors(NamedTuple):
    """The region slices of a request's tensors by name."""

    outputs: Mapping[str, RegionSlice] = {}
    inputs: Mapping[str, RegionSlice] = {}

    def fill(self, request: InferRequest) -> InferRequest:
        """A decoded request with its shared inputs. Strings are read, because their number must be checked. Raises ProtocolError."""
        if not self.inputs:
            return request
        return dataclasses.replace(request, inputs=tuple(_filled(tensor, self.inputs.get(tensor.name)) for tensor in request.inputs))

    def finish(self, response: InferResponse) -> InferResponse:
        """The response without its shared outputs, which are written. Raises ProtocolError if that, or reading an input, has failed."""
        for region_slice in self.inputs.values():
            if isinstance(region_slice, SystemSlice) and region_slice.failures:
                raise region_slice.failures[0]
        if not self.outputs:
            return response
        outputs = []
        for tensor in response.outputs:
            if tensor.name in self.outputs:
                self.outputs[tensor.name].write(tensor)
                tensor = Tensor(tensor.name, tensor.datatype, tensor.shape, b"")  # noqa: PLW2901 - its bytes are in the region
            outputs.append(tensor)
        return dataclasses.replace(response, outputs=tuple(outputs))


NOT_SHARED = SharedTensors()
"""The slices of a request without tensors in shared memory."""


def resolve_http_request(body: Buffer, header_length: int | None, regions: SharedMemoryRegions) -> tuple[Buffer, int | None, SharedTensors]:
    """The body with empty shared inputs, its header length, and the tensors in regions.

    Other errors in the request are left to the decoder. Raises ProtocolError with Triton's messages.
    """
    if not regions:
        return body, header_length, NOT_SHARED
    head = bytes(body if header_length is None else body[:header_length])
    if _MARK not in head:
        return body, header_length, NOT_SHARED
    try:
        document = json.loads(head)
    except (ValueError, RecursionError):
        return body, header_length, NOT_SHARED
    inputs: dict[str, RegionSlice] = {}
    for fields, parameters in _tensors_with_parameters(document, "inputs"):
        if _REGION in parameters and parameters.get("binary_data_size") is None and "data" not in fields:
            inputs[str(fields.get("name"))] = _json_slice(parameters, regions)
            fields["parameters"] = {**_without_location(parameters), "binary_data_size": 0}
    slices: dict[str, RegionSlice] = {}
    for fields, parameters in _tensors_with_parameters(document, "outputs"):
        if _REGION in parameters:
            _check_output(parameters)
            slices.setdefault(str(fields.get("name")), _json_slice(parameters, regions))
            fields["parameters"] = {**_without_location(parameters), "binary_data": True}
    new_head = json.dumps(document).encode()
    return b"".join((new_head, memoryview(body)[len(head) :])), len(new_head), SharedTensors(slices, inputs)


def omit_shared_outputs(
    headers: Mapping[str, str], buffers: list[Buffer], slices: Mapping[str, RegionSlice]
) -> tuple[Mapping[str, str], list[Buffer]]:
    """An encoded response without data and sizes of its shared outputs."""
    if not slices:
        return headers, buffers
    document = json.loads(bytes(buffers[0]))
    for output in document["outputs"]:
        if output["name"] in slices:
            del output["parameters"]
    head = json.dumps(document, separators=(",", ":")).encode()
    lengths = {rest.HEADER_LENGTH: str(len(head))} if rest.HEADER_LENGTH in headers else {}
    return {**headers, **lengths}, [head, *buffers[1:]]


def resolve_grpc_request(
    parsed: protobuf.ParsedInferRequest, regions: SharedMemoryRegions
) -> tuple[protobuf.ParsedInferRequest, SharedTensors]:
    """A message with empty shared inputs, and its tensors in regions. See `resolve_http_request`. Changes the message."""
    message = parsed.message
    if not regions or _MARK not in parsed.encoded:
        return parsed, NOT_SHARED
    raw_contents = iter(parsed.raw_contents)
    is_typed = not parsed.raw_contents  # regions mix with typed or with raw contents, which do not mix with each other
    contents: list[Buffer | None] = []
    inputs: dict[str, RegionSlice] = {}
    for tensor in message.inputs:
        if _REGION in tensor.parameters:
            inputs[tensor.name] = _message_slice(tensor.name, tensor.parameters, regions)
            contents.append(b"")
        elif is_typed:
            contents.append(protobuf.raw_contents(tensor, message.model_name))
            tensor.ClearField("contents")
        else:
            contents.append(next(raw_contents, None))
    slices: dict[str, RegionSlice] = {}
    for output in message.outputs:
        if _REGION in output.parameters:
            _check_output(output.parameters)
            slices.setdefault(output.name, _message_slice(output.name, output.parameters, regions))
    for parameters in [*(tensor.parameters for tensor in message.inputs), *(output.parameters for output in message.outputs)]:
        for key in (_REGION, _OFFSET, _SIZE):
            parameters.pop(key)
    return parsed._replace(raw_contents=[raw for raw in contents if raw is not None]), SharedTensors(slices, inputs)


def _filled(tensor: Tensor, region_slice: RegionSlice | None) -> Tensor:
    if region_slice is None:
        return tensor
    raw: Any = region_slice.read() if tensor.datatype.element_bits is None else region_slice
    return Tensor(tensor.name, tensor.datatype, tensor.shape, raw)


def _tensors_with_parameters(document: object, key: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The well-formed tensors of a document that have parameters, each with its parameters."""
    tensors = document.get(key) if isinstance(document, dict) else None
    if not isinstance(tensors, list):
        return []
    return [(tensor, tensor["parameters"]) for tensor in tensors if isinstance(tensor, dict) and isinstance(tensor.get("parameters"), dict)]


def _check_output(parameters: Mapping[str, Any]) -> None:
    if "classification" in parameters:
        raise ProtocolError("Output can't set both 'shared_memory_region' and 'classification'")


def _without_location(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in parameters.items() if key not in (_REGION, _OFFSET, _SIZE)}


def _json_slice(parameters: Mapping[str, Any], regions: SharedMemoryRegions) -> RegionSlice:
    region = parameters[_REGION]
    if not isinstance(region, str):
        raise ProtocolError(f"Unable to parse '{_REGION}': attempt to access JSON non-string as string", ErrorKind.INTERNAL)
    for key in (_OFFSET, _SIZE):
        value = parameters.get(key, 0)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ProtocolError(
                f"Unable to parse '{key}': attempt to access JSON non-unsigned-integer as unsigned-integer", ErrorKind.INTERNAL
            )
    return regions.slice(region, parameters.get(_OFFSET, 0), parameters.get(_SIZE, 0))


def _message_slice(name: str, parameters: Mapping[str, v2_pb2.InferParameter], regions: SharedMemoryRegions) -> RegionSlice:
    for key, field in ((_REGION, "string_param"), (_OFFSET, "int64_param"), (_SIZE, "int64_param")):
        if key in parameters and parameters[key].WhichOneof("parameter_choice") != field:
            raise ProtocolError(f"invalid value type for '{key}' parameter for tensor '{name}', expected {field}.")
    if _SIZE not in parameters:
        raise ProtocolError(f"'{_SIZE}' must be specified along with '{_REGION}' parameter for tensor '{name}'")
    offset = parameters[_OFFSET].int64_param if _OFFSET in parameters else 0
    return regions.slice(parameters[_REGION].string_param, offset, parameters[_SIZE].int64_param)
