"""Payloads of a trace: v2 infer requests as files, each kept once, under the digest of its bytes.

A payload is the body of an infer request over HTTP: its JSON document, followed by the binary tensors. It holds neither the model's
name nor the request's id, so that equal requests of a client have one payload.
"""

import dataclasses
import hashlib
import json
import pathlib
import re
from collections.abc import Mapping
from typing import Any

from perfkit.errors import ProtocolError
from perfkit.protocol import rest
from perfkit.protocol.message import InferRequest
from perfkit.protocol.rest_json import read_list, read_parameters
from perfkit.protocol.tensor import Buffer

_NAME = re.compile(r"[0-9a-f]{64}")
_HEAD_BYTES = 2**20


def payload_folder(trace: pathlib.Path) -> pathlib.Path:
    """The folder of a trace's payloads, beside it: `day.payloads` for `day.jsonl`."""
    return trace.with_suffix(".payloads")


def payload_name(payload: Buffer) -> str:
    """The name of a payload's file."""
    return hashlib.sha256(payload).hexdigest()


def is_payload_name(name: str) -> bool:
    """Whether a name is one that `payload_name` gives, and no path to another file."""
    return _NAME.fullmatch(name) is not None


def payload_of_http(document: Mapping[str, Any], body: bytes, header_length: int | None) -> bytes:
    """The payload of an infer request over HTTP; `document` is the JSON document at the start of its body.

    Raises ProtocolError if it is not v2, or its tensors are in shared memory.
    """
    entries = (*read_list(document, "inputs"), *read_list(document, "outputs"))
    if any("shared_memory_region" in read_parameters(one) for one in entries if isinstance(one, dict)):
        raise ProtocolError("tensors are in shared memory")
    if "id" not in document:
        return body
    tensors = memoryview(body)[len(body) if header_length is None else header_length :]
    return _encode({key: value for key, value in document.items() if key != "id"}) + tensors


def payload_of_grpc(message: bytes, *, is_typed: bool) -> bytes:
    """The payload of a `ModelInferRequest`; raises ProtocolError if it is not v2, or its tensors are in shared memory."""
    from perfkit.protocol import protobuf  # its library takes memory that runs without it do not need

    request = protobuf.decode_infer_request(message)
    plain = frozenset(tensor.name for tensor in request.inputs) if is_typed else frozenset()
    parameters = dict(sorted(request.parameters.items()))  # a protobuf map has no order
    _, buffers = rest.encode_infer_request(dataclasses.replace(request, id="", parameters=parameters, plain_inputs=plain))
    return b"".join(buffers)


def decode_payload(payload: bytes, model: str, version: str) -> InferRequest:
    """The request of a payload, to that model; raises ProtocolError if it is not a v2 infer request.

    Tensors that are JSON in the payload are sent as JSON, and binary ones as binary data.
    """
    head = payload[:_HEAD_BYTES].decode("latin-1")  # one character for each byte
    decoder = json.JSONDecoder()
    try:
        try:
            _, length = decoder.raw_decode(head)
        except ValueError:
            _, length = decoder.raw_decode(payload.decode("latin-1"))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"it does not begin with a JSON document: {error}") from None
    request = rest.decode_infer_request(model, version, payload, None if not payload[length:].strip() else length)
    plain = frozenset(one["name"] for one in json.loads(payload[:length])["inputs"] if "data" in one)
    inputs = tuple(dataclasses.replace(tensor, raw=bytes(tensor.raw)) for tensor in request.inputs)  # views cannot be sent to workers
    return dataclasses.replace(request, inputs=inputs, plain_inputs=plain)


def decode_request(text: str, model: str, version: str) -> InferRequest:
    """The request of a JSON document, to that model; raises ProtocolError if it is not a v2 infer request."""
    return decode_payload(text.encode(), model, version)


def _encode(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
