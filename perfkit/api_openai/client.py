"""A target that speaks OpenAI's API: its requests, their answers, and the models that it lists."""

import contextlib
import dataclasses
import re
from collections.abc import Mapping, Sequence

from perfkit.api_openai.answers import EventsAnswer, decode_answer, error_words
from perfkit.api_openai.requests import encode_request
from perfkit.api_openai.token_counts import find_usage, read_usage
from perfkit.errors import ErrorKind, MissingEndpointError, ProtocolError, TargetError
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
    TokenCounts,
)
from perfkit.protocol.prompt import PROMPT
from perfkit.protocol.rest_json import load_document
from perfkit.protocol.statistics import ModelStatistics
from perfkit.transport.base import SEEN_BYTES, AnswerSigns, Outcome, Prepared, Reply, Transport, may_pass
from perfkit.transport.http.calls import HttpApi, HttpCall, HttpResponse, HttpTransport
from perfkit.transport.options import TransportOptions
from perfkit.transport.streamed_answer import StreamedAnswer

_MODELS = "/v1/models"
API = HttpApi(opening_path=_MODELS, new_answer=EventsAnswer)
"""What a transport must know of the API."""
_MODEL, _CONTENTS, _ERROR = re.compile(rb'"model"\s*:\s*"(?:[^"\\]|\\.)*"'), re.compile(rb'"(?:choices|data)"'), b'"error"'
_NONE = "OpenAI's API has no such call"


