"""The definition of a model, and its metadata and configuration in the v2 protocol."""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from perfkit.protocol.message import ModelMetadata, TensorMetadata
from perfkit.protocol.tensor import Datatype
from server_stub.devices.device import Kind
from server_stub.scheduling.batching import BatchingPolicy, QueuePolicy
from server_stub.scheduling.sequences import Control, ControlKind, SequencePolicy


@dataclasses.dataclass(frozen=True, slots=True)
class VersionPolicy:
    """The versions of a model to serve: the `latest` ones by count, the `specific` ones that exist, or all if both are None."""

    latest: int | None = 1
    specific: tuple[int, ...] | None = None

    def choose(self, available: Iterable[int]) -> list[int]:
        """The versions to serve, ascending."""
        versions = sorted(available)
        if self.specific is not None:
            return [version for version in versions if version in self.specific]
        return versions if self.latest is None else versions[-self.latest :]

    def config(self) -> dict[str, Any]:
        """The policy as it stands in a model configuration."""
        if self.specific is not None:
            return {"specific": {"versions": list(self.specific)}}
        return {"all": {}} if self.latest is None else {"latest": {"num_versions": self.latest}}


LATEST = VersionPolicy()


_INSTANCE_GROUPS: Mapping[Kind, Mapping[str, Any]] = {"cpu": {"kind": "KIND_CPU", "gpus": []}, "cuda": {"kind": "KIND_GPU", "gpus": [0]}}


@dataclasses.dataclass(frozen=True, slots=True)
class TensorDefinition:
    """An input or output. `dims` omit the batch dimension; -1 marks a size that each request chooses."""

    name: str
    datatype: Datatype
    dims: tuple[int, ...]
    reshape: tuple[int, ...] | None = None
    """The tensor's shape inside the model, if it differs from `dims`."""
    format: str = "FORMAT_NONE"
    labels: tuple[str, ...] = ()
    """Outputs only: the class names by index."""
    label_filename: str = ""


@dataclasses.dataclass(frozen=True, slots=True)
class ModelDefinition:
    """A model as clients see it. `max_batch_size` 0 means that its tensors have no batch dimension."""

    name: str
    platform: str
    backend: str
    max_batch_size: int
    inputs: tuple[TensorDefinition, ...]
    outputs: tuple[TensorDefinition, ...]
    versions: tuple[str, ...] = ("1",)
    default_model_filename: str = ""
    instances: int = 1
    """The number of executions at a time."""
    scheduling: BatchingPolicy | SequencePolicy | None = None
    version_policy: VersionPolicy = LATEST
    is_decoupled: bool = False
    """Whether a request can have any number of responses."""
    device: Kind = "cpu"
    """The device of its instances."""
    warmup: tuple[Mapping[str, Any], ...] = ()
    """Its `model_warmup`, as it stands in the configuration."""

    def shape(self, tensor: TensorDefinition) -> tuple[int, ...]:
        """A tensor's shape in requests and responses: `dims`, preceded by -1 for the batch if there is one."""
        return (-1, *tensor.dims) if self.max_batch_size else tensor.dims

    def metadata(self) -> ModelMetadata:
        """The model's metadata, for `GET /v2/models/NAME` and `ModelMetadata`."""
        inputs, outputs = (
            tuple(TensorMetadata(tensor.name, tensor.datatype.value, self.shape(tensor)) for tensor in tensors)
            for tensors in (self.inputs, self.outputs)
        )
        return ModelMetadata(self.name, self.versions, self.platform or self.backend, inputs, outputs)

    def config(self) -> dict[str, Any]:
        """Triton's model configuration as JSON, with numbers as numbers, for `GET /v2/models/NAME/config`."""
        document: dict[str, Any] = {
            "name": self.name,
            "platform": self.platform,
            "backend": self.backend,
            "version_policy": self.version_policy.config(),
            "max_batch_size": self.max_batch_size,
            "input": [
                {**_tensor(tensor), "format": tensor.format, "allow_ragged_batch": False, "optional": False, "is_shape_tensor": False}
                for tensor in self.inputs
            ],
            "output": [{**_tensor(tensor), "label_filename": tensor.label_filename, "is_shape_tensor": False} for tensor in self.outputs],
            "instance_group": [{"name": f"{self.name}_0", **_INSTANCE_GROUPS[self.device], "count": self.instances}],
            "default_model_filename": self.default_model_filename,
        }
        # only the kind in use may be present: perf_analyzer does not look inside
        match self.scheduling:
            case BatchingPolicy():
                document["dynamic_batching"] = _batching(self.scheduling, self.max_batch_size)
            case SequencePolicy():
                document["sequence_batching"] = _sequence(self.scheduling)
        if self.warmup:
            document["model_warmup"] = [dict(sample) for sample in self.warmup]
        if self.is_decoupled:
            document["model_transaction_policy"] = {"decoupled": True}
        return document


def _batching(policy: BatchingPolicy, max_batch_size: int) -> dict[str, Any]:
    return {
        "preferred_batch_size": list(policy.preferred_sizes or (max_batch_size,)),
        "max_queue_delay_microseconds": policy.max_delay_ns // 1000,
        "preserve_ordering": False,
        "priority_levels": policy.priority_levels,
        "default_priority_level": policy.default_priority,
        "default_queue_policy": _queue(policy.default_queue),
        "priority_queue_policy": {str(level): _queue(queue) for level, queue in policy.level_queues.items()},
    }


def _sequence(policy: SequencePolicy) -> dict[str, Any]:
    document: dict[str, Any] = {
        "max_sequence_idle_microseconds": policy.max_idle_ns // 1000,
        "control_input": [{"name": control.name, "control": [_control(control)]} for control in policy.controls],
    }
    if policy.oldest is None:
        document["direct"] = {"max_queue_delay_microseconds": 0, "minimum_slot_utilization": 0}
    else:
        document["oldest"] = {
            "max_candidate_sequences": policy.max_candidates,
            "preferred_batch_size": list(policy.oldest.preferred_sizes),
            "max_queue_delay_microseconds": policy.oldest.max_delay_ns // 1000,
        }
    return document


def _control(control: Control) -> dict[str, Any]:
    document: dict[str, Any] = {"kind": f"CONTROL_SEQUENCE_{control.kind.value}"}
    if control.kind is ControlKind.CORRID:
        return {**document, "data_type": _data_type(control.datatype)}
    values = {Datatype.INT32: "int32_false_true", Datatype.FP32: "fp32_false_true", Datatype.BOOL: "bool_false_true"}
    kind = bool if control.datatype is Datatype.BOOL else float if control.datatype is Datatype.FP32 else int
    return {**document, values[control.datatype]: [kind(value) for value in control.false_true], "data_type": "TYPE_INVALID"}


def _queue(policy: QueuePolicy) -> dict[str, Any]:
    return {
        "timeout_action": "DELAY" if policy.delays else "REJECT",
        "default_timeout_microseconds": policy.default_timeout_ns // 1000,
        "allow_timeout_override": policy.allow_timeout_override,
        "max_queue_size": policy.max_size,
    }


def _tensor(tensor: TensorDefinition) -> dict[str, Any]:
    document: dict[str, Any] = {"name": tensor.name, "data_type": _data_type(tensor.datatype), "dims": list(tensor.dims)}
    if tensor.reshape is not None:
        document["reshape"] = {"shape": list(tensor.reshape)}
    return document


def _data_type(datatype: Datatype) -> str:
    return f"TYPE_{'STRING' if datatype is Datatype.BYTES else datatype.value}"
