"""The executor interface, and its implementation for functions over NumPy or CuPy arrays."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

import numpy.typing as npt

from perfkit.errors import UsageError

Arrays: TypeAlias = Mapping[str, npt.NDArray[Any]]


class Executor(Protocol):
    """A loaded model. Called concurrently by as many threads as the model has instances."""

    runs_inline: bool
    """Whether execution takes only microseconds, so that it can run on the event loop."""

    def execute(self, inputs: Arrays) -> Arrays:
        """Compute all outputs from all inputs, by name. Inputs may be read-only and unaligned."""


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


class ArrayExecutor:
    """Executes a function over arrays: NumPy's, or those of `namespace`."""

    def __init__(self, function: Callable[[Arrays], Arrays], namespace: ArrayNamespace | None = None, *, runs_inline: bool = True) -> None:
        self._function, self._namespace = function, namespace
        self.runs_inline = runs_inline and namespace is None  # waiting for a GPU would block the event loop

    def execute(self, inputs: Arrays) -> Arrays:
        """See `Executor.execute`."""
        if self._namespace is None:
            return self._function(inputs)
        outputs = self._function({name: self._namespace.asarray(array) for name, array in inputs.items()})
        return {name: self._namespace.asnumpy(array) for name, array in outputs.items()}
