"""The models that the server offers, by name and version, and their loading and unloading."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from perfkit.errors import ErrorKind, ProtocolError, UsageError
from server_stub.inference.model import Model
from server_stub.log import Log
from server_stub.options import Limits
from server_stub.settings import Settings

_INT64_DIGITS = 19

Files: TypeAlias = Mapping[str, bytes]
NO_FILES: Files = {}


class Source(Protocol):
    """A source that models are loaded from."""

    def names(self) -> Sequence[str]:
        """The models available now."""

    def load(self, name: str, config: str | None = None, files: Files = NO_FILES) -> Sequence[Model]:
        """Load all versions of a model. Raises UsageError if that fails.

        `config` replaces its configuration. `files`, by path in the model's folder, replace all its files.
        """


class Repository:
    """Models by name and version. Loaded models can be used while others are still loading.

    `names` are loaded at the start. If `is_explicit`, clients can load and unload models of the source.
    """

    def __init__(
        self,
        source: Source,
        names: Sequence[str],
        *,
        is_explicit: bool = False,
        max_queue: int = Limits().max_queue,
        log: Log | None = None,
    ) -> None:
        self._max_queue, self._log = max_queue, log or Log(Settings())
        self._source, self._initial, self._is_explicit = source, tuple(names), is_explicit
        self._models: dict[str, dict[int, Model]] = {}
        self._unloaded: dict[str, tuple[int, ...]] = {}
        self._is_closed = self._has_loaded = False
        self._changing = asyncio.Lock()

    def load(self) -> None:
        """Load the initial models. Safe to call in a thread while requests are served. Raises UsageError if one cannot be loaded."""
        for name in self._initial:
            if self._is_closed:
                return
            self._models[name] = self._by_version(self._source.load(name))
        self._has_loaded = True

    async def load_model(self, name: str, config: str | None = None, files: Files = NO_FILES) -> None:
        """Load or reload a model. Requests to the previous one are answered first. Raises ProtocolError if loading fails."""
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
            self._log.info("loaded", f"loaded {name}, version {', '.join(map(str, models))}", model=name, versions=list(models))
            await _drain_and_close(before)

    async def unload_model(self, name: str) -> None:
        """Unload a model after its requests are answered. Does nothing if it is not loaded."""
        self._check_explicit()
        async with self._changing:
            before = self._models.pop(name, {})
            if before:
                self._unloaded[name] = tuple(before)
            await _drain_and_close(before)
            if before:
                self._log.info("unloaded", f"unloaded {name}", model=name)

    @property
    def names(self) -> tuple[str, ...]:
        """The models that are loaded, or being loaded at the start."""
        return tuple(dict.fromkeys([*(() if self._has_loaded else self._initial), *self._models]))

    @property
    def is_ready(self) -> bool:
        """Whether all initial models are loaded."""
        return self._has_loaded

    @property
    def loaded(self) -> tuple[Model, ...]:
        """All versions of all loaded models."""
        return tuple(model for versions in tuple(self._models.values()) for model in versions.values())

    @property
    def executions(self) -> dict[str, Any]:
        """The key `models` of the ready line: how each model is executed, by name. Empty if no executor reports it."""
        chosen = {model.definition.name: model.execution for model in self.loaded if model.execution is not None}
        return {"models": chosen} if chosen else {}

    def find(self, name: str, version: str = "") -> Model:
        """The model of a name and version, or its highest version if none is given. Raises ProtocolError if there is none."""
        versions = self._models.get(name)
        if versions is None:
            if name in self._unloaded:
                raise ProtocolError(f"Request for unknown model: '{name}' has no available versions", ErrorKind.NOT_FOUND)
            if self._has_loaded or name not in self._initial:
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
        """Whether a model is loaded, of those that the index names. Raises ProtocolError if it is unknown."""
        try:
            self.find(name, version)
        except ProtocolError as error:
            is_in_index = name in self._unloaded or (self._is_explicit and name not in self._models and name in self._source.names())
            if error.kind is ErrorKind.UNAVAILABLE or is_in_index:
                return False
            raise
        return True

    def index(self, *, ready: bool = False) -> list[dict[str, str]]:
        """All models with their versions and states, or only the `ready` ones."""
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
            known = {entry["name"] for entry in index}
            index += [{"name": name} for name in self._source.names() if name not in known]
        return index

    def statistics(self, name: str = "", version: str = "") -> dict[str, Any]:
        """`model_stats` of one version of a model, of all its versions, or without a name of all models."""
        if not name:
            return {"model_stats": [model.statistics() for model in self.loaded]}
        try:
            model = self.find(name, version)
        except ProtocolError:
            if name in self._models:
                raise ProtocolError(f"requested model version is not available for model '{name}'") from None
            raise ProtocolError(f"requested model '{name}' is not available") from None
        models = [model] if version else self._models[name].values()
        return {"model_stats": [model.statistics() for model in models]}

    def close(self) -> None:
        """Close all models, and stop loading after the current one."""
        self._is_closed = True
        for model in self.loaded:
            model.close()

    def _by_version(self, models: Sequence[Model]) -> dict[int, Model]:
        for model in models:
            model.in_flight.maximum = self._max_queue
        return {int(model.version): model for model in models}

    def _check_explicit(self) -> None:
        if not self._is_explicit:
            raise ProtocolError("explicit model load / unload is not allowed if polling is enabled", ErrorKind.UNAVAILABLE)


async def _drain_and_close(models: Mapping[int, Model]) -> None:
    for model in models.values():
        await model.drain()
        model.close()
