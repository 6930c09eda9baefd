"""What a server says of itself and of its models before any load, and what it leaves out.

A call that fails for a reason that may pass is sent again.
"""

import contextlib
import dataclasses
import functools
import pathlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from perfkit.clock import Clock
from perfkit.errors import MeasurementWarning, MissingEndpointError, ModelMismatchError, PerfkitError, TargetError, nearest
from perfkit.measurement.metadata_form import in_v2_form
from perfkit.measurement.wrong_url import wrong_url_named
from perfkit.protocol.message import ComposingModel, IndexedModel, ModelConfig, ModelMetadata, ServerMetadata
from perfkit.scenario.credentials import resolve_address
from perfkit.scenario.file import LoadedScenario
from perfkit.scenario.target import Target
from perfkit.target.address import Address
from perfkit.target_client import Client, make_client
from perfkit.transport.options import TransportOptions
from perfkit.units import NS_PER_S
from perfkit.workload.requests import are_inputs_declared

_MAX_NAMES, _MAX_REASON_CHARACTERS = 20, 200
_NOT_READY = ("UNAVAILABLE", "LOADING", "UNLOADING", "UNKNOWN")


async def offered_instead(client: Client, model: str, version: str = "") -> str:
    """The end of the message about an unknown model: its state in the repository, its other versions, or the models offered instead.

    Models with a similar name come first. Empty if the server has no repository index.
    """
    try:
        index = await client.model_index()
    except TargetError:
        return ""
    ready = [one.version for one in index if one.name == model and one.version and one.state not in _NOT_READY]
    states = [one for one in index if one.name == model and version in ("", one.version) and one.state in _NOT_READY]
    if version and ready and not states and version not in ready:
        return f"; it offers version {listed(sorted(ready))} of this model, not {version}"
    if states:
        reason = states[0].reason[:_MAX_REASON_CHARACTERS]
        return f"; its repository has it as {states[0].state}{f': {reason}' if reason else ''}"
    names = nearest_first(model, ready_models(index))
    if model in names:
        return "; its repository has it"
    return f"; it offers {listed(names)}" if names else ""


def ready_models(index: Sequence[IndexedModel]) -> list[str]:
    """The names of the models with a version that is ready or whose state the server does not give."""
    return list(dict.fromkeys(one.name for one in index if one.state not in _NOT_READY))


def nearest_first(word: str, names: Sequence[str]) -> list[str]:
    """The names, those similar to the word first."""
    near = nearest(word, names, most=5)
    return [*near, *(name for name in names if name not in near)]


def listed(names: Sequence[str]) -> str:
    """The first names in words: `a, b and 3 more`."""
    more = len(names) - _MAX_NAMES
    return ", ".join(names[:_MAX_NAMES]) + (f" and {more:,} more" if more > 0 else "")


_T = TypeVar("_T")
_PAUSES_NS = (50_000_000, 150_000_000, 450_000_000)


class TrialRequests:
    """Makes calls, each again up to three times if it fails with an error that `may_pass`, and remembers the failures.

    Of a target that fails a share p of its requests, a call then fails with probability p⁴: at 3 %, once in a million runs. Made again
    are calls that failed because the connection was refused or lost, or with a status of `perfkit.transport.base.may_pass`; and an
    infer request also with 400 or INVALID_ARGUMENT, which MLServer and KServe answer for errors of the model, too. An answer of any
    other status, a wrong one, and a time-out are final.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failures: list[str] = []

    async def run(self, call: Callable[[], Awaitable[_T]]) -> _T:
        """The call's result; raises its last error, which names the number of attempts if there were several."""
        for pause_ns in _PAUSES_NS:
            try:
                return await call()
            except (TargetError, ModelMismatchError) as error:
                if not error.may_pass:
                    raise
                self.note(error)
            await self._clock.sleep_until_ns(self._clock.now_ns() + pause_ns)
        try:
            return await call()
        except (TargetError, ModelMismatchError) as error:
            if not error.may_pass:
                raise
            general = ModelMismatchError if isinstance(error, ModelMismatchError) else TargetError  # others are made of further values
            raise general(f"{error} (in each of {len(_PAUSES_NS) + 1} attempts)", may_pass=True) from None

    def note(self, failure: PerfkitError) -> None:
        """Remembers a failure after which the call was made again."""
        self._failures.append(str(failure))

    def warnings(self) -> tuple[MeasurementWarning, ...]:
        """The warning about the failures, if there were any."""
        if not self._failures:
            return ()
        texts = "; ".join(dict.fromkeys(self._failures))
        times = "once" if len(self._failures) == 1 else f"{len(self._failures)} times"
        message = f"Before the load, the target failed {times} and was asked again: {texts}."
        return (MeasurementWarning("probe_retried", message),)


