"""The models a server offers, found by name and version."""

import functools
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeAlias

from perfkit.errors import ErrorKind, ProtocolError
from server_stub.config import Options
from server_stub.definition import ModelDefinition
from server_stub.executors.base import Executor
from server_stub.model import ExecutedModel, Model
from server_stub.models import densenet, folder, identity, repeat, sequence, simple
from server_stub.synthetic.law import Law
from server_stub.synthetic.model import NAME as SYNTHETIC
from server_stub.synthetic.model import SyntheticModel

_INT64_DIGITS = 19
Loader: TypeAlias = Callable[[], Model]
_Arguments = ParamSpec("_Arguments")


def find_models(options: Options, threads: int) -> "Repository":
    """The models that the options name, not loaded yet; raises UsageError where a folder holds none of them."""
    loaders: dict[str, Loader]
    if options.model_repository is not None:
        files = folder.find_files(options.model_repository, options.models)
        loaders = {name: _executed(folder.load, name, file, threads) for name, file in files.items()}
    else:
        loaders = {name: _executed(simple.load, name) for name in simple.NAMES}
        loaders |= {name: _executed(identity.load, name) for name in identity.NAMES}
        loaders |= {name: _executed(sequence.load, name) for name in sequence.NAMES}
        loaders[repeat.NAME] = repeat.RepeatModel
        loaders[SYNTHETIC] = functools.partial(SyntheticModel, options.synthetic or Law())
        loaders[densenet.NAME] = _executed(densenet.load, threads, options.densenet)
        loaders[densenet.BATCH_NAME] = _executed(densenet.load_batched, threads)
    return Repository({name: loader for name, loader in loaders.items() if name in options.models or not options.models})


def _executed(load: Callable[_Arguments, tuple[ModelDefinition, Executor]], *args: _Arguments.args, **keys: _Arguments.kwargs) -> Loader:
    return lambda: ExecutedModel(*load(*args, **keys))


class Repository:
    """Models that are loaded one after the other; what is loaded can be used while others still are not."""

    def __init__(self, loaders: Mapping[str, Loader]) -> None:
        self._loaders = dict(loaders)
        self._models: dict[str, Model] = {}
        self._is_closed = False

    def load(self) -> None:
        """Loads every model, in a thread of its own if the fronts are open; raises UsageError where one cannot be loaded."""
        for name, loader in self._loaders.items():
            if self._is_closed:
                return
            self._models[name] = loader()

    @property
    def names(self) -> tuple[str, ...]:
        """The models' names."""
        return tuple(self._loaders)

    @property
    def is_ready(self) -> bool:
        """Whether every model is loaded."""
        return len(self._models) == len(self._loaders)

    @property
    def loaded(self) -> tuple[Model, ...]:
        """The models that can be used."""
        return tuple(self._models.values())

    def find(self, name: str, version: str = "") -> Model:
        """The model of that name and version; raises ProtocolError for one that is unknown or not loaded yet."""
        if name not in self._loaders:
            raise ProtocolError(f"Request for unknown model: '{name}' is not found", ErrorKind.NOT_FOUND)
        model = self._models.get(name)
        if model is None:
            raise ProtocolError(f"Request for unknown model: '{name}' version {version or 1} is not at ready state", ErrorKind.UNAVAILABLE)
        if version and not (version.isascii() and version.lstrip("-").isdigit() and len(version) < _INT64_DIGITS):
            raise ProtocolError(
                f"failed to get model version from specified version string '{version}' (details: stol), version should be an integral value > 0"
            )
        if version.startswith("-"):
            raise ProtocolError(f"invalid model version specified '{version}' , version should be an integral value > 0")
        if version and str(int(version)) != model.version:
            raise ProtocolError(f"Request for unknown model: '{name}' version {version} is not found", ErrorKind.NOT_FOUND)
        return model

    def is_model_ready(self, name: str, version: str = "") -> bool:
        """Whether a model is loaded; raises ProtocolError for an unknown one."""
        try:
            self.find(name, version)
        except ProtocolError as error:
            if error.kind is ErrorKind.UNAVAILABLE:
                return False
            raise
        return True

    def index(self, *, ready: bool = False) -> list[dict[str, str]]:
        """Every model with its version and state, or only those that are `ready`."""
        loading = [] if ready else [{"name": name, "state": "LOADING"} for name in self._loaders if name not in self._models]
        loaded = [{"name": name, "version": model.version, "state": "READY"} for name, model in tuple(self._models.items())]
        return [*loaded, *loading]

    def statistics(self, name: str = "", version: str = "") -> dict[str, Any]:
        """`model_stats` of one model, or of all where no name is given."""
        if not name:
            return {"model_stats": [model.statistics() for model in tuple(self._models.values())]}
        try:
            return {"model_stats": [self.find(name, version).statistics()]}
        except ProtocolError:
            if name in self._models:
                raise ProtocolError(f"requested model version is not available for model '{name}'") from None
            raise ProtocolError(f"requested model '{name}' is not available") from None

    def close(self) -> None:
        """Ends the models' threads, and loading after the model that is being loaded."""
        self._is_closed = True
        for model in tuple(self._models.values()):
            model.close()
