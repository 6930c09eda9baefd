"""Models from a folder laid out as Triton's: `MODEL/VERSION/model.onnx`, with or without `MODEL/config.pbtxt`.

A file that is the only `.onnx` of its folder may have another name, and stand in MODEL itself, as version 1.
"""

import dataclasses
import pathlib
from collections.abc import Mapping

from perfkit.errors import UsageError
from perfkit.protocol.message import TensorMetadata
from perfkit.protocol.tensor import Datatype
from server_stub import model_config
from server_stub.definition import ModelDefinition, TensorDefinition
from server_stub.devices import Kind
from server_stub.executors.onnx import OnnxExecutor
from server_stub.model_config import FILENAME, WrittenConfig
from server_stub.sequences import SequencePolicy

_MOST_FOLDERS = 8  # in a path below the repository
_CONFIG, _LAYOUT = "config.pbtxt", "MODEL/VERSION/model.onnx, such as my_model/1/model.onnx"


def find_names(folder: pathlib.Path) -> tuple[str, ...]:
    """The models that are there: every folder with a version in it."""
    try:
        return tuple(sorted(one.name for one in folder.iterdir() if one.is_dir() and _versions(one)))
    except OSError as error:
        raise UsageError(f"--model-repository {folder}: it cannot be read: {error}") from None


def write(folder: pathlib.Path, name: str, files: Mapping[str, bytes]) -> None:
    """Puts files into a model's folder, by their paths in it; raises UsageError for one that would stand elsewhere."""
    for path, content in files.items():
        parts = path.split("/")
        if "/" in name or len(parts) > _MOST_FOLDERS or any(part in ("", ".", "..") or "\0" in part for part in (name, *parts)):
            raise UsageError(f"the file '{path}' of model '{name}' has no place in its folder; {_LAYOUT} has.")
        place = folder.joinpath(name, *parts)
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        except (OSError, UnicodeEncodeError) as error:
            text = error.strerror if isinstance(error, OSError) else "it is no text"
            raise UsageError(f"the file '{path}' of model '{name}' cannot be kept: {text}.") from None


def load(
    folder: pathlib.Path, name: str, threads: int, config: str | None = None, device: Kind = "cpu"
) -> list[tuple[ModelDefinition, str, OnnxExecutor]]:
    """The versions of a model that its policy names, ready to execute; `config` is JSON in place of its config.pbtxt.

    Without either, a batch is a dimension like others. Raises UsageError for a model that is not there, or is not as it says.
    """
    place = folder / name
    if config is not None:
        written = model_config.read_json(config, name, place, device)
    elif (place / _CONFIG).exists():
        written = model_config.read_text(place / _CONFIG, name, device)
    else:
        written = WrittenConfig(device=device)
    found = _versions(place)
    versions = written.versions.choose(found)
    if not versions:
        raise UsageError(f"{place}: no version is there that the version policy names; models are expected as {_LAYOUT}.")
    loaded = []
    for version in versions:
        file = _file(place / found[version], written.filename)
        executor = OnnxExecutor(file, threads, written.device)
        definition = _definition(name, written, file, executor)
        loaded.append((dataclasses.replace(definition, versions=tuple(map(str, versions))), str(version), executor))
    return loaded


def _file(place: pathlib.Path, filename: str) -> pathlib.Path:
    """The file of that name; where none is named and none is called as expected, the only model that is there."""
    file, others = place / filename, list(place.glob("*.onnx"))
    return others[0] if filename == FILENAME and not file.exists() and len(others) == 1 else file


def _versions(place: pathlib.Path) -> dict[int, str]:
    """The folders that are versions, by number; without any, the model's own folder is one where a model is in it."""
    names = [one.name for one in place.iterdir() if one.is_dir()] if place.is_dir() else []
    found = {
        int(name): name
        for name in names
        if name.isascii() and name.isdigit() and int(name) > 0 and len(name) < 19 and any((place / name).iterdir())
    }
    return found or ({1: "."} if any(place.glob("*.onnx")) else {})


def _definition(name: str, written: WrittenConfig, file: pathlib.Path, executor: OnnxExecutor) -> ModelDefinition:
    controls = written.scheduling.controls if isinstance(written.scheduling, SequencePolicy) else ()
    graph_inputs = {one.name: one for one in executor.inputs}
    for control in controls:
        if control.name not in graph_inputs:
            raise UsageError(f"{file} has no input '{control.name}', which its configuration has as a control_input.")
        if graph_inputs[control.name].datatype != control.datatype.value:
            raise UsageError(
                f"{file} has '{control.name}' as {graph_inputs[control.name].datatype}, its configuration as {control.datatype.value}."
            )
        del graph_inputs[control.name]
    inputs = _tensors(file, written.inputs, tuple(graph_inputs.values()), written.max_batch_size)
    outputs = _tensors(file, written.outputs, executor.outputs, written.max_batch_size)
    if len(inputs) != len(graph_inputs):
        missing = sorted(set(graph_inputs) - {one.name for one in inputs})
        raise UsageError(f"{file} has the input '{missing[0]}', which its configuration leaves out.")
    return ModelDefinition(
        name,
        "onnxruntime_onnx",
        "onnxruntime",
        written.max_batch_size,
        inputs,
        outputs,
        default_model_filename=file.name,
        instances=written.instances,
        scheduling=written.scheduling,
        version_policy=written.versions,
        device=written.device,
    )


def _tensors(
    file: pathlib.Path, written: tuple[TensorDefinition, ...], graph: tuple[TensorMetadata, ...], max_batch_size: int
) -> tuple[TensorDefinition, ...]:
    """What is written, held against the graph; or the graph's own, without the batch that its first dimension then is."""
    by_name = {one.name: one for one in graph}
    for one in graph:
        if max_batch_size and (not one.shape or one.shape[0] != -1):
            raise UsageError(
                f"{file} has '{one.name}' of shape {list(one.shape)}: with a max_batch_size above 0 the first size has to be open."
            )
    if not written:
        return tuple(TensorDefinition(one.name, Datatype(one.datatype), one.shape[1:] if max_batch_size else one.shape) for one in graph)
    for tensor in written:
        found = by_name.get(tensor.name)
        if found is None:
            raise UsageError(f"{file} has no '{tensor.name}', which its configuration names; it has {', '.join(by_name)}.")
        if found.datatype != tensor.datatype.value:
            raise UsageError(f"{file} has '{tensor.name}' as {found.datatype}, its configuration as {tensor.datatype.value}.")
        dims = tensor.dims if tensor.reshape is None else tensor.reshape
        expected = found.shape[1:] if max_batch_size else found.shape
        if len(dims) != len(expected) or any(size != given and -1 not in (size, given) for size, given in zip(expected, dims, strict=True)):
            raise UsageError(
                f"{file} has '{tensor.name}' of shape {list(found.shape)}, which does not fit its configuration's {list(dims)}."
            )
    return written
