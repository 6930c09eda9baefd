"""Models that are a function over NumPy arrays."""

from collections.abc import Callable

from server_stub.executors.base import Arrays


class ArrayExecutor:
    """Executes a model that is a plain function."""

    def __init__(self, function: Callable[[Arrays], Arrays], *, is_brief: bool = True) -> None:
        self._function, self.is_brief = function, is_brief

    def execute(self, inputs: Arrays) -> Arrays:
        """See `Executor.execute`."""
        return self._function(inputs)
