"""v2 over HTTP: requests as calls, answers, and a server's descriptions and administration."""

import contextlib
import dataclasses
import json
import re
import urllib.parse
from collections.abc import Mapping, Sequence

from perfkit.digits import whole_number
from perfkit.errors import ErrorKind, MissingEndpointError, ProtocolError, TargetError
from perfkit.override import override
from perfkit.protocol import rest, rest_models
from perfkit.protocol.decoded_size import check_json_values
from perfkit.protocol.generate import decode_event, encode_generate_request, read_event_error
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
from perfkit.protocol.statistics import ModelStatistics, decode_model_statistics
from perfkit.target.address import redacted_url
from perfkit.transport.base import AnswerSigns, Outcome, Reply, may_pass
from perfkit.transport.http.calls import EventAnswer, HttpApi, HttpCall, HttpResponse, HttpTransport
from perfkit.transport.options import MAX_DESCRIPTION_BYTES, TransportOptions
from perfkit.transport.streamed_answer import StreamedAnswer

_RESTRICTED, _UNAVAILABLE = (401, 403), (429, 502, 503, 504)
_MISSING, _REDIRECTIONS = (404, 405, 501), (301, 302, 303, 307, 308)
_BASE = re.compile(r"(https?://[^/]+(?:/.*?)?)/v2(?:/.*)?")
_HEALTH = "/v2/health/ready"
_MODEL_NAME, _OUTPUTS, _ERROR = re.compile(rb'"model_name"\s*:\s*"(?:[^"\\]|\\.)*"'), re.compile(rb'"outputs"'), b'"error"'
_JSON = {"Content-Type": rest.JSON_TYPE}
_UNPROCESSABLE = 422
_OTHER_BODY = "; where streams take the requests of infer, as MLServer's do, set stream.body to infer"


class _EventAnswer(EventAnswer):
    """A stream of `generate_stream` or `infer_stream`: each event is a response, or an error."""

    __slots__ = ()

    @override
    def take(self, data: bytes, at_ns: int) -> None:
        try:
            error = read_event_error(data)
        except ProtocolError as fault:
            self.fault = self.fault or str(fault)
            return
        if error:
            self.error = self.error or error
        else:
            self.add(data, len(data), at_ns)


