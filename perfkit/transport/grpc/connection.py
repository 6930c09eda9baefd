"""The wire engine's unary gRPC calls: HTTP/2 streams, prepared bytes out, one reply per request.

The timed span includes reading an answer's status; its message is left in the chunks in which it arrived.
"""

from collections.abc import Sequence

from perfkit.protocol import http2
from perfkit.transport.base import Outcome, Reply, ReplyReceiver
from perfkit.transport.grpc.http2_connection import Http2Connection
from perfkit.transport.grpc.messages import AnswerHeaders, classify, is_complete
from perfkit.transport.grpc.session import Stream

_OK = Outcome.OK  # an enum's attribute lookup costs more than the rest of a reply


class Call(Stream[AnswerHeaders]):
    """A request in flight, with what is needed to send it again."""

    __slots__ = ("buffers", "is_resent", "reply", "started_ns", "submitted_ns")

    def __init__(self, buffers: Sequence[bytes], reply: ReplyReceiver, started_ns: int) -> None:
        self.buffers = buffers
        self.reply = reply
        self.submitted_ns = self.started_ns = started_ns
        self.is_resent = False
        self.headers = None
        self.chunks = []
        self.received_bytes = 0


class GrpcConnection(Http2Connection[Call]):
    """A connection for unary calls, each a stream of its own."""

    def send(self, buffers: Sequence[bytes], reply: ReplyReceiver) -> None:
        if self._timer is None:
            self._set_timer(self._pool.timeout_ns)
        call = Call(buffers, reply, self._now_ns())
        self._session.send(call, buffers)

    def send_queued(self, buffers: Sequence[bytes], reply: ReplyReceiver, submitted_ns: int, started_ns: int | None) -> None:
        call = Call(buffers, reply, self._now_ns())
        call.submitted_ns = submitted_ns
        if started_ns is not None:
            call.started_ns, call.is_resent = started_ns, True
        self._session.send(call, buffers)
        self._reset_timer()  # it may fire after this request's deadline

    def abandon(self) -> None:
        self.is_usable = False
        for call in tuple(self._session.streams.values()):
            self._session.cancel(call)
            self._resolve(call, Outcome.UNFINISHED, "")
        self.close()

    def on_answer(self, stream: Call, trailers: AnswerHeaders | None) -> None:
        if trailers is not None and trailers.is_ok and is_complete(stream.chunks):
            started_ns, received_ns = stream.started_ns, self._received_ns
            # the chunk that led to this call's sending may hold its answer, too
            finished_ns = received_ns if received_ns > started_ns else self._now_ns()
            if self.is_usable and self.stream_slots == self._allowed_slots:
                self._pool.release(self)
            else:
                self._release()
            if not stream.reply.done():  # after the release: the receiver may send its next request at once
                stream.reply.set_result(Reply(_OK, started_ns, finished_ns, (stream.headers, stream.chunks)))
        else:
            outcome, error, status = classify(stream.headers, trailers, stream.chunks)
            if status == "DEADLINE_EXCEEDED" and self._is_due(stream.submitted_ns):
                outcome, status = Outcome.TIMED_OUT, ""
            self._end(stream, outcome, error, status)

    def on_reset(self, stream: Call, code: int) -> None:
        if code == http2.CANCEL and self._is_due(stream.submitted_ns):
            self._end(stream, Outcome.TIMED_OUT, self._describe_time_out())
        else:
            self._end(stream, Outcome.BROKEN, f"the stream was reset before the answer was complete ({http2.error_name(code)})")

    def on_refused(self, stream: Call, reason: str) -> None:
        if stream.is_resent:
            self._end(stream, Outcome.BROKEN, f"{reason}, for the second time")
            return
        if not stream.reply.done():
            self._pool.resend(stream.buffers, stream.reply, stream.submitted_ns, stream.started_ns)
        self._release()

    def _end(self, call: Call, outcome: Outcome, error: str, status: str = "") -> None:
        self._resolve(call, outcome, error, status)
        self._release()

    def _resolve(self, call: Call, outcome: Outcome, error: str, status: str = "") -> None:
        if not call.reply.done():
            call.reply.set_result(Reply(outcome, call.started_ns, self._now_ns(), None, error, status))

    def _end_all(self, error: str) -> None:
        self.is_usable = False
        calls = tuple(self._session.streams.values())
        self._session.streams.clear()
        for call in calls:
            self._resolve(call, Outcome.BROKEN, error)

    def _submitted_ns(self) -> list[int]:
        return [call.submitted_ns for call in self._session.streams.values()]

    def _end_timed_out(self, due_ns: int) -> bool:
        due = [call for call in self._session.streams.values() if call.submitted_ns <= due_ns]
        for call in due:
            self._session.cancel(call)
            self._end(call, Outcome.TIMED_OUT, self._describe_time_out())
        return bool(due)
