"""Values of declared types as bytes, and back: what the machines of a fleet send each other, and what a run stores to continue. No I/O.

The type of a message is its schema: fields of dataclasses and named tuples in their order, without names, each by its declared type.
Reading makes values of the declared types and of nothing else, so that no code comes from the other side; what does not fit is a
`MalformedError`. Both sides need the same declarations. Counts and lengths have four bytes; everything is little-endian.
"""

import collections
import collections.abc
import dataclasses
import enum
import math
import operator
import struct
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

_COUNT, _FLOAT = struct.Struct("<I"), struct.Struct("<d")
_MOST_DIMENSIONS = 32
_SHORT_FORMS: "tuple[np.dtype[Any], ...]" = (np.dtype("u1"), np.dtype("<u2"), np.dtype("<u4"))
_PLAIN_DATA = (bytes, bytearray, memoryview)


class MalformedError(ValueError):
    """Bytes that are no message of the declared type."""


class StandIn(NamedTuple):
    """How values of a class that is no plain data are sent: as values of another declared type."""

    kind: Any
    """The type whose values are sent."""
    made_of: Callable[[Any], Any]
    """The value that is sent instead."""
    back: Callable[[Any], Any]


class Encoding:
    """The bytes of values of one declared type.

    `stand_ins` says how values of some classes, and of those derived from them, are sent; None for a class that is never sent. Raises TypeError
    if another part of the type is no plain data.
    """

    def __init__(self, kind: Any, stand_ins: Mapping[type, StandIn | None]) -> None:
        self._coder = _Coders(stand_ins).of(kind)

    def encoded(self, value: object) -> bytes:
        """The bytes of a value; raises TypeError if a part of it is not of the declared type."""
        out = _Writer()
        self._coder.write(value, out)
        return b"".join(out.parts)

    def decoded(self, data: bytes | bytearray | memoryview) -> Any:
        """The value of such bytes; raises MalformedError."""
        source = _Reader(data)
        try:
            value = self._coder.read(source)
        except MalformedError:
            raise
        except (ValueError, TypeError, OverflowError, RecursionError) as error:  # of a class that refuses its fields' values
            raise MalformedError(str(error)) from None
        if source.left:
            raise MalformedError("it is longer than its content")
        return value


class _Writer:
    """The parts of a message; contents that are sent more than once are written once, as tensors of several requests are."""

    def __init__(self) -> None:
        self.parts: list[bytes | bytearray | memoryview] = []
        self.places: dict[int, int] = {}
        """The number of each content by the identity of its object, which `parts` keeps alive."""

    def count(self, number: int) -> None:
        self.parts.append(_COUNT.pack(number))