_MAX_COMPOSING_MODELS = 50
_DECLARE = ". If it has the model but does not describe it, give the datatype and shape of each input in workload.inputs"


@dataclasses.dataclass(frozen=True, slots=True)
class TargetMetadata:
    """The server's and the model's metadata; empty where the server gives none."""

    server: ServerMetadata
    metadata: ModelMetadata
    config: ModelConfig
    composing_models: tuple[ComposingModel, ...]
    gap: MeasurementWarning | None
    """Why the requests are made from the scenario alone; None if the server describes the model."""
    note: str
    """What else the server does not say, in a sentence; empty if nothing."""
    answers_as: str
    """The model's name in the server's metadata, which may differ from the one that is asked; empty without any."""


async def read_target_metadata(client: Client, address: Address, loaded: LoadedScenario, trials: TrialRequests) -> TargetMetadata:
    """Reads the metadata, which may be missing if the scenario declares every input, and checks that the model is ready."""
    target = loaded.scenario.target
    model, version = target.model, target.version
    server, metadata, reason = ServerMetadata("", ""), ModelMetadata(model, (), "", (), ()), ""
    missing: list[str] = []
    absent: TargetError | None = None
    try:
        async with wrong_url_named(address):
            server = await trials.run(client.server_metadata)
    except MissingEndpointError as error:
        absent = error
        missing.append(f"its name and extensions ({error.what})")
    except TargetError as error:  # of a restricted endpoint
        if error.may_pass or not are_inputs_declared(loaded.scenario.workload):
            raise
        missing.append(f"its name and extensions ({error})")
    try:
        metadata = await trials.run(lambda: client.model_metadata(model, version))
    except TargetError as error:
        if error.may_pass or not are_inputs_declared(loaded.scenario.workload):
            offered = await offered_instead(client, model, version)
            may_have_it = isinstance(error, MissingEndpointError) and "it offers" not in offered
            why = str(absent or error).removesuffix(".")  # a server's reason may be a sentence
            raise TargetError(f"{why}{offered}{_DECLARE if may_have_it else ''}", may_pass=error.may_pass) from None
        reason = f" ({error})"
    config = ModelConfig()
    try:
        config = await _configuration(client, trials, ComposingModel(model, version))
    except MissingEndpointError as error:
        missing.append(
            f"the model's configuration ({error.what}), so that only batch size 1, or batches in the declared shapes, can be sent"
        )
    refusal = "" if reason else await _check_ready(client, address, target, trials, missing)
    gap = None
    if not metadata.inputs:
        message = f"The server does not describe the inputs of model '{model}'{reason}: the requests are made from the scenario alone."
        gap = MeasurementWarning("no_metadata", message)
    metadata, other_form = in_v2_form(metadata, config, loaded.scenario.workload)
    notes = (
        f"The server does not say: {'; '.join(missing)}." * bool(missing),
        f"The server is not ready ({refusal}), as while another model loads or is broken, but model '{model}' is, and is measured."
        * bool(refusal),
        other_form,
    )
    composing = await _composing_models(client, trials, config, target.composing_models)
    # requests name the model as the scenario does, whatever name the metadata has
    return TargetMetadata(
        server, dataclasses.replace(metadata, name=model), config, composing, gap, " ".join(filter(None, notes)), metadata.name
    )


