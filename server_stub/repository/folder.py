"""Models from a folder in Triton's layout: `MODEL/VERSION/model.onnx`, optionally with `MODEL/config.pbtxt`.

The only `.onnx` file of a folder may have any name. Directly in MODEL, it is version 1.
"""

import contextlib
import dataclasses
import pathlib
import tempfile
from collections.abc import Sequence
from typing import NamedTuple

from perfkit.digits import whole_number
from perfkit.errors import UsageError
from perfkit.override import override
from perfkit.protocol.message import TensorMetadata
from perfkit.protocol.tensor import Datatype
from server_stub.executors.array import Executor
from server_stub.executors.onnx import OnnxExecutor, OnnxRuntime
from server_stub.executors.onnx_gpu import GpuExecutor
from server_stub.inference.definition import ModelDefinition, TensorDefinition
from server_stub.inference.executed_model import ExecutedModel, WarmupSample
from server_stub.inference.model import Model
from server_stub.repository import model_config
from server_stub.repository.model_config import FILENAME, ParsedConfig
from server_stub.repository.repository import NO_FILES, Files, Source
from server_stub.repository.warmup import read_samples, warmup_documents
from server_stub.scheduling.sequences import SequencePolicy

_MAX_PATH_PARTS = 8
_CONFIG, _LAYOUT = "config.pbtxt", "MODEL/VERSION/model.onnx, such as my_model/1/model.onnx"


class FolderSource(Source):
    """A `Source` of models in a folder, which is read anew on every call."""

    def __init__(self, path: pathlib.Path, runtime: OnnxRuntime) -> None:
        self.path, self._runtime = path, runtime

    @override
    def names(self) -> Sequence[str]:
        """Every folder with at least one version."""
        try:
            return tuple(sorted(entry.name for entry in self.path.iterdir() if entry.is_dir() and _find_versions(entry)))
        except OSError as error:
            raise UsageError(f"--model-repository {self.path}: it cannot be read: {error}") from None

    @override
    def load(self, name: str, config: str | None = None, files: Files = NO_FILES) -> Sequence[Model]:
        """A client's files are stored in a temporary folder while they are loaded."""
        if files:
            with tempfile.TemporaryDirectory(prefix="server_stub-") as folder:
                write_files(pathlib.Path(folder), name, files)
                loaded = load_versions(pathlib.Path(folder), name, self._runtime, config)
        else:
            loaded = load_versions(self.path, name, self._runtime, config)
        return _start(loaded)


def write_files(folder: pathlib.Path, name: str, files: Files) -> None:
    """Write files, by path, into a model's folder. Raises UsageError for a path that leads out of it."""
    for path, content in files.items():
        parts = path.split("/")
        if "/" in name or len(parts) > _MAX_PATH_PARTS or any(part in ("", ".", "..") or "\0" in part for part in (name, *parts)):
            raise UsageError(f"the path '{path}' of model '{name}' is not allowed; use {_LAYOUT}.")
        file = folder.joinpath(name, *parts)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        except (OSError, UnicodeEncodeError) as error:
            text = error.strerror if isinstance(error, OSError) else "the path is not valid text"
            raise UsageError(f"the file '{path}' of model '{name}' cannot be written: {text}.") from None


class LoadedVersion(NamedTuple):
    """A version of a model that no instance executes yet."""

    definition: ModelDefinition
    version: str
    executor: Executor
    warmup: tuple[WarmupSample, ...]


def load_versions(folder: pathlib.Path, name: str, runtime: OnnxRuntime, config: str | None = None) -> list[LoadedVersion]:
    """Load the versions of a model that its version policy selects. `config` is JSON that replaces its config.pbtxt.

    Without any configuration, the batch is a dimension like the others. Raises UsageError if the model is missing or
    contradicts its configuration.
    """
    model_folder, device = folder / name, runtime.device
    if config is not None:
        parsed = model_config.read_json(config, name, model_folder, device)
    elif (model_folder / _CONFIG).exists():
        parsed = model_config.read_pbtxt(model_folder / _CONFIG, name, device)
    else:
        parsed = ParsedConfig(device=device)
    available = _find_versions(model_folder)
    versions = parsed.versions.choose(available)
    if not versions:
        raise UsageError(f"{model_folder}: it has no version that the version policy selects; models must be named {_LAYOUT}.")
    loaded: list[LoadedVersion] = []
    with contextlib.ExitStack() as opened:  # closes what was loaded if something else cannot be
        for version in versions:
            file = _find_file(model_folder / available[version], parsed.filename)
            executor = runtime.on(parsed.device).load(file, max_batch=parsed.max_batch_size, instances=parsed.instances)
            opened.callback(executor.close)
            definition = _definition(name, parsed, file, executor)
            samples = read_samples(parsed.warmup, definition, model_folder, parsed.where)
            definition = dataclasses.replace(definition, versions=tuple(map(str, versions)), warmup=tuple(warmup_documents(parsed.warmup)))
            loaded.append(LoadedVersion(definition, str(version), executor, samples))
        opened.pop_all()
    return loaded


