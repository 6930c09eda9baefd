"""A target's v2 API, whatever the protocol and the number of its addresses."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from perfkit.clock import Clock
from perfkit.protocol.message import (
    IndexedModel,
    InferRequest,
    InferResponse,
    ModelConfig,
    ModelMetadata,
    RegionKind,
    RegionRefusal,
    ServerMetadata,
    SharedRegion,
)
from perfkit.protocol.statistics import ModelStatistics
from perfkit.target.address import Address
from perfkit.transport.base import SEEN_BYTES, AnswerSigns, Prepared, Reply, Transport
from perfkit.transport.factory import make_transport
from perfkit.transport.options import TransportOptions
from perfkit.transport.streamed_answer import StreamedAnswer

if TYPE_CHECKING:
    from perfkit.api_v2.grpc import RpcCalls
    from perfkit.api_v2.http import HttpCalls
    from perfkit.transport.resolution import Resolve


class Client:
    """Prepares requests for a transport, reads their answers, and asks and changes what a server has besides.

    Of several addresses one is asked, and the next one if it cannot answer. All calls raise TargetError if none is reached.
    """

    def __init__(self, transport: Transport, calls: "HttpCalls | RpcCalls") -> None:
        self.transport, self._calls = transport, calls
        self._same_server: dict[str, str] = {}
        """Labels of addresses that lead to the same server as another address, each with the label of that other one."""

    def prepare(self, request: InferRequest) -> Prepared:
        """The bytes of a request; raises ProtocolError if a tensor cannot be sent in this way."""
        return self.transport.prepare(self._calls.infer(request))

    def decode(self, reply: Reply) -> InferResponse:
        """The answer that a reply carries; raises ProtocolError if there is none, if it is an error, or invalid."""
        return self._calls.decode(reply, self.transport.answer(reply))

    def signs(self, reply: Reply, response: InferResponse) -> AnswerSigns:
        """By what an answer as sound as this one is known without decoding it; `response` is what `decode` made of it."""
        return self._calls.signs(self.transport.received(reply)[:SEEN_BYTES], response)

    count_tokens = None
    """The API reports no tokens."""

    def answer_bytes(self, reply: Reply) -> int:
        """The size of an OK answer as it was received, without what surrounds it; of a stream that of the largest response."""
        if isinstance(reply.payload, StreamedAnswer):
            return reply.payload.largest_bytes
        return self._calls.answer_bytes(self.transport.answer(reply))

    async def server_metadata(self) -> ServerMetadata:
        """The server's name and version; raises MissingEndpointError if the server does not describe itself."""
        return await self.transport.ask(self._calls.server_metadata)

    async def is_ready(self, model: str, version: str) -> bool:
        """Whether the model is ready, whatever other models are; one that the server does not speak of is not, if the server is not.

        Raises MissingEndpointError if the server does not say whether the model is.
        """
        return await self.transport.ask(lambda one: self._calls.is_ready(one, model, version))

    async def server_refusal(self) -> str:
        """Why the server is not ready, in its own words; empty if it is, or does not say. It need not be while a model loads or is broken."""
        return await self.transport.ask(self._calls.server_refusal)

    async def model_metadata(self, model: str, version: str) -> ModelMetadata:
        """The model's metadata; raises TargetError also if the server does not know the model."""
        return await self.transport.ask(lambda one: self._calls.model_metadata(one, model, version))

    async def model_config(self, model: str, version: str) -> ModelConfig:
        """The model's configuration.

        Raises MissingEndpointError if the server does not offer it, or restricts it; TargetError also if its answer is invalid.
        """
        return await self.transport.ask(lambda one: self._calls.model_config(one, model, version))

    async def model_index(self) -> tuple[IndexedModel, ...]:
        """The models in the server's repository index; empty if the server does not offer one, or restricts it.

        Raises TargetError also if its answer is invalid.
        """
        return await self.transport.ask(self._calls.model_index)

    async def model_config_text(self, model: str, version: str) -> str:
        """The model's whole configuration, byte for byte as the server writes it as JSON.

        Raises MissingEndpointError over gRPC, which has no such text, and as `model_config` does.
        """
        return await self.transport.ask(lambda one: self._calls.model_config_text(one, model, version))

    async def load_model(self, model: str, config: str = "") -> str:
        """Loads a model of the server's repository; the server's words if it refuses, otherwise empty.

        `config` is a JSON configuration in place of the one in the repository; empty for that one.
        """
        return await self.transport.ask(lambda one: self._calls.load_model(one, model, config))

    async def unload_model(self, model: str) -> str:
        """Unloads a model; returns like `load_model`. The server may end its work on the model afterwards."""
        return await self.transport.ask(lambda one: self._calls.unload_model(one, model))

    async def change_trace_settings(self, settings: Mapping[str, Sequence[str]]) -> str:
        """Changes the global trace settings of all servers; returns like `load_model`."""
        answers = await self.transport.ask_all(lambda one: self._calls.change_trace_settings(one, settings))
        return next((refusal for refusal in answers.values() if refusal), "")

    async def model_statistics(self, model: str, version: str) -> tuple[ModelStatistics, ...]:
        """The statistics of the model's versions, or of the given one; empty if the server does not offer them.

        They are the sums over all servers that can be reached; a server that several addresses lead to counts once. Such addresses answer
        with the same total times, to the nanosecond, while nothing is sent. Raises TargetError also if the statistics are restricted, or
        an answer is invalid.
        """
        answers = await self.transport.ask_all(lambda one: self._calls.model_statistics(one, model, version))
        if len(answers) == 1:
            return next(iter(answers.values()))
        by_server: dict[tuple[ModelStatistics, ...], str] = {}
        for label, answer in answers.items():
            if any(time.ns for one in answer for time in one.times.values()) and (first := by_server.setdefault(answer, label)) != label:
                self._same_server[label] = first
        by_version: dict[str, list[ModelStatistics]] = {}
        counted = [answer for label, answer in answers.items() if self._same_server.get(label) not in answers]
        for statistics in (one for versions in counted for one in versions):
            by_version.setdefault(statistics.version, []).append(statistics)
        return tuple(dataclasses.replace(ModelStatistics.added(parts), version=version) for version, parts in by_version.items())

    async def register_region(self, region: SharedRegion) -> RegionRefusal | None:
        """Registers a shared memory region of this machine with each server; None if they have it now."""
        answers = await self.transport.ask_all(lambda one: self._calls.register_region(one, region))
        return next((refusal for refusal in answers.values() if refusal), None)

    async def unregister_region(self, kind: RegionKind, name: str) -> None:
        """Unregisters one region; a refusal is ignored."""
        await self.transport.ask_all(lambda one: self._calls.unregister_region(one, kind, name))

    async def region_names(self, kind: RegionKind) -> tuple[str, ...]:
        """The names of all clients' regions; empty if the server does not offer the extension."""
        answers = await self.transport.ask_all(lambda one: self._calls.region_names(one, kind))
        return tuple(dict.fromkeys(name for names in answers.values() for name in names))

    async def aclose(self) -> None:
        """Closes all connections."""
        await self.transport.aclose()


def make_client(address: Address, options: TransportOptions, clock: Clock, resolve: "Resolve | None" = None) -> Client:
    """A client that has not connected yet; call it on the event loop that will use it. `resolve` is that of `make_transport`."""
    # imported here: each protocol loads libraries that the other does without
    if address.protocol == "grpc":
        from perfkit.api_v2.grpc import RpcCalls

        return Client(make_transport(address, options, clock, RpcCalls.API, resolve), RpcCalls(options))
    from perfkit.api_v2.http import HttpCalls

    return Client(make_transport(address, options, clock, HttpCalls.API, resolve), HttpCalls(options))
