"""What a perf_analyzer command asks of the server before the load: what its model is, and changes of the trace's settings."""

import contextlib
import dataclasses
from collections.abc import AsyncIterator

from perfkit.clock import Clock
from perfkit.errors import MissingEndpointError, TargetError, UsageError
from perfkit.measurement.connections import connect
from perfkit.measurement.wrong_url import wrong_url_named
from perfkit.perf_analyzer.options import Options, TraceOptions
from perfkit.protocol.message import ModelConfig
from perfkit.scenario.credentials import resolve_replicas
from perfkit.scenario.file import LoadedScenario
from perfkit.target_client import Client


def trace_settings(options: TraceOptions) -> dict[str, tuple[str, ...]]:
    """The settings that were given, by the names of Triton's trace extension."""
    values = {
        "trace_level": options.level,
        "trace_rate": options.rate,
        "trace_count": options.count,
        "log_frequency": options.log_frequency,
    }
    return {name: (str(value),) for name, value in values.items() if value is not None}


async def change_trace_settings(loaded: LoadedScenario, options: TraceOptions, clock: Clock) -> None:
    """Changes the settings of the scenario's server. Raises TargetError if it refuses, ScenarioError for TLS files that are missing."""
    async with _connected(loaded, clock) as client:
        if refusal := await client.change_trace_settings(trace_settings(options)):
            raise TargetError(f"unable to update trace settings: {refusal}")


@dataclasses.dataclass(frozen=True, slots=True)
class ModelTraits:
    """What the server says of a model; False if it does not say."""

    has_sequences: bool = False
    """Whether it, or a step of its ensemble, takes sequences."""
    is_decoupled: bool = False
    """Whether a request may have none or many responses."""


def known_options(options: Options, traits: ModelTraits) -> Options:
    """The options once the model is known: sequences and streams are called asynchronously. Raises UsageError as perf_analyzer does."""
    is_async = options.is_async or options.is_streaming or (traits.has_sequences and not options.is_sync)
    if traits.has_sequences and is_async and options.load_mode == "concurrency" and options.load_range.end == 0:
        raise UsageError("The 'end' concurrency can not be 0 for sequence models when using asynchronous API.")
    return dataclasses.replace(options, is_async=is_async, sequences=dataclasses.replace(options.sequences, is_given=traits.has_sequences))


async def model_traits(loaded: LoadedScenario, clock: Clock) -> ModelTraits:
    """Asks for the traits of the scenario's model. Raises TargetError."""
    target = loaded.scenario.target
    async with _connected(loaded, clock) as client:
        config = await _configuration(client, target.model, target.version)
        steps = [await _configuration(client, step.name, step.version) for step in config.composing_models]
    return ModelTraits(any(one.has_sequences for one in (config, *steps)), config.is_decoupled)


async def _configuration(client: Client, model: str, version: str) -> ModelConfig:
    try:
        return await client.model_config(model, version)
    except MissingEndpointError:
        return ModelConfig()


@contextlib.asynccontextmanager
async def _connected(loaded: LoadedScenario, clock: Clock) -> AsyncIterator[Client]:
    target = loaded.scenario.target
    (urls,) = target.urls_by_protocol.values()
    address = resolve_replicas(target, urls, loaded.folder)
    async with connect(loaded.scenario, address, clock) as client, wrong_url_named(address):
        yield client
