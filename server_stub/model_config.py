"""Triton's model configuration as people write it, in protobuf's text form or as JSON, turned into what a definition needs."""

import dataclasses
import pathlib
from typing import TypeVar

from google.protobuf import json_format, text_format

from perfkit.errors import UsageError
from perfkit.protocol import v2_pb2
from perfkit.protocol.tensor import Datatype
from server_stub.batching import BatchingPolicy, QueuePolicy
from server_stub.definition import TensorDefinition
from server_stub.devices import Kind
from server_stub.sequences import Control, ControlKind, SequencePolicy
from server_stub.versions import LATEST, VersionPolicy

_Kind = TypeVar("_Kind", v2_pb2.ModelInput, v2_pb2.ModelOutput)
FILENAME = "model.onnx"
_US = 1000  # nanoseconds
_DEFAULT_IDLE_US = 1_000_000
_LARGEST_BATCH, _MOST_INSTANCES = 2**20, 64


@dataclasses.dataclass(frozen=True, slots=True)
class WrittenConfig:
    """A configuration that this server can keep to; `inputs` and `outputs` may be left to the model's file."""

    max_batch_size: int = 0
    inputs: tuple[TensorDefinition, ...] = ()
    outputs: tuple[TensorDefinition, ...] = ()
    instances: int = 1
    scheduling: BatchingPolicy | SequencePolicy | None = None
    versions: VersionPolicy = LATEST
    filename: str = FILENAME
    device: Kind = "cpu"


def read_text(file: pathlib.Path, name: str, device: Kind = "cpu") -> WrittenConfig:
    """Reads a config.pbtxt; raises UsageError, with the file and the field, for what cannot be read or kept to."""
    try:
        config = text_format.Parse(file.read_text(encoding="utf-8"), v2_pb2.ModelConfig())
    except (text_format.ParseError, OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}. Fields that this server has no use for are unknown to it.") from None
    return _written(config, name, str(file), file.parent, device)


def read_json(text: str, name: str, folder: pathlib.Path, device: Kind = "cpu") -> WrittenConfig:
    """Reads what a client gives in place of the file; raises UsageError as `read_text` does."""
    try:
        config = json_format.Parse(text, v2_pb2.ModelConfig())
    except (json_format.ParseError, RecursionError) as error:
        raise UsageError(f"the given configuration of '{name}' cannot be read: {error}") from None
    return _written(config, name, f"the given configuration of '{name}'", folder, device)


def _written(config: v2_pb2.ModelConfig, name: str, where: str, folder: pathlib.Path, device: Kind) -> WrittenConfig:
    if config.name not in ("", name):
        raise UsageError(f"{where}: name is '{config.name}', but the model's folder is called '{name}'.")
    if (config.platform, config.backend) not in {
        ("", ""),
        ("", "onnxruntime"),
        ("onnxruntime_onnx", ""),
        ("onnxruntime_onnx", "onnxruntime"),
    }:
        raise UsageError(f"{where}: platform '{config.platform}' with backend '{config.backend}' is not served here; only onnxruntime is.")
    if config.model_transaction_policy.decoupled:
        raise UsageError(f"{where}: model_transaction_policy.decoupled is not served here for models from files; leave it out.")
    if not 0 <= config.max_batch_size <= _LARGEST_BATCH:
        raise UsageError(f"{where}: max_batch_size is {config.max_batch_size}; it lies between 0 and {_LARGEST_BATCH}.")
    filename = config.default_model_filename or FILENAME
    if pathlib.PurePath(filename).name != filename:
        raise UsageError(f"{where}: default_model_filename '{filename}' has to be a name without folders.")
    devices = {_device(group, where, device) for group in config.instance_group} or {device}
    if len(devices) > 1:
        raise UsageError(f"{where}: instance_group has instances on the CPU and on a GPU, which are not served together here.")
    instances = sum(_count(group, where) for group in config.instance_group) or 1
    return WrittenConfig(
        config.max_batch_size,
        tuple(_tensor(one, where, folder) for one in config.input),
        tuple(_tensor(one, where, folder) for one in config.output),
        instances,
        _scheduling(config, where, instances),
        _versions(config.version_policy, where),
        filename,
        devices.pop(),
    )


