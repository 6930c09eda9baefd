"""Generated tensors: values from a seed, made in pieces, so that large ones can be interrupted and need little besides themselves."""

import math
import string
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from perfkit.protocol.tensor import Datatype, Tensor, array_dtype, tensor_from_array

Checkpoint: TypeAlias = Callable[[], None]
"""Called between two pieces; it ends the work by raising an exception."""

_PIECE = 2**20
# random integers fit every integer type
_INTEGERS_BELOW = 128
# below these numbers every integer has an exact representation
_COUNTED_BELOW = {Datatype.BF16: 2**8, Datatype.FP16: 2**11, Datatype.FP32: 2**24}
_LENGTH_BYTES = 4  # before each element of BYTES
_LETTERS = np.frombuffer((string.ascii_letters + string.digits).encode(), dtype=np.uint8)


def generate_tensor(
    name: str,
    kind: str,
    datatype: Datatype,
    shape: tuple[int, ...],
    random: np.random.Generator,
    checkpoint: Checkpoint,
    *,
    text_length: int | None = None,
) -> Tensor:
    """A tensor of the values of `generate_values`; `checkpoint` is called before each piece of 2^20 values."""
    count = math.prod(shape)
    if count <= _PIECE:
        checkpoint()
        values = generate_values(kind, datatype, (count,), random, text_length=text_length)
        return Tensor(name, datatype, shape, tensor_from_array(name, datatype, values).raw)
    raw = bytearray()
    for first in range(0, count, _PIECE):
        checkpoint()
        values = generate_values(kind, datatype, (min(_PIECE, count - first),), random, first, text_length=text_length)
        raw += tensor_from_array(name, datatype, values).raw
    return Tensor(name, datatype, shape, raw)


def element_bytes(kind: str, datatype: Datatype, count: int, text_length: int | None = None) -> int:
    """The encoded size of one of `count` generated values, at most."""
    if datatype.element_bytes is not None:
        return datatype.element_bytes
    if text_length is not None:
        return _LENGTH_BYTES + text_length
    largest = {"zeros": "", "ones": "1", "random": str(_INTEGERS_BELOW - 1)}
    return _LENGTH_BYTES + len(largest.get(kind, str(count)))


def generate_values(
    kind: str,
    datatype: Datatype,
    shape: tuple[int, ...],
    random: np.random.Generator,
    first: int = 0,
    *,
    text_length: int | None = None,
) -> npt.NDArray[Any]:
    """Generated values: `random` (floats in [0, 1), integers in [0, 128)), `zeros`, `ones` or `arange`.

    `arange` counts on from `first` in row-major order, and restarts where a float type can no longer represent every integer.
    BYTES elements are the integers as decimal text, or `text_length` random letters and digits; for `zeros` they are empty.
    """
    count = math.prod(shape)
    if datatype is Datatype.BYTES:
        if text_length is not None:
            letters = _LETTERS[random.integers(0, len(_LETTERS), (count, text_length))]
            return np.array([row.tobytes() for row in letters], dtype=object).reshape(shape)
        if kind == "zeros":
            return np.full(shape, b"", dtype=object)
        numbers = generate_values(kind, Datatype.INT32, (count,), random, first)
        return np.array([b"%d" % number for number in numbers], dtype=object).reshape(shape)
    dtype = array_dtype(datatype)
    match kind:
        case "zeros":
            return np.zeros(shape, dtype)
        case "ones":
            return np.ones(shape, dtype)
        case "arange":
            counted = np.arange(first, first + count)
            return (counted % _COUNTED_BELOW[datatype] if datatype in _COUNTED_BELOW else counted).astype(dtype).reshape(shape)
        case _ if datatype is Datatype.BOOL:
            return random.integers(0, 2, shape).astype(dtype)
        case _ if datatype.is_float:
            return random.random(shape, dtype=np.float32).astype(dtype)
        case _:
            return random.integers(0, _INTEGERS_BELOW, shape).astype(dtype)
