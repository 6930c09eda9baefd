"""The source of the built-in models, and the choice between it and a folder."""

import functools
import importlib.util
from collections.abc import Callable, Mapping, Sequence

from perfkit.errors import UsageError
from perfkit.override import override
from server_stub.devices.device import Device
from server_stub.executors.array import ArrayNamespace, Executor, cupy_namespace
from server_stub.executors.onnx import OnnxRuntime
from server_stub.executors.onnx_options import resolve_onnx_options
from server_stub.inference.definition import ModelDefinition
from server_stub.inference.executed_model import ExecutedModel
from server_stub.inference.model import Model
from server_stub.log import Log
from server_stub.models import array_models, densenet, repeat
from server_stub.options import Options
from server_stub.repository.folder import FolderSource
from server_stub.repository.repository import NO_FILES, Files, Repository, Source
from server_stub.settings import Settings
from server_stub.synthetic import model as synthetic

_CPU = Device()
_ONNX_MODELS = (densenet.NAME, densenet.BATCH_NAME)


def open_runtime(options: Options, threads: int, device: Device = _CPU, log: Log | None = None) -> OnnxRuntime:
    """How ONNX files are loaded on a device. Raises UsageError for options that do not exist there."""
    driver = device.driver
    capability = (0, 0) if driver is None else driver.compute_capability()
    resolved = resolve_onnx_options(options.onnx, device.kind, device.reason, capability)
    return OnnxRuntime(threads, resolved, driver, functools.partial((log or Log(Settings())).warning, "execution"))


def open_repository(options: Options, threads: int, log: Log | None = None, device: Device = _CPU) -> Repository:
    """The repository that the options describe, not loaded yet. Raises UsageError if a folder lacks the models."""
    log = log or Log(Settings())
    runtime = open_runtime(options, threads, device, log)
    source = (
        _builtin_models(options, runtime, log, device)
        if options.model_repository is None
        else FolderSource(options.model_repository, runtime)
    )
    available = source.names()
    if isinstance(source, FolderSource):
        _check_folder(source, options, available)
    names = [name for name in available if name in options.models or not (options.models or options.is_explicit)]
    if isinstance(source, BuiltinModels) and not options.models and options.densenet is None and not _has_onnx():
        names = _without_onnx(names, log)
    return Repository(source, names, is_explicit=options.is_explicit, max_queue=options.limits.max_queue, log=log)


class BuiltinModels(Source):
    """A source of models made by functions, with one version each."""

    def __init__(self, loaders: Mapping[str, Callable[[], Model]]) -> None:
        self._loaders = dict(loaders)

    @override
    def names(self) -> Sequence[str]:
        return tuple(self._loaders)

    @override
    def load(self, name: str, config: str | None = None, files: Files = NO_FILES) -> Sequence[Model]:
        if name not in self._loaders:
            raise UsageError(f"this server has only built-in models, and '{name}' is not one of them.")
        if config is not None or files:
            raise UsageError(f"'{name}' is built in: it accepts neither a configuration nor files.")
        return (self._loaders[name](),)


def _builtin_models(options: Options, runtime: OnnxRuntime, log: Log, device: Device) -> BuiltinModels:
    namespace = functools.cache(lambda: _array_namespace(options, device, log))
    loaders: dict[str, Callable[[], Model]] = {name: _array_model(name, namespace) for name in array_models.NAMES}
    loaders[repeat.NAME] = repeat.RepeatModel
    loaders[synthetic.NAME] = functools.partial(synthetic.SyntheticModel, options.synthetic)
    loaders[densenet.NAME] = _executed(functools.partial(densenet.load, runtime, options.densenet))
    loaders[densenet.BATCH_NAME] = _executed(functools.partial(densenet.load_batched, runtime))
    return BuiltinModels(loaders)


def _has_onnx() -> bool:
    return all(importlib.util.find_spec(package) is not None for package in ("onnx", "onnxruntime"))


def _without_onnx(names: Sequence[str], log: Log) -> list[str]:
    """The models that can be served without ONNX; those that cannot are logged, unless none of them is to be served."""
    left_out = [name for name in names if name in _ONNX_MODELS]
    if left_out:
        message = f"not serving {' and '.join(left_out)}: they need pip install onnx onnxruntime"
        log.info("left_out", message=message, models=left_out)
    return [name for name in names if name not in left_out]


def _check_folder(source: FolderSource, options: Options, available: Sequence[str]) -> None:
    if not available and not options.is_explicit:
        raise UsageError(
            f"--model-repository {source.path}: it holds no models. They must be named MODEL/VERSION/model.onnx, such as my_model/1/model.onnx."
        )
    for name in options.models:
        if name not in available:
            raise UsageError(f"--model {name}: {source.path} holds no such model; choose from {', '.join(available)}.")


def _executed(load: Callable[[], tuple[ModelDefinition, Executor]]) -> Callable[[], Model]:
    return lambda: ExecutedModel(*load())


def _array_model(name: str, namespace: Callable[[], ArrayNamespace | None]) -> Callable[[], Model]:
    return _executed(lambda: array_models.load(name, namespace()))


def _array_namespace(options: Options, device: Device, log: Log) -> ArrayNamespace | None:
    """The array library: CuPy on a GPU, otherwise None for NumPy. With `--device auto`, CuPy may be missing."""
    if device.kind == "cpu":
        return None
    try:
        return cupy_namespace()
    except UsageError as error:
        if options.device == "cuda":
            raise
        log.info("device", message=f"array models run on the CPU: {error}")
        return None
