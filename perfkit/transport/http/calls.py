"""What the HTTP engines share: the v2 calls beside infer, and how an answer is read."""

import abc
import dataclasses
import json
from typing import Any

from perfkit.errors import ErrorKind, ProtocolError, TargetError
from perfkit.protocol import rest
from perfkit.protocol.compression import compress, decompress
from perfkit.protocol.message import InferRequest, InferResponse, ModelConfig, ModelMetadata, ServerMetadata
from perfkit.protocol.statistics import ModelStatistics, decode_model_statistics
from perfkit.protocol.tensor import Buffer
from perfkit.target.address import Address
from perfkit.transport.base import Outcome, Reply
from perfkit.transport.options import Compression

_LARGEST_ANSWER_BYTES = 2**31  # as Triton's clients have it


@dataclasses.dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP response: header names in lower case."""

    status: int
    headers: dict[str, str]
    body: bytes


class RestTransport(abc.ABC):
    """The calls around infer; an engine adds how to send one (`_get`) and how to read a reply (`_answer`)."""

    def __init__(self, address: Address, compression: Compression) -> None:
        self._address = address
        self._compression = compression

    @abc.abstractmethod
    async def _get(self, path: str) -> Answer:
        """Sends a GET; raises TargetError where the target cannot be reached."""

    @abc.abstractmethod
    def _answer(self, reply: Reply) -> Answer:
        """The answer that a reply carries; raises ProtocolError where it is broken."""

    def decode(self, reply: Reply) -> InferResponse:
        """See `Transport.decode`."""
        answer = self._answer(reply)
        if reply.outcome is not Outcome.OK:
            kind = ErrorKind.INVALID_ARGUMENT if answer.status in (400, 422) else ErrorKind.INTERNAL
            raise ProtocolError(f"HTTP {answer.status}: {rest.decode_error(_readable(answer))}", kind)
        length = answer.headers.get(rest.HEADER_LENGTH.lower())
        if length is not None and not length.isdecimal():
            raise ProtocolError(f"{rest.HEADER_LENGTH} is not a number: {length!r}")
        body = decompress(answer.body, answer.headers.get("content-encoding", ""), _LARGEST_ANSWER_BYTES)
        return rest.decode_infer_response(body, None if length is None else int(length))

    def _encode(self, request: InferRequest) -> tuple[dict[str, str], list[Buffer]]:
        """Headers and body of an infer request, packed where that is asked for."""
        headers, body = rest.encode_infer_request(request)
        if self._compression != "none":
            headers |= {"Content-Encoding": self._compression, "Accept-Encoding": self._compression}
            body = [compress(body, self._compression)]
        return headers, body

    async def server_metadata(self) -> ServerMetadata:
        """See `Transport.server_metadata`."""
        document = await self._document("/v2")
        extensions = document.get("extensions")
        names = tuple(str(one) for one in extensions) if isinstance(extensions, list) else ()
        return ServerMetadata(str(document.get("name", "")), str(document.get("version", "")), names)

    async def is_ready(self, model: str, version: str) -> bool:
        """See `Transport.is_ready`."""
        if (await self._get("/v2/health/ready")).status != 200:
            return False
        answer = await self._get(rest.model_path(model, version, "ready"))
        return answer.status == 200 and rest.decode_ready(answer.body)

    async def model_metadata(self, model: str, version: str) -> ModelMetadata:
        """See `Transport.model_metadata`."""
        answer = await self._get(rest.model_path(model, version))
        if answer.status != 200:
            raise TargetError(
                f"{self._address}: the server does not offer model '{model}': HTTP {answer.status}: {rest.decode_error(answer.body)}"
            )
        try:
            return rest.decode_model_metadata(answer.body)
        except ProtocolError as error:
            raise TargetError(f"{self._address}: {error}") from None

    async def model_config(self, model: str, version: str) -> ModelConfig:
        """See `Transport.model_config`."""
        answer = await self._get(rest.model_path(model, version, "config"))
        if answer.status != 200:
            return ModelConfig()
        try:
            return rest.decode_model_config(answer.body)
        except ProtocolError:
            raise TargetError(f"{self._address}: the configuration of model '{model}' is not what the protocol says") from None

    async def model_statistics(self, model: str, version: str) -> tuple[ModelStatistics, ...]:
        """See `Transport.model_statistics`."""
        answer = await self._get(rest.model_path(model, version, "stats"))
        if answer.status != 200:
            return ()
        try:
            return decode_model_statistics(_readable(answer))
        except ProtocolError as error:
            raise TargetError(f"{self._address}: {error}") from None

    async def _document(self, path: str) -> dict[str, Any]:
        answer = await self._get(path)
        try:
            document = json.loads(answer.body) if answer.status == 200 else None
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise TargetError(f"{self._address}: this is no v2 server: GET {path} gives HTTP {answer.status}")
        return document


def _readable(answer: Answer) -> bytes:
    """The body of an error, which some servers compress as well; as it is where that cannot be undone."""
    try:
        return decompress(answer.body, answer.headers.get("content-encoding", ""), _LARGEST_ANSWER_BYTES)
    except ProtocolError:
        return answer.body
