"""A server session whose events and bytes are recorded, and the ways in which bytes reach it."""

import collections
import types

import hpack

from perfkit.protocol import http2
from perfkit.protocol.http2 import HeaderBlockReader, frame
from server_stub.devices.host_memory import HostMemory
from server_stub.grpc.http2_session import ServerSession
from server_stub.grpc.http2_stream import parse_request_headers
from tests.server_stub.grpc.h2_caller import framed

GREETING = http2.PREFACE + frame(http2.SETTINGS, 0, 0)
BLOCK = http2.encode_headers([(":method", "POST"), (":path", "/s/M"), ("content-type", "application/grpc"), ("te", "trailers")])
_SCRATCH_BYTES = 1 << 16


class SessionRecorder:
    """The listener and writer of a session. With `echoes`, every call is answered with its messages behind each other.

    `prompt` returns the answers that are there at once, by their messages.
    """

    def __init__(self, *, max_streams=100, max_message_bytes=1 << 30, echoes=False, prompt=None):
        self.events = []
        self.streams = {}
        self.written = bytearray()
        self.time_ns = 0
        self._prompt = prompt
        self._echoes, self._came = echoes, collections.defaultdict(list)
        blocks = HeaderBlockReader(parse_request_headers, {})
        self.session = ServerSession(
            self, self, blocks, max_streams=max_streams, max_message_bytes=max_message_bytes, take_memory=HostMemory().take
        )

    def receive(self, data):
        self.session.receive(memoryview(data))

    def take_written(self):
        """The bytes written since the last call."""
        written, self.written = bytes(self.written), bytearray()
        return written

    def write(self, data):
        self.written += data

    def writelines(self, list_of_data):
        self.written += b"".join(list_of_data)

    def now_ns(self):
        return self.time_ns

    def answer_at_once(self, headers, data, first, stop):
        """With `prompt`, what that returns for the message."""
        return None if self._prompt is None else self._prompt(bytes(data[first:stop]))

    def on_answer(self, stream, answer):
        if isinstance(answer, Exception):
            self.session.end(stream, [(":status", "200"), ("grpc-status", "13")])
        else:
            self.session.respond(stream, answer)

    def on_headers(self, stream):
        self.streams[stream.id] = stream
        stream.call = types.SimpleNamespace(
            receive=lambda message: self.on_message(stream, message),
            receive_end=lambda: self.on_end(stream),
            answer=lambda answer: self.on_answer(stream, answer),
            resume=lambda: self.on_sent(stream),
        )
        self.events.append(("headers", stream.id, stream.headers.path))

    def on_message(self, stream, message):
        self._came[stream.id].append(bytes(message.data))
        self.events.append(("message", stream.id, bytes(message.data), message.is_compressed))

    def on_end(self, stream):
        self.events.append(("end", stream.id))
        if self._echoes:
            self.session.respond(stream, self._came.pop(stream.id, []))

    def on_waiting(self):
        """Not recorded: it may come several times."""

    def on_sent(self, stream):
        self.events.append(("sent", stream.id))

    def on_message_too_large(self, stream, text):
        self.events.append(("too large", stream.id, text))

    def on_closed(self, stream):
        self.events.append(("closed", stream.id))


def opened(data=b"", **options):
    """A recorder whose session has received the greeting, and then `data`."""
    recorder = SessionRecorder(**options)
    recorder.session.open()
    recorder.receive(GREETING)
    recorder.take_written()
    recorder.receive(data)
    return recorder


def endlessly(choices, values):
    """Values chosen at random."""
    while True:
        yield choices.choice(values)


def feed(session, data, sizes):
    """Hands over data as a connection does: at most so many bytes at a time, into the session's space if it has some."""
    scratch, position = memoryview(bytearray(_SCRATCH_BYTES)), 0
    while position < len(data):
        buffer = session.space() or scratch
        part = data[position : position + min(next(sizes), len(buffer))]
        buffer[: len(part)] = part
        if not session.advance(len(part)):
            session.receive(scratch[: len(part)])
        position += len(part)


def frames_of(written):
    """The frames in written bytes, each as (type, flags, stream id, payload)."""
    frames, position = [], 0
    while position < len(written):
        length = int.from_bytes(written[position : position + 3])
        end = position + 9 + length
        stream_id = int.from_bytes(written[position + 5 : position + 9])
        frames.append((written[position + 3], written[position + 4], stream_id, bytes(written[position + 9 : end])))
        position = end
    assert position == len(written)
    return frames


def data_of(written, stream_id=1):
    """A stream's data."""
    return b"".join(payload for kind, _, stream, payload in frames_of(written) if (kind, stream) == (http2.DATA, stream_id))


def headers_frame(stream_id=1, block=BLOCK, *, end=False):
    return frame(http2.HEADERS, 0x4 | end, stream_id, block)


def data_frame(data, stream_id=1, *, end=False):
    return frame(http2.DATA, int(end), stream_id, data)


def call(message, stream_id=1):
    """A whole call with one message."""
    return headers_frame(stream_id) + data_frame(framed(message), stream_id, end=True)


def settings_frame(**values):
    return http2.settings({getattr(http2, name.upper()): value for name, value in values.items()})


def trailers_of(payload):
    """The decoded headers of a frame, which were written without a table."""
    return {str(name): str(value) for name, value in hpack.Decoder().decode(payload)}


class Unread:
    """The connection of calls whose methods are never scheduled."""

    def __init__(self, session, loop):
        self.session, self.loop, self.max_message_bytes, self.begun_calls = session, loop, 1 << 30, []

    def admit(self, _):
        return True

    async def until_writable(self):
        pass
