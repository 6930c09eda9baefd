"""Typed tensors and their two encodings: little-endian bytes and JSON values."""

import dataclasses
import enum
import math
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt

from perfkit.errors import ErrorKind, ProtocolError

Buffer: TypeAlias = bytes | bytearray | memoryview


class Datatype(enum.Enum):
    """The datatypes of the v2 protocol; the value is the name on the wire."""

    BOOL = "BOOL"
    UINT8 = "UINT8"
    UINT16 = "UINT16"
    UINT32 = "UINT32"
    UINT64 = "UINT64"
    INT8 = "INT8"
    INT16 = "INT16"
    INT32 = "INT32"
    INT64 = "INT64"
    FP16 = "FP16"
    BF16 = "BF16"
    FP32 = "FP32"
    FP64 = "FP64"
    BYTES = "BYTES"

    __hash__ = object.__hash__  # by identity, in C: datatypes are looked up several times per tensor

    @classmethod
    def parse(cls, name: str) -> "Datatype":
        """The datatype called `name`; raises ProtocolError if it is unknown."""
        datatype = _BY_NAME.get(name)
        if datatype is None:
            raise ProtocolError(f"invalid datatype '{name}': known are {', '.join(member.value for member in cls)}")
        return datatype

    @property
    def element_bits(self) -> int | None:
        """The encoded size of an element; None for BYTES, whose elements vary."""
        return _ELEMENT_BITS.get(self)

    def size_bytes(self, count: int) -> int | None:
        """The encoded size of `count` elements, in whole bytes; None for BYTES."""
        bits = _ELEMENT_BITS.get(self)
        return None if bits is None else (count * bits + 7) // 8

    @property
    def is_encoded_as_array(self) -> bool:
        """Whether its encoded form is that of an array of `array_dtype`: not for BYTES, nor for what NumPy does not have."""
        return self in _ARRAY_WIRE

    @property
    def is_integer(self) -> bool:
        """Whether it is a signed or unsigned integer; BOOL is not."""
        return self is not Datatype.BYTES and _WIRE[self].kind in "iu"

    @property
    def is_float(self) -> bool:
        """Whether it is FP16, BF16, FP32 or FP64."""
        return self in (Datatype.FP16, Datatype.BF16, Datatype.FP32, Datatype.FP64)

    @property
    def has_json_form(self) -> bool:
        """Whether every server takes its values as JSON; not so of FP16 and BF16, which MLServer takes and Triton refuses."""
        return self not in (Datatype.FP16, Datatype.BF16)


_BY_NAME = {datatype.value: datatype for datatype in Datatype}
_OWN_DTYPES = {Datatype.BF16: np.dtype(np.float32), Datatype.BYTES: np.dtype(object)}  # NumPy has no bfloat16: its values are float32
_DECODED: dict[Datatype, np.dtype[Any]] = {
    datatype: _OWN_DTYPES[datatype] if datatype in _OWN_DTYPES else np.dtype(name.lower().replace("fp", "float"))
    for name, datatype in _BY_NAME.items()
}
# of the values in little-endian order
_WIRE: dict[Datatype, np.dtype[Any]] = {
    datatype: np.dtype(f"<{dtype.str[1:]}") for datatype, dtype in _DECODED.items() if datatype is not Datatype.BYTES
}

# Triton's words for a JSON value of the wrong type, by the kind of the encoded type
_JSON_KINDS = {
    "b": "non-boolean as boolean",
    "i": "non-signed-integer as signed-integer",
    "u": "non-unsigned-integer as unsigned-integer",
    "f": "non-number as double",
}


@dataclasses.dataclass(frozen=True, slots=True)
class Tensor:
    """A named tensor in the protocol's binary form: little-endian, row-major, without padding.

    A BYTES element is its length (uint32) followed by its bytes.
    """

    name: str
    datatype: Datatype
    shape: tuple[int, ...]
    raw: Buffer

    @property
    def element_count(self) -> int:
        """The product of the shape; 1 for a scalar."""
        return math.prod(self.shape)


def array_dtype(datatype: Datatype) -> np.dtype[Any]:
    """The NumPy type of decoded values: float32 for BF16, object for BYTES."""
    return _DECODED[datatype]


def is_encoded_as(array: npt.ArrayLike, datatype: Datatype) -> TypeGuard[npt.NDArray[Any]]:
    """Whether the tensor of these values consists of the array's own bytes, in row-major order."""
    return isinstance(array, np.ndarray) and array.dtype is _ARRAY_WIRE.get(datatype)