class _Reader:
    """The rest of a message, and the contents that it had so far."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self._data, self._at, self._end = memoryview(data), 0, len(data)
        self.contents: list[bytes] = []

    @property
    def left(self) -> int:
        return self._end - self._at

    def take(self, size: int) -> memoryview:
        begin = self._at
        self._at += size
        if self._at > self._end:
            raise MalformedError("it ends within its content")
        return self._data[begin : self._at]

    def number(self) -> int:
        return int.from_bytes(self.take(_COUNT.size), "little")

    def count(self) -> int:
        """A number of elements, of which each takes a byte or more."""
        if (count := self.number()) > self.left:
            raise MalformedError("it announces more elements than it can have")
        return count

    def index(self, below: int) -> int:
        if (index := self.take(1)[0]) >= below:
            raise MalformedError(f"it has the choice {index} of {below}")
        return index


class _Coder(NamedTuple):
    """Writes and reads values of one type; `fits` says whether a value is of that type."""

    fits: Callable[[Any], bool]
    write: Callable[[Any, _Writer], None]
    read: Callable[[_Reader], Any]


class _Coders:
    """The coders of all types that a type has parts of, each made once."""

    def __init__(self, stand_ins: Mapping[type, StandIn | None]) -> None:
        self._stand_ins = stand_ins
        self._made: dict[Any, _Coder] = {}

    def of(self, kind: Any) -> _Coder:
        """The coder of a declared type; a type may contain itself."""
        if kind not in self._made:
            self._made[kind] = _Coder(  # for a type that contains itself: looks the coder up when it is used
                lambda value: self._made[kind].fits(value),  # noqa: PLW0108 - a coder that is found now would be this one
                lambda value, out: self._made[kind].write(value, out),  # noqa: PLW0108
                lambda source: self._made[kind].read(source),  # noqa: PLW0108
            )
            self._made[kind] = self._make(kind)
        return self._made[kind]

    def _make(self, kind: Any) -> _Coder:
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if kind in _SIMPLE:
            return _SIMPLE[kind]
        if (stand_in := self._stand_ins.get(kind)) is not None:
            return self._stood_in(kind, stand_in)
        if origin in (typing.Union, types.UnionType):
            return self._union(arguments)
        if origin is typing.Literal:
            return _choice(arguments)
        if origin is np.ndarray:
            return _array(np.dtype(typing.get_args(arguments[1])[0]))
        if origin is tuple and arguments[-1:] != (...,):
            return self._record(tuple, dict(enumerate(arguments)), operator.itemgetter)
        if origin in _SEQUENCES:
            return self._elements(_SEQUENCES[origin], arguments[0], list | tuple | frozenset)
        if origin in _MAPPINGS:
            pair = types.GenericAlias(tuple, (*arguments, int)[:2])  # a counter counts by int
            return self._elements(_MAPPINGS[origin], pair, Mapping)
        if origin is typing.Annotated:
            return self.of(arguments[0])
        if isinstance(kind, enum.EnumMeta):
            return _choice(tuple(kind))
        if hasattr(kind, "model_validate_json"):  # of pydantic, which workers do without
            return self._stood_in(kind, StandIn(str, lambda one: one.model_dump_json(by_alias=True), kind.model_validate_json))
        if dataclasses.is_dataclass(kind) or hasattr(kind, "_fields"):
            hints = typing.get_type_hints(kind)
            names = [field.name for field in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else kind._fields
            return self._record(kind, {name: hints[name] for name in names}, operator.attrgetter)
        raise TypeError(f"{kind} is no plain data")

    def _record(self, made: Any, fields: Mapping[Any, Any], getter: Callable[[Any], Callable[[Any], Any]]) -> _Coder:
        """The coder of a class with fields, or of a tuple with so many elements."""
        parts = [(getter(name), self.of(part)) for name, part in fields.items()]
        by_name = dataclasses.is_dataclass(made) and any(field.kw_only for field in dataclasses.fields(made))

        def write(value: Any, out: _Writer) -> None:
            for get, coder in parts:
                coder.write(get(value), out)

        def read(source: _Reader) -> Any:
            values = [coder.read(source) for _, coder in parts]
            if by_name:
                return made(**dict(zip(fields, values, strict=True)))
            return tuple(values) if made is tuple else made(*values)

        return _checked(lambda value: type(value) is made and (made is not tuple or len(value) == len(parts)), write, read, made)

    def _elements(self, made: Any, kind: Any, kinds: Any) -> _Coder:
        """The coder of a collection with any number of elements, which are pairs in a mapping."""
        element = self.of(kind)

        def write(value: Any, out: _Writer) -> None:
            out.count(len(value))
            for one in value.items() if isinstance(value, Mapping) else value:
                element.write(one, out)

        def read(source: _Reader) -> Any:
            values = [element.read(source) for _ in range(source.count())]
            return made(dict(values) if issubclass(made, dict) else values)

        return _checked(lambda value: isinstance(value, kinds), write, read, made)

    def _union(self, kinds: Sequence[Any]) -> _Coder:
        if all(kind in _PLAIN_DATA for kind in kinds):
            return _SIMPLE[bytes]
        coders = [self.of(kind) for kind in kinds if self._stand_ins.get(kind, kind) is not None]

        def write(value: Any, out: _Writer) -> None:
            number, coder = next(((number, coder) for number, coder in enumerate(coders) if coder.fits(value)), (0, None))
            if coder is None:
                raise TypeError(_misfit(value, kinds))
            out.parts.append(bytes((number,)))
            coder.write(value, out)

        def read(source: _Reader) -> Any:
            return coders[source.index(len(coders))].read(source)

        return _Coder(lambda value: any(coder.fits(value) for coder in coders), write, read)

    def _stood_in(self, kind: type, stand_in: StandIn) -> _Coder:
        coder = self.of(stand_in.kind)

        def write(value: Any, out: _Writer) -> None:
            coder.write(stand_in.made_of(value), out)

        return _checked(lambda value: isinstance(value, kind), write, lambda source: stand_in.back(coder.read(source)), kind)


def _checked(fits: Callable[[Any], bool], write: Callable[[Any, _Writer], None], read: Callable[[_Reader], Any], kind: object) -> _Coder:
    """A coder that raises TypeError for a value that does not fit."""

    def write_checked(value: Any, out: _Writer) -> None:
        if not fits(value):
            raise TypeError(_misfit(value, kind))
        write(value, out)

    return _Coder(fits, write_checked, read)


def _misfit(value: object, kind: object) -> str:
    return f"{value!r:.200} is not of {kind}"


def _choice(values: Sequence[Any]) -> _Coder:
    """The coder of the members of an enumeration, or of literals."""
    numbers = {value: bytes((number,)) for number, value in enumerate(values)}
    return _checked(
        lambda value: type(value) is type(values[0]) and value in numbers,
        lambda value, out: out.parts.append(numbers[value]),
        lambda source: values[source.index(len(values))],
        values,
    )


def _array(dtype: "np.dtype[Any]") -> _Coder:
    forms = [*(_SHORT_FORMS if dtype == np.int64 else ()), dtype.newbyteorder("<")]
    last = len(forms) - 1

    def write(value: Any, out: _Writer) -> None:
        value, number = value.astype(dtype, casting="same_kind", copy=False), last
        if last and value.size:  # most are counts, which are small
            size_bytes = (int(value.view(np.uint64).max()).bit_length() + 7) // 8
            number = next((number for number, form in enumerate(_SHORT_FORMS) if size_bytes <= form.itemsize), last)
        out.parts.append(bytes((number, value.ndim)))
        for size in value.shape:
            out.count(size)
        out.parts.append(value.astype(forms[number]).tobytes())

    def read(source: _Reader) -> Any:
        stored = forms[source.index(len(forms))]
        shape = [source.number() for _ in range(source.index(_MOST_DIMENSIONS + 1))]
        return np.frombuffer(source.take(math.prod(shape) * stored.itemsize), stored).astype(dtype).reshape(shape)

    return _Coder(lambda value: isinstance(value, np.ndarray), write, read)


def _write_number(value: Any, out: _Writer) -> None:
    number = operator.index(value)
    size = number.bit_length() // 8 + 1
    out.parts += (bytes((size,)), number.to_bytes(size, "little", signed=True))


def _write_text(value: Any, out: _Writer) -> None:
    data = value.encode("utf-8", "surrogatepass")
    out.count(len(data))
    out.parts.append(data)


def _write_content(value: Any, out: _Writer) -> None:
    """The number of an earlier content, or the next number and the bytes."""
    known = out.places.get(id(value))
    if known is not None:
        out.count(known)
        return
    out.count(len(out.places))
    out.places[id(value)] = len(out.places)
    out.count(memoryview(value).nbytes)
    out.parts.append(value)


def _read_number(source: _Reader) -> int:
    return int.from_bytes(source.take(source.take(1)[0]), "little", signed=True)


def _read_content(source: _Reader) -> bytes:
    number = source.number()
    if number == len(source.contents):
        source.contents.append(bytes(source.take(source.number())))
    elif number > len(source.contents):
        raise MalformedError("it names a content that it does not have")
    return source.contents[number]


def _is_number(value: Any, kinds: Any) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


_SIMPLE: Mapping[Any, _Coder] = {
    int: _Coder(lambda value: _is_number(value, int | np.integer), _write_number, _read_number),
    float: _Coder(
        lambda value: _is_number(value, int | float | np.floating),
        lambda value, out: out.parts.append(_FLOAT.pack(value)),
        lambda source: float(_FLOAT.unpack(source.take(_FLOAT.size))[0]),
    ),
    bool: _Coder(
        lambda value: isinstance(value, bool | np.bool_),
        lambda value, out: out.parts.append(bytes((bool(value),))),
        lambda source: bool(source.index(2)),
    ),
    str: _Coder(
        lambda value: isinstance(value, str), _write_text, lambda source: str(source.take(source.number()), "utf-8", "surrogatepass")
    ),
    types.NoneType: _Coder(lambda value: value is None, lambda _value, _out: None, lambda _: None),
    **dict.fromkeys(_PLAIN_DATA, _Coder(lambda value: isinstance(value, _PLAIN_DATA), _write_content, _read_content)),
}
_SEQUENCES = {tuple: tuple, list: list, frozenset: frozenset, collections.abc.Sequence: tuple}
_MAPPINGS = {dict: dict, collections.abc.Mapping: dict, collections.Counter: collections.Counter}
