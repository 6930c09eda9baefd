"""The models a server offers, found by name and version."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from perfkit.errors import ErrorKind, ProtocolError
from server_stub.config import Options
from server_stub.model import Model
from server_stub.models import densenet, folder, simple


def load_models(options: Options, threads: int) -> "Repository":
    """Loads the models that the options name; raises UsageError where one cannot be loaded."""
    if options.model_repository is not None:
        files = folder.find_files(options.model_repository, options.models)
        return Repository([Model(*folder.load(name, file, threads)) for name, file in files.items()])
    loaders: Mapping[str, Callable[[], Model]] = {
        "simple": lambda: Model(simple.DEFINITION, simple.load()),
        densenet.NAME: lambda: Model(*densenet.load(threads, options.densenet)),
    }
    return Repository([loader() for name, loader in loaders.items() if name in options.models or not options.models])


class Repository:
    """The loaded models."""

    def __init__(self, models: Iterable[Model]) -> None:
        self._models = {model.definition.name: model for model in models}

    @property
    def names(self) -> tuple[str, ...]:
        """The models' names."""
        return tuple(self._models)

    def find(self, name: str, version: str = "") -> Model:
        """The model of that name and version; raises ProtocolError for an unknown one."""
        model = self._models.get(name)
        if model is None:
            raise ProtocolError(f"Request for unknown model: '{name}' is not found", ErrorKind.NOT_FOUND)
        if version and not (version.isascii() and version.isdigit()):
            raise ProtocolError(f"failed to get model version from specified version string '{version}': it is not a number")
        if version and str(int(version)) != model.version:
            raise ProtocolError(f"Request for unknown model: '{name}' version {version} is not found", ErrorKind.NOT_FOUND)
        return model

    def index(self) -> list[dict[str, str]]:
        """Every model with its version and state; what is here is ready."""
        return [{"name": name, "version": model.version, "state": "READY", "reason": ""} for name, model in self._models.items()]

    def statistics(self, name: str = "", version: str = "") -> dict[str, Any]:
        """`model_stats` of one model, or of all where no name is given."""
        if not name:
            return {"model_stats": [model.statistics() for model in self._models.values()]}
        try:
            return {"model_stats": [self.find(name, version).statistics()]}
        except ProtocolError:
            what = f"'{name}' version {version}" if version else f"'{name}'"
            raise ProtocolError(f"requested model {what} is not available") from None

    def close(self) -> None:
        """Ends the models' threads."""
        for model in self._models.values():
            model.close()
