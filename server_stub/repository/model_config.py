"""Reads Triton's model configuration, as config.pbtxt or as JSON from a client."""

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import TypeVar

from google.protobuf import json_format, text_format

from perfkit.errors import UsageError
from perfkit.input_file import LARGEST_TEXT_BYTES, read_bounded
from perfkit.protocol import v2_pb2
from perfkit.protocol.tensor import Datatype
from server_stub.devices.device import Kind
from server_stub.inference.definition import LATEST, TensorDefinition, VersionPolicy
from server_stub.scheduling.batching import BatchingPolicy, QueuePolicy
from server_stub.scheduling.sequences import Control, ControlKind, SequencePolicy

_Kind = TypeVar("_Kind", v2_pb2.ModelInput, v2_pb2.ModelOutput)
FILENAME = "model.onnx"
_US = 1000  # nanoseconds
_IMAGE_DIMS = 3  # height, width and channels
_DEFAULT_IDLE_US = 1_000_000
_MAX_BATCH_SIZE, _MAX_INSTANCES, _MAX_PRIORITY_LEVELS = 2**20, 64, 64


@dataclasses.dataclass(frozen=True, slots=True)
class ParsedConfig:
    """The supported parts of a configuration. Empty `inputs` or `outputs` are taken from the model file."""

    max_batch_size: int = 0
    inputs: tuple[TensorDefinition, ...] = ()
    outputs: tuple[TensorDefinition, ...] = ()
    instances: int = 1
    scheduling: BatchingPolicy | SequencePolicy | None = None
    versions: VersionPolicy = LATEST
    filename: str = FILENAME
    device: Kind = "cpu"
    warmup: tuple[v2_pb2.ModelWarmup, ...] = ()
    where: str = ""
    """The file, or what else it was read from, for messages."""


def read_pbtxt(file: pathlib.Path, name: str, device: Kind = "cpu") -> ParsedConfig:
    """Read a config.pbtxt. Raises UsageError, with the file and the field, for anything invalid or unsupported."""
    try:
        config = text_format.Parse(read_bounded(file, LARGEST_TEXT_BYTES).decode(), v2_pb2.ModelConfig())
    except (text_format.ParseError, OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}. Fields that this server does not support are unknown to it.") from None
    return _parse(config, name, str(file), file.parent, device)


def read_json(text: str, name: str, folder: pathlib.Path, device: Kind = "cpu") -> ParsedConfig:
    """Read a client's configuration. Raises UsageError as `read_pbtxt` does."""
    try:
        config = json_format.Parse(text, v2_pb2.ModelConfig())
    except (json_format.ParseError, RecursionError) as error:
        raise UsageError(f"the given configuration of '{name}' cannot be read: {error}") from None
    return _parse(config, name, f"the given configuration of '{name}'", folder, device)


def _parse(config: v2_pb2.ModelConfig, name: str, where: str, folder: pathlib.Path, device: Kind) -> ParsedConfig:
    if config.name not in ("", name):
        raise UsageError(f"{where}: name is '{config.name}', but the model's folder is named '{name}'.")
    if config.platform not in ("", "onnxruntime_onnx") or config.backend not in ("", "onnxruntime"):
        raise UsageError(f"{where}: platform '{config.platform}' with backend '{config.backend}' is not supported; only onnxruntime is.")
    if config.model_transaction_policy.decoupled:
        raise UsageError(f"{where}: model_transaction_policy.decoupled is not supported for models from files; remove it.")
    if config.HasField("ensemble_scheduling"):
        raise UsageError(f"{where}: ensemble_scheduling is not supported; only models from files are.")
    if not 0 <= config.max_batch_size <= _MAX_BATCH_SIZE:
        raise UsageError(f"{where}: max_batch_size is {config.max_batch_size}; it must be between 0 and {_MAX_BATCH_SIZE}.")
    filename = config.default_model_filename or FILENAME
    if pathlib.PurePath(filename).name != filename:
        raise UsageError(f"{where}: default_model_filename '{filename}' must be a name without folders.")
    devices = {_device(group, where, device) for group in config.instance_group} or {device}
    if len(devices) > 1:
        raise UsageError(f"{where}: instance_group mixes CPU and GPU instances, which is not supported.")
    instances = sum(_count(group, where) for group in config.instance_group) or 1
    return ParsedConfig(
        config.max_batch_size,
        _tensors(config.input, where, folder),
        _tensors(config.output, where, folder),
        instances,
        _scheduling(config, where, instances),
        _versions(config.version_policy, where),
        filename,
        devices.pop(),
        tuple(config.model_warmup),
        where,
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
            raise UsageError(f"{where}: instance_group requires a GPU, but this server runs on the CPU; use KIND_CPU.")
        if any(group.gpus):
            raise UsageError(f"{where}: instance_group requires the GPUs {list(group.gpus)}; this server uses only GPU 0.")
    return "cpu" if group.kind == v2_pb2.ModelInstanceGroup.KIND_CPU else device


def _count(group: v2_pb2.ModelInstanceGroup, where: str) -> int:
    count = group.count or 1
    if not 1 <= count <= _MAX_INSTANCES:
        raise UsageError(f"{where}: instance_group.count is {count}; it must be between 1 and {_MAX_INSTANCES}.")
    return count


def _tensors(tensors: Sequence[_Kind], where: str, folder: pathlib.Path) -> tuple[TensorDefinition, ...]:
    definitions = tuple(_tensor(tensor, where, folder) for tensor in tensors)
    names = [one.name for one in definitions]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"{where}: '{twice[0]}' is configured twice.")
    return definitions


