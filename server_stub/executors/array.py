"""The base class of executors, and the executor of functions over NumPy or CuPy arrays."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from perfkit.errors import UsageError
from perfkit.override import override
from perfkit.protocol.tensor import Buffer

Arrays: TypeAlias = Mapping[str, npt.NDArray[Any]]


class GpuMemory(Protocol):
    """Memory of a GPU that stays mapped while it is referenced."""

    def read(self) -> Buffer:
        """Copy it to the host."""


class SystemMemory(Protocol):
    """Memory that another process shares."""

    def read_into(self, target: memoryview) -> None:
        """Fill `target` with its current bytes."""


@dataclasses.dataclass(frozen=True, slots=True)
class _ForeignArray:
    """A contiguous array that is not in NumPy's memory."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def reshape(self, *shape: int) -> Self:
        """The same memory with another shape, which may have one -1."""
        known = -math.prod(shape)
        whole = tuple(math.prod(self.shape) // known if size == -1 else size for size in shape) if -1 in shape and known else shape
        return dataclasses.replace(self, shape=whole)


@dataclasses.dataclass(frozen=True, slots=True)
class GpuArray(_ForeignArray):
    """A contiguous array in the memory of GPU 0."""

    address: int
    memory: GpuMemory

    def to_host(self) -> npt.NDArray[Any]:
        """A copy as a NumPy array."""
        return np.frombuffer(self.memory.read(), self.dtype).reshape(self.shape)


@dataclasses.dataclass(frozen=True, slots=True)
class SharedArray(_ForeignArray):
    """A contiguous array in system shared memory, which has not been read."""

    memory: SystemMemory

    def copy_to(self, target: npt.NDArray[Any]) -> None:
        """Copy it to a contiguous array of its shape and type. The GIL is released meanwhile."""
        self.memory.read_into(target.reshape(-1).view(np.uint8).data)

    def to_host(self) -> npt.NDArray[Any]:
        """A copy as a NumPy array."""
        array = np.empty(self.shape, self.dtype)
        self.copy_to(array)
        return array


Inputs: TypeAlias = Mapping[str, Any]
"""Arrays by name: NumPy's, or GpuArrays and SharedArrays for an executor that accepts them."""


class Executor:
    """A loaded model. Called concurrently by as many threads as the model has instances."""

    runs_inline = False
    """Whether execution takes only microseconds, so that it can run on the event loop."""
    begins_in_loop = False
    """Whether batches can begin in the event loop; `begins_at_once` then decides for each."""
    accepts_gpu_arrays = False
    """Whether inputs may be GpuArrays."""
    accepts_shared_arrays = False
    """Whether inputs of `join` may be SharedArrays."""
    batch_rows: Sequence[int] = ()
    """The number of rows to execute together by the number of rows waiting; empty where all of them are as good."""

    def document(self) -> dict[str, Any] | None:
        """How it executes the model, for the ready line; None if it has nothing to report."""
        return None

    def begins_at_once(self, parts: Sequence[Inputs]) -> bool:
        """Whether `join` and `start` take only microseconds for these requests, so that the event loop can call them."""
        return False

    def join(self, parts: Sequence[Inputs]) -> Any:
        """Join the inputs of requests into those of one batch.

        Those of a single request stay on the GPU if they are there.
        """
        if len(parts) == 1:
            return parts[0]
        return {name: np.concatenate([_to_host(part[name]) for part in parts]) for name in parts[0]}

    def start(self, inputs: Any) -> None:
        """Start to execute joined inputs. `finish` must follow unless it raises."""

    def finish(self, inputs: Any) -> Arrays:
        """The outputs of what was started, as `execute` returns them."""
        return self.execute(inputs)

    def execute(self, inputs: Any) -> Arrays:
        """Compute all outputs from all inputs, by name. Inputs may be read-only and unaligned; outputs are not changed afterwards."""
        raise NotImplementedError

    def close(self) -> None:
        """Release what was made for the model. Nothing is being executed any more."""


def _to_host(array: Any) -> npt.NDArray[Any]:
    on_host: npt.NDArray[Any] = array.to_host() if isinstance(array, GpuArray) else array
    return on_host


class ArrayNamespace(Protocol):
    """An array library other than NumPy, and how arrays are copied to and from it."""

    def asarray(self, array: Any) -> Any:
        """Copy a NumPy array to this library."""

    def asnumpy(self, array: Any) -> Any:
        """Copy an array of this library to NumPy."""


def cupy_namespace() -> ArrayNamespace:
    """CuPy, with arrays on the first GPU. Raises UsageError if it is not installed."""
    try:
        import cupy
    except ImportError as error:
        raise UsageError(f"built-in models on a GPU need CuPy ({error}): pip install 'cupy-cuda13x[ctk]'") from None
    namespace: ArrayNamespace = cupy
    return namespace


class ArrayExecutor(Executor):
    """Executes a function over arrays: NumPy's, or those of `namespace`."""

    def __init__(self, function: Callable[[Arrays], Arrays], namespace: ArrayNamespace | None = None, *, runs_inline: bool = True) -> None:
        self._function, self._namespace = function, namespace
        self._cuda = getattr(namespace, "cuda", None)
        self.accepts_gpu_arrays = self._cuda is not None
        self.runs_inline = runs_inline and namespace is None  # waiting for a GPU would block the event loop

    @override
    def execute(self, inputs: Inputs) -> Arrays:
        if self._namespace is None:
            return self._function(inputs)
        outputs = self._function({name: self._converted(array) for name, array in inputs.items()})
        return {name: self._namespace.asnumpy(array) for name, array in outputs.items()}

    def _converted(self, array: Any) -> Any:
        namespace: Any = self._namespace
        if self._cuda is None or not isinstance(array, GpuArray):
            return namespace.asarray(array)
        memory = self._cuda.UnownedMemory(array.address, array.nbytes, array.memory, 0)
        return namespace.ndarray(array.shape, array.dtype, self._cuda.MemoryPointer(memory, 0))
