"""The configurations of models on a running server: read, replaced and put back over HTTP."""

import contextlib
import dataclasses
import json
import pathlib
from collections.abc import Collection, Iterable, Mapping
from contextlib import AbstractAsyncContextManager

from perfkit.clock import Clock
from perfkit.errors import MissingEndpointError, PerfkitError, TargetError, UsageError
from perfkit.gate.tune.space import is_same_config, step_models
from perfkit.measurement.connections import transport_options
from perfkit.scenario.credentials import resolve_address
from perfkit.scenario.file import LoadedScenario
from perfkit.target.address import Address
from perfkit.target.changed_model import ChangedModels
from perfkit.target_client import Client, make_client
from perfkit.units import NS_PER_S

LOADS_WITHIN_NS = 300 * NS_PER_S
_POLL_NS = NS_PER_S // 50
_START = "start Triton with --model-control-mode=explicit --load-model={model}, or have perfkit start the server for each configuration: cmd:COMMAND"


class ModelControl:
    """The configuration of a model of a running server, and of an ensemble's members: read, replaced and put back."""

    def __init__(self, loaded: LoadedScenario, url: str, clock: Clock) -> None:
        target = loaded.scenario.target
        self.address: Address = resolve_address(target, url, loaded.folder)
        self.model, self._version, self._clock = target.model, target.version, clock
        self.has_loaded = False
        """Whether the server has loaded a model with another configuration since."""
        self._options = dataclasses.replace(transport_options(loaded.scenario, self.address.protocol), timeout_ns=LOADS_WITHIN_NS)
        others = [given for urls in target.urls_by_protocol.values() for given in urls if given != url]
        self._addresses = (self.address, *(resolve_address(target, other, loaded.folder) for other in others))
        if self.address.protocol != "http":
            raise UsageError(f"{self.address}: a model's configuration is read and changed over HTTP: give the server's http:// URL")

    async def read(self) -> dict[str, str]:
        """The present configurations by model, byte for byte: the model's own, and after an ensemble's those of its members.

        Raises TargetError; UsageError where the server has none.
        """
        found: dict[str, str] = {}
        async with self._connected() as client:
            left = [self.model]
            while left:
                model = left.pop(0)
                try:
                    found[model] = await client.model_config_text(model, self._version if model == self.model else "")
                except MissingEndpointError as error:
                    raise UsageError(
                        f"{error}; only a server with the model configuration extension, such as Triton, can be tuned at a URL: give cmd:COMMAND"
                    ) from None
                try:
                    left += [step for step in step_models(json.loads(found[model])) if step not in found and step not in left]
                except (AttributeError, KeyError, TypeError, RecursionError):
                    raise TargetError(f"{self.address}: the configuration of model '{model}' has another form than Triton's") from None
        return found

    async def load(self, configs: Mapping[str, str]) -> str:
        """Loads models with configurations, and waits until all are ready; the server's words if it refuses one."""
        async with self._connected() as client:
            for model, config in configs.items():
                if refusal := await client.load_model(model, config):
                    return refusal if len(configs) == 1 else f"{model}: {refusal}"
                self.has_loaded = True
            if refusal := await self._with_members(client, configs):
                return refusal
            deadline_ns = self._clock.now_ns() + LOADS_WITHIN_NS
            for model in dict.fromkeys([*configs, self.model]):  # an ensemble is updated with its members
                while not await client.is_ready(model, self._version if model == self.model else ""):
                    if self._clock.now_ns() > deadline_ns:
                        return f"the model '{model}' was loaded, but did not become ready"
                    await self._clock.sleep_until_ns(self._clock.now_ns() + _POLL_NS)
            return ""

    async def _with_members(self, client: Client, members: Collection[str]) -> str:
        """Loads an ensemble again that its members' last configurations did not fit, so that the server unloaded it; the words if it refuses."""
        if self.model in members or await client.is_ready(self.model, self._version):
            return ""
        refusal = await client.load_model(self.model)
        return f"{self.model}: {refusal}" if refusal else ""

    async def restore(self, present: Mapping[str, str]) -> str:
        """Puts configurations back: those of the repository if they are the same, otherwise as they were read. What is wrong if it cannot."""
        problems = []
        try:
            async with self._connected() as client:
                for model, config in present.items():
                    if problem := await self._restore_one(client, model, config):
                        problems.append(problem if len(present) == 1 else f"{model}: {problem}")
                if problem := await self._with_members(client, present):
                    problems.append(problem)
        except PerfkitError as error:
            problems.append(str(error))
        return "; ".join(problems)

    async def _restore_one(self, client: Client, model: str, present: str) -> str:
        version = self._version if model == self.model else ""
        refusal = await client.load_model(model)
        if not refusal and is_same_config(await client.model_config_text(model, version), present):
            return ""
        if refusal := await client.load_model(model, present):
            return refusal
        found = await client.model_config_text(model, version)
        return "" if is_same_config(found, present) else "the server's configuration is still another one"

    def marks(self, models: Iterable[str], folder: pathlib.Path) -> ChangedModels:
        """The marks of models that are about to be changed, and of the ensemble that runs them, at each of the server's addresses."""
        return ChangedModels(self._addresses, tuple(dict.fromkeys([self.model, *models])), folder)

    def refused(self, words: str) -> UsageError:
        """The error where the server does not load its own configuration."""
        return UsageError(
            f"{self.address}: the server does not load model '{self.model}' again: {words}: {_START.format(model=self.model)}"
        )

    def _connected(self) -> AbstractAsyncContextManager[Client]:
        return contextlib.aclosing(make_client(self.address, self._options, self._clock))


def models_text(models: Iterable[str]) -> str:
    """The names of models, for a sentence."""
    names = [f"'{model}'" for model in models]
    return f"model{'s' * (len(names) > 1)} {', '.join(names)}"