def _tensor(tensor: _Kind, where: str, folder: pathlib.Path) -> TensorDefinition:
    if not tensor.name:
        raise UsageError(f"{where}: an input or output has no name.")
    name = v2_pb2.DataType.Name(tensor.data_type).removeprefix("TYPE_")
    if name == "INVALID":
        raise UsageError(f"{where}: data_type of '{tensor.name}' is missing.")
    if any(size < 1 and size != -1 for size in tensor.dims):
        raise UsageError(f"{where}: dims of '{tensor.name}' are {list(tensor.dims)}; each must be above 0, or -1 for a variable size.")
    reshape = tuple(tensor.reshape.shape) if tensor.HasField("reshape") else None
    if reshape is not None and (any(size < 1 and size != -1 for size in reshape) or _elements(reshape) != _elements(tensor.dims)):
        raise UsageError(
            f"{where}: reshape of '{tensor.name}' is {list(reshape)}, which does not have the elements of its dims {list(tensor.dims)}, or not "
            "between the same variable sizes."
        )
    image = v2_pb2.ModelInput.Format.Name(tensor.format) if isinstance(tensor, v2_pb2.ModelInput) else "FORMAT_NONE"
    if image != "FORMAT_NONE" and len(tensor.dims) != _IMAGE_DIMS:
        raise UsageError(f"{where}: format of '{tensor.name}' is {image}, which needs {_IMAGE_DIMS} dims, found {list(tensor.dims)}.")
    for field in ("optional", "allow_ragged_batch", "is_shape_tensor"):
        if getattr(tensor, field, False):
            raise UsageError(f"{where}: {field} of '{tensor.name}' is not supported; remove it.")
    labels: tuple[str, ...] = ()
    label_filename = tensor.label_filename if isinstance(tensor, v2_pb2.ModelOutput) else ""
    if label_filename:
        if pathlib.PurePath(label_filename).name != label_filename:
            raise UsageError(f"{where}: label_filename '{label_filename}' must be a name without folders.")
        try:
            labels = tuple(read_bounded(folder / label_filename, LARGEST_TEXT_BYTES).decode().splitlines())
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"{where}: label_filename of '{tensor.name}' cannot be read: {error}") from None
    return TensorDefinition(
        tensor.name,
        Datatype.BYTES if name == "STRING" else Datatype(name),
        tuple(tensor.dims),
        reshape,
        image,
        labels,
        label_filename,
    )


def _elements(sizes: Sequence[int]) -> list[int]:
    """The number of elements before, between and after the variable sizes: a reshape keeps each, as Triton requires."""
    counts = [1]
    for size in sizes:
        counts = [*counts, 1] if size == -1 else [*counts[:-1], counts[-1] * size]
    return counts


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
        raise UsageError(f"{where}: dynamic_batching.preserve_ordering is not supported with several instances; remove it.")
    for size in batching.preferred_batch_size:
        if not 1 <= size <= max_batch_size:
            raise UsageError(f"{where}: dynamic_batching.preferred_batch_size {size} is not between 1 and max_batch_size {max_batch_size}.")
    levels, default = batching.priority_levels, batching.default_priority_level
    if levels and not 1 <= default <= levels:
        raise UsageError(
            f"{where}: dynamic_batching.default_priority_level is {default}; it must be between 1 and priority_levels {levels}."
        )
    if levels > _MAX_PRIORITY_LEVELS:
        raise UsageError(f"{where}: dynamic_batching.priority_levels is {levels}; the maximum is {_MAX_PRIORITY_LEVELS}.")
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
        raise UsageError(
            f"{where}: max_queue_delay_microseconds and minimum_slot_utilization of sequence_batching.direct are not supported; remove them."
        )
    controls = []
    for control_input in batching.control_input:
        if len(control_input.control) != 1:
            raise UsageError(f"{where}: the control_input '{control_input.name}' has {len(control_input.control)} controls, expected 1.")
        controls.append(_control(control_input.name, control_input.control[0], where))
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
            raise UsageError(f"{where}: the control_input '{name}' has data_type TYPE_{text}, which is not supported for ids.")
        return Control(name, kind, Datatype.BYTES if text == "STRING" else Datatype(text))
    datatypes = (Datatype.INT32, Datatype.FP32, Datatype.BOOL)
    values = {datatype: tuple(getattr(control, f"{datatype.value.lower()}_false_true")) for datatype in datatypes}
    given = [(datatype, pair) for datatype, pair in values.items() if pair]
    if len(given) != 1 or len(given[0][1]) != 2:
        raise UsageError(f"{where}: the control_input '{name}' needs two values of one type, for false and for true.")
    datatype, (false, true) = given[0]
    return Control(name, kind, datatype, (false, true))
