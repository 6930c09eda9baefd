"""Infer requests whose tensors lie in shared memory, rewritten into ones that carry them: what reads requests knows no regions."""

import json
from collections.abc import Mapping
from typing import Any

from google.protobuf.message import DecodeError

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol import protobuf, rest, v2_pb2
from perfkit.protocol.tensor import Buffer
from server_stub.shared_memory import Regions, Slot

_REGION, _OFFSET, _SIZE = "shared_memory_region", "shared_memory_offset", "shared_memory_byte_size"
_MARK = _REGION.encode()


def read_http(body: bytes, header_length: int | None, regions: Regions) -> tuple[bytes, int | None, Mapping[str, Slot]]:
    """The body with the inputs that lie in regions, its header length, and the slots of the outputs that go there.

    Whatever else is wrong with the request is left as it is. Raises ProtocolError with Triton's texts.
    """
    head = body if header_length is None else body[:header_length]
    if not regions or _MARK not in head:
        return body, header_length, {}
    try:
        document = json.loads(head)
    except (ValueError, RecursionError):
        return body, header_length, {}
    blobs, start = [], len(head)
    for fields, parameters in _described(document, "inputs"):
        size = parameters.get("binary_data_size")
        if _REGION in parameters and size is None and "data" not in fields:
            raw = _json_slot(parameters, regions).read()
            fields["parameters"] = {**_without_slot(parameters), "binary_data_size": len(raw)}
            blobs.append(raw)
        elif isinstance(size, int) and size > 0:
            blobs.append(body[start : start + size])
            start += size
    slots: dict[str, Slot] = {}
    for fields, parameters in _described(document, "outputs"):
        if _REGION in parameters:
            if "classification" in parameters:
                raise ProtocolError("Output can't set both 'shared_memory_region' and 'classification'")
            slots.setdefault(str(fields.get("name")), _json_slot(parameters, regions))
            fields["parameters"] = {**_without_slot(parameters), "binary_data": True}
    head = json.dumps(document).encode()
    return b"".join((head, *blobs, body[start:])), len(head), slots


def write_http(headers: Mapping[str, str], buffers: list[Buffer], slots: Mapping[str, Slot]) -> tuple[Mapping[str, str], list[Buffer]]:
    """An encoded response whose outputs in regions say neither data nor size."""
    if not slots:
        return headers, buffers
    document = json.loads(bytes(buffers[0]))
    for output in document["outputs"]:
        if output["name"] in slots:
            del output["parameters"]
    head = json.dumps(document, separators=(",", ":")).encode()
    lengths = {rest.HEADER_LENGTH: str(len(head))} if rest.HEADER_LENGTH in headers else {}
    return {**headers, **lengths}, [head, *buffers[1:]]


def read_grpc(encoded: bytes, regions: Regions) -> tuple[bytes, Mapping[str, Slot]]:
    """A `ModelInferRequest` with the inputs that lie in regions, and the slots of its outputs; see `read_http`."""
    if not regions or _MARK not in encoded:
        return encoded, {}
    try:
        message = v2_pb2.ModelInferRequest.FromString(encoded)
    except DecodeError:
        return encoded, {}
    given = iter(message.raw_input_contents)
    is_typed = not message.raw_input_contents  # such inputs and regions mix, typed and raw contents do not
    contents: list[bytes | None] = []
    for one in message.inputs:
        if _REGION in one.parameters:
            contents.append(_message_slot(one.name, one.parameters, regions).read())
        elif is_typed:
            contents.append(protobuf.raw_contents(one, message.model_name))
            one.ClearField("contents")
        else:
            contents.append(next(given, None))
    slots: dict[str, Slot] = {}
    for output in message.outputs:
        if _REGION in output.parameters:
            if "classification" in output.parameters:
                raise ProtocolError("Output can't set both 'shared_memory_region' and 'classification'")
            slots.setdefault(output.name, _message_slot(output.name, output.parameters, regions))
    for parameters in [*(one.parameters for one in message.inputs), *(one.parameters for one in message.outputs)]:
        for key in (_REGION, _OFFSET, _SIZE):
            parameters.pop(key)
    del message.raw_input_contents[:]
    message.raw_input_contents.extend(raw for raw in contents if raw is not None)
    return message.SerializeToString(), slots


def _described(document: object, key: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The tensors of a document with their parameters, as far as they are what they should be."""
    some = document.get(key) if isinstance(document, dict) else None
    found = [one for one in some if isinstance(one, dict)] if isinstance(some, list) else []
    return [(one, one["parameters"]) for one in found if isinstance(one.get("parameters"), dict)]


def _without_slot(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in parameters.items() if key not in (_REGION, _OFFSET, _SIZE)}


def _json_slot(parameters: Mapping[str, Any], regions: Regions) -> Slot:
    region = parameters[_REGION]
    if not isinstance(region, str):
        raise ProtocolError(f"Unable to parse '{_REGION}': attempt to access JSON non-string as string", ErrorKind.INTERNAL)
    for key in (_OFFSET, _SIZE):
        value = parameters.get(key, 0)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ProtocolError(
                f"Unable to parse '{key}': attempt to access JSON non-unsigned-integer as unsigned-integer", ErrorKind.INTERNAL
            )
    return regions.slot(region, parameters.get(_OFFSET, 0), parameters.get(_SIZE, 0))


def _message_slot(name: str, parameters: Mapping[str, v2_pb2.InferParameter], regions: Regions) -> Slot:
    for key, field in ((_REGION, "string_param"), (_OFFSET, "int64_param"), (_SIZE, "int64_param")):
        if key in parameters and parameters[key].WhichOneof("parameter_choice") != field:
            raise ProtocolError(f"invalid value type for '{key}' parameter for tensor '{name}', expected {field}.")
    if _SIZE not in parameters:
        raise ProtocolError(f"'{_SIZE}' must be specified along with '{_REGION}' parameter for tensor '{name}'")
    offset = parameters[_OFFSET].int64_param if _OFFSET in parameters else 0
    return regions.slot(parameters[_REGION].string_param, offset, parameters[_SIZE].int64_param)
