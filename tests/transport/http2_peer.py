"""A session listener that records its events, and servers of the h2 package."""

import asyncio
import contextlib
import struct

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions
import h2.settings

from perfkit.protocol.http2 import HeaderBlockReader
from perfkit.target.address import Address
from perfkit.transport.grpc.messages import AnswerHeaders, parse_headers
from perfkit.transport.grpc.session import ClientSession, SessionListener, Stream
from perfkit.transport.options import AnswerLimit
from tests.transport import servers

OK_HEADERS = [(":status", "200"), ("content-type", "application/grpc")]
OK_TRAILERS = [("grpc-status", "0")]


def framed(message, flag=0):
    return struct.pack(">BI", flag, len(message)) + message


class RecordingListener(SessionListener[Stream[AnswerHeaders], AnswerHeaders]):
    """The events of a session in order, and the bytes it wrote."""

    def __init__(self, limit_bytes=1 << 30):
        self._limit, self.time_ns = AnswerLimit(limit_bytes), 0
        self.events = []
        self.written = bytearray()
        self.session = ClientSession(self, self, HeaderBlockReader(parse_headers, {}))

    @property
    def answer_limit(self):
        return self._limit

    def now_ns(self):
        return self.time_ns

    def write(self, data):
        self.written += data

    def writelines(self, list_of_data):
        self.written += b"".join(list_of_data)

    def take_written(self):
        """The bytes written since the last call."""
        written, self.written = bytes(self.written), bytearray()
        return written

    def on_answer(self, stream, trailers):
        self.events.append(("answer", stream.id, stream.headers, b"".join(stream.chunks), trailers))

    def on_reset(self, stream, code):
        self.events.append(("reset", stream.id, code))

    def on_refused(self, stream, reason):
        self.events.append(("refused", stream.id, reason))

    def on_settings(self):
        self.events.append(("settings",))

    def on_goaway(self):
        self.events.append(("goaway",))

    def stream_events(self):
        """The events that end a stream."""
        return [event for event in self.events if event[0] in ("answer", "reset", "refused")]

    def send(self, buffers):
        stream: Stream[AnswerHeaders] = Stream()
        self.session.send(stream, buffers)
        return stream


def make_h2(**settings):
    """An h2 server connection that does not validate the headers it sends."""
    config = h2.config.H2Configuration(client_side=False, header_encoding="utf-8", validate_outbound_headers=False)
    connection = h2.connection.H2Connection(config)
    codes = h2.settings.SettingCodes
    connection.local_settings = h2.settings.Settings(
        client=False, initial_values={codes[key.upper()]: value for key, value in settings.items()} | {codes.ENABLE_CONNECT_PROTOCOL: 0}
    )
    connection.max_inbound_frame_size = connection.local_settings.max_frame_size
    connection.initiate_connection()
    return connection


class Peer:
    """One h2 server connection that runs a script; `requests` holds complete ones as (stream id, headers, data)."""

    def __init__(self, reader, writer, **settings):
        self.h2 = make_h2(**settings)
        self.reader, self.writer = reader, writer
        self.requests: asyncio.Queue[tuple[int, dict[str, str], bytes]] = asyncio.Queue()
        self.events = []
        self._parts = {}

    async def serve(self, script):
        """Runs the script while reading requests; returns when either ends."""
        self.flush()
        tasks = [asyncio.ensure_future(self._read()), asyncio.ensure_future(script(self))]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self):
        while data := await self.reader.read(1 << 16):
            for event in self.h2.receive_data(data):
                self.events.append(event)
                match event:
                    case h2.events.RequestReceived():
                        self._parts[event.stream_id] = (dict(event.headers), bytearray())
                    case h2.events.DataReceived():
                        self._parts[event.stream_id][1].extend(event.data)
                        self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                    case h2.events.StreamEnded():
                        headers, body = self._parts.pop(event.stream_id)
                        self.requests.put_nowait((event.stream_id, headers, bytes(body)))
            self.flush()

    def flush(self):
        self.writer.write(self.h2.data_to_send())

    def answer(self, stream_id, message=b"", headers=None, trailers=None):
        """Sends a complete answer."""
        self.h2.send_headers(stream_id, OK_HEADERS if headers is None else headers)
        data, size = framed(message), self.h2.max_outbound_frame_size
        for first in range(0, len(data), size):
            self.h2.send_data(stream_id, data[first : first + size])
        self.h2.send_headers(stream_id, OK_TRAILERS if trailers is None else trailers, end_stream=True)
        self.flush()


@contextlib.asynccontextmanager
async def h2_server(*scripts, **settings):
    """A loopback server; script n, a coroutine function of a Peer, serves connection n, the last one all further connections."""

    def handler(script):
        async def handle(reader, writer):
            await Peer(reader, writer, **settings).serve(script)
            await writer.drain()

        return handle

    async with servers.scripted_server(*map(handler, scripts)) as address:
        yield Address("grpc", address.host, address.port)


async def answering(peer):
    """Answers every request with its own message."""
    while True:
        stream_id, _, body = await peer.requests.get()
        peer.answer(stream_id, body[5:])
