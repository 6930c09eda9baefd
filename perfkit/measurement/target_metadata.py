"""What a target says of itself and of its model before any load, and what it leaves out."""

import contextlib
import dataclasses
import functools
from collections.abc import Sequence

from perfkit.errors import MeasurementWarning, MissingEndpointError, ModelMismatchError, TargetError
from perfkit.measurement.offered_models import offered_instead
from perfkit.measurement.trial_requests import TrialRequests
from perfkit.protocol.message import ComposingModel, ModelConfig, ModelMetadata, ServerMetadata
from perfkit.scenario.file import LoadedScenario
from perfkit.target.address import Address
from perfkit.target_client import Client
from perfkit.transport.other_protocol import other_protocol_named
from perfkit.workload.requests import are_inputs_declared

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


async def read_target_metadata(client: Client, address: Address, loaded: LoadedScenario, trials: TrialRequests) -> TargetMetadata:
    """Reads the metadata, which may be missing if the scenario declares every input, and checks that the model is ready."""
    target = loaded.scenario.target
    model, version = target.model, target.version
    server, metadata, reason = ServerMetadata("", ""), ModelMetadata(model, (), "", (), ()), ""
    missing: list[str] = []
    absent: TargetError | None = None
    try:
        async with other_protocol_named(address):
            server = await trials.run(client.server_metadata)
    except MissingEndpointError as error:
        absent = error
        missing.append(f"its name and extensions ({error.what})")
    except TargetError as error:  # of a restricted endpoint
        if error.may_pass or not are_inputs_declared(loaded.scenario.workload):
            raise
        missing.append(f"its name and extensions ({error})")
    try:
        # requests name the model as the scenario does, whatever name the metadata has
        metadata = dataclasses.replace(await trials.run(lambda: client.model_metadata(model, version)), name=model)
    except TargetError as error:
        if error.may_pass or not are_inputs_declared(loaded.scenario.workload):
            offered = await offered_instead(client, model, version)
            may_have_it = isinstance(error, MissingEndpointError) and "it offers" not in offered
            refusal = str(absent or error).removesuffix(".")  # a server's reason may be a sentence
            raise TargetError(f"{refusal}{offered}{_DECLARE if may_have_it else ''}", may_pass=error.may_pass) from None
        reason = f" ({error})"
    config = ModelConfig()
    try:
        config = await _configuration(client, trials, ComposingModel(model, version))
    except MissingEndpointError as error:
        missing.append(
            f"the model's configuration ({error.what}), so that only batch size 1, or batches in the declared shapes, can be sent"
        )
    try:
        if not reason and not await trials.run(lambda: client.is_ready(model, version)):
            raise TargetError(f"{address}: the server, or its model '{model}', is not ready")
    except MissingEndpointError as error:
        missing.append(f"whether the model is ready ({error.what}), which its first answer shows instead")
    gap = None
    if not metadata.inputs:
        message = f"The server does not describe the inputs of model '{model}'{reason}: the requests are made from the scenario alone."
        gap = MeasurementWarning("no_metadata", message)
    note = f"The server does not say: {'; '.join(missing)}." if missing else ""
    return TargetMetadata(server, metadata, config, await _composing_models(client, trials, config, target.composing_models), gap, note)


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
