"""What a trace says of a request, read from its body within the limits that perfkit has for a server's answers."""

import contextlib
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from perfkit.errors import ProtocolError
from perfkit.protocol import rest
from perfkit.protocol.compression import decompress
from perfkit.protocol.decoded_size import check_json_values, check_protobuf_fields
from perfkit.protocol.protobuf import describe_infer_request
from perfkit.proxy.open_requests import MAX_BODY_BYTES, OpenRequest
from perfkit.trace.payloads import payload_of_grpc, payload_of_http

# long ones; a mark that no request can contain stands for them. A possessive repeat, since the text may have any number of beginnings
_ARRAY = re.compile(rb"\[[-+0-9.eE,\s]{64,}+\]")
_MARK = secrets.token_hex(16).encode()
_MARKED = re.compile(b'"%b:([0-9]+)"' % _MARK)


class Description(NamedTuple):
    """What a trace says of a request; shapes and payload are missing where the request cannot be read."""

    model: str
    version: str
    shapes: Mapping[str, Sequence[int]]
    payload: bytes | None


def describe(request: OpenRequest, *, with_payload: bool) -> Description:
    """Reads a request as far as it is valid v2; `with_payload` makes its payload, too."""
    described = Description(request.model, request.version, {}, None)
    if request.body is None or request.call.startswith("generate"):  # whose body is no infer request
        return described
    with contextlib.suppress(ProtocolError):  # what was read up to there
        body = decompress(bytes(request.body), request.encoding, MAX_BODY_BYTES)
        if request.is_grpc:
            check_protobuf_fields(body, 0)  # inputs have the numbers of outputs
            model, version, shapes, is_typed = describe_infer_request(body)
            described = Description(model, version, shapes, None)
            return described._replace(payload=payload_of_grpc(body, is_typed=is_typed)) if with_payload else described
        document, restored = _read_document(body[: request.header_length])
        described = described._replace(shapes=_shapes(document))
        return described._replace(payload=restored(payload_of_http(document, body, request.header_length))) if with_payload else described
    return described


def _read_document(text: bytes) -> tuple[Mapping[str, Any], Callable[[bytes], bytes]]:
    """A JSON document, and what its text becomes when it is written anew. Raises ProtocolError.

    Arrays of numbers are not read, since they take most of the time: in the document a text stands for each.
    """
    arrays: list[bytes] = []

    def set_aside(match: "re.Match[bytes]") -> bytes:
        arrays.append(match[0])
        return b'"%b:%d"' % (_MARK, len(arrays) - 1)

    def restored(written: bytes) -> bytes:
        return _MARKED.sub(lambda match: arrays[int(match[1])], written) if arrays else written

    with contextlib.suppress(ProtocolError):  # an array within a string, or none that is JSON
        return _decoded(_ARRAY.sub(set_aside, text)), restored
    arrays.clear()
    return _decoded(text), restored


def _decoded(text: bytes) -> Mapping[str, Any]:
    check_json_values(text, 0)
    return rest.decode_object(text)


def _shapes(document: Mapping[str, Any]) -> Mapping[str, Sequence[int]]:
    """The shapes of an infer request's inputs; empty if they are not v2."""
    inputs = document.get("inputs")
    shapes = {}
    for one in inputs if isinstance(inputs, list) else ():
        name, shape = (one.get("name"), one.get("shape")) if isinstance(one, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(shape, list) or not all(isinstance(size, int) for size in shape):
            return {}
        shapes[name] = shape
    return shapes
