"""Input tensors: generated from a seed, or read from files, images, texts or the scenario itself."""

import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt

from perfkit.errors import ModelMismatchError, ProtocolError, ScenarioError
from perfkit.protocol.tensor import Datatype, Tensor, array_dtype, tensor_from_array, tensor_to_array
from perfkit.scenario.workload import FileInput, GeneratedInput, ImageInput, Input, LiteralInput, StringsInput
from perfkit.workload.images import read_image

_Array: TypeAlias = npt.NDArray[Any]
_T = TypeVar("_T")
# random integers fit every integer type
_INTEGERS_BELOW = 128
# below these numbers every integer has an exact representation
_COUNTED_BELOW = {Datatype.BF16: 2**8, Datatype.FP16: 2**11, Datatype.FP32: 2**24}


def generate_values(kind: str, datatype: Datatype, shape: tuple[int, ...], random: np.random.Generator) -> _Array:
    """Generated values: `random` (floats in [0, 1), integers in [0, 128)), `zeros`, `ones` or `arange`.

    `arange` counts 0, 1, 2, … in row-major order, and restarts where a float type can no longer represent every
    integer. BYTES elements are the integers as decimal text; for `zeros` they are empty.
    """
    count = int(np.prod(shape, dtype=np.int64))
    if datatype is Datatype.BYTES:
        if kind == "zeros":
            return np.full(shape, b"", dtype=object)
        numbers = generate_values(kind, Datatype.INT32, (count,), random)
        return np.array([b"%d" % number for number in numbers], dtype=object).reshape(shape)
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