def tensor_from_array(name: str, datatype: Datatype, array: npt.ArrayLike) -> Tensor:
    """Encodes values as a tensor; floats are rounded to the datatype.

    Raises ProtocolError if a value does not fit the datatype (300 as UINT8, 1.5 as INT32, text as FP32).
    """
    if is_encoded_as(array, datatype):
        return Tensor(name, datatype, array.shape, array.tobytes())
    values = np.asarray(array, dtype=object) if datatype is Datatype.BYTES else np.asarray(array)
    if datatype is Datatype.BYTES:
        return Tensor(name, datatype, values.shape, encode_bytes_elements(_as_bytes(name, element) for element in values.flat))
    if datatype.is_integer and values.dtype.kind == "f" and not isinstance(array, np.ndarray):
        return _tensor_from_integers(name, datatype, np.asarray(array, dtype=object))
    if values.dtype.kind not in "biuf":
        raise ProtocolError(f"tensor '{name}': {values.dtype} values are not {datatype.value}")
    with np.errstate(over="ignore", invalid="ignore"):  # large floats become infinity; large integers are refused below
        converted = values.astype(_WIRE[datatype])
    if not datatype.is_float and values.size and not np.array_equal(converted, values):
        raise ProtocolError(f"tensor '{name}': some values do not fit {datatype.value}")
    return _encoded(name, datatype, values.shape, converted)


def tensor_view(name: str, datatype: Datatype, array: npt.NDArray[Any]) -> Tensor | None:
    """A tensor whose bytes are the array's memory, which must not change afterwards; None if its encoded form is another one."""
    if not datatype.is_encoded_as_array or array.dtype != _WIRE[datatype] or not array.flags.c_contiguous:
        return None
    return Tensor(name, datatype, array.shape, array.reshape(-1).view(np.uint8).data)


def tensor_to_array(tensor: Tensor) -> npt.NDArray[Any]:
    """Decodes a tensor's values as the type of `array_dtype` (`bytes` objects for BYTES).

    Raises ProtocolError if the number of bytes does not match shape and datatype.
    """
    check_size(tensor)
    if tensor.datatype is Datatype.BYTES:
        elements = np.empty(tensor.element_count, dtype=object)
        elements[:] = decode_bytes_elements(tensor.raw)
        return elements.reshape(tensor.shape)
    form = _OWN_FORMS.get(tensor.datatype)
    values = np.frombuffer(tensor.raw, _WIRE[tensor.datatype]) if form is None else form.decode(tensor.raw, tensor.element_count)
    decoded = _DECODED[tensor.datatype]
    return (values if values.dtype is decoded else values.astype(decoded, copy=False)).reshape(tensor.shape)


def check_size(tensor: Tensor) -> None:
    """Raises ProtocolError if the number of bytes does not match shape and datatype."""
    if tensor.shape and min(tensor.shape) < 0:
        raise ProtocolError(f"tensor '{tensor.name}': dimensions must not be negative, found {list(tensor.shape)}")
    expected_bytes = tensor.datatype.size_bytes(tensor.element_count)
    if expected_bytes is None:
        count = len(decode_bytes_elements(tensor.raw))
        if count != tensor.element_count:
            raise ProtocolError(f"tensor '{tensor.name}': expected {tensor.element_count} string elements, got {count}")
        return
    if len(tensor.raw) != expected_bytes:
        raise ProtocolError(f"byte size mismatch for tensor '{tensor.name}'. Expected {expected_bytes}, got {len(tensor.raw)}")


def encode_bytes_elements(elements: Iterable[bytes]) -> bytes:
    """The binary form of BYTES elements, each preceded by its length."""
    return b"".join(part for element in elements for part in (struct.pack("<I", len(element)), element))


def decode_bytes_elements(raw: Buffer) -> list[bytes]:
    """The elements of a BYTES tensor's binary form; raises ProtocolError if it is cut off."""
    view, elements, offset = memoryview(raw), [], 0
    while offset < len(view):
        if offset + 4 > len(view):
            raise ProtocolError("a BYTES tensor ends inside an element's length")
        (length,) = struct.unpack_from("<I", view, offset)
        offset += 4 + length
        if offset > len(view):
            raise ProtocolError("a BYTES tensor ends inside an element")
        elements.append(bytes(view[offset - length : offset]))
    return elements


def check_received_as_json(name: str, datatype: Datatype) -> None:
    """Raises ProtocolError for the input of a server that is as strict as Triton, if the datatype has no JSON form there."""
    if not datatype.has_json_form:
        raise ProtocolError(
            f"receiving {datatype.value} data via JSON is not supported. Please use the binary data format for input {name}"
        )


def check_sent_as_json(tensor: Tensor) -> None:
    """Raises ProtocolError for the output of a server that is as strict as Triton, if the datatype has no JSON form there."""
    if not tensor.datatype.has_json_form:
        raise ProtocolError(f"{tensor.datatype.value} has no JSON form: use binary data for '{tensor.name}'")