class HttpCalls:
    """The calls of v2 over HTTP, each to the one address of a transport. `Client` says what they return and raise."""

    API = HttpApi(opening_path="/v2/health/live", new_answer=_EventAnswer)
    """What a transport must know of them."""

    def __init__(self, options: TransportOptions) -> None:
        self._options, self._limit_bytes = options, options.answer_limit.max_bytes
        self._streams = "" if options.stream is None else "infer" if options.stream.has_infer_bodies else "generate"

    def infer(self, request: InferRequest) -> HttpCall:
        """The call of a request; raises ProtocolError if a tensor has no JSON form."""
        if self._streams == "infer":
            _, body = rest.encode_infer_request(request.as_plain())
            return HttpCall("POST", rest.model_path(request.model, request.version, "infer_stream"), _JSON, body)
        if self._streams == "generate":
            path = rest.model_path(request.model, request.version, "generate_stream")
            return HttpCall("POST", path, _JSON, [encode_generate_request(request)])
        headers, body = rest.encode_infer_request(request)
        call = HttpCall("POST", rest.model_path(request.model, request.version, "infer"), headers, body)
        return call.compressed(self._options.compression)

    def decode(self, reply: Reply, response: HttpResponse) -> InferResponse:
        """The answer to a request; raises ProtocolError if it is an error, or invalid."""
        if reply.outcome is not Outcome.OK:
            kind = ErrorKind.INVALID_ARGUMENT if response.status in (400, 422) else ErrorKind.INTERNAL
            with contextlib.suppress(ProtocolError):  # some servers declare errors to be compressed that are not
                response = dataclasses.replace(response, body=response.decompressed(self._limit_bytes))
            hint = _OTHER_BODY if response.status == _UNPROCESSABLE and self._streams == "generate" else ""
            raise ProtocolError(f"HTTP {response.status}: {_words(response)}{hint}", kind)
        if isinstance(reply.payload, StreamedAnswer):
            check_json_values(response.body, self._limit_bytes)
            return rest.decode_infer_response(response.body, None) if self._streams == "infer" else decode_event(response.body)
        length = response.headers.get(rest.HEADER_LENGTH.lower())
        json_bytes = None if length is None else whole_number(length)
        if length is not None and json_bytes is None:
            raise ProtocolError(f"{rest.HEADER_LENGTH} is not a number of bytes: {length[:50]!r}")
        body = response.decompressed(self._limit_bytes)
        check_json_values(body[:json_bytes], self._limit_bytes)
        return rest.decode_infer_response(body, json_bytes, has_slots=self._options.has_output_slots)

    def signs(self, start: bytes, response: InferResponse) -> AnswerSigns:
        """The member with the model's name as this server writes it, or, if it names none, that of the outputs; no member `error`."""
        found = _MODEL_NAME.search(start) if response.model else _OUTPUTS.search(start)
        return AnswerSigns(b"" if found is None else found[0], None if _ERROR in start else _ERROR)

    def answer_bytes(self, response: HttpResponse) -> int:
        """The size of an answer."""
        return len(response.body)

    async def server_metadata(self, transport: HttpTransport) -> ServerMetadata:
        response = await self._get_description(transport, "/v2")
        try:
            document = json.loads(response.body) if response.status == 200 else None
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            message = f"{transport.address}: not a v2 server: GET /v2 returned {self._describe(transport, response)}"
            if refusal := self._refusal(transport, response, "GET /v2"):
                raise refusal
            if may_pass(response.status):
                raise TargetError(message, may_pass=True)
            raise MissingEndpointError(message, f"GET /v2: {self._describe(transport, response)}")
        extensions = document.get("extensions")
        names = tuple(map(str, extensions)) if isinstance(extensions, list) else ()
        return ServerMetadata(str(document.get("name", "")), str(document.get("version", "")), names)

    async def is_ready(self, transport: HttpTransport, model: str, version: str) -> bool:
        path = rest.model_path(model, version, "ready")
        response = await self._get_description(transport, path)
        what = f"GET {path}: {self._describe(transport, response)}"
        if refusal := self._refusal(transport, response, f"GET {path}"):
            raise refusal
        if may_pass(response.status):
            raise TargetError(f"{transport.address}: model '{model}' is not ready: {what}", may_pass=True)
        # a 404 whose body is a v2 error says that the model is not ready
        if response.status in (*_MISSING, *_REDIRECTIONS) and not (response.status == 404 and self._has_error(response)):
            if await self.server_refusal(transport):
                return False
            raise MissingEndpointError(f"{transport.address}: the server does not say whether model '{model}' is ready: {what}", what)
        return response.status == 200 and rest_models.decode_ready(response.body)

    async def server_refusal(self, transport: HttpTransport) -> str:
        response = await self._get_description(transport, _HEALTH)
        is_ready = response.status == 200 and rest_models.decode_ready(response.body)
        is_told = response.status not in (*_MISSING, *_RESTRICTED, *_REDIRECTIONS)
        return "" if is_ready or not is_told else f"GET {_HEALTH}: {self._describe(transport, response)}"

    def _has_error(self, response: HttpResponse) -> bool:
        """Whether an answer has the form of a v2 error."""
        document = self._json(response)
        return isinstance(document, dict) and "error" in document

    async def model_metadata(self, transport: HttpTransport, model: str, version: str) -> ModelMetadata:
        response = await self._get_description(transport, rest.model_path(model, version))
        message = f"{transport.address}: the server does not offer model '{model}': {self._describe(transport, response)}"
        if refusal := self._refusal(transport, response, f"the metadata of model '{model}'"):
            raise refusal
        if response.status in _MISSING or (response.status == 200 and not self._is_object(response)):
            raise MissingEndpointError(message, self._describe(transport, response))
        if response.status != 200:
            raise TargetError(message, may_pass=may_pass(response.status))
        try:
            return rest_models.decode_model_metadata(response.body)
        except ProtocolError as error:
            raise TargetError(f"{transport.address}: {error}") from None

    async def model_config(self, transport: HttpTransport, model: str, version: str) -> ModelConfig:
        try:
            return rest_models.decode_model_config((await self._model_config(transport, model, version)).body)
        except ProtocolError:
            raise TargetError(f"{transport.address}: the configuration of model '{model}' is not valid v2") from None

    async def model_config_text(self, transport: HttpTransport, model: str, version: str) -> str:
        return (await self._model_config(transport, model, version)).body.decode()

    async def _model_config(self, transport: HttpTransport, model: str, version: str) -> HttpResponse:
        """The answer with a model's configuration, whose body is a JSON object."""
        response = await self._get_description(transport, rest.model_path(model, version, "config"))
        if may_pass(response.status):
            what = f"the configuration of model '{model}'"
            raise TargetError(f"{transport.address}: {what} could not be read: {self._describe(transport, response)}", may_pass=True)
        what = f"GET {rest.model_path(model, version, 'config')}: {self._describe(transport, response)}"
        missing = MissingEndpointError(f"{transport.address}: the server does not give the configuration of model '{model}': {what}", what)
        if response.status != 200 or not self._is_object(response):
            raise missing
        return response

    def _is_object(self, response: HttpResponse) -> bool:
        """Whether the body is a JSON object: servers that lack a path may answer with a page, or with nothing."""
        return isinstance(self._json(response), dict)

    def _json(self, response: HttpResponse) -> object:
        """The body's JSON; None if it is not JSON."""
        try:
            return json.loads(response.body)
        except (ValueError, RecursionError):
            return None

    def _refusal(self, transport: HttpTransport, response: HttpResponse, what: str) -> TargetError | None:
        """The error for an endpoint that is restricted, or that a proxy cannot reach; None for any other status."""
        if response.status in _RESTRICTED:
            hint = "give the credentials that the server, or a proxy in front of it, asks for in target.headers"
            return TargetError(f"{transport.address}: access to {what} is refused: {self._describe(transport, response)}: {hint}")
        if response.status in _UNAVAILABLE:
            reason = f"the server, or the one behind a proxy, is not available: {what} returned {self._describe(transport, response)}"
            return TargetError(f"{transport.address}: {reason}", may_pass=True)
        location = _location(response)
        base = _BASE.fullmatch(urllib.parse.urljoin(f"{transport.address}/", location))
        if not location or (base and base[1] == str(transport.address)):  # such as to the same path with a slash
            return None
        hint = f"use {base[1]}" if base else "if it leads to a login, give the credentials in target.headers"
        return TargetError(f"{transport.address}: {what} returned {self._describe(transport, response)}, which is not followed: {hint}")

    def _describe(self, transport: HttpTransport, response: HttpResponse) -> str:
        """The status and the server's words, shortened."""
        words = _words(response)
        return f"HTTP {response.status}{f': {transport.address.sanitize(words)}' if words else ''}"

    async def model_index(self, transport: HttpTransport) -> tuple[IndexedModel, ...]:
        response = await _post(transport, "/v2/repository/index", b"{}")
        if response.status != 200 or not isinstance(self._json(response), list):
            return rest_models.named_models(self._json(await self._get_description(transport, "/v2/models")))  # as KServe has it
        try:
            return rest_models.decode_model_index(response.body)
        except ProtocolError as error:
            raise TargetError(f"{transport.address}: {error}") from None

    async def load_model(self, transport: HttpTransport, model: str, config: str) -> str:
        parameters = {"parameters": {"config": config}} if config else {}
        return await self._change_repository(transport, model, "load", json.dumps(parameters).encode())

    async def unload_model(self, transport: HttpTransport, model: str) -> str:
        return await self._change_repository(transport, model, "unload")

    async def change_trace_settings(self, transport: HttpTransport, settings: Mapping[str, Sequence[str]]) -> str:
        body = {name: list(values) if name == "trace_level" else values[0] for name, values in settings.items()}
        response = await _post(transport, "/v2/trace/setting", json.dumps(body).encode())
        return "" if response.status == 200 else self._describe(transport, response)

    async def _change_repository(self, transport: HttpTransport, model: str, action: str, body: bytes = b"{}") -> str:
        response = await _post(transport, rest.repository_path(model, action), body)
        return "" if response.status == 200 else self._describe(transport, response)

    async def model_statistics(self, transport: HttpTransport, model: str, version: str) -> tuple[ModelStatistics, ...]:
        response = await self._get_description(transport, rest.model_path(model, version, "stats"))
        what = f"the statistics of model '{model}'"
        if refusal := self._refusal(transport, response, what):
            raise refusal
        if may_pass(response.status):
            raise TargetError(f"{transport.address}: {what} could not be read: {self._describe(transport, response)}", may_pass=True)
        if response.status != 200 or not self._is_object(response):
            return ()
        try:
            return decode_model_statistics(response.body)
        except ProtocolError as error:
            raise TargetError(f"{transport.address}: {error}") from None

    async def register_region(self, transport: HttpTransport, region: SharedRegion) -> RegionRefusal | None:
        response = await _post(transport, rest.region_path(region.kind, "register", region.name), rest.encode_region(region))
        if response.status == 200:
            return None
        return RegionRefusal(self._describe(transport, response), is_unsupported=response.status in _MISSING)

    async def unregister_region(self, transport: HttpTransport, kind: RegionKind, name: str) -> None:
        await _post(transport, rest.region_path(kind, "unregister", name), b"{}")

    async def region_names(self, transport: HttpTransport, kind: RegionKind) -> tuple[str, ...]:
        response = await self._get_description(transport, rest.region_path(kind, "status"))
        if response.status != 200:
            return ()
        try:
            return rest.decode_region_names(response.body)
        except ProtocolError as error:
            raise TargetError(f"{transport.address}: {error}") from None

    async def _get_description(self, transport: HttpTransport, path: str) -> HttpResponse:
        """Gets a description of the server or a model; raises TargetError, also if it is longer than any real one."""
        response = await transport.exchange(HttpCall("GET", path))
        if len(response.body) > MAX_DESCRIPTION_BYTES:
            raise TargetError(f"{transport.address}: GET {path} returned {len(response.body):,} B, more than {MAX_DESCRIPTION_BYTES:,} B")
        return response


def _words(response: HttpResponse) -> str:
    """What the server says in place of an answer: where it redirects to, or its error."""
    location = _location(response)
    return f"redirected to {location}" if location else rest.decode_error(response.body)


def _location(response: HttpResponse) -> str:
    """Where a response redirects to, without a query, which may hold secrets, and without credentials; empty if it does not."""
    location = response.headers.get("location", "") if response.status in _REDIRECTIONS else ""
    return redacted_url(re.split("[?#]", location, maxsplit=1)[0])


async def _post(transport: HttpTransport, path: str, body: bytes) -> HttpResponse:
    """Sends a POST with a JSON body; raises TargetError if there is no response."""
    return await transport.exchange(HttpCall("POST", path, _JSON, [body]))