class TensorSource:
    """The tensors of one input, or of one expected output; `key` is its key in the scenario.

    `shape` is the model's without the batch dimension, -1 for open dimensions; `batch_size` is None for a model without
    batches. Raises ModelMismatchError if shape or datatype do not fit, ScenarioError if a file cannot be read.
    """

    def __init__(
        self,
        name: str,
        datatype: Datatype,
        given: Input,
        shape: tuple[int, ...],
        batch_size: int | None,
        folder: pathlib.Path,
        *,
        key: str = "",
    ) -> None:
        self._name, self._datatype, self._shape, self._batch_size = name, datatype, shape, batch_size
        self._folder, self._key = folder, key or f"workload.inputs.{name}"
        self._generate: Callable[[np.random.Generator], _Array] | None = None
        self._cycle: Sequence[Tensor] = ()
        if isinstance(given, GeneratedInput):
            whole = (*self._batch, *self._chosen_shape(given.shape))
            self._generate = lambda random: self._in_memory(lambda: generate_values(given.generate, datatype, whole, random), whole)
            if given.generate != "random":
                self._cycle = [self._encode(self._generate(np.random.default_rng()))]
        else:
            self._cycle = [self._encode(array) for array in self._arrays(given)]

    @property
    def cycle_length(self) -> int:
        """The number of different tensors, which requests use in turn; 0 if each one is random."""
        return len(self._cycle)

    def tensor(self, variant: int, random: np.random.Generator) -> Tensor:
        """The tensor of request `variant`."""
        if self._cycle:
            return self._cycle[variant % len(self._cycle)]
        assert self._generate is not None
        return self._encode(self._generate(random))

    @property
    def _batch(self) -> tuple[int, ...]:
        return () if self._batch_size is None else (self._batch_size,)

    def _arrays(self, given: Input) -> Sequence[_Array]:
        """The different arrays, each with the batch dimension if there is one."""
        match given:
            case StringsInput():
                return self._dealt_texts(given.strings, (*self._batch, *self._chosen_shape(given.shape)))
            case ImageInput():
                shape = self._chosen_shape(given.shape)
                files = self._files("image", given.image)
                return self._batched(
                    [read_image(self._key, file, shape, self._datatype, scaling=given.scaling, layout=given.layout) for file in files]
                )
            case FileInput():
                arrays = [_read_npy(self._key, file, self._datatype) for file in self._files("file", given.file)]
            case LiteralInput():
                arrays = [_literal_array(self._key, self._name, self._datatype, given.value)]
            case _:
                raise AssertionError(given)
        return self._batched(arrays if given.shape is None else [_reshaped(self._key, array, given.shape) for array in arrays])

    def _in_memory(self, make: Callable[[], _Array], shape: tuple[int, ...]) -> _Array:
        try:
            return make()
        except (MemoryError, ValueError):  # NumPy limits sizes, too
            raise ScenarioError(f"{self._key}: the shape {list(shape)} does not fit in memory") from None

    def _chosen_shape(self, given: tuple[int, ...] | None) -> tuple[int, ...]:
        chosen = self._shape if given is None else given
        if -1 in chosen:
            raise ModelMismatchError(f"{self._key}: the model's shape is {list(self._shape)}: give a size for each -1 with shape: [...]")
        self._check_shape(chosen)
        return chosen

    def _dealt_texts(self, strings: tuple[str, ...], shape: tuple[int, ...]) -> Sequence[_Array]:
        """The texts for each request, which continue those of the previous request, until the sequence repeats."""
        if self._datatype is not Datatype.BYTES:
            raise ModelMismatchError(f"{self._key}.strings: the model takes {self._datatype.value}, not strings")
        return [np.array(texts, dtype=object).reshape(shape) for texts in _in_turn(strings, math.prod(shape))]

    def _batched(self, arrays: Sequence[_Array]) -> Sequence[_Array]:
        """Stacks arrays without a batch dimension into batches, which use them in turn."""
        if self._batch_size is None or all(array.ndim == len(self._shape) + 1 and array.shape[0] == self._batch_size for array in arrays):
            return arrays
        for array in arrays:
            self._check_shape(array.shape)
        if len({array.shape for array in arrays}) > 1 and self._batch_size > 1:
            raise ModelMismatchError(f"{self._key}: arrays of different shapes cannot form a batch of {self._batch_size}")
        return [np.stack(batch) for batch in _in_turn(arrays, self._batch_size)]

    def _files(self, kind: str, names: tuple[str, ...]) -> Sequence[pathlib.Path]:
        files: list[pathlib.Path] = []
        for name in names:
            matches = [self._folder / name]
            if "*" in name or "?" in name:
                try:
                    matches = sorted((pathlib.Path("/") if name.startswith("/") else self._folder).glob(name.lstrip("/")))
                except ValueError as error:
                    raise ScenarioError(f"{self._key}.{kind}: {name} is not a valid pattern: {error}") from None
            if not matches:
                raise ScenarioError(f"{self._key}.{kind}: no file matches {self._folder / name}")
            files += matches
        if folder := next(filter(pathlib.Path.is_dir, files), None):
            raise ScenarioError(f"{self._key}.{kind}: {folder} is a folder: give its files, such as {folder.name}/*")
        return files

    def _encode(self, array: _Array) -> Tensor:
        self._check_shape(array.shape[len(self._batch) :])
        try:
            return tensor_from_array(self._name, self._datatype, array)
        except ProtocolError as error:
            raise ModelMismatchError(f"{self._key}: {error}") from None

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        expected = self._shape
        if len(expected) != len(shape) or any(want not in (-1, size) for want, size in zip(expected, shape, strict=True)):
            raise ModelMismatchError(f"{self._key}: the model takes shape {list(expected)}, found {list(shape)}")


def _in_turn(items: Sequence[_T], size: int) -> list[list[_T]]:
    """Groups of `size` items, each continuing where the previous one ended, until the sequence repeats."""
    groups = len(items) // math.gcd(len(items), size)
    return [[items[(group * size + index) % len(items)] for index in range(size)] for group in range(groups)]


def _literal_array(key: str, name: str, datatype: Datatype, value: object) -> _Array:
    array = np.array(value, dtype=object)
    if any(isinstance(element, list) for element in array.flat):
        raise ModelMismatchError(f"{key}.value: the nested lists differ in length")
    if datatype is Datatype.BYTES:
        return array
    try:
        return tensor_to_array(tensor_from_array(name, datatype, cast("npt.ArrayLike", value)))
    except ProtocolError as error:
        raise ModelMismatchError(f"{key}: {error}") from None


def _read_npy(key: str, path: pathlib.Path, datatype: Datatype) -> _Array:
    try:
        with path.open("rb") as file:
            array: _Array = np.lib.format.read_array(file, allow_pickle=False)
    except FileNotFoundError:
        raise ScenarioError(f"{key}.file: no such file: {path}") from None
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


def _reshaped(key: str, array: _Array, shape: tuple[int, ...]) -> _Array:
    try:
        return array.reshape(shape)
    except ValueError:
        raise ModelMismatchError(f"{key}: {array.size} values cannot have the shape {list(shape)}") from None
