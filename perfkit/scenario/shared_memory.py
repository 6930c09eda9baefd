"""The `shared_memory` section of a scenario: which tensors travel through memory that client and server share."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

import pydantic
from pydantic import BeforeValidator, Field

from perfkit.scenario.section import Section, Size


class SharedMemory(Section):
    """Tensors in shared memory, which needs a server on this machine that allows clients to register it."""

    kind: Literal["system", "cuda"]
    """`system` is POSIX shared memory, in /dev/shm; `cuda` the memory of a GPU."""
    inputs: Annotated[bool, Field(strict=True)] = True
    """Whether the inputs are there; otherwise they are in the requests."""
    outputs: Annotated[bool, Field(strict=True)] = True
    """Whether the server writes the outputs there; otherwise they are in the answers."""
    output_bytes: Annotated[Size, Field(gt=0)] | None = None
    """The space for each output whose size the model's metadata leaves open, such as strings; by default twice that of the first answer."""
    device: Annotated[int, Field(strict=True, ge=0)] = 0
    """The number of the GPU, for `cuda`."""

    @pydantic.model_validator(mode="after")
    def _holds_something(self) -> Self:
        if not (self.inputs or self.outputs):
            raise ValueError("neither inputs nor outputs are in shared memory: set one to true, or write shared_memory: none")
        return self


def _read(value: object) -> object:
    """Accepts `none`, `system` and `cuda`, also as the `kind` of a mapping."""
    if value == "none" or (isinstance(value, Mapping) and value.get("kind") == "none"):
        return None
    return {"kind": value} if isinstance(value, str) else value


SharedMemorySpec = Annotated[
    SharedMemory | None,
    BeforeValidator(_read, json_schema_input_type=Literal["none", "system", "cuda"] | SharedMemory),
]
