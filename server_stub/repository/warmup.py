"""The warm-up of a model, `model_warmup` in its configuration: requests that every instance executes before the model is ready.

As in Triton, a sample of batch size n is n requests of one row each, executed together, and batch size 0 leaves a sample out. Control inputs of
sequences are given like others.
"""

import dataclasses
import math
import pathlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from perfkit.errors import ProtocolError, UsageError
from perfkit.input_file import read_bounded
from perfkit.protocol import v2_pb2
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype, Tensor, check_size, tensor_to_array
from server_stub.inference.conversion import check_request
from server_stub.inference.definition import ModelDefinition, TensorDefinition
from server_stub.inference.executed_model import WarmupSample
from server_stub.scheduling.sequences import Control, SequencePolicy

FOLDER = "warmup"
"""The folder of data files, within that of the model."""
_STRING_LENGTH_BYTES = 4
_MAX_COUNT = 10_000
_MAX_INPUT_BYTES = 2**30
"""The largest size of one input in all requests of a sample. No request over HTTP may be larger by default."""


def read_samples(
    warmups: Iterable[v2_pb2.ModelWarmup], definition: ModelDefinition, folder: pathlib.Path, where: str
) -> tuple[WarmupSample, ...]:
    """The samples of a configuration. `folder` is the model's, and `where` names the configuration in messages.

    Raises UsageError, with the sample and the input, for what does not fit the model.
    """
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
        fix = "lower it, or raise max_batch_size" if definition.max_batch_size else "use 1, because the model has no batches"
        raise UsageError(f"{where}: batch_size is {warmup.batch_size}, and max_batch_size is {definition.max_batch_size}; {fix}.")
    if warmup.count > _MAX_COUNT:
        raise UsageError(f"{where}: count is {warmup.count}; it must be at most {_MAX_COUNT}.")
    inputs = {tensor.name: tensor for tensor in definition.inputs}
    policy = definition.scheduling
    controls = {control.name: control for control in policy.controls} if isinstance(policy, SequencePolicy) else {}
    missing = sorted((inputs.keys() | controls.keys()) - warmup.inputs.keys())
    if missing:
        raise UsageError(f"{where}: the input '{missing[0]}' is missing in inputs; add it.")
    tensors, given_controls = [], dict[str, Any]()
    for name, given in warmup.inputs.items():
        expected = inputs.get(name) or controls.get(name)
        if expected is None:
            raise UsageError(f"{where}: the model has no input '{name}'; remove it, or use a name of {', '.join([*inputs, *controls])}.")
        tensor = _tensor(given, expected, folder, f"{where}, input '{name}'", warmup.batch_size)
        if isinstance(expected, Control):
            array = tensor_to_array(tensor)
            given_controls[name] = array.reshape(1, *array.shape) if definition.max_batch_size else array
        else:
            tensors.append(dataclasses.replace(tensor, shape=(1, *tensor.shape)) if definition.max_batch_size else tensor)
    request = InferRequest(definition.name, tuple(tensors))
    try:
        check_request(definition, request)
    except ProtocolError as error:
        raise UsageError(f"{where}: {str(error).removeprefix('[request id: <id_unknown>] ')}") from None
    return WarmupSample((request,) * warmup.batch_size, given_controls, max(1, warmup.count), where)


def _tensor(
    given: "v2_pb2.ModelWarmup.Input", expected: TensorDefinition | Control, folder: pathlib.Path, where: str, batch_size: int
) -> Tensor:
    """The input of one request, without the batch dimension."""
    datatype, dims, kind = expected.datatype, tuple(given.dims), given.WhichOneof("input_data_type")
    name, needed = v2_pb2.DataType.Name(given.data_type), f"TYPE_{'STRING' if datatype is Datatype.BYTES else datatype.value}"
    if name != needed:
        actual = "missing" if name == "TYPE_INVALID" else name
        raise UsageError(f"{where}: data_type is {actual}, and the model has {needed}; use that.")
    if any(size < 0 for size in dims):
        raise UsageError(f"{where}: dims are {list(dims)}; a warm-up needs every size, so replace -1.")
    if isinstance(expected, TensorDefinition) and not _fits(dims, expected.dims):
        raise UsageError(f"{where}: dims are {list(dims)}, and the model has {list(expected.dims)}; use these, without the batch.")
    fixed_bytes = datatype.size_bytes(math.prod(dims))
    size_bytes = math.prod(dims) * _STRING_LENGTH_BYTES if fixed_bytes is None else fixed_bytes
    if size_bytes * batch_size > _MAX_INPUT_BYTES:
        raise UsageError(
            f"{where}: dims {list(dims)} with batch_size {batch_size} are {size_bytes * batch_size} bytes; at most {_MAX_INPUT_BYTES} are allowed."
        )
    match kind:
        case "input_data_file":
            raw = _read(folder, given.input_data_file, where)
            if fixed_bytes is not None:
                if len(raw) < size_bytes:
                    raise UsageError(
                        f"{where}: input_data_file {folder / given.input_data_file} has {len(raw)} bytes; dims {list(dims)} need {size_bytes}."
                    )
                raw = raw[:size_bytes]
        case "random_data" if datatype is Datatype.BOOL:  # other bytes are neither true nor false
            raw = np.random.default_rng().integers(0, 2, size_bytes, np.uint8).tobytes()
        case "random_data" if fixed_bytes is not None:
            raw = np.random.default_rng().bytes(size_bytes)
        case "zero_data" | "random_data":
            raw = bytes(size_bytes)
        case _:
            raise UsageError(f"{where}: the data is missing; use zero_data: true, random_data: true or input_data_file.")
    tensor = Tensor(expected.name, datatype, dims, raw)
    try:
        check_size(tensor)
    except ProtocolError as error:
        raise UsageError(f"{where}: input_data_file {folder / given.input_data_file}: {error}") from None
    return tensor


def _fits(dims: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    return len(dims) == len(expected) and all(size in (given, -1) for given, size in zip(dims, expected, strict=True))


_LARGEST_DATA_BYTES = 2**28


def _read(folder: pathlib.Path, filename: str, where: str) -> bytes:
    path = pathlib.PurePosixPath(filename)
    if path.is_absolute() or not path.parts or ".." in path.parts or "\0" in filename:
        raise UsageError(f"{where}: input_data_file '{filename}' must name a file in the model's folder {FOLDER}.")
    try:
        return read_bounded(folder / path, _LARGEST_DATA_BYTES)
    except OSError as error:
        raise UsageError(f"{where}: input_data_file cannot be read: {error}") from None
