"""The models a server offers, found by name and version, loaded at its start and where allowed while it serves."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from perfkit.errors import ErrorKind, ProtocolError, UsageError
from server_stub.in_flight import MAX_QUEUE
from server_stub.log import Log
from server_stub.model import Model

_INT64_DIGITS = 19

Files: TypeAlias = Mapping[str, bytes]
NO_FILES: Files = {}


class Source(Protocol):
    """Where models come from."""

    def names(self) -> Sequence[str]:
        """Those that are there now."""
        ...

    def load(self, name: str, config: str | None = None, files: Files = NO_FILES) -> Sequence[Model]:
        """The versions of one; raises UsageError where it cannot be loaded.

        `config` takes the place of its own configuration, and `files`, by their paths in the model's folder, that of all its files.
        """
        ...


class Repository:
    """Models by name and version; what is loaded can be used while others still are not.

    `names` are loaded at the start. Where it `is_explicit`, others of the source can be loaded, and all be unloaded, later.
    """

    def __init__(
        self, source: Source, names: Sequence[str], *, is_explicit: bool = False, max_queue: int = MAX_QUEUE, log: Log | None = None
    ) -> None:
        self._max_queue, self._log = max_queue, log
        self._source, self._first, self._is_explicit = source, tuple(names), is_explicit
        self._models: dict[str, dict[int, Model]] = {}
        self._unloaded: dict[str, tuple[int, ...]] = {}
        self._is_closed = self._has_loaded = False
        self._changing = asyncio.Lock()

    def load(self) -> None:
        """Loads the first models, in a thread of its own if the fronts are open; raises UsageError where one cannot be loaded."""
        for name in self._first:
            if self._is_closed:
                return
            self._models[name] = self._by_version(self._source.load(name))
        self._has_loaded = True

    async def load_model(self, name: str, config: str | None = None, files: Files = NO_FILES) -> None:
        """Loads a model, or loads it anew: what it is answering is answered. Raises ProtocolError where that cannot be."""
        self._check_explicit()
        async with self._changing:
            if not files and name not in await asyncio.to_thread(self._source.names):
                raise ProtocolError(f"failed to load '{name}', failed to poll from model repository", ErrorKind.INTERNAL)
            try:
                models = self._by_version(await asyncio.to_thread(self._source.load, name, config, files))
            except UsageError as error:
                raise ProtocolError(f"load failed for model '{name}': {error}") from None
            before = self._models.pop(name, {})
            self._models[name] = models
            self._unloaded.pop(name, None)
            if self._log is not None:
                self._log.info("loaded", f"loaded {name}, version {', '.join(map(str, models))}", model=name, versions=list(models))
            await _let_go(before)

    async def unload_model(self, name: str) -> None:
        """Lets go a model when it has answered what it is answering; one that is not loaded is let go already."""
        self._check_explicit()
        async with self._changing:
            before = self._models.pop(name, {})
            if before:
                self._unloaded[name] = tuple(before)
            await _let_go(before)
            if before and self._log is not None:
                self._log.info("unloaded", f"unloaded {name}", model=name)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the models that are loaded, or will be at the start."""
        return tuple(dict.fromkeys([*(() if self._has_loaded else self._first), *self._models]))

    @property
    def is_ready(self) -> bool:
        """Whether every model of the start is loaded."""
        return self._has_loaded

    @property
    def loaded(self) -> tuple[Model, ...]:
        """The models that can be used, in all their versions."""
        return tuple(model for versions in tuple(self._models.values()) for model in versions.values())

    def find(self, name: str, version: str = "") -> Model:
        """The model of that name and version, the highest one where none is given; raises ProtocolError for one that is not there."""
        versions = self._models.get(name)
        if versions is None:
            if name in self._unloaded:
                raise ProtocolError(f"Request for unknown model: '{name}' has no available versions", ErrorKind.NOT_FOUND)
            if self._has_loaded or name not in self._first:
                raise ProtocolError(f"Request for unknown model: '{name}' is not found", ErrorKind.NOT_FOUND)
            raise ProtocolError(f"Request for unknown model: '{name}' version {version or 1} is not at ready state", ErrorKind.UNAVAILABLE)
        if not version:
            return versions[max(versions)]
        if not (version.isascii() and version.lstrip("-").isdigit() and len(version) < _INT64_DIGITS):
            raise ProtocolError(
                f"failed to get model version from specified version string '{version}' (details: stol), version should be an integral value > 0"
            )
        if version.startswith("-"):
            raise ProtocolError(f"invalid model version specified '{version}' , version should be an integral value > 0")
        model = versions.get(int(version))
        if model is None:
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
        """Every model with its versions and states, or only those that are `ready`."""
        index = [{"name": model.definition.name, "version": model.version, "state": "READY"} for model in self.loaded]
        if ready:
            return index
        index += [{"name": name, "state": "LOADING"} for name in self.names if name not in self._models]
        index += [
            {"name": name, "version": str(version), "state": "UNAVAILABLE", "reason": "unloaded"}
            for name, versions in self._unloaded.items()
            for version in versions
        ]
        if self._is_explicit:
            known = {one["name"] for one in index}
            index += [{"name": name} for name in self._source.names() if name not in known]
        return index

    def statistics(self, name: str = "", version: str = "") -> dict[str, Any]:
        """`model_stats` of a model's version, of all its versions, or of all models where no name is given."""
        if not name:
            return {"model_stats": [model.statistics() for model in self.loaded]}
        try:
            asked = self.find(name, version)
        except ProtocolError:
            if name in self._models:
                raise ProtocolError(f"requested model version is not available for model '{name}'") from None
            raise ProtocolError(f"requested model '{name}' is not available") from None
        models = [asked] if version else self._models[name].values()
        return {"model_stats": [model.statistics() for model in models]}

    def close(self) -> None:
        """Ends the models' threads, and loading after the model that is being loaded."""
        self._is_closed = True
        for model in self.loaded:
            model.close()

    def _by_version(self, models: Sequence[Model]) -> dict[int, Model]:
        for model in models:
            model.max_queue = self._max_queue
        return {int(model.version): model for model in models}

    def _check_explicit(self) -> None:
        if not self._is_explicit:
            raise ProtocolError("explicit model load / unload is not allowed if polling is enabled", ErrorKind.UNAVAILABLE)


class Loaders:
    """A source of models that are made by functions, each with one version."""

    def __init__(self, loaders: Mapping[str, Callable[[], Model]]) -> None:
        self._loaders = dict(loaders)

    def names(self) -> Sequence[str]:
        """See `Source.names`."""
        return tuple(self._loaders)

    def load(self, name: str, config: str | None = None, files: Files = NO_FILES) -> Sequence[Model]:
        """See `Source.load`."""
        if name not in self._loaders:
            raise UsageError(f"this server has built-in models alone, and '{name}' is none of them.")
        if config is not None or files:
            raise UsageError(f"'{name}' is built in: it takes no other configuration, and no files.")
        return (self._loaders[name](),)


async def _let_go(models: Mapping[int, Model]) -> None:
    for model in models.values():
        await model.drain()
        model.close()
