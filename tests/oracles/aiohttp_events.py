"""Streams of server-sent events on aiohttp, which the wire engine's are compared with."""

import dataclasses

import aiohttp

from perfkit.api_v2.http import HttpCalls
from perfkit.errors import ProtocolError
from perfkit.protocol.generate import EventSplitter
from perfkit.transport.base import Outcome
from perfkit.transport.http.calls import EventAnswer
from perfkit.transport.http.event_stream import stream_reply
from perfkit.transport.http.reference import ReferenceHttpTransport, RequestTrace


@dataclasses.dataclass(slots=True)
class _StreamTrace(RequestTrace):
    """The trace of a streamed request, with the responses that came."""

    answer: EventAnswer = dataclasses.field(default_factory=HttpCalls.API.new_answer)
    events: EventSplitter | None = None


class EventStreamOracle(ReferenceHttpTransport):
    """Each request is answered by a stream of events."""

    def _trace(self):
        return _StreamTrace(self._now_ns())

    async def _read(self, response, trace):
        if response.status != 200:
            return await super()._read(response, trace)
        answer = trace.answer

        def take(data):
            answer.take(data, self._now_ns())

        trace.events = EventSplitter(self._answer_limit.max_bytes, take)
        try:
            async for piece in response.content.iter_any():
                trace.events.append(piece)
        except ProtocolError as error:
            raise aiohttp.ClientPayloadError(str(error)) from None
        return b""

    def _reply(self, trace, outcome, payload=None, error="", status=""):
        if outcome is Outcome.OK and trace.events is not None:
            return stream_reply(trace.answer, trace.events, trace.started_ns, self._now_ns())
        reply = trace.answer.failed(outcome, trace.started_ns, self._now_ns(), error, status)
        reply.payload = payload
        return reply
