"""Models that are a function over arrays: NumPy's, or CuPy's on a GPU, of which they use what both have."""

from collections.abc import Callable
from typing import Any, Protocol

from perfkit.errors import UsageError
from server_stub.executors.base import Arrays


class ArrayNamespace(Protocol):
    """Where arrays are computed with, if not where NumPy has them: how they come there, and back."""

    def asarray(self, array: Any) -> Any:
        """A NumPy array there."""
        ...

    def asnumpy(self, array: Any) -> Any:
        """An array from there."""
        ...


def cupy_namespace() -> ArrayNamespace:
    """CuPy, whose arrays lie on the first GPU; raises UsageError where it is not there."""
    try:
        import cupy
    except ImportError as error:
        raise UsageError(f"built-in models on a GPU need CuPy ({error}): pip install cupy-cuda12x") from None
    namespace: ArrayNamespace = cupy
    return namespace


class ArrayExecutor:
    """Executes a model that is a plain function over arrays, of NumPy where no other namespace is given."""

    def __init__(self, function: Callable[[Arrays], Arrays], namespace: ArrayNamespace | None = None, *, is_brief: bool = True) -> None:
        self._function, self._namespace = function, namespace
        self.is_brief = is_brief and namespace is None  # who waits for a GPU must not hold up the event loop

    def execute(self, inputs: Arrays) -> Arrays:
        """See `Executor.execute`."""
        if self._namespace is None:
            return self._function(inputs)
        outputs = self._function({name: self._namespace.asarray(array) for name, array in inputs.items()})
        return {name: self._namespace.asnumpy(array) for name, array in outputs.items()}