def _versions(policy: v2_pb2.ModelVersionPolicy, where: str) -> VersionPolicy:
    match policy.WhichOneof("policy_choice"):
        case "all":
            return VersionPolicy(latest=None)
        case "specific":
            if not policy.specific.versions:
                raise UsageError(f"{where}: version_policy.specific names no versions.")
            return VersionPolicy(specific=tuple(policy.specific.versions))
        case _:
            return VersionPolicy(latest=policy.latest.num_versions or 1)


def _device(group: v2_pb2.ModelInstanceGroup, where: str, device: Kind) -> Kind:
    if group.kind == v2_pb2.ModelInstanceGroup.KIND_GPU or group.gpus:
        if device == "cpu":
            raise UsageError(f"{where}: instance_group asks for a GPU, and this server runs on the CPU; use KIND_CPU.")
        if any(group.gpus):
            raise UsageError(f"{where}: instance_group asks for the GPUs {list(group.gpus)}; this server uses the first one, 0, alone.")
    return "cpu" if group.kind == v2_pb2.ModelInstanceGroup.KIND_CPU else device


def _count(group: v2_pb2.ModelInstanceGroup, where: str) -> int:
    count = group.count or 1
    if not 1 <= count <= _MOST_INSTANCES:
        raise UsageError(f"{where}: instance_group.count is {count}; it lies between 1 and {_MOST_INSTANCES}.")
    return count


def _tensor(one: _Kind, where: str, folder: pathlib.Path) -> TensorDefinition:
    if not one.name:
        raise UsageError(f"{where}: an input or output has no name.")
    name = v2_pb2.DataType.Name(one.data_type).removeprefix("TYPE_")
    if name == "INVALID":
        raise UsageError(f"{where}: data_type of '{one.name}' is missing.")
    if any(size < 1 and size != -1 for size in one.dims):
        raise UsageError(f"{where}: dims of '{one.name}' are {list(one.dims)}; each is above 0, or -1 for one that requests choose.")
    for field in ("optional", "allow_ragged_batch", "is_shape_tensor"):
        if getattr(one, field, False):
            raise UsageError(f"{where}: {field} of '{one.name}' is not served here; leave it out.")
    labels: tuple[str, ...] = ()
    label_filename = one.label_filename if isinstance(one, v2_pb2.ModelOutput) else ""
    if label_filename:
        if pathlib.PurePath(label_filename).name != label_filename:
            raise UsageError(f"{where}: label_filename '{label_filename}' has to be a name without folders.")
        try:
            labels = tuple((folder / label_filename).read_text(encoding="utf-8").splitlines())
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{where}: label_filename of '{one.name}' cannot be read: {error}") from None
    return TensorDefinition(
        one.name,
        Datatype.BYTES if name == "STRING" else Datatype(name),
        tuple(one.dims),
        tuple(one.reshape.shape) if one.HasField("reshape") else None,
        v2_pb2.ModelInput.Format.Name(one.format) if isinstance(one, v2_pb2.ModelInput) else "FORMAT_NONE",
        labels,
        label_filename,
    )


def _scheduling(config: v2_pb2.ModelConfig, where: str, instances: int) -> BatchingPolicy | SequencePolicy | None:
    if config.HasField("dynamic_batching"):
        if not config.max_batch_size:
            raise UsageError(f"{where}: dynamic_batching needs a max_batch_size above 0.")
        return _batching(config.dynamic_batching, where, config.max_batch_size, instances)
    if config.HasField("sequence_batching"):
        return _sequence(config.sequence_batching, where)
    return None


