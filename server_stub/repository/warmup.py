"""The warm-up of a model, `model_warmup` in its configuration: requests that every instance executes before the model is ready.

As in Triton, a sample of batch size n is n requests of one row each, executed together, and batch size 0 leaves a sample out. Control inputs of
sequences are given like others.
"""

import math
import pathlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from perfkit.errors import ProtocolError, UsageError
from perfkit.protocol import v2_pb2
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype, Tensor, tensor_to_array
from server_stub.inference.conversion import check_request
from server_stub.inference.definition import ModelDefinition
from server_stub.inference.executed_model import WarmupSample
from server_stub.scheduling.sequences import SequencePolicy

FOLDER = "warmup"
"""The folder of data files, within that of the model."""
_STRING_LENGTH_BYTES = 4
_MAX_COUNT = 10_000


def read_samples(
    warmups: Iterable[v2_pb2.ModelWarmup], definition: ModelDefinition, folder: pathlib.Path, where: str
) -> tuple[WarmupSample, ...]:
    """The samples of a configuration. Raises UsageError, with the sample and the input, for what does not fit the model."""
    return tuple(
        _sample(warmup, definition, folder / FOLDER, f"{where}: model_warmup '{warmup.name}'") for warmup in warmups if warmup.batch_size
    )


def warmup_documents(warmups: Iterable[v2_pb2.ModelWarmup]) -> list[dict[str, Any]]:
    """The warm-up as it stands in a model configuration."""
    return [
        {
            "name": warmup.name,
            "batch_size": warmup.batch_size,
            "inputs": {
                name: {
                    "data_type": v2_pb2.DataType.Name(given.data_type),
                    "dims": list(given.dims),
                    **{kind: getattr(given, kind) for kind in [given.WhichOneof("input_data_type")] if kind is not None},
                }
                for name, given in warmup.inputs.items()
            },
            "count": warmup.count,
        }
        for warmup in warmups
    ]


def _sample(warmup: v2_pb2.ModelWarmup, definition: ModelDefinition, folder: pathlib.Path, where: str) -> WarmupSample:
    if warmup.batch_size > max(1, definition.max_batch_size):
        raise UsageError(f"{where}: batch_size is {warmup.batch_size}; the model accepts at most {max(1, definition.max_batch_size)}.")
    if warmup.count > _MAX_COUNT:
        raise UsageError(f"{where}: count is {warmup.count}; it must be at most {_MAX_COUNT}.")
    controls = {control.name for control in definition.scheduling.controls} if isinstance(definition.scheduling, SequencePolicy) else set()
    tensors, given_controls = [], dict[str, Any]()
    for name, given in warmup.inputs.items():
        is_control = name in controls
        tensor = _tensor(name, given, folder, f"{where}, input '{name}'", has_batch=definition.max_batch_size > 0 and not is_control)
        if is_control:
            array = tensor_to_array(tensor)
            given_controls[name] = array.reshape(1, *array.shape) if definition.max_batch_size else array
        else:
            tensors.append(tensor)
    request = InferRequest(definition.name, tuple(tensors))
    try:
        check_request(definition, request)
    except ProtocolError as error:
        raise UsageError(f"{where}: {str(error).removeprefix('[request id: <id_unknown>] ')}") from None
    return WarmupSample(warmup.name, (request,) * warmup.batch_size, given_controls, max(1, warmup.count), where)


def _tensor(name: str, given: "v2_pb2.ModelWarmup.Input", folder: pathlib.Path, where: str, *, has_batch: bool) -> Tensor:
    text = v2_pb2.DataType.Name(given.data_type).removeprefix("TYPE_")
    if text == "INVALID":
        raise UsageError(f"{where}: data_type is missing.")
    datatype = Datatype.BYTES if text == "STRING" else Datatype(text)
    if any(size < 0 for size in given.dims):
        raise UsageError(f"{where}: dims are {list(given.dims)}; a warm-up needs every size.")
    count = math.prod(given.dims)
    element_bytes = _STRING_LENGTH_BYTES if datatype.element_bytes is None else datatype.element_bytes
    match given.WhichOneof("input_data_type"):
        case "zero_data":
            raw = bytes(count * element_bytes)
        case "random_data":
            random = np.random.default_rng().bytes(count * element_bytes)
            raw = bytes(count * element_bytes) if datatype.element_bytes is None else random
        case "input_data_file":
            raw = _read(folder, given.input_data_file, where)
            if datatype.element_bytes is not None:
                if len(raw) < count * element_bytes:
                    raise UsageError(f"{where}: {given.input_data_file} has {len(raw)} bytes, and {count * element_bytes} are needed.")
                raw = raw[: count * element_bytes]
        case _:
            raise UsageError(f"{where}: the data is missing; use zero_data: true, random_data: true or input_data_file.")
    if datatype is Datatype.BOOL:  # other bytes are neither true nor false
        raw = bytes(value & 1 for value in raw)
    return Tensor(name, datatype, (*((1,) if has_batch else ()), *given.dims), raw)


def _read(folder: pathlib.Path, filename: str, where: str) -> bytes:
    if pathlib.PurePath(filename).name != filename:
        raise UsageError(f"{where}: input_data_file '{filename}' must be a name without folders.")
    try:
        return (folder / filename).read_bytes()
    except OSError as error:
        raise UsageError(f"{where}: input_data_file cannot be read: {error}") from None
