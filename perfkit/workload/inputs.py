"""Input tensors: generated from a seed, read from a `.npy` file, or written in the scenario."""

import pathlib
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from perfkit.errors import ModelMismatchError, ProtocolError, ScenarioError
from perfkit.protocol.tensor import Datatype, Tensor, array_dtype, tensor_from_array, tensor_to_array
from perfkit.scenario.model import FileInput, GeneratedInput, Input, LiteralInput

# random integers stay in the range that every integer type holds
_INTEGERS_BELOW = 128
# floats that small hold every integer below these
_COUNTED_BELOW = {Datatype.BF16: 2**8, Datatype.FP16: 2**11, Datatype.FP32: 2**24}


def generate_values(kind: str, datatype: Datatype, shape: tuple[int, ...], random: np.random.Generator) -> npt.NDArray[Any]:
    """Values of one kind: `random` (floats in [0, 1), integers in [0, 128)), `zeros`, `ones` or `arange`.

    `arange` counts 0, 1, 2, … in row-major order and starts again where a type stops holding every integer. BYTES
    elements are the same integers as decimal text, and empty for `zeros`.
    """
    count = int(np.prod(shape, dtype=np.int64))
    if datatype is Datatype.BYTES:
        if kind == "zeros":
            return np.full(shape, b"", dtype=object)
        texts = np.empty(count, dtype=object)
        texts[:] = [b"%d" % number for number in generate_values(kind, Datatype.INT32, (count,), random)]
        return texts.reshape(shape)
    dtype = array_dtype(datatype)
    match kind:
        case "zeros":
            return np.zeros(shape, dtype)
        case "ones":
            return np.ones(shape, dtype)
        case "arange":
            return (np.arange(count) % _COUNTED_BELOW.get(datatype, max(count, 1))).astype(dtype).reshape(shape)
        case _ if datatype is Datatype.BOOL:
            return random.integers(0, 2, shape).astype(dtype)
        case _ if datatype.is_float:
            return random.random(shape, dtype=np.float32).astype(dtype)
        case _:
            return random.integers(0, _INTEGERS_BELOW, shape).astype(dtype)


def make_input(
    name: str,
    datatype: Datatype,
    given: Input,
    shape: tuple[int, ...],
    batch_size: int | None,
    *,
    folder: pathlib.Path,
    random: np.random.Generator,
) -> Tensor:
    """The tensor of one input.

    `shape` is the model's, without the batch dimension, -1 where the request chooses; `batch_size` is put before it,
    None for a model that takes no batches. Values without a batch dimension are repeated over the batch.
    Raises ModelMismatchError where shape or datatype do not fit, ScenarioError where a file cannot be read.
    """
    key = f"workload.inputs.{name}"
    batch = () if batch_size is None else (batch_size,)
    match given:
        case GeneratedInput():
            chosen = given.shape or shape
            if -1 in chosen:
                raise ModelMismatchError(f"{key}: the model's shape is {list(shape)}: give the sizes with `shape: [...]`")
            _check_shape(key, shape, chosen)
            return tensor_from_array(name, datatype, generate_values(given.generate, datatype, (*batch, *chosen), random))
        case FileInput():
            array = _read_npy(key, folder / given.file, datatype)
        case LiteralInput():
            array = _literal_array(key, name, datatype, given.value)
            if given.shape is not None:
                array = _reshaped(key, array, given.shape)
    if batch and not (array.ndim == len(shape) + 1 and array.shape[0] == batch_size):
        _check_shape(key, shape, array.shape)
        array = np.repeat(array[np.newaxis], batch[0], axis=0)
    _check_shape(key, shape, array.shape[len(batch) :])
    try:
        return tensor_from_array(name, datatype, array)
    except ProtocolError as error:
        raise ModelMismatchError(f"{key}: {error}") from None


def _literal_array(key: str, name: str, datatype: Datatype, value: object) -> npt.NDArray[Any]:
    array = np.array(value, dtype=object)
    if any(isinstance(element, list) for element in array.flat):
        raise ModelMismatchError(f"{key}.value: the lists within are not of one length")
    if datatype is Datatype.BYTES:
        return array
    try:
        return tensor_to_array(tensor_from_array(name, datatype, cast("npt.ArrayLike", value)))
    except ProtocolError as error:
        raise ModelMismatchError(f"{key}: {error}") from None


def _read_npy(key: str, path: pathlib.Path, datatype: Datatype) -> npt.NDArray[Any]:
    try:
        with path.open("rb") as file:
            array: npt.NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    except FileNotFoundError:
        raise ScenarioError(f"{key}.file: there is no file {path}") from None
    except (OSError, ValueError) as error:
        raise ScenarioError(f"{key}.file: {path} is not a readable .npy file: {error}") from None
    expected = array_dtype(datatype)
    if datatype is not Datatype.BYTES and array.dtype != expected:
        raise ModelMismatchError(
            f"{key}.file: {path} holds {array.dtype}, but the model takes {datatype.value}: save it with .astype('{expected}')"
        )
    if datatype is Datatype.BYTES and array.dtype.kind not in "SU":
        raise ModelMismatchError(f"{key}.file: {path} holds {array.dtype}, but the model takes strings")
    return array


def _reshaped(key: str, array: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    try:
        return array.reshape(shape)
    except ValueError:
        raise ModelMismatchError(f"{key}: {array.size} values do not fill the shape {list(shape)}") from None


def _check_shape(key: str, expected: tuple[int, ...], found: tuple[int, ...]) -> None:
    if len(expected) != len(found) or any(want not in (-1, size) for want, size in zip(expected, found, strict=True)):
        raise ModelMismatchError(f"{key}: the model takes shape {list(expected)}, found {list(found)}")