def _start(loaded: Sequence[LoadedVersion]) -> list[Model]:
    """Start the instances of all versions, which execute the warm-up. Raises UsageError, with everything closed, if that fails."""
    models: list[Model] = []
    with contextlib.ExitStack() as opened:
        for done, (definition, version, executor, warmup) in enumerate(loaded, 1):
            try:
                model = ExecutedModel(definition, executor, version, warmup)
            except BaseException:
                for later in loaded[done:]:
                    later.executor.close()
                raise
            opened.callback(model.close)
            models.append(model)
        opened.pop_all()
    return models


def _find_file(folder: pathlib.Path, filename: str) -> pathlib.Path:
    """The configured file. If that is the default one and missing, the only model of the folder."""
    file, others = folder / filename, list(folder.glob("*.onnx"))
    return others[0] if filename == FILENAME and not file.exists() and len(others) == 1 else file


def _find_versions(folder: pathlib.Path) -> dict[int, str]:
    """The version folders by number. Without any, a model in the folder itself is version 1."""
    names = [entry.name for entry in folder.iterdir() if entry.is_dir()] if folder.is_dir() else []
    versions = {int(name): name for name in names if whole_number(name) and any((folder / name).iterdir())}
    return versions or ({1: "."} if any(folder.glob("*.onnx")) else {})


def _definition(name: str, config: ParsedConfig, file: pathlib.Path, executor: OnnxExecutor | GpuExecutor) -> ModelDefinition:
    controls = config.scheduling.controls if isinstance(config.scheduling, SequencePolicy) else ()
    graph_inputs = {tensor.name: tensor for tensor in executor.inputs}
    for control in controls:
        if control.name not in graph_inputs:
            raise UsageError(f"{file} has no input '{control.name}', but its configuration names it as a control_input.")
        if graph_inputs[control.name].datatype != control.datatype.value:
            raise UsageError(
                f"{file} has '{control.name}' as {graph_inputs[control.name].datatype}, its configuration as {control.datatype.value}."
            )
        given = (-1, 1) if config.max_batch_size else (1,)
        shape = graph_inputs.pop(control.name).shape
        if len(shape) != len(given) or shape[-1] not in (-1, 1):
            raise UsageError(
                f"{file} has the control_input '{control.name}' of shape {list(shape)}; it gets values of shape {list(given)}."
            )
    inputs = _tensors(file, config.inputs, tuple(graph_inputs.values()), config.max_batch_size)
    outputs = _tensors(file, config.outputs, executor.outputs, config.max_batch_size)
    if len(inputs) != len(graph_inputs):
        missing = sorted(set(graph_inputs) - {tensor.name for tensor in inputs})
        raise UsageError(f"{file} has the input '{missing[0]}', which is missing in its configuration.")
    return ModelDefinition(
        name, "onnxruntime_onnx", "onnxruntime", config.max_batch_size, inputs, outputs, default_model_filename=file.name,
        instances=config.instances, scheduling=config.scheduling, version_policy=config.versions, device=config.device,
    )  # fmt: skip


def _tensors(
    file: pathlib.Path, configured: tuple[TensorDefinition, ...], graph: tuple[TensorMetadata, ...], max_batch_size: int
) -> tuple[TensorDefinition, ...]:
    """The configured tensors, checked against the graph. Without any, the graph's own, minus the batch dimension if there is one."""
    by_name = {tensor.name: tensor for tensor in graph}
    for tensor in graph:
        if max_batch_size and (not tensor.shape or tensor.shape[0] != -1):
            raise UsageError(
                f"{file} has '{tensor.name}' of shape {list(tensor.shape)}: with a max_batch_size above 0, the first size must be variable."
            )
    if not configured:
        return tuple(
            TensorDefinition(tensor.name, Datatype(tensor.datatype), tensor.shape[1:] if max_batch_size else tensor.shape)
            for tensor in graph
        )
    for definition in configured:
        actual = by_name.get(definition.name)
        if actual is None:
            raise UsageError(f"{file} has no '{definition.name}', which its configuration names; it has {', '.join(by_name)}.")
        if actual.datatype != definition.datatype.value:
            raise UsageError(f"{file} has '{definition.name}' as {actual.datatype}, its configuration as {definition.datatype.value}.")
        dims = definition.dims if definition.reshape is None else definition.reshape
        expected = actual.shape[1:] if max_batch_size else actual.shape
        if len(dims) != len(expected) or any(size != given and -1 not in (size, given) for size, given in zip(expected, dims, strict=True)):
            raise UsageError(
                f"{file} has '{definition.name}' of shape {list(actual.shape)}, which does not match its configuration's {list(dims)}."
            )
    return configured
