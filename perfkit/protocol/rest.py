"""v2 over HTTP: paths, JSON documents, and infer bodies with the binary data extension, in both directions.

An infer body is a JSON document followed by the binary tensors; the header `Inference-Header-Content-Length` is the
length of the JSON part. Encoders return lists of buffers, so that large tensors are not copied.
"""

import base64
import json
import urllib.parse
from collections.abc import Mapping
from typing import Any

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol.message import (
    InferRequest,
    InferResponse,
    Parameter,
    RegionKind,
    RequestedOutput,
    SharedRegion,
    SharedSlot,
)
from perfkit.protocol.rest_json import (
    check_parameters,
    decode_error_member,
    load_document,
    read_list,
    read_parameters,
    read_text,
    unparsed,
)
from perfkit.protocol.tensor import Buffer, Datatype, Tensor, check_received_as_json, check_sent_as_json, tensor_from_json, tensor_to_json
from perfkit.text import page_words

HEADER_LENGTH = "Inference-Header-Content-Length"
BINARY_TYPE, JSON_TYPE = "application/octet-stream", "application/json"
_encode_json = json.JSONEncoder(separators=(",", ":")).encode  # json.dumps would create an encoder for every document


def path_segment(name: str) -> str:
    """A name as a segment of a path: only what a segment may not hold is percent-encoded (RFC 3986, 3.3), since Triton decodes nothing."""
    return urllib.parse.quote(name, safe="!$&'()*+,;=:@")


def model_path(model: str, version: str = "", action: str = "") -> str:
    """`/v2/models/NAME[/versions/V][/ACTION]`."""
    path = f"/v2/models/{path_segment(model)}"
    if version:
        path += f"/versions/{path_segment(version)}"
    return f"{path}/{action}" if action else path


def repository_path(model: str, action: str) -> str:
    """`/v2/repository/models/NAME/load` or `/unload`."""
    return f"/v2/repository/models/{path_segment(model)}/{action}"


def encode_infer_request(request: InferRequest) -> tuple[dict[str, str], list[Buffer]]:
    """Headers and body of an infer request; inputs are binary data except for the `plain_inputs`, which are JSON.

    Raises ProtocolError if a tensor has no JSON form.
    """
    document: dict[str, Any] = {}
    if request.id:
        document["id"] = request.id
    blobs: list[Buffer] = []
    document["inputs"] = [
        _shared_document(tensor, slot)
        if (slot := request.input_slots.get(tensor.name))
        else _tensor_document(tensor, tensor.name not in request.plain_inputs, blobs)
        for tensor in request.inputs
    ]
    for described in document["inputs"]:
        if given := request.input_parameters.get(described["name"]):
            described["parameters"] = {**given, **described.get("parameters", {})}
    if request.outputs:
        document["outputs"] = [_output_document(output, request.binary_output) for output in request.outputs]
    parameters = dict(request.parameters)
    if request.binary_output and not request.outputs:
        parameters["binary_data_output"] = True
    if parameters:
        document["parameters"] = parameters
    return _framed(document, blobs)


def decode_infer_request(model: str, version: str, body: Buffer, header_length: int | None) -> InferRequest:
    """Reads an infer request; `header_length` is the header's value, None if it is absent (the body is all JSON).

    Raises ProtocolError with Triton's kind and text.
    """
    document, rest = _split(body, header_length, "request")
    inputs, offset = [], 0
    for entry in read_list(document, "inputs", required=True):
        tensor, offset = _read_tensor(entry, rest, offset, "input", f" for model '{model}'")
        inputs.append(tensor)
    if offset != len(rest):
        raise ProtocolError(f"unexpected additional input data for model '{model}'")
    parameters = read_parameters(document)
    check_parameters(parameters)
    return InferRequest(
        model=model,
        version=version,
        inputs=tuple(inputs),
        outputs=tuple(_read_output(entry) for entry in read_list(document, "outputs")),
        id=read_text(document, "id"),
        parameters={key: value for key, value in parameters.items() if key != "binary_data_output"},
        binary_output=parameters.get("binary_data_output") is True,
    )


