"""Where the options say that models come from: the built-in ones, or a folder."""

import functools
import pathlib
from collections.abc import Callable, Sequence
from typing import ParamSpec

from perfkit.errors import UsageError
from server_stub.config import Options
from server_stub.definition import ModelDefinition
from server_stub.executors.base import Executor
from server_stub.log import Log
from server_stub.model import ExecutedModel, Model
from server_stub.models import densenet, folder, identity, repeat, sequence, simple
from server_stub.repository import Loaders, Repository
from server_stub.synthetic.law import Law
from server_stub.synthetic.model import NAME as SYNTHETIC
from server_stub.synthetic.model import SyntheticModel

_Arguments = ParamSpec("_Arguments")


def find_models(options: Options, threads: int, log: Log | None = None) -> Repository:
    """The models that the options name, not loaded yet; raises UsageError where a folder holds none of them."""
    if options.model_repository is not None:
        source = FolderSource(options.model_repository, threads)
        names = _chosen(source, options)
        return Repository(source, names, is_explicit=options.is_explicit, max_queue=options.limits.max_queue, log=log)
    loaders: dict[str, Callable[[], Model]] = {name: _executed(simple.load, name) for name in simple.NAMES}
    loaders |= {name: _executed(identity.load, name) for name in identity.NAMES}
    loaders |= {name: _executed(sequence.load, name) for name in sequence.NAMES}
    loaders[repeat.NAME] = repeat.RepeatModel
    loaders[SYNTHETIC] = functools.partial(SyntheticModel, options.synthetic or Law())
    loaders[densenet.NAME] = _executed(densenet.load, threads, options.densenet)
    loaders[densenet.BATCH_NAME] = _executed(densenet.load_batched, threads)
    first = [name for name in loaders if name in options.models or not (options.models or options.is_explicit)]
    return Repository(Loaders(loaders), first, is_explicit=options.is_explicit, max_queue=options.limits.max_queue, log=log)


class FolderSource:
    """A `server_stub.repository.Source` that looks into its folder whenever it is asked."""

    def __init__(self, path: pathlib.Path, threads: int) -> None:
        self.path, self._threads = path, threads

    def names(self) -> Sequence[str]:
        """See `Source.names`."""
        return folder.find_names(self.path)

    def load(self, name: str, config: str | None = None) -> Sequence[Model]:
        """See `Source.load`."""
        loaded = folder.load(self.path, name, self._threads, config)
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


def _executed(
    load: Callable[_Arguments, tuple[ModelDefinition, Executor]], *args: _Arguments.args, **keys: _Arguments.kwargs
) -> Callable[[], Model]:
    return lambda: ExecutedModel(*load(*args, **keys))