async def _check_ready(client: Client, address: Address, target: Target, trials: TrialRequests, missing: list[str]) -> str:
    """Why the server is not ready although its model is; empty if it is, or cannot be asked.

    Raises TargetError if the model is not. What the server does not say is added to `missing`.
    """
    try:
        is_ready = await trials.run(lambda: client.is_ready(target.model, target.version))
    except MissingEndpointError as error:
        is_ready = True
        missing.append(f"whether the model is ready ({error.what}), which its first answer shows instead")
    refusal = ""
    with contextlib.suppress(TargetError):
        refusal = await client.server_refusal()
    if not is_ready:
        server_state = f"the server is not, either ({refusal})" if refusal else "the server is"
        raise TargetError(f"{address}: model '{target.model}' is not ready; {server_state}")
    return refusal


async def _configuration(client: Client, trials: TrialRequests, model: ComposingModel) -> ModelConfig:
    """The model's configuration; an empty one if the server gives it in no attempt, about which there is a warning then."""
    try:
        return await trials.run(lambda: client.model_config(model.name, model.version))
    except TargetError as error:
        if not error.may_pass:
            raise
        return ModelConfig()


async def _composing_models(client: Client, trials: TrialRequests, config: ModelConfig, given: Sequence[str]) -> tuple[ComposingModel, ...]:
    """The models of an ensemble's steps, and those that the scenario names; any of them may be an ensemble itself."""
    named = [ComposingModel(*text.rsplit(":", 1)) for text in given]
    for model in named:
        with contextlib.suppress(MissingEndpointError):
            if not await trials.run(functools.partial(client.is_ready, model.name, model.version)):
                version = f" in version {model.version}" if model.version else ""
                raise ModelMismatchError(
                    f"target.composing_models: the server has no ready model '{model.name}'{version}: correct the name"
                )
    found = dict.fromkeys((*config.composing_models, *named))
    unread = list(found)
    while unread and len(found) <= _MAX_COMPOSING_MODELS:
        model = unread.pop(0)
        try:
            steps = (await _configuration(client, trials, model)).composing_models
        except MissingEndpointError:
            continue
        unread += [step for step in steps if step not in found]
        found |= dict.fromkeys(steps)
    return tuple(found)[:_MAX_COMPOSING_MODELS]


_TIMEOUT_NS = 10 * NS_PER_S


@dataclasses.dataclass(frozen=True)
class ModelDescription:
    """A model's metadata and its configuration, which is empty if the server gives none."""

    server: ServerMetadata
    metadata: ModelMetadata
    config: ModelConfig


async def read_model_index(url: str, clock: Clock, api: Mapping[str, str] | None = None) -> tuple[IndexedModel, ...]:
    """Reads the repository index of the server at a URL, empty if it has none; raises TargetError and ScenarioError.

    `api` has the keys of the target that say which API it speaks.
    """
    address = resolve_address(Target.model_validate({"url": url, "model": "-", **(api or {})}), url, pathlib.Path())
    async with contextlib.aclosing(make_client(address, TransportOptions(timeout_ns=_TIMEOUT_NS), clock)) as client:
        with contextlib.suppress(MissingEndpointError):
            async with wrong_url_named(address):
                await client.server_metadata()
        return address.redacted(tuple(await client.model_index()))


async def describe_model(url: str, model: str, clock: Clock, api: Mapping[str, str] | None = None) -> ModelDescription:
    """Reads the description of a model on the server at a URL; `api` is that of `read_model_index`.

    Raises ScenarioError, and TargetError, which names the models offered if this one is unknown.
    """
    address = resolve_address(Target.model_validate({"url": url, "model": model, **(api or {})}), url, pathlib.Path())
    async with contextlib.aclosing(make_client(address, TransportOptions(timeout_ns=_TIMEOUT_NS), clock)) as client:
        server, config = ServerMetadata("", ""), ModelConfig()
        with contextlib.suppress(MissingEndpointError):
            async with wrong_url_named(address):
                server = await client.server_metadata()
        try:
            metadata = await client.model_metadata(model, "")
        except TargetError as error:
            refusal = str(error).removesuffix(".")  # a server's reason may be a sentence
            raise TargetError(address.sanitize(f"{refusal}{await offered_instead(client, model)}", 1000)) from None
        # a server may repeat the credentials that it was sent
        server = dataclasses.replace(server, name=address.sanitize(server.name), version=address.sanitize(server.version))
        with contextlib.suppress(MissingEndpointError):
            config = await client.model_config(model, "")
        return ModelDescription(server, address.redacted(in_v2_form(metadata, config)[0]), address.redacted(config))