def encode_infer_response(response: InferResponse, binary: Mapping[str, bool]) -> tuple[dict[str, str], list[Buffer]]:
    """Headers and body of an infer response; `binary` says for each output whether it is binary data."""
    document: dict[str, Any] = {"model_name": response.model, "model_version": response.version}
    if response.id:
        document["id"] = response.id
    if response.parameters:
        document["parameters"] = dict(response.parameters)
    blobs: list[Buffer] = []
    for tensor in response.outputs:
        if not binary[tensor.name]:
            check_sent_as_json(tensor)
    document["outputs"] = [_tensor_document(tensor, binary[tensor.name], blobs) for tensor in response.outputs]
    return _framed(document, blobs)


def decode_infer_response(body: Buffer, header_length: int | None, *, has_slots: bool = False) -> InferResponse:
    """Reads an infer response; raises ProtocolError if it is invalid.

    With `has_slots`, outputs without data are in shared memory: their `raw` is empty.
    """
    document, rest = _split(body, header_length, "response")
    if error := decode_error_member(document):
        raise ProtocolError(f"it holds an error: {error}")
    outputs, offset = [], 0
    for entry in read_list(document, "outputs"):
        tensor, offset = _read_tensor(entry, rest, offset, "output", has_slots=has_slots)
        outputs.append(tensor)
    if offset != len(rest):
        raise ProtocolError(f"{len(rest) - offset} bytes follow the last output")
    return InferResponse(
        read_text(document, "model_name"),
        read_text(document, "model_version"),
        tuple(outputs),
        read_text(document, "id"),
        read_parameters(document, tolerant=True),
    )


def region_path(kind: RegionKind, action: str, name: str = "") -> str:
    """`/v2/systemsharedmemory[/region/NAME]/ACTION`, or the same of CUDA; without a name it means all regions."""
    region = f"/region/{path_segment(name)}" if name else ""
    return f"/v2/{kind}sharedmemory{region}/{action}"


def encode_region(region: SharedRegion) -> bytes:
    """The body of the request that registers a region."""
    if region.kind == "system":
        return _encode_json({"key": region.key, "offset": 0, "byte_size": region.byte_size}).encode()
    handle = {"b64": base64.b64encode(region.handle).decode()}
    return _encode_json({"raw_handle": handle, "device_id": region.device_id, "byte_size": region.byte_size}).encode()


def decode_region_names(body: Buffer) -> tuple[str, ...]:
    """The names in the answer to a status request; raises ProtocolError if it is invalid."""
    try:
        return tuple(str(region["name"]) for region in json.loads(bytes(body)))
    except (ValueError, RecursionError, KeyError, TypeError):
        raise ProtocolError("the server's list of shared memory regions is not v2") from None


def decode_object(body: Buffer) -> dict[str, Any]:
    """The JSON object in a request's body; raises ProtocolError for anything else."""
    return load_document(body, "request")


def encode_error(message: str) -> bytes:
    """The body of every v2 error: `{"error": "…"}`."""
    return json.dumps({"error": message}, separators=(",", ":")).encode()


def decode_error(body: Buffer) -> str:
    """The message in an error body: Triton's and KServe's `error`, FastAPI's `detail`, or the whole text.

    Of a traceback it is the last line, and of an HTML page, as proxies send it, the words.
    """
    text = bytes(body).decode(errors="replace").strip()
    if text.startswith("<"):
        return page_words(text)
    if text.startswith("Traceback (most recent call last)"):  # as MLServer answers
        return text[text.rfind("\n") + 1 :].strip()
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(document, dict):
        for key in ("error", "detail"):
            if key in document:
                return document[key] if isinstance(document[key], str) else json.dumps(document[key])
    return text


def _framed(document: dict[str, Any], blobs: list[Buffer]) -> tuple[dict[str, str], list[Buffer]]:
    head = _encode_json(document).encode()
    if not blobs:
        return {"Content-Type": JSON_TYPE}, [head]
    return {"Content-Type": BINARY_TYPE, HEADER_LENGTH: str(len(head))}, [head, *blobs]


def _tensor_document(tensor: Tensor, binary: bool, blobs: list[Buffer]) -> dict[str, Any]:
    document: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype.value, "shape": list(tensor.shape)}
    if binary:
        document["parameters"] = {"binary_data_size": len(tensor.raw)}
        if len(tensor.raw):
            blobs.append(tensor.raw)
    else:
        document["data"] = tensor_to_json(tensor)
    return document


def _shared_document(tensor: Tensor, slot: SharedSlot) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.datatype.value, "shape": list(tensor.shape), "parameters": _slot_parameters(slot)}


