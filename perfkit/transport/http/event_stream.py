"""The wire engine's connection for answers that are streams of server-sent events, such as those of Triton's `generate_stream`."""

import re
from collections.abc import Callable, Sequence

from perfkit.errors import AnswerTooLargeError
from perfkit.protocol.generate import EventSplitter
from perfkit.transport.base import Outcome, Reply, ReplyReceiver
from perfkit.transport.future_replies import LeavingReply
from perfkit.transport.http.calls import EventAnswer
from perfkit.transport.http.connection import HttpConnection
from perfkit.transport.pool import ConnectionPool

ERROR_EVENT_STATUS = "error"
"""The status of a request that a stream answers with an error; its HTTP status is 200."""
COMPRESSED = "the server compresses its stream of events, which nobody asked it to: its events cannot be read"
_ENCODED = re.compile(rb"\ncontent-encoding:[ \t]*(?!identity)\S", re.IGNORECASE)
NO_EVENTS = "the answer is not a stream of events, or ends within one"


class EventStreamConnection(HttpConnection):
    """A keep-alive connection whose answers are streams of events; each is timed when its last bytes are received.

    `new_answer` is that of `HttpApi`.
    """

    def __init__(self, pool: "ConnectionPool[EventStreamConnection]", new_answer: Callable[[], EventAnswer]) -> None:
        super().__init__(pool)
        self._new_answer = new_answer
        self._begin()

    def send(self, buffers: Sequence[bytes], reply: ReplyReceiver) -> None:
        self._begin()
        if isinstance(reply, LeavingReply) and reply.after_responses:
            self._events = EventSplitter(self._pool.answer_limit.max_bytes, self._on_event_and_leave)
        super().send(buffers, reply)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        del self._events  # it refers to this connection

    def on_body(self, body: bytes) -> None:
        """Httptools' callback: a piece of an answer's body."""
        if self._reply is None or self._parser.get_status_code() != 200:
            return
        try:
            self._events.append(body)
        except AnswerTooLargeError as error:
            self._fail(Outcome.BROKEN, str(error), is_own_limit=True)

    def _begin(self) -> None:
        self._answer = self._new_answer()
        self._events = EventSplitter(self._pool.answer_limit.max_bytes, self._on_event)

    def _on_event(self, data: bytes) -> None:
        self._answer.take(data, self._received_ns)

    def _on_event_and_leave(self, data: bytes) -> None:
        """Takes an event, and gives the request up with its last wanted one."""
        reply = self._reply
        if not isinstance(reply, LeavingReply):
            return  # given up, while more events were in the same chunk
        self._on_event(data)
        if len(self._answer.responses_ns) >= reply.after_responses:
            self.give_up(reply)

    def _check_size(self, added_bytes: int) -> None:
        """Each event has a limit of its own, and a stream none; its bytes are not kept."""
        if self._parser.get_status_code() == 200:
            del self._chunks[1:]
        else:
            super()._check_size(added_bytes)

    def _learn_head(self, status: int, data: bytes) -> None:
        """Every answer is parsed, for its events."""

    def _answered(self, status: int) -> Reply:
        if status != 200:
            return super()._answered(status)
        reply = stream_reply(self._answer, self._events, self._started_ns, self._received_ns)
        if reply.outcome in (Outcome.BROKEN, Outcome.INVALID_OUTPUT) and _ENCODED.search(self._chunks[0]):
            reply.error = COMPRESSED
        return reply

    def _failed(self, outcome: Outcome, error: str, *, is_own_limit: bool) -> Reply:
        return self._answer.failed(outcome, self._started_ns, self._now_ns(), error, is_own_limit=is_own_limit)


def stream_reply(answer: EventAnswer, events: EventSplitter, started_ns: int, ended_ns: int) -> Reply:
    """The reply to a request whose stream has ended; it has no payload if there was no response."""
    if events.has_rest:
        # a body in place of the whole stream is likely to say why there is none
        words = "" if answer.responses_ns else events.shown_rest.decode(errors="replace").strip()
        return answer.failed(Outcome.BROKEN, started_ns, ended_ns, f"{NO_EVENTS}{f': {words}' if words.startswith('{') else ''}")
    answer.end(is_done=events.is_done)
    return answer.complete(started_ns, ended_ns, ERROR_EVENT_STATUS)
