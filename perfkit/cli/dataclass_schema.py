"""JSON Schemas of documents that are made from dataclasses, as `plan_document` and `dataclasses.asdict` write them."""

import dataclasses
import enum
import pathlib
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal, Union, get_args, get_origin

_SIMPLE: dict[Any, dict[str, Any]] = {
    bool: {"type": "boolean"},
    int: {"type": "integer"},
    float: {"type": ["number", "null"]},  # null stands for a number that is not finite
    str: {"type": "string"},
    types.NoneType: {"type": "null"},
    pathlib.Path: {"type": "string"},
    Any: {},
    object: {},
}


def dataclass_schema(model: type) -> dict[str, Any]:
    """The JSON Schema of a dataclass, without descriptions; nested types are under `$defs`.

    A field's metadata may hold `is_stored: False`, which leaves the field out, and `key`, its name in the file. Raises TypeError for a
    type that has no JSON Schema.
    """
    definitions: dict[str, Any] = {}
    node = _object(model, definitions)
    return {**node, "$defs": dict(sorted(definitions.items()))} if definitions else node


def _object(model: type, definitions: dict[str, Any]) -> dict[str, Any]:
    hints = typing.get_type_hints(model)
    stored = [field for field in dataclasses.fields(model) if field.metadata.get("is_stored", True)]
    properties = {field.metadata.get("key", field.name): _node(hints[field.name], definitions) for field in stored}
    return {"title": model.__name__, "type": "object", "properties": properties, "required": list(properties)}


def _node(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, parts = get_origin(hint), get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if hint.__name__ not in definitions:
            definitions[hint.__name__] = {}  # a dataclass may contain itself
            definitions[hint.__name__] = _object(hint, definitions)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    if isinstance(hint, typing.NewType):
        return _node(hint.__supertype__, definitions)
    if origin is Literal:
        return {"enum": list(parts)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [_node(part, definitions) for part in parts]}
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {"type": "object", "additionalProperties": _node(parts[1], definitions)}
    if origin is tuple and parts[-1] is not Ellipsis:
        return {"type": "array", "prefixItems": [_node(part, definitions) for part in parts], "items": False}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return {"type": "array", "items": _node(parts[0], definitions)}
    if isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields"):  # named tuples are stored as lists
        hints = typing.get_type_hints(hint)
        return {"type": "array", "prefixItems": [_node(hints[name], definitions) for name in hints], "items": False}
    if isinstance(hint, type) and issubclass(hint, enum.StrEnum):
        return {"enum": [str(member) for member in hint]}
    if hint in _SIMPLE:
        return dict(_SIMPLE[hint])
    raise TypeError(f"{hint!r} has no JSON Schema")
