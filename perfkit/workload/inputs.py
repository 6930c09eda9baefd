"""Input tensors: generated from a seed, read from files or images, dealt from texts, or written in the scenario."""

import math
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from perfkit.errors import ModelMismatchError, ProtocolError, ScenarioError
from perfkit.protocol.tensor import Datatype, Tensor, array_dtype, tensor_from_array, tensor_to_array
from perfkit.scenario.workload import FileInput, GeneratedInput, ImageInput, Input, LiteralInput, StringsInput
from perfkit.workload.images import read_image

_Array: TypeAlias = npt.NDArray[Any]
# random integers stay in the range that every integer type holds
_INTEGERS_BELOW = 128
# floats that small hold every integer below these
_COUNTED_BELOW = {Datatype.BF16: 2**8, Datatype.FP16: 2**11, Datatype.FP32: 2**24}


def generate_values(kind: str, datatype: Datatype, shape: tuple[int, ...], random: np.random.Generator) -> _Array:
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


class InputMaker:
    """Makes the tensors of one input; `key` is where the scenario gives it.

    `shape` is the model's, without the batch dimension, -1 where the request chooses; `batch_size` is put before it,
    None for a model that takes no batches. Raises ModelMismatchError where shape or datatype do not fit, ScenarioError
    where a file cannot be read.
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
                self._cycle = [self._tensor(self._generate(np.random.default_rng()))]
        else:
            self._cycle = [self._tensor(array) for array in self._arrays(given)]

    @property
    def cycle(self) -> int:
        """How many different tensors requests take in turn; 0 where every one is random."""
        return len(self._cycle)

    def make(self, variant: int, random: np.random.Generator) -> Tensor:
        """The tensor of the request of that number."""
        if self._cycle:
            return self._cycle[variant % len(self._cycle)]
        assert self._generate is not None
        return self._tensor(self._generate(random))

    @property
    def _batch(self) -> tuple[int, ...]:
        return () if self._batch_size is None else (self._batch_size,)

    def _arrays(self, given: Input) -> Sequence[_Array]:
        """The different arrays of an input, each with the batch dimension if there is one."""
        match given:
            case StringsInput():
                return self._dealt(given.strings, (*self._batch, *self._chosen_shape(given.shape)))
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
        except (MemoryError, ValueError):  # NumPy has a largest size as well
            raise ScenarioError(f"{self._key}: the shape {list(shape)} does not fit into memory") from None

    def _chosen_shape(self, given: tuple[int, ...] | None) -> tuple[int, ...]:
        chosen = self._shape if given is None else given
        if -1 in chosen:
            raise ModelMismatchError(f"{self._key}: the model's shape is {list(self._shape)}: give the sizes with `shape: [...]`")
        self._check_shape(chosen)
        return chosen

    def _dealt(self, strings: tuple[str, ...], shape: tuple[int, ...]) -> Sequence[_Array]:
        """Each request takes on where the one before stopped, until they begin anew."""
        if self._datatype is not Datatype.BYTES:
            raise ModelMismatchError(f"{self._key}.strings: the model takes {self._datatype.value}, not strings")
        count = math.prod(shape)
        arrays = []
        for request in range(len(strings) // math.gcd(len(strings), count)):
            flat = np.empty(count, dtype=object)
            flat[:] = [strings[(request * count + index) % len(strings)] for index in range(count)]
            arrays.append(flat.reshape(shape))
        return arrays

    def _batched(self, arrays: Sequence[_Array]) -> Sequence[_Array]:
        """Puts the batch dimension before arrays that lack it: each batch takes the next of them, going round."""
        if self._batch_size is None or all(one.ndim == len(self._shape) + 1 and one.shape[0] == self._batch_size for one in arrays):
            return arrays
        for array in arrays:
            self._check_shape(array.shape)
        if len({array.shape for array in arrays}) > 1 and self._batch_size > 1:
            raise ModelMismatchError(f"{self._key}: arrays of different shapes do not make a batch of {self._batch_size}")
        size, count = self._batch_size, len(arrays)
        batches = count // math.gcd(count, size)
        return [np.stack([arrays[(batch * size + index) % count] for index in range(size)]) for batch in range(batches)]

    def _files(self, kind: str, names: tuple[str, ...]) -> Sequence[pathlib.Path]:
        files: list[pathlib.Path] = []
        for name in names:
            found = [self._folder / name]
            if "*" in name or "?" in name:
                try:
                    found = sorted((pathlib.Path("/") if name.startswith("/") else self._folder).glob(name.lstrip("/")))
                except ValueError as error:
                    raise ScenarioError(f"{self._key}.{kind}: {name} is no pattern: {error}") from None
            if not found:
                raise ScenarioError(f"{self._key}.{kind}: no file matches {self._folder / name}")
            files += found
        for file in files:
            if file.is_dir():
                raise ScenarioError(f"{self._key}.{kind}: {file} is a folder: name its files, such as {file.name}/*")
        return files

    def _tensor(self, array: _Array) -> Tensor:
        self._check_shape(array.shape[len(self._batch) :])
        try:
            return tensor_from_array(self._name, self._datatype, array)
        except ProtocolError as error:
            raise ModelMismatchError(f"{self._key}: {error}") from None

    def _check_shape(self, found: tuple[int, ...]) -> None:
        expected = self._shape
        if len(expected) != len(found) or any(want not in (-1, size) for want, size in zip(expected, found, strict=True)):
            raise ModelMismatchError(f"{self._key}: the model takes shape {list(expected)}, found {list(found)}")


def _literal_array(key: str, name: str, datatype: Datatype, value: object) -> _Array:
    array = np.array(value, dtype=object)
    if any(isinstance(element, list) for element in array.flat):
        raise ModelMismatchError(f"{key}.value: the lists within are not of one length")
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


def _reshaped(key: str, array: _Array, shape: tuple[int, ...]) -> _Array:
    try:
        return array.reshape(shape)
    except ValueError:
        raise ModelMismatchError(f"{key}: {array.size} values do not fill the shape {list(shape)}") from None