def _slot_parameters(slot: SharedSlot) -> dict[str, Parameter]:
    return {"shared_memory_region": slot.region, "shared_memory_offset": slot.offset, "shared_memory_byte_size": slot.byte_size}


def _output_document(output: RequestedOutput, binary: bool) -> dict[str, Any]:
    if output.slot is not None:
        return {"name": output.name, "parameters": _slot_parameters(output.slot)}
    parameters: dict[str, Parameter] = {"binary_data": binary if output.binary is None else output.binary}
    if output.classes:
        parameters["classification"] = output.classes
    return {"name": output.name, "parameters": parameters}


def _split(body: Buffer, header_length: int | None, what: str) -> tuple[dict[str, Any], memoryview]:
    view = memoryview(body)
    if header_length is None:
        return load_document(view, what), view[len(view) :]
    if not 0 <= header_length <= len(view):
        raise ProtocolError(f"inference header size should be in range (0, {len(view)}), got: {header_length}")
    return load_document(view[:header_length], what), view[header_length:]


def _read_tensor(
    entry: object, rest: memoryview, offset: int, what: str, where: str = "", *, has_slots: bool = False
) -> tuple[Tensor, int]:
    fields = entry if isinstance(entry, dict) else {}
    parameters = read_parameters(fields, tolerant=what == "output")
    size, region = parameters.get("binary_data_size"), parameters.get("shared_memory_region")
    given = {"'data'": "data" in fields, "'binary_data_size'": size is not None, "'shared_memory_region'": region is not None}
    if sum(given.values()) != 1 and not (has_slots and not any(given.values())):
        found = [name for name, is_given in given.items() if is_given]
        raise ProtocolError(
            f"{what.capitalize()} must set only one of the following fields: 'data', 'binary_data_size' in 'parameters', "
            f"'shared_memory_region' in 'parameters'. But {'set ' + ' '.join(found) if found else 'no field is set'}"
        )
    if region is not None:
        raise _unknown_region(region)
    name, datatype = read_text(fields, "name", required=True), _datatype(fields, what)
    shape = read_list(fields, "shape", required=True)
    sizes = tuple(one for one in shape if isinstance(one, int) and not isinstance(one, bool) and one >= 0)
    if len(sizes) < len(shape):
        raise unparsed("shape", "unsigned-integer")
    if not any(given.values()):
        return Tensor(name, datatype, sizes, b""), offset
    if what == "input" and size is None:
        read_list(fields, "data")  # other servers may answer with a scalar
        check_received_as_json(name, datatype)
    if size is None:
        return tensor_from_json(name, datatype, sizes, fields["data"]), offset
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise unparsed("binary_data_size", "unsigned-integer")
    if offset + size > len(rest):
        raise ProtocolError(f"unexpected size for {what} '{name}', expecting {size - (len(rest) - offset)} additional bytes{where}")
    return Tensor(name, datatype, sizes, rest[offset : offset + size]), offset + size


def _datatype(fields: Mapping[str, Any], what: str) -> Datatype:
    name = read_text(fields, "datatype", required=True)
    try:
        return Datatype.parse(name)
    except ProtocolError as error:
        raise ProtocolError(f"invalid datatype for {what} {read_text(fields, 'name', required=True)}: {error}") from None


def _read_output(entry: object) -> RequestedOutput:
    fields = entry if isinstance(entry, dict) else {}
    name, parameters = read_text(fields, "name", required=True), read_parameters(fields)
    classes, binary = parameters.get("classification", 0), parameters.get("binary_data", False)
    if isinstance(classes, bool) or not isinstance(classes, int) or classes < 0:
        raise ProtocolError(
            "Unable to set 'classification': attempt to access JSON non-unsigned-integer as unsigned-integer", ErrorKind.INTERNAL
        )
    if not isinstance(binary, bool):
        raise unparsed("binary_data", "boolean")
    if "shared_memory_region" in parameters:
        raise _unknown_region(parameters["shared_memory_region"])
    # like Triton: a listed output without binary_data is JSON, whatever the request's binary_data_output
    return RequestedOutput(name, classes, binary)


def _unknown_region(region: Parameter) -> ProtocolError:
    """The error for a shared memory region, none of which is ever registered here."""
    return ProtocolError(f"Unable to find shared memory region: '{region}'", ErrorKind.NOT_FOUND)
