"""What v2 clients and servers say to each other, whatever the encoding."""

import dataclasses
from collections.abc import Mapping
from typing import TypeAlias

from perfkit.protocol.tensor import Tensor

Parameter: TypeAlias = bool | int | float | str
Parameters: TypeAlias = Mapping[str, Parameter]


@dataclasses.dataclass(frozen=True, slots=True)
class RequestedOutput:
    """An output asked for by name; `classes` > 0 asks for the top classes as `value:index:label` strings instead."""

    name: str
    classes: int = 0
    binary: bool | None = None
    """REST alone: as binary data (True) or JSON (False); None leaves it to the request's `binary_output`."""


@dataclasses.dataclass(frozen=True, slots=True)
class InferRequest:
    """One inference request. No `outputs` asks for all of them; an empty `version` for the server's choice."""

    model: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[RequestedOutput, ...] = ()
    version: str = ""
    id: str = ""
    parameters: Parameters = dataclasses.field(default_factory=dict)
    binary_output: bool = True
    """REST alone: unlisted outputs come as binary data."""
    plain_inputs: frozenset[str] = frozenset()
    """Inputs that go as plain values instead of bytes: as JSON over HTTP; one of them makes all contents typed over gRPC."""


@dataclasses.dataclass(frozen=True, slots=True)
class InferResponse:
    """One inference response; outputs stand in the server's order, so look them up by name."""

    model: str
    version: str
    outputs: tuple[Tensor, ...]
    id: str = ""
    parameters: Parameters = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class TensorMetadata:
    """A model's input or output: -1 in the shape is a dimension that the request chooses."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class ModelMetadata:
    """What a server says of a model; with `max_batch_size` > 0 the shapes begin with the batch dimension, -1."""

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[TensorMetadata, ...]
    outputs: tuple[TensorMetadata, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class ModelConfig:
    """Of a model's configuration, what perfkit goes by; empty where the server has no such call."""

    max_batch_size: int = 0
    """0 where the model takes no batches."""
    sha256: str = ""
    """Of the whole configuration, whatever the order of its keys; another one over HTTP than over gRPC."""


@dataclasses.dataclass(frozen=True, slots=True)
class ServerMetadata:
    """A server's name, version and the protocol extensions it offers."""

    name: str
    version: str
    extensions: tuple[str, ...] = ()
