"""What executes a model, whatever is behind it."""

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias

import numpy.typing as npt

Arrays: TypeAlias = Mapping[str, npt.NDArray[Any]]


class Executor(Protocol):
    """A loaded model; called from as many threads at a time as it has instances."""

    is_brief: bool
    """Whether it takes microseconds, so that it is executed where its requests are read."""

    def execute(self, inputs: Arrays) -> Arrays:
        """All outputs by name, from all inputs by name; inputs may be read-only and unaligned."""
        ...
