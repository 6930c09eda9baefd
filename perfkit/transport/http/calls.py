"""The v2 calls over HTTP that both engines share, and decoding of infer responses."""

import abc
import dataclasses
import json
import re
from collections.abc import Mapping, Sequence

from perfkit.errors import ErrorKind, MissingEndpointError, ProtocolError, TargetError
from perfkit.protocol import rest
from perfkit.protocol.compression import compress, decompress
from perfkit.protocol.decoded_size import check_json_values
from perfkit.protocol.message import (
    IndexedModel,
    InferRequest,
    InferResponse,
    ModelConfig,
    ModelMetadata,
    RegionKind,
    ServerMetadata,
    SharedRegion,
)
from perfkit.protocol.statistics import ModelStatistics, decode_model_statistics
from perfkit.protocol.tensor import Buffer
from perfkit.target.address import Address
from perfkit.transport.base import Outcome, RegionRefusal, Reply, may_pass
from perfkit.transport.limits import MAX_DESCRIPTION_BYTES
from perfkit.transport.options import TransportOptions

_RESTRICTED, _UNAVAILABLE = (401, 403), (429, 502, 503, 504)
_NOT_OFFERED = (404, 405, 501)
_MISSING = (404, 405, 501)
_PARSED_CHARACTERS = 4000
COMPARED_BYTES = 2000
"""Error bodies whose first bytes are equal have the same message, of which 300 characters are shown."""


