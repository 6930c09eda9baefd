"""Nested dataclasses as JSON and back, by their annotations: what a run stores of a load point to continue after it."""

import dataclasses
import enum
import itertools
import json
import math
import types
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pydantic

_T = TypeVar("_T")


def json_parts(value: object) -> Iterator[str]:
    """A value as JSON text in parts, since the recording of an hour is large.

    Dataclasses, named tuples and models are objects, mappings are lists of pairs, infinite numbers are texts.
    """
    match value:
        case enum.Enum():
            yield json.dumps(value.value)
        case np.ndarray() | np.generic():
            yield json.dumps(value.tolist())
        case float():
            yield json.dumps(value if math.isfinite(value) else str(value))
        case None | bool() | int() | str():
            yield json.dumps(value)
        case pydantic.BaseModel():
            yield json.dumps(value.model_dump(mode="json", by_alias=True))
        case Mapping():
            yield from _joined("[]", (itertools.chain("[", json_parts(key), ",", json_parts(one), "]") for key, one in value.items()))
        case list() | tuple() if not hasattr(value, "_fields"):
            yield from _joined("[]", map(json_parts, value))
        case _:
            names = value._fields if isinstance(value, tuple) else [field.name for field in dataclasses.fields(value)]  # type: ignore[arg-type,attr-defined]
            yield from _joined("{}", (itertools.chain((f"{json.dumps(name)}:",), json_parts(getattr(value, name))) for name in names))


def _joined(brackets: str, items: Iterable[Iterable[str]]) -> Iterator[str]:
    yield brackets[0]
    for number, item in enumerate(items):
        if number:
            yield ","
        yield from item
    yield brackets[1]


def from_json_values(kind: type[_T], value: Any) -> _T:
    """The value of a type that `json_parts` wrote; raises ValueError if it is none, also for a field that this version has not."""
    made: _T = _read(kind, value)
    return made


def _read(kind: Any, value: Any) -> Any:
    if kind is Any:
        return value
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is np.ndarray:
        return _read_numbers(_expect(list, value))
    if origin is typing.Annotated:
        return pydantic.TypeAdapter(kind).validate_python(value)
    if origin in (typing.Union, types.UnionType):
        return _read_one_of(arguments, value)
    if origin is typing.Literal:
        if value not in arguments:
            raise ValueError(f"expected one of {arguments}, found {value!r:.50}")
        return value
    if origin is tuple:
        values = _expect(list, value)
        kinds = [arguments[0]] * len(values) if arguments[1:] == (...,) else arguments
        return tuple(_read(one, part) for one, part in zip(kinds, values, strict=True))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        key_kind, value_kind = arguments
        pairs = [_expect(list, pair) for pair in _expect(list, value)]
        return {_read(key_kind, key): _read(value_kind, one) for key, one in pairs}
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return [_read(arguments[0], one) for one in _expect(list, value)]
    if issubclass(kind, pydantic.BaseModel):
        return kind.model_validate(value)
    if issubclass(kind, enum.Enum):
        return kind(value)
    if kind is float and isinstance(value, int | float | str) and not isinstance(value, bool):
        return value if isinstance(value, int) else float(value)
    if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"):
        return _read_fields(kind, _expect(dict, value))
    return _expect(kind, value)


def _read_numbers(values: Sequence[Any]) -> npt.NDArray[np.int64]:
    if not all(type(one) is int and abs(one) < 2**63 for one in values):
        raise ValueError("expected whole numbers of 64 bits")
    return np.array(values, dtype=np.int64)


def _read_one_of(kinds: Sequence[Any], value: Any) -> Any:
    if value is None and type(None) in kinds:
        return None
    problem = ValueError("no kind fits")
    for kind in kinds:
        if kind is not type(None):
            try:
                return _read(kind, value)
            except ValueError as error:
                problem = error
    raise problem


def _read_fields(kind: Any, document: Mapping[str, Any]) -> Any:
    hints = typing.get_type_hints(kind, include_extras=True)
    if document.keys() != hints.keys():
        raise ValueError(f"{kind.__name__}: expected the fields {', '.join(hints)}, found {', '.join(document)}"[:500])
    return kind(**{name: _read(hint, document[name]) for name, hint in hints.items()})


def _expect(kind: Any, value: Any) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ValueError(f"expected {kind.__name__}, found {value!r:.50}")
    return value
