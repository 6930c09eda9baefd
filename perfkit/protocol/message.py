"""The values of v2 requests and responses, independent of their encoding."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple, TypeAlias

from perfkit.protocol.tensor import Tensor

Parameter: TypeAlias = bool | int | float | str
Parameters: TypeAlias = Mapping[str, Parameter]


RegionKind: TypeAlias = Literal["system", "cuda"]


@dataclasses.dataclass(frozen=True, slots=True)
class SharedRegion:
    """A shared memory region to register: a POSIX shared memory object of this name, or memory of a GPU by its IPC handle."""

    name: str
    byte_size: int
    handle: bytes = b""
    """CUDA's 64-byte handle; empty for system memory."""
    device_id: int = 0

    @property
    def kind(self) -> RegionKind:
        """Which of the protocol's two extensions it belongs to."""
        return "cuda" if self.handle else "system"

    @property
    def key(self) -> str:
        """The name for `shm_open`, for system memory."""
        return f"/{self.name}"


@dataclasses.dataclass(frozen=True, slots=True)
class SharedSlot:
    """The part of a registered region that holds one tensor."""

    region: str
    offset: int
    byte_size: int


@dataclasses.dataclass(frozen=True, slots=True)
class RequestedOutput:
    """A requested output; `classes` > 0 requests that many top classes as `value:index:label` strings instead."""

    name: str
    classes: int = 0
    binary: bool | None = None
    """HTTP only: as binary data (True) or JSON (False); None follows the request's `binary_output`."""
    slot: SharedSlot | None = None
    """Where the server writes it; None returns it in the answer."""


@dataclasses.dataclass(frozen=True, slots=True)
class InferRequest:
    """An inference request. No `outputs` means all of them, an empty `version` the server's choice."""

    model: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[RequestedOutput, ...] = ()
    version: str = ""
    id: str = ""
    parameters: Parameters = dataclasses.field(default_factory=dict)
    binary_output: bool = True
    """HTTP only: outputs that are not listed are returned as binary data."""
    plain_inputs: frozenset[str] = frozenset()
    """Inputs sent as values instead of bytes: as JSON over HTTP; over gRPC, one of them makes all contents typed."""
    input_parameters: Mapping[str, Parameters] = dataclasses.field(default_factory=dict)
    """Parameters of inputs, by the input's name."""
    input_slots: Mapping[str, SharedSlot] = dataclasses.field(default_factory=dict)
    """The inputs in shared memory, by name; their `raw` is not sent."""

    def as_plain(self) -> "InferRequest":
        """The request without binary data, for servers that only accept JSON."""
        outputs = tuple(dataclasses.replace(output, binary=False) for output in self.outputs)
        return dataclasses.replace(
            self, outputs=outputs, binary_output=False, plain_inputs=frozenset(tensor.name for tensor in self.inputs)
        )


@dataclasses.dataclass(frozen=True, slots=True)
class InferResponse:
    """An inference response; outputs are in the server's order, so look them up by name."""

    model: str
    version: str
    outputs: tuple[Tensor, ...]
    id: str = ""
    parameters: Parameters = dataclasses.field(default_factory=dict)


class TokenCounts(NamedTuple):
    """The tokens of a request and of its answer, as the server reports them."""

    input: int
    output: int
    later: int | None = None
    """The output tokens of a streamed answer's events after its first one, up to the last with content; None if they are not known."""
    has_several: bool = False
    """Whether a streamed answer has more tokens than events, so that some event has several."""


@dataclasses.dataclass(frozen=True, slots=True)
class TensorMetadata:
    """A model's input or output; -1 in the shape is a dimension that requests choose."""

    name: str
    datatype: str
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class ModelMetadata:
    """A server's description of a model; with `max_batch_size` > 0 the shapes begin with the batch dimension, -1."""

    name: str
    versions: tuple[str, ...]
    platform: str
    inputs: tuple[TensorMetadata, ...]
    outputs: tuple[TensorMetadata, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class ComposingModel:
    """A model that an ensemble runs as a step; an empty version means the server's choice."""

    name: str
    version: str = ""


def composing_model(name: str, version: int) -> ComposingModel:
    """The model of an ensemble's step; the configuration has -1 for the server's choice of its version."""
    return ComposingModel(name, str(version) if version > 0 else "")


@dataclasses.dataclass(frozen=True, slots=True)
class ModelConfig:
    """The part of a model's configuration that perfkit uses; empty if the server does not offer it."""

    max_batch_size: int = 0
    """0 if the model does not support batches."""
    sha256: str = ""
    """A digest of the whole configuration, independent of the order of keys; it differs between HTTP and gRPC."""
    required_inputs: frozenset[str] = frozenset()
    """The inputs that it lists and does not call optional."""
    composing_models: tuple[ComposingModel, ...] = ()
    """The models of an ensemble's steps, each once."""
    is_decoupled: bool = False
    """Whether a request may have none or many responses, so that the model answers on streams only."""
    has_sequences: bool = False
    """Whether its requests belong to sequences."""
    highest_sequence_id: int | None = None
    """The highest integer id of a sequence that the model gets whole; Triton cuts higher ones to the 32 bits of its control input. None if
    there is no such limit."""
    shapes: Mapping[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    """The shapes of the inputs and outputs that it lists, by name, without the batch dimension."""
    keys: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """Its keys and values as texts; see `config_keys`."""


_HIGHEST_IDS = {"TYPE_INT32": 2**31 - 1, "TYPE_UINT32": 2**32 - 1}


def highest_sequence_id(datatypes: Iterable[str]) -> int | None:
    """`ModelConfig.highest_sequence_id` for the datatypes of the control inputs that take the ids."""
    return min((_HIGHEST_IDS[datatype] for datatype in datatypes if datatype in _HIGHEST_IDS), default=None)


@dataclasses.dataclass(frozen=True, slots=True)
class IndexedModel:
    """A version of a model in a server's repository index.

    `state` is READY, UNAVAILABLE or another word; empty if the server gives none.
    """

    name: str
    version: str = ""
    state: str = ""
    reason: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class ServerMetadata:
    """A server's name, version and the protocol extensions it offers."""

    name: str
    version: str
    extensions: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class RegionRefusal:
    """A server's refusal to register a shared memory region, in its words."""

    reason: str
    is_unsupported: bool
    """Whether the server lacks the extension, or does not allow it."""
