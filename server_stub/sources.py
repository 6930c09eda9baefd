"""Where the options say that models come from: the built-in ones, or a folder."""

import functools
import pathlib
import tempfile
from collections.abc import Callable, Sequence

from perfkit.errors import UsageError
from server_stub.config import Options
from server_stub.definition import ModelDefinition
from server_stub.devices import Device, Kind
from server_stub.executors.array import ArrayNamespace, cupy_namespace
from server_stub.executors.base import Executor
from server_stub.log import Log
from server_stub.model import ExecutedModel, Model
from server_stub.models import densenet, folder, identity, repeat, sequence, simple
from server_stub.repository import NO_FILES, Files, Loaders, Repository
from server_stub.synthetic.law import Law
from server_stub.synthetic.model import NAME as SYNTHETIC
from server_stub.synthetic.model import SyntheticModel

_CPU = Device()
_LoadArrays = Callable[[str, ArrayNamespace | None], tuple[ModelDefinition, Executor]]


def find_models(options: Options, threads: int, log: Log | None = None, device: Device = _CPU) -> Repository:
    """The models that the options name, not loaded yet; raises UsageError where a folder holds none of them."""
    if options.model_repository is not None:
        source = FolderSource(options.model_repository, threads, device.kind)
        names = _chosen(source, options)
        return Repository(source, names, is_explicit=options.is_explicit, max_queue=options.limits.max_queue, log=log)
    namespace = functools.cache(lambda: _namespace(options, device, log))
    loaders: dict[str, Callable[[], Model]] = {}
    for module in (simple, identity, sequence):
        loaders |= {name: _over_arrays(module.load, name, namespace) for name in module.NAMES}
    loaders[repeat.NAME] = repeat.RepeatModel
    loaders[SYNTHETIC] = functools.partial(SyntheticModel, options.synthetic or Law())
    loaders[densenet.NAME] = _executed(functools.partial(densenet.load, threads, options.densenet, device.kind))
    loaders[densenet.BATCH_NAME] = _executed(functools.partial(densenet.load_batched, threads, device.kind))
    first = [name for name in loaders if name in options.models or not (options.models or options.is_explicit)]
    return Repository(Loaders(loaders), first, is_explicit=options.is_explicit, max_queue=options.limits.max_queue, log=log)


class FolderSource:
    """A `server_stub.repository.Source` that looks into its folder whenever it is asked."""

    def __init__(self, path: pathlib.Path, threads: int, device: Kind = "cpu") -> None:
        self.path, self._threads, self._device = path, threads, device

    def names(self) -> Sequence[str]:
        """See `Source.names`."""
        return folder.find_names(self.path)

    def load(self, name: str, config: str | None = None, files: Files = NO_FILES) -> Sequence[Model]:
        """See `Source.load`; what clients give stands in a folder of its own as long as it is being loaded."""
        if files:
            with tempfile.TemporaryDirectory(prefix="server_stub-") as place:
                folder.write(pathlib.Path(place), name, files)
                loaded = folder.load(pathlib.Path(place), name, self._threads, config, self._device)
        else:
            loaded = folder.load(self.path, name, self._threads, config, self._device)
        return [ExecutedModel(definition, executor, version) for definition, version, executor in loaded]


def _chosen(source: FolderSource, options: Options) -> Sequence[str]:
    found = source.names()
    if not found and not options.is_explicit:
        raise UsageError(
            f"--model-repository {source.path}: it holds no model; they are expected as MODEL/VERSION/model.onnx, such as my_model/1/model.onnx."
        )
    for name in options.models:
        if name not in found:
            raise UsageError(f"--model {name}: {source.path} holds no such model; choose from {', '.join(found)}.")
    return [name for name in found if name in options.models or not (options.models or options.is_explicit)]


def _executed(load: Callable[[], tuple[ModelDefinition, Executor]]) -> Callable[[], Model]:
    return lambda: ExecutedModel(*load())


def _over_arrays(load: _LoadArrays, name: str, namespace: Callable[[], ArrayNamespace | None]) -> Callable[[], Model]:
    return _executed(lambda: load(name, namespace()))


def _namespace(options: Options, device: Device, log: Log | None) -> ArrayNamespace | None:
    """Where the array models compute; `auto` leaves them to NumPy where CuPy is not there."""
    if device.kind == "cpu":
        return None
    try:
        return cupy_namespace()
    except UsageError as error:
        if options.device == "cuda":
            raise
        if log is not None:
            log.info("device", sentence=f"models over arrays stay on the CPU: {error}")
        return None
