"""The reference engine for Triton's `generate_stream`: aiohttp."""

import dataclasses

import aiohttp

from perfkit.errors import ProtocolError
from perfkit.protocol import rest
from perfkit.protocol.generate import EventSplitter, encode_generate_request, read_event_error
from perfkit.protocol.message import InferRequest
from perfkit.transport.base import Outcome, Prepared, Reply
from perfkit.transport.http.calls import HttpResponse
from perfkit.transport.http.event_stream import stream_reply
from perfkit.transport.http.reference import ReferenceHttpTransport, RequestTrace
from perfkit.transport.streamed_answer import StreamedAnswer


@dataclasses.dataclass(slots=True)
class _StreamTrace(RequestTrace):
    """The trace of a streamed request, with the responses that came."""

    answer: StreamedAnswer = dataclasses.field(default_factory=StreamedAnswer)
    events: EventSplitter | None = None


class ReferenceEventStreamTransport(ReferenceHttpTransport):
    """Requests of `generate_stream` on aiohttp's session."""

    def prepare(self, request: InferRequest) -> Prepared:
        path = rest.model_path(request.model, request.version, "generate_stream")
        return Prepared((path.encode(), encode_generate_request(request)), {"Content-Type": rest.JSON_TYPE})

    def _trace(self) -> RequestTrace:
        return _StreamTrace(self._now_ns())

    async def _read(self, response: aiohttp.ClientResponse, trace: RequestTrace) -> bytes:
        if not isinstance(trace, _StreamTrace) or response.status != 200:
            return await super()._read(response, trace)
        answer = trace.answer

        def take(data: bytes) -> None:
            if error := read_event_error(data):
                answer.error = answer.error or error
            else:
                answer.add(None, len(data), self._now_ns())

        trace.events = EventSplitter(self._limit.max_bytes, take)
        try:
            async for piece in response.content.iter_any():
                trace.events.append(piece)
        except ProtocolError as error:
            raise aiohttp.ClientPayloadError(str(error)) from None
        return b""

    def _reply(
        self, trace: RequestTrace, outcome: Outcome, payload: HttpResponse | None = None, error: str = "", status: str | int = ""
    ) -> Reply:
        assert isinstance(trace, _StreamTrace)
        if outcome is Outcome.OK and trace.events is not None:
            return stream_reply(trace.answer, trace.events, trace.started_ns, self._now_ns())
        reply = trace.answer.failed(outcome, trace.started_ns, self._now_ns(), error, status)
        reply.payload = payload
        return reply