def _batching(batching: v2_pb2.ModelDynamicBatching, where: str, max_batch_size: int, instances: int) -> BatchingPolicy:
    if batching.preserve_ordering and instances > 1:
        raise UsageError(f"{where}: dynamic_batching.preserve_ordering is not kept to by several instances here; leave it out.")
    for size in batching.preferred_batch_size:
        if not 1 <= size <= max_batch_size:
            raise UsageError(f"{where}: dynamic_batching.preferred_batch_size {size} lies outside 1 to max_batch_size {max_batch_size}.")
    levels, default = batching.priority_levels, batching.default_priority_level
    if levels and not 1 <= default <= levels:
        raise UsageError(f"{where}: dynamic_batching.default_priority_level is {default}; it lies between 1 and priority_levels {levels}.")
    if levels > _MOST_INSTANCES:
        raise UsageError(f"{where}: dynamic_batching.priority_levels is {levels}; at most {_MOST_INSTANCES}.")
    return BatchingPolicy(
        tuple(batching.preferred_batch_size),
        batching.max_queue_delay_microseconds * _US,
        levels,
        default,
        _queue(batching.default_queue_policy),
        {level: _queue(policy) for level, policy in batching.priority_queue_policy.items()},
    )


def _queue(policy: v2_pb2.ModelQueuePolicy) -> QueuePolicy:
    return QueuePolicy(
        policy.max_queue_size,
        policy.default_timeout_microseconds * _US,
        policy.allow_timeout_override,
        delays=policy.timeout_action == v2_pb2.ModelQueuePolicy.DELAY,
    )


def _sequence(batching: v2_pb2.ModelSequenceBatching, where: str) -> SequencePolicy:
    direct, oldest = batching.direct, batching.oldest
    if direct.max_queue_delay_microseconds or direct.minimum_slot_utilization:
        raise UsageError(f"{where}: sequence_batching.direct goes without delay and minimum_slot_utilization here; leave both out.")
    controls = []
    for given in batching.control_input:
        if len(given.control) != 1:
            raise UsageError(f"{where}: the control_input '{given.name}' has {len(given.control)} controls, where 1 is expected.")
        controls.append(_control(given.name, given.control[0], where))
    idle_ns = (batching.max_sequence_idle_microseconds or _DEFAULT_IDLE_US) * _US
    if batching.HasField("oldest"):
        batches = BatchingPolicy(tuple(oldest.preferred_batch_size), oldest.max_queue_delay_microseconds * _US)
        return SequencePolicy(tuple(controls), idle_ns, batches, max(1, oldest.max_candidate_sequences))
    return SequencePolicy(tuple(controls), idle_ns)


def _control(name: str, control: v2_pb2.ModelSequenceBatching.Control, where: str) -> Control:
    kind = ControlKind(v2_pb2.ModelSequenceBatching.Control.Kind.Name(control.kind).removeprefix("CONTROL_SEQUENCE_"))
    if kind is ControlKind.CORRID:
        text = v2_pb2.DataType.Name(control.data_type).removeprefix("TYPE_")
        if text not in ("UINT64", "INT64", "UINT32", "INT32", "STRING"):
            raise UsageError(f"{where}: the control_input '{name}' has data_type TYPE_{text}, which is no type of an id.")
        return Control(name, kind, Datatype.BYTES if text == "STRING" else Datatype(text))
    given = [
        (datatype, tuple(values))
        for datatype, values in (
            (Datatype.INT32, control.int32_false_true),
            (Datatype.FP32, control.fp32_false_true),
            (Datatype.BOOL, control.bool_false_true),
        )
        if len(values)
    ]
    if len(given) != 1 or len(given[0][1]) != 2:
        raise UsageError(f"{where}: the control_input '{name}' needs two values, for false and for true, of one type.")
    datatype, (false, true) = given[0]
    return Control(name, kind, datatype, (false, true))