def tensor_from_json(name: str, datatype: Datatype, shape: tuple[int, ...], data: object) -> Tensor:
    """Reads a JSON `data` value, nested or flat in row-major order, as strictly as Triton.

    Raises ProtocolError for values of the wrong type.
    """
    flat = _flatten(data)
    if any(size < 0 for size in shape) or len(flat) != math.prod(shape):
        raise ProtocolError(
            "Unable to parse 'data': Shape does not match true shape of 'data' field: "
            f"tensor '{name}' of shape {list(shape)} holds {len(flat)} elements",
            ErrorKind.INTERNAL,
        )
    if datatype is Datatype.BYTES:
        return Tensor(name, datatype, shape, encode_bytes_elements(_json_text(name, element) for element in flat))
    for element in flat:
        if isinstance(element, bool) != (datatype is Datatype.BOOL) or not isinstance(element, (int, float) if datatype.is_float else int):
            kind = _JSON_KINDS["b" if datatype is Datatype.BOOL else _WIRE[datatype].kind]
            raise ProtocolError(
                f"Unable to parse 'data': attempt to access JSON {kind}: {element!r} in tensor '{name}'", ErrorKind.INTERNAL
            )
    try:
        with np.errstate(over="ignore"):  # large floats become infinity
            values = np.array(flat, dtype=_WIRE[datatype])
    except OverflowError:
        raise ProtocolError(f"tensor '{name}': a value in the JSON data does not fit {datatype.value}", ErrorKind.INTERNAL) from None
    return _encoded(name, datatype, shape, values)


def tensor_to_json(tensor: Tensor) -> list[Any]:
    """A tensor's values as a flat list for a JSON `data` member; raises ProtocolError for bytes that are not UTF-8."""
    values: list[Any] = tensor_to_array(tensor).ravel().tolist()
    if tensor.datatype is not Datatype.BYTES:
        return values
    try:
        return [element.decode() for element in values]
    except UnicodeDecodeError:
        raise ProtocolError(f"output '{tensor.name}' holds bytes that are not UTF-8: request it as binary data") from None


def _tensor_from_integers(name: str, datatype: Datatype, values: npt.NDArray[np.object_]) -> Tensor:
    """Encodes numbers one by one, because NumPy turns lists with integers below and above 2**63 into floats."""
    try:
        converted = values.astype(_WIRE[datatype])
    except (OverflowError, ValueError):  # ValueError: NaN
        converted = None
    if converted is None or not np.array_equal(converted, values):
        raise ProtocolError(f"tensor '{name}': some values do not fit {datatype.value}")
    return _encoded(name, datatype, values.shape, converted)


def _as_bytes(name: str, element: object) -> bytes:
    if isinstance(element, bytes):
        return element
    try:
        return str(element).encode()
    except UnicodeEncodeError:
        raise ProtocolError(f"tensor '{name}': {element!r} cannot be written as UTF-8") from None


def _json_text(name: str, element: object) -> bytes:
    if not isinstance(element, str):
        raise ProtocolError(
            f"Unable to parse JSON bytes array: attempt to access JSON non-string as string: {element!r} in tensor '{name}'",
            ErrorKind.INTERNAL,
        )
    try:
        return element.encode()
    except UnicodeEncodeError:
        raise ProtocolError(f"tensor '{name}': {element!r} in the JSON data holds half of a surrogate pair", ErrorKind.INTERNAL) from None


def _flatten(data: object) -> Sequence[object]:
    """The elements of nested lists, without recursion, because the sender controls the depth."""
    if not isinstance(data, list):
        return [data]
    if not any(isinstance(element, list) for element in data):
        return data
    flat: list[object] = []
    stack = [iter(data)]
    while stack:
        for element in stack[-1]:
            if isinstance(element, list):
                stack.append(iter(element))
                break
            flat.append(element)
        else:
            stack.pop()
    return flat


@dataclasses.dataclass(frozen=True, slots=True)
class _OwnForm:
    """How a datatype is encoded that NumPy does not have."""

    element_bits: int
    encode: Callable[[npt.NDArray[Any]], bytes]
    """From values of the type of `array_dtype`; raises ProtocolError if one does not fit."""
    decode: Callable[[Buffer, int], npt.NDArray[Any]]
    """From the bytes of so many elements."""


def _encoded(name: str, datatype: Datatype, shape: tuple[int, ...], values: npt.NDArray[Any]) -> Tensor:
    """The tensor of values that have the datatype's little-endian type."""
    form = _OWN_FORMS.get(datatype)
    return Tensor(name, datatype, shape, values.tobytes() if form is None else form.encode(values))


def _encode_bf16(values: npt.NDArray[Any]) -> bytes:
    """Rounds to the nearest bfloat16, ties to even; NaN stays NaN, keeping the upper bits of its payload."""
    bits = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32).astype(np.uint64)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
    cut = (bits >> 16).astype("<u2")
    return np.where(np.isnan(values), np.where(cut & 0x7F, cut, cut | 0x40), rounded).tobytes()


def _decode_bf16(raw: Buffer, _: int) -> npt.NDArray[Any]:
    return (np.frombuffer(raw, dtype="<u2").astype(np.uint32) << 16).view(np.float32)


_OWN_FORMS = {Datatype.BF16: _OwnForm(16, _encode_bf16, _decode_bf16)}
_ARRAY_WIRE = {datatype: dtype for datatype, dtype in _WIRE.items() if datatype not in _OWN_FORMS}
_ELEMENT_BITS = {datatype: 8 * dtype.itemsize for datatype, dtype in _WIRE.items()}
_ELEMENT_BITS |= {datatype: form.element_bits for datatype, form in _OWN_FORMS.items()}
