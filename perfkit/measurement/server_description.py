"""The models of a running server and their descriptions, read without a scenario."""

import contextlib
import dataclasses
import pathlib

from perfkit.clock import Clock
from perfkit.errors import MissingEndpointError, TargetError
from perfkit.measurement.offered_models import offered_instead
from perfkit.protocol.message import IndexedModel, ModelConfig, ModelMetadata, ServerMetadata
from perfkit.scenario.credentials import resolve_address
from perfkit.scenario.target import Target
from perfkit.target_client import make_client
from perfkit.transport.options import TransportOptions
from perfkit.transport.other_protocol import other_protocol_named
from perfkit.units import NS_PER_S

_TIMEOUT_NS = 10 * NS_PER_S


@dataclasses.dataclass(frozen=True)
class ModelDescription:
    """A model's metadata and its configuration, which is empty if the server gives none."""

    server: ServerMetadata
    metadata: ModelMetadata
    config: ModelConfig


async def read_model_index(url: str, clock: Clock) -> tuple[IndexedModel, ...]:
    """Reads the repository index of the server at a URL, empty if it has none; raises TargetError and ScenarioError."""
    address = resolve_address(Target.model_validate({"url": url, "model": "-"}), url, pathlib.Path())
    async with contextlib.aclosing(make_client(address, TransportOptions(timeout_ns=_TIMEOUT_NS), clock)) as client:
        with contextlib.suppress(MissingEndpointError):
            async with other_protocol_named(address):
                await client.server_metadata()
        return tuple(await client.model_index())


async def describe_model(url: str, model: str, clock: Clock) -> ModelDescription:
    """Reads the description of a model on the server at a URL.

    Raises ScenarioError, and TargetError, which names the models offered if this one is unknown.
    """
    address = resolve_address(Target.model_validate({"url": url, "model": model}), url, pathlib.Path())
    async with contextlib.aclosing(make_client(address, TransportOptions(timeout_ns=_TIMEOUT_NS), clock)) as client:
        server, config = ServerMetadata("", ""), ModelConfig()
        with contextlib.suppress(MissingEndpointError):
            async with other_protocol_named(address):
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
        return ModelDescription(server, metadata, config)