@dataclasses.dataclass(frozen=True, slots=True)
class HttpResponse:
    """An HTTP response; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class RestTransport(abc.ABC):
    """The v2 calls of an HTTP engine, which adds `get` and `_response`."""

    def __init__(self, address: Address, options: TransportOptions) -> None:
        self._address = address
        self._compression = options.compression
        self._limit = options.answer_limit
        self._has_output_slots = options.has_output_slots

    @abc.abstractmethod
    async def get(self, path: str) -> HttpResponse:
        """Sends a GET; raises TargetError if there is no response."""

    @abc.abstractmethod
    async def post(self, path: str, body: bytes) -> HttpResponse:
        """Sends a POST with a JSON body; raises TargetError if there is no response."""

    @abc.abstractmethod
    def _response(self, reply: Reply) -> HttpResponse:
        """The response that a reply carries; raises ProtocolError if there is none or it is malformed."""

    def decode(self, reply: Reply) -> InferResponse:
        response = self._response(reply)
        if reply.outcome is not Outcome.OK:
            kind = ErrorKind.INVALID_ARGUMENT if response.status in (400, 422) else ErrorKind.INTERNAL
            raise ProtocolError(f"HTTP {response.status}: {rest.decode_error(self._decompressed(response))}", kind)
        length = response.headers.get(rest.HEADER_LENGTH.lower())
        if length is not None and not length.isdecimal():
            raise ProtocolError(f"{rest.HEADER_LENGTH} is not a number: {length!r}")
        body = decompress(response.body, response.headers.get("content-encoding", ""), self._limit.max_bytes)
        json_bytes = len(body) if length is None else int(length)
        check_json_values(body[:json_bytes], self._limit.max_bytes)
        return rest.decode_infer_response(body, None if length is None else json_bytes, has_slots=self._has_output_slots)

    def _encode(self, request: InferRequest) -> tuple[dict[str, str], list[Buffer]]:
        """Headers and body of an infer request, compressed if the options say so."""
        headers, body = rest.encode_infer_request(request)
        if self._compression != "none":
            headers |= {"Content-Encoding": self._compression, "Accept-Encoding": self._compression}
            body = [compress(body, self._compression)]
        return headers, body

    async def server_metadata(self) -> ServerMetadata:
        response = await self._get_description("/v2")
        try:
            document = json.loads(response.body) if response.status == 200 else None
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            message = f"{self._address}: not a v2 server: GET /v2 returned {self._describe(response)}"
            if refusal := self._refusal(response, "GET /v2"):
                raise refusal
            if may_pass(response.status):
                raise TargetError(message, may_pass=True)
            raise MissingEndpointError(message, f"GET /v2: {self._describe(response)}")
        extensions = document.get("extensions")
        names = tuple(map(str, extensions)) if isinstance(extensions, list) else ()
        return ServerMetadata(str(document.get("name", "")), str(document.get("version", "")), names)

    async def is_ready(self, model: str, version: str) -> bool:
        for path in ("/v2/health/ready", model_path := rest.model_path(model, version, "ready")):
            response = await self._get_description(path)
            if refusal := self._refusal(response, f"GET {path}"):
                raise refusal
            if may_pass(response.status):
                message = (
                    f"{self._address}: the server, or its model '{model}', is not ready: GET {path} returned {self._describe(response)}"
                )
                raise TargetError(message, may_pass=True)
            # of a model, 404 with an error in v2's form is the server's word on it
            is_missing = response.status in _MISSING and not (path == model_path and response.status == 404 and self._has_error(response))
            if is_missing and path == model_path:
                what = f"GET {path}: {self._describe(response)}"
                raise MissingEndpointError(f"{self._address}: the server does not say whether model '{model}' is ready: {what}", what)
            if response.status != 200 and not is_missing:
                return False
        return rest.decode_ready(response.body)

    def _has_error(self, response: HttpResponse) -> bool:
        """Whether an answer has the form of a v2 error."""
        document = self._json(response)
        return isinstance(document, dict) and "error" in document

    async def model_metadata(self, model: str, version: str) -> ModelMetadata:
        response = await self._get_description(rest.model_path(model, version))
        message = f"{self._address}: the server does not offer model '{model}': {self._describe(response)}"
        if refusal := self._refusal(response, f"the metadata of model '{model}'"):
            raise refusal
        if response.status in _MISSING or (response.status == 200 and not self._is_object(response)):
            raise MissingEndpointError(message, self._describe(response))
        if response.status != 200:
            raise TargetError(message, may_pass=may_pass(response.status))
        try:
            return rest.decode_model_metadata(response.body)
        except ProtocolError as error:
            raise TargetError(f"{self._address}: {error}") from None

    async def model_config(self, model: str, version: str) -> ModelConfig:
        response = await self._get_description(rest.model_path(model, version, "config"))
        if may_pass(response.status):
            what = f"the configuration of model '{model}'"
            raise TargetError(f"{self._address}: {what} could not be read: {self._describe(response)}", may_pass=True)
        what = f"GET {rest.model_path(model, version, 'config')}: {self._describe(response)}"
        missing = MissingEndpointError(f"{self._address}: the server does not give the configuration of model '{model}': {what}", what)
        if response.status != 200 or not self._is_object(response):
            raise missing
        try:
            return rest.decode_model_config(response.body)
        except ProtocolError:
            raise TargetError(f"{self._address}: the configuration of model '{model}' is not valid v2") from None

    def _is_object(self, response: HttpResponse) -> bool:
        """Whether the body is a JSON object: servers that lack a path may answer with a page, or with nothing."""
        return isinstance(self._json(response), dict)

    def _json(self, response: HttpResponse) -> object:
        """The body's JSON; None if it is not JSON."""
        try:
            return json.loads(self._decompressed(response))
        except (ValueError, RecursionError):
            return None

    def _refusal(self, response: HttpResponse, what: str) -> TargetError | None:
        """The error for an endpoint that is restricted, or that a proxy cannot reach; None for any other status."""
        if response.status in _RESTRICTED:
            hint = "give the credentials that the server, or a proxy in front of it, asks for in target.headers"
            return TargetError(f"{self._address}: access to {what} is refused: {self._describe(response)}: {hint}")
        if response.status in _UNAVAILABLE:
            reason = f"the server, or the one behind a proxy, is not available: {what} returned {self._describe(response)}"
            return TargetError(f"{self._address}: {reason}", may_pass=True)
        return None

    def _describe(self, response: HttpResponse) -> str:
        """The status and the server's words, shortened; of an HTML page, as proxies send it, the text alone."""
        words = rest.decode_error(self._decompressed(response))[:_PARSED_CHARACTERS]
        if words.startswith("<"):
            words = " ".join(re.sub("<[^>]*>", " ", words).split())
        return f"HTTP {response.status}{f': {self._address.sanitize(words)}' if words else ''}"

    async def model_index(self) -> tuple[IndexedModel, ...]:
        response = await self.post("/v2/repository/index", b"{}")
        if response.status != 200 or not isinstance(self._json(response), list):
            return rest.named_models(self._json(await self._get_description("/v2/models")))  # as KServe has it
        try:
            return rest.decode_model_index(self._decompressed(response)[: MAX_DESCRIPTION_BYTES + 1])
        except ProtocolError as error:
            raise TargetError(f"{self._address}: {error}") from None

    async def load_model(self, model: str) -> str:
        return await self._change_repository(model, "load")

    async def unload_model(self, model: str) -> str:
        return await self._change_repository(model, "unload")

    async def change_trace_settings(self, settings: Mapping[str, Sequence[str]]) -> str:
        body = {name: list(values) if name == "trace_level" else values[0] for name, values in settings.items()}
        response = await self.post("/v2/trace/setting", json.dumps(body).encode())
        return "" if response.status == 200 else self._describe(response)

    async def _change_repository(self, model: str, action: str) -> str:
        response = await self.post(rest.repository_path(model, action), b"{}")
        return "" if response.status == 200 else self._describe(response)

    async def model_statistics(self, model: str, version: str) -> tuple[ModelStatistics, ...]:
        response = await self._get_description(rest.model_path(model, version, "stats"))
        what = f"the statistics of model '{model}'"
        if refusal := self._refusal(response, what):
            raise refusal
        if may_pass(response.status):
            raise TargetError(f"{self._address}: {what} returned {self._describe(response)}")
        if response.status != 200 or not self._is_object(response):
            return ()
        try:
            return decode_model_statistics(self._decompressed(response))
        except ProtocolError as error:
            raise TargetError(f"{self._address}: {error}") from None

    async def register_region(self, region: SharedRegion) -> RegionRefusal | None:
        response = await self.post(rest.region_path(region.kind, "register", region.name), rest.encode_region(region))
        if response.status == 200:
            return None
        return RegionRefusal(self._describe(response), is_unsupported=response.status in _NOT_OFFERED)

    async def unregister_region(self, kind: RegionKind, name: str) -> None:
        await self.post(rest.region_path(kind, "unregister", name), b"{}")

    async def region_names(self, kind: RegionKind) -> tuple[str, ...]:
        response = await self._get_description(rest.region_path(kind, "status"))
        if response.status != 200:
            return ()
        try:
            return rest.decode_region_names(self._decompressed(response))
        except ProtocolError as error:
            raise TargetError(f"{self._address}: {error}") from None

    async def _get_description(self, path: str) -> HttpResponse:
        """Gets a description of the server or a model; raises TargetError, also if it is longer than any real one."""
        response = await self.get(path)
        if len(response.body) > MAX_DESCRIPTION_BYTES:
            raise TargetError(f"{self._address}: GET {path} returned {len(response.body):,} B, more than {MAX_DESCRIPTION_BYTES:,} B")
        return response

    def _decompressed(self, response: HttpResponse) -> bytes:
        """The body, decompressed if possible: some servers compress errors, too."""
        try:
            return decompress(response.body, response.headers.get("content-encoding", ""), self._limit.max_bytes)
        except ProtocolError:
            return response.body
