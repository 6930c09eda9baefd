"""Members of v2's JSON documents, read with the error messages of Triton."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol.message import Parameter
from perfkit.protocol.tensor import Buffer

_MAX_NESTING = 100  # Triton's limit
_SCALARS = (bool, int, float, str)
# parameters defined by the protocol, with their types
_KNOWN_PARAMETERS: dict[str, tuple[str, ...]] = {
    "binary_data_output": ("boolean",),
    "sequence_start": ("boolean",),
    "sequence_end": ("boolean",),
    "sequence_id": ("unsigned-integer", "string"),
    "priority": ("unsigned-integer",),
    "timeout": ("unsigned-integer",),
}


def load_document(body: Buffer, what: str) -> dict[str, Any]:
    """The JSON object in a body; `what`, such as request, is for the error. Raises ProtocolError."""
    text = bytes(body)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"failed to parse the {what} JSON buffer: {error}", ErrorKind.INTERNAL) from None
    if not isinstance(document, dict):
        raise ProtocolError(f"failed to parse the {what} JSON buffer: not an object", ErrorKind.INTERNAL)
    if what == "request" and text.count(b"[") + text.count(b"{") > _MAX_NESTING and _is_deeper(document, _MAX_NESTING):
        raise ProtocolError(f"failed to parse the request JSON buffer: nested deeper than {_MAX_NESTING} levels", ErrorKind.INTERNAL)
    return document


def decode_error_member(document: Mapping[str, Any]) -> str:
    """The message of a document with an error; empty without one, and for one that is null."""
    error = document.get("error")
    return error if isinstance(error, str) else "" if error is None else json.dumps(error)


def _is_deeper(value: object, levels: int) -> bool:
    """Whether lists and objects are nested deeper than `levels`."""
    if not isinstance(value, list | dict):
        return False
    return levels == 0 or any(_is_deeper(inner, levels - 1) for inner in (value.values() if isinstance(value, dict) else value))


def read_list(document: Mapping[str, Any], key: str, *, required: bool = False) -> Sequence[object]:
    """A list, empty if it is missing; raises ProtocolError."""
    if required and key not in document:
        raise _missing(key)
    value = document.get(key, [])
    if not isinstance(value, list):
        raise unparsed(key, "array")
    return value


def read_list_or_none(document: Mapping[str, Any], key: str) -> Sequence[object]:
    """A list, empty if it is missing or null; raises ProtocolError."""
    return [] if document.get(key) is None else read_list(document, key)


def read_text(document: Mapping[str, Any], key: str, *, required: bool = False) -> str:
    """A text, empty if it is missing; raises ProtocolError."""
    value = document.get(key)
    if value is None and not required:
        return ""
    if key not in document:
        raise _missing(key)
    if not isinstance(value, str):
        raise unparsed(key, "string")
    return value


def read_parameters(document: Mapping[str, Any], *, tolerant: bool = False) -> dict[str, Parameter]:
    """The parameters; `tolerant` ignores values that are not scalars, which some servers send, instead of refusing them."""
    parameters = document.get("parameters")
    if parameters is None:  # missing, or null, as KServe and MLServer send it
        return {}
    if not isinstance(parameters, dict):
        raise ProtocolError("failed to get request params.: attempt to get members for non-object", ErrorKind.INTERNAL)
    for key, value in parameters.items():
        if not tolerant and not isinstance(value, _SCALARS):
            raise ProtocolError(f"parameter '{key}' has invalid type. It should be either 'int', 'bool', or 'string'.")
    return {key: value for key, value in parameters.items() if isinstance(value, _SCALARS)}


def check_parameters(parameters: Mapping[str, Parameter]) -> None:
    """Raises ProtocolError for request parameters that Triton refuses."""
    for key, value in parameters.items():
        if key.startswith("triton_"):
            raise ProtocolError("parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified.")
        kinds = _KNOWN_PARAMETERS.get(key)
        if kinds is None:
            continue
        fits = {"boolean": isinstance(value, bool), "unsigned-integer": _is_unsigned(value), "string": isinstance(value, str)}
        if not any(fits[kind] for kind in kinds):
            raise unparsed(key, kinds[0])


def _is_unsigned(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def unparsed(key: str, kind: str) -> ProtocolError:
    """Triton's error for a value of the wrong type."""
    return ProtocolError(f"Unable to parse '{key}': attempt to access JSON non-{kind} as {kind}", ErrorKind.INTERNAL)


def _missing(key: str) -> ProtocolError:
    return ProtocolError(f"Unable to parse '{key}': attempt to access non-existing object member '{key}'", ErrorKind.INTERNAL)
