"""Models from a folder laid out as `MODEL/VERSION/model.onnx`."""

import pathlib
from collections.abc import Collection

from perfkit.errors import UsageError
from perfkit.protocol.message import TensorMetadata
from perfkit.protocol.tensor import Datatype
from server_stub.definition import ModelDefinition, TensorDefinition
from server_stub.executors.onnx import OnnxExecutor

_FILENAME = "model.onnx"


def find_files(folder: pathlib.Path, names: Collection[str] = ()) -> dict[str, pathlib.Path]:
    """The file of each model, of its highest version as Triton has it by default; only those of `names`, if there are any.

    Raises UsageError where there are no models, or not one of those names.
    """
    versions: dict[str, list[pathlib.Path]] = {}
    for file in folder.glob(f"*/*/{_FILENAME}"):
        if file.parent.name.isascii() and file.parent.name.isdigit():
            versions.setdefault(file.parent.parent.name, []).append(file)
    found = {name: max(files, key=lambda file: int(file.parent.name)) for name, files in sorted(versions.items())}
    if not found:
        raise UsageError(
            f"--model-repository {folder}: it holds no model; they are expected as MODEL/VERSION/{_FILENAME}, such as my_model/1/{_FILENAME}."
        )
    for name in names:
        if name not in found:
            raise UsageError(f"--model {name}: {folder} holds no such model; choose from {', '.join(found)}.")
    return {name: file for name, file in found.items() if not names or name in names}


def load(name: str, file: pathlib.Path, threads: int) -> tuple[ModelDefinition, OnnxExecutor]:
    """A model, ready to execute; its definition is the graph's own, so a batch is a dimension like others."""
    executor = OnnxExecutor(file, threads)
    inputs, outputs = (tuple(_definition(one) for one in some) for some in (executor.inputs, executor.outputs))
    version = str(int(file.parent.name))
    return ModelDefinition(name, "onnxruntime_onnx", "onnxruntime", 0, inputs, outputs, (version,), _FILENAME), executor


def _definition(tensor: TensorMetadata) -> TensorDefinition:
    return TensorDefinition(tensor.name, Datatype(tensor.datatype), tensor.shape)