class Client:
    """What a target is asked; see `perfkit.api_v2.client.Client`, whose methods these are. The API has no administration: it refuses it, or is empty."""

    def __init__(self, transport: Transport, options: TransportOptions, endpoint: str) -> None:
        self.transport, self._options, self._endpoint = transport, options, endpoint
        self._limit_bytes, self._is_streamed = options.answer_limit.max_bytes, options.stream is not None

    def prepare(self, request: InferRequest) -> Prepared:
        """The bytes of a request."""
        call = encode_request(request, self._endpoint, is_streamed=self._is_streamed)
        return self.transport.prepare(call.compressed(self._options.compression))

    def decode(self, reply: Reply) -> InferResponse:
        """The answer that a reply carries, without outputs; raises ProtocolError if there is none, if it is an error, or invalid."""
        response: HttpResponse = self.transport.answer(reply)
        if reply.outcome is not Outcome.OK:
            kind = ErrorKind.INVALID_ARGUMENT if response.status in (400, 404, 422) else ErrorKind.INTERNAL
            with contextlib.suppress(ProtocolError):  # some servers declare errors to be compressed that are not
                response = dataclasses.replace(response, body=response.decompressed(self._limit_bytes))
            raise ProtocolError(f"HTTP {response.status}: {error_words(response.body)}", kind)
        return decode_answer(self._body(response, reply), self._limit_bytes)

    def count_tokens(self, reply: Reply) -> TokenCounts | None:
        """The tokens that an OK answer reports; None if it reports none, or some that cannot be."""
        if reply.payload is None:
            return reply.tokens  # those of a stream without content
        if isinstance(reply.payload, EventsAnswer):
            return reply.payload.tokens
        try:
            return read_usage(find_usage(self._body(self.transport.answer(reply), reply)))
        except ProtocolError:
            return None

    def _body(self, response: HttpResponse, reply: Reply) -> bytes:
        return response.body if isinstance(reply.payload, StreamedAnswer) else response.decompressed(self._limit_bytes)

    def signs(self, reply: Reply, response: InferResponse) -> AnswerSigns:
        """The member with the model's name as this server writes it, or, if it names none, that of the contents; no member `error`."""
        start = self.transport.received(reply)[:SEEN_BYTES]
        found = _MODEL.search(start) if response.model else _CONTENTS.search(start)
        return AnswerSigns(b"" if found is None else found[0], None if _ERROR in start else _ERROR)

    def answer_bytes(self, reply: Reply) -> int:
        """The size of an OK answer as it was received; of a stream that of the largest event."""
        if isinstance(reply.payload, StreamedAnswer):
            return reply.payload.largest_bytes
        response: HttpResponse = self.transport.answer(reply)
        return len(response.body)

    async def model_index(self) -> tuple[IndexedModel, ...]:
        """The models that the server lists; empty if it lists none."""
        try:
            return tuple(IndexedModel(name) for name, _ in await self._listed())
        except MissingEndpointError:
            return ()

    async def server_metadata(self) -> ServerMetadata:
        """The owner of the first model in place of the server's name; raises MissingEndpointError if the server lists no models."""
        return ServerMetadata(next((owner for _, owner in await self._listed()), ""), "", ())

    async def is_ready(self, model: str, version: str) -> bool:
        """Whether the server lists the model; raises MissingEndpointError if it lists none."""
        return model in {name for name, _ in await self._listed()}

    async def server_refusal(self) -> str:
        """Empty: a server that does not list its models is not asked any further."""
        return ""

    async def model_metadata(self, model: str, version: str) -> ModelMetadata:
        """A model that takes a prompt; raises TargetError if the server lists others only."""
        with contextlib.suppress(MissingEndpointError):
            if not await self.is_ready(model, version):
                raise TargetError(f"the server does not offer model '{model}'")
        return ModelMetadata(model, (), "openai", (PROMPT,), ())

    async def model_config(self, model: str, version: str) -> ModelConfig:
        """Nothing but that a stream may have no content, as where the first token ends it."""
        return ModelConfig(is_decoupled=self._is_streamed)

    async def model_config_text(self, model: str, version: str) -> str:
        """Raises MissingEndpointError."""
        raise MissingEndpointError(_NONE, _NONE)

    async def load_model(self, model: str, config: str = "") -> str:
        """Why not."""
        return _NONE

    async def unload_model(self, model: str) -> str:
        """Why not."""
        return _NONE

    async def change_trace_settings(self, settings: Mapping[str, Sequence[str]]) -> str:
        """Why not."""
        return _NONE

    async def model_statistics(self, model: str, version: str) -> tuple[ModelStatistics, ...]:
        """None: the server's times are on its page of metrics, if anywhere."""
        return ()

    async def register_region(self, region: SharedRegion) -> RegionRefusal | None:
        """Why not."""
        return RegionRefusal(_NONE, is_unsupported=True)

    async def unregister_region(self, kind: RegionKind, name: str) -> None:
        """Does nothing."""

    async def region_names(self, kind: RegionKind) -> tuple[str, ...]:
        """None."""
        return ()

    async def aclose(self) -> None:
        """Closes all connections."""
        await self.transport.aclose()

    async def _listed(self) -> list[tuple[str, str]]:
        """The names of the models and their owners; raises MissingEndpointError if the server lists none, TargetError if it refuses to."""
        return await self.transport.ask(_read_models)


async def _read_models(transport: HttpTransport) -> list[tuple[str, str]]:
    response = await transport.exchange(HttpCall("GET", _MODELS))
    words = transport.address.sanitize(error_words(response.body))
    what = f"GET {_MODELS}: HTTP {response.status}{f': {words}' if words and response.status != 200 else ''}"
    if response.status in (401, 403):
        hint = "give the credentials that it asks for in target.headers, such as authorization: Bearer ${TOKEN}"
        raise TargetError(f"{transport.address}: access is refused: {what}: {hint}")
    if may_pass(response.status):
        raise TargetError(f"{transport.address}: {what}", may_pass=True)
    try:
        listed = load_document(response.body, "answer").get("data") if response.status == 200 else None
    except ProtocolError:
        listed = None
    if not isinstance(listed, list):
        raise MissingEndpointError(f"{transport.address}: the server does not list its models: {what}", what)
    return [
        (one["id"], owner if isinstance(owner := one.get("owned_by"), str) else "")
        for one in listed
        if isinstance(one, dict) and isinstance(one.get("id"), str)
    ]
