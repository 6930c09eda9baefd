"""The v2 calls over HTTP that both engines share, and decoding of infer responses."""

import abc
import dataclasses
import json

from perfkit.errors import ErrorKind, ProtocolError, TargetError
from perfkit.protocol import rest
from perfkit.protocol.compression import compress, decompress
from perfkit.protocol.message import InferRequest, InferResponse, ModelConfig, ModelMetadata, ServerMetadata
from perfkit.protocol.statistics import ModelStatistics, decode_model_statistics
from perfkit.protocol.tensor import Buffer
from perfkit.target.address import Address
from perfkit.transport.base import Outcome, Reply
from perfkit.transport.options import Compression

_MAX_RESPONSE_BYTES = 2**31  # the limit of Triton's clients


@dataclasses.dataclass(frozen=True, slots=True)
class HttpResponse:
    """An HTTP response; header names are in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class RestTransport(abc.ABC):
    """The v2 calls of an HTTP engine, which adds `_get` and `_response`."""

    def __init__(self, address: Address, compression: Compression) -> None:
        self._address = address
        self._compression = compression

    @abc.abstractmethod
    async def _get(self, path: str) -> HttpResponse:
        """Sends a GET; raises TargetError if there is no response."""

    @abc.abstractmethod
    def _response(self, reply: Reply) -> HttpResponse:
        """The response that a reply carries; raises ProtocolError if there is none or it is malformed."""

    def decode(self, reply: Reply) -> InferResponse:
        response = self._response(reply)
        if reply.outcome is not Outcome.OK:
            kind = ErrorKind.INVALID_ARGUMENT if response.status in (400, 422) else ErrorKind.INTERNAL
            raise ProtocolError(f"HTTP {response.status}: {rest.decode_error(_decompressed(response))}", kind)
        length = response.headers.get(rest.HEADER_LENGTH.lower())
        if length is not None and not length.isdecimal():
            raise ProtocolError(f"{rest.HEADER_LENGTH} is not a number: {length!r}")
        body = decompress(response.body, response.headers.get("content-encoding", ""), _MAX_RESPONSE_BYTES)
        return rest.decode_infer_response(body, None if length is None else int(length))

    def _encode(self, request: InferRequest) -> tuple[dict[str, str], list[Buffer]]:
        """Headers and body of an infer request, compressed if the options say so."""
        headers, body = rest.encode_infer_request(request)
        if self._compression != "none":
            headers |= {"Content-Encoding": self._compression, "Accept-Encoding": self._compression}
            body = [compress(body, self._compression)]
        return headers, body

    async def server_metadata(self) -> ServerMetadata:
        response = await self._get("/v2")
        try:
            document = json.loads(response.body) if response.status == 200 else None
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise TargetError(f"{self._address}: not a v2 server: GET /v2 returned HTTP {response.status}")
        extensions = document.get("extensions")
        names = tuple(map(str, extensions)) if isinstance(extensions, list) else ()
        return ServerMetadata(str(document.get("name", "")), str(document.get("version", "")), names)

    async def is_ready(self, model: str, version: str) -> bool:
        if (await self._get("/v2/health/ready")).status != 200:
            return False
        response = await self._get(rest.model_path(model, version, "ready"))
        return response.status == 200 and rest.decode_ready(response.body)

    async def model_metadata(self, model: str, version: str) -> ModelMetadata:
        response = await self._get(rest.model_path(model, version))
        if response.status != 200:
            raise TargetError(
                f"{self._address}: the server does not offer model '{model}': HTTP {response.status}: {rest.decode_error(response.body)}"
            )
        try:
            return rest.decode_model_metadata(response.body)
        except ProtocolError as error:
            raise TargetError(f"{self._address}: {error}") from None

    async def model_config(self, model: str, version: str) -> ModelConfig:
        response = await self._get(rest.model_path(model, version, "config"))
        if response.status != 200:
            return ModelConfig()
        try:
            return rest.decode_model_config(response.body)
        except ProtocolError:
            raise TargetError(f"{self._address}: the configuration of model '{model}' is not valid v2") from None

    async def model_statistics(self, model: str, version: str) -> tuple[ModelStatistics, ...]:
        response = await self._get(rest.model_path(model, version, "stats"))
        if response.status != 200:
            return ()
        try:
            return decode_model_statistics(_decompressed(response))
        except ProtocolError as error:
            raise TargetError(f"{self._address}: {error}") from None


def _decompressed(response: HttpResponse) -> bytes:
    """The body, decompressed if possible: some servers compress errors, too."""
    try:
        return decompress(response.body, response.headers.get("content-encoding", ""), _MAX_RESPONSE_BYTES)
    except ProtocolError:
        return response.body
