"""Input tensors: generated from a seed, or read from files, images, texts or the scenario itself."""

import math
import os
import pathlib
from collections.abc import Sequence
from typing import Any, BinaryIO, TypeAlias, TypeVar, cast

import numpy as np
import numpy.typing as npt

from perfkit.errors import ModelMismatchError, ProtocolError, ScenarioError
from perfkit.machine.limits import MemoryBudget
from perfkit.protocol.tensor import Datatype, Tensor, array_dtype, tensor_from_array, tensor_to_array
from perfkit.scenario.workload import FileInput, GeneratedInput, ImageInput, Input, LiteralInput, StringsInput
from perfkit.units import format_bytes
from perfkit.workload.generated import Checkpoint, element_bytes, generate_tensor, read_image

_Array: TypeAlias = npt.NDArray[Any]
_T = TypeVar("_T")
# a NumPy array of objects has a pointer for each element
_POINTER_BYTES = 8


class TensorSource:
    """The tensors of one input, or of one expected output; `key` is its key in the scenario.

    `shape` is the model's without the batch dimension, -1 for open dimensions; `batch_size` is None for a model without
    batches. What is read takes its part of the budget at once, what is generated in `reserve`. Raises ModelMismatchError if shape
    or datatype do not fit, ScenarioError if a file cannot be read or the budget is exceeded.
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
        budget: MemoryBudget | None = None,
    ) -> None:
        self._name, self._datatype, self._shape, self._batch_size = name, datatype, shape, batch_size
        self._folder, self._key = folder, key or f"workload.inputs.{name}"
        self._cycle: Sequence[Tensor] = ()
        self._generated, self._whole = "", tuple[int, ...]()
        self._text_length: int | None = None
        if isinstance(given, GeneratedInput) and given.text is not None and datatype is Datatype.BYTES:
            given = StringsInput(strings=(given.text,), shape=given.shape)
        if isinstance(given, GeneratedInput):
            self._generated, self._whole = given.generate, (*self._batch, *self._chosen_shape(given.shape))
            self._text_length = given.text_length
        else:
            self._cycle = [self._encode(array) for array in self._arrays(given, budget or MemoryBudget())]

    @property
    def cycle_length(self) -> int:
        """The number of different tensors, which requests use in turn; 0 if each one is random."""
        return len(self._cycle) or (1 if self._generated and self._generated != "random" else 0)

    def reserve(self, budget: MemoryBudget, requests: int, *, text_bytes: int = 0) -> None:
        """Takes the tensors of that many requests from the budget; `text_bytes` is the text of a value, if it is sent as JSON."""
        count = math.prod(self._whole if self._generated else self._cycle[0].shape)
        stored_bytes = element_bytes(self._generated, self._datatype, count, self._text_length) if self._generated else 0
        each_bytes = stored_bytes + text_bytes
        text = f"shape {list(self._whole)} of {self._datatype.value} is {count:,} values × {each_bytes} bytes"
        if each_bytes:
            variants = f" = {format_bytes(count * each_bytes)} each, × {requests:,} requests"
            self._take(budget, count * each_bytes * requests, text + (variants if requests > 1 else ""))

    def tensor(self, variant: int, random: np.random.Generator, checkpoint: Checkpoint = lambda: None) -> Tensor:
        """The tensor of request `variant`; `checkpoint` is called at least after every 2^20 values that are made."""
        if not self._cycle:
            made = generate_tensor(
                self._name, self._generated, self._datatype, self._whole, random, checkpoint, text_length=self._text_length
            )
            if self._generated == "random":
                return made
            self._cycle = [made]
        return self._cycle[variant % len(self._cycle)]

    def _take(self, budget: MemoryBudget, needed_bytes: int, arithmetic: str) -> None:
        budget.reserve(self._key, needed_bytes, arithmetic, f"{self._key}.shape, workload.batch_size or workload.variants")

    @property
    def _batch(self) -> tuple[int, ...]:
        return () if self._batch_size is None else (self._batch_size,)

    def _arrays(self, given: Input, budget: MemoryBudget) -> Sequence[_Array]:
        """The different arrays, each with the batch dimension if there is one."""
        match given:
            case StringsInput():
                return self._dealt_texts(given.strings, (*self._batch, *self._chosen_shape(given.shape)), budget)
            case ImageInput():
                shape = self._chosen_shape(given.shape)
                files = self._files("image", given.image)
                # resized as 4-byte floats
                pixels_bytes = 4 + (self._datatype.size_bytes(1) or 0)
                text = f"{len(files)} images of shape {list(shape)} with {pixels_bytes} bytes a value"
                self._take(budget, len(files) * math.prod(shape) * pixels_bytes, text)
                return self._batched(
                    [read_image(self._key, file, shape, self._datatype, scaling=given.scaling, layout=given.layout) for file in files],
                    budget,
                )
            case FileInput():
                arrays = [_read_npy(self._key, file, self._datatype, budget) for file in self._files("file", given.file)]
            case LiteralInput():
                arrays = [_literal_array(self._key, self._name, self._datatype, given.value)]
            case _:
                raise AssertionError(given)
        return self._batched(arrays if given.shape is None else [_reshaped(self._key, array, given.shape) for array in arrays], budget)

    def _chosen_shape(self, given: tuple[int, ...] | None) -> tuple[int, ...]:
        chosen = self._shape if given is None else given
        if -1 in chosen:
            sizes = ",".join("1" if size == -1 else str(size) for size in self._shape)
            raise ModelMismatchError(
                f"{self._key}: the model's shape is {list(self._shape)}: give a size for each -1, such as shape: [{sizes}], "
                f"or --shape {self._name}={sizes}"
            )
        self._check_shape(chosen)
        return chosen

    def _dealt_texts(self, strings: tuple[str, ...], shape: tuple[int, ...], budget: MemoryBudget) -> Sequence[_Array]:
        """The texts for each request, which continue those of the previous request, until the sequence repeats."""
        if self._datatype is not Datatype.BYTES:
            raise ModelMismatchError(f"{self._key}.strings: the model takes {self._datatype.value}, not strings")
        count, longest_bytes = math.prod(shape), max(len(text.encode()) for text in strings)
        groups = _count_groups(len(strings), count)
        each_bytes = 2 * _POINTER_BYTES + 4 + longest_bytes
        text = f"{groups:,} tensors of shape {list(shape)} of texts of up to {longest_bytes:,} bytes, {each_bytes:,} bytes a value"
        self._take(budget, groups * count * each_bytes, text)
        return [np.array(texts, dtype=object).reshape(shape) for texts in _in_turn(strings, count)]

    def _batched(self, arrays: Sequence[_Array], budget: MemoryBudget) -> Sequence[_Array]:
        """Stacks arrays without a batch dimension into batches, which use them in turn."""
        if self._batch_size is None or all(array.ndim == len(self._shape) + 1 and array.shape[0] == self._batch_size for array in arrays):
            return arrays
        for array in arrays:
            self._check_shape(array.shape)
        if len({array.shape for array in arrays}) > 1 and self._batch_size > 1:
            raise ModelMismatchError(f"{self._key}: arrays of different shapes cannot form a batch of {self._batch_size}")
        groups, array_bytes = _count_groups(len(arrays), self._batch_size), max(array.nbytes for array in arrays) + _POINTER_BYTES
        text = f"{groups:,} batches of {self._batch_size:,} arrays of {format_bytes(array_bytes)}"
        self._take(budget, groups * self._batch_size * array_bytes, text)
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
    groups = _count_groups(len(items), size)
    return [[items[(group * size + index) % len(items)] for index in range(size)] for group in range(groups)]


def _count_groups(items: int, size: int) -> int:
    """The number of groups that `_in_turn` gives."""
    return items // math.gcd(items, size)


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


def _read_npy(key: str, path: pathlib.Path, datatype: Datatype, budget: MemoryBudget) -> _Array:
    try:
        with path.open("rb") as file:
            size_bytes = os.fstat(file.fileno()).st_size
            # NumPy allocates what the file's head says before it reads on
            declared_bytes = _declared_npy_bytes(file)
            if declared_bytes > size_bytes:
                raise ValueError(f"its head declares {declared_bytes:,} bytes of values, but the file has {size_bytes:,}")  # noqa: TRY301 - reported with the file's name below, as NumPy's own errors are
            budget.reserve(f"{key}.file", declared_bytes, f"{path} holds {format_bytes(declared_bytes)}", f"{key}.file")
            file.seek(0)
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


def _declared_npy_bytes(file: BinaryIO) -> int:
    """The size of an array by the head of its `.npy` file; raises ValueError if that is not one."""
    read_head = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    version = np.lib.format.read_magic(file)
    if version not in read_head:  # 3.0 is for names of fields, which tensors do not have
        raise ValueError(f"its format {version} is not supported")
    shape, _, dtype = read_head[version](file)
    return math.prod(shape) * dtype.itemsize


def _reshaped(key: str, array: _Array, shape: tuple[int, ...]) -> _Array:
    if array.size != math.prod(shape):
        raise ModelMismatchError(f"{key}: {array.size} values cannot have the shape {list(shape)}")
    return array.reshape(shape)
