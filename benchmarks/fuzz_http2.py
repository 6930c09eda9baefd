"""Fuzzes the wire engine for gRPC with randomly broken answers: frames, messages, floods, exchanges over sockets.

    python -m benchmarks.fuzz_http2 [--minutes 10] [--seed 0] [--out reports/fuzz-http2.md]

Guarantees that it checks, whatever a server writes: HTTP/2 is read or rejected with `Http2Error`; a message is decoded or
rejected with `ProtocolError`; a stream ends at most once; frames without an end end the session before it holds or has written
more than 16 MiB; a request over a socket gets one outcome before its timeout.
"""

import asyncio
import collections
import contextlib
import functools
import gzip
import itertools
import random
import sys
import time

import uvloop

from benchmarks import fuzzing
from benchmarks.fuzzing import TrialKind, add_fault
from perfkit.errors import ProtocolError
from perfkit.protocol import http2
from perfkit.protocol.http2 import HeaderBlockReader, Http2Error, LimitError, frame
from perfkit.protocol.protobuf import decode_infer_response
from perfkit.target.address import Address
from perfkit.transport.base import Outcome, Prepared
from perfkit.transport.grpc.messages import AnswerHeaders, classify, parse_headers, read_message
from perfkit.transport.grpc.request_writer import request_buffers
from perfkit.transport.grpc.session import ClientSession, SessionListener, Stream
from perfkit.transport.grpc.transport import WireGrpcTransport
from perfkit.transport.options import BYTES_PER_CHUNK, AnswerLimit, TransportOptions

GREETING = frame(http2.SETTINGS, 0, 0)
_REQUEST = request_buffers([(":method", "POST"), (":scheme", "http"), (":path", "/x"), (":authority", "a")], bytes(100_000))
_LIMIT = AnswerLimit(1 << 20)
_MAX_HELD_BYTES, _MAX_FLOOD_BYTES = 1 << 24, 1 << 29
_TIMEOUT_NS = 100_000_000
_HANG_TIMEOUT_S = 60  # far longer than a request with that timeout takes on a busy machine
_HEADERS = [(":status", "200"), ("content-type", "application/grpc"), ("grpc-encoding", "gzip")]
_MESSAGE = b"\x00\x00\x00\x00\x06\x0a\x01m\x12\x011"


class CheckingListener(SessionListener[Stream[AnswerHeaders], AnswerHeaders]):
    """A session's listener and writer that checks that each stream ends once."""

    answer_limit = _LIMIT

    def __init__(self) -> None:
        self.ended: collections.Counter[int] = collections.Counter()
        self.written = bytearray()
        self.connection = ClientSession(self, self, HeaderBlockReader(parse_headers, {}))

    def now_ns(self) -> int:
        """A time that stands still."""
        return 0

    def write(self, data: bytes) -> None:
        """As a transport."""
        self.written += data

    def writelines(self, list_of_data: object) -> None:
        """As a transport."""
        self.written += b"".join(list_of_data)  # type: ignore[arg-type] # buffers, whatever their type

    def on_answer(self, stream: Stream[AnswerHeaders], trailers: AnswerHeaders | None) -> None:
        """Ends a stream; its answer can be classified."""
        self._end(stream)
        outcome, text, _ = classify(stream.headers, trailers, stream.chunks)
        assert outcome is Outcome.OK or text, "a failure without a message"

    def on_reset(self, stream: Stream[AnswerHeaders], code: int) -> None:
        """Ends a stream."""
        self._end(stream)
        assert http2.error_name(code)

    def on_refused(self, stream: Stream[AnswerHeaders], reason: str) -> None:
        """Ends a stream."""
        self._end(stream)
        assert reason

    def on_settings(self) -> None:
        """Nothing to check."""

    def on_goaway(self) -> None:
        """The reason is known."""
        assert self.connection.goaway_reason

    def _end(self, stream: Stream[AnswerHeaders]) -> None:
        self.ended[stream.id] += 1
        assert self.ended[stream.id] == 1, f"stream {stream.id} ended twice"
        assert stream.id not in self.connection.streams


def broken_answer(rng: random.Random, streams: int) -> bytes:
    """Frames as a server may write them for some streams, with faults in some."""
    frames = []
    for index in range(streams):
        stream_id = 2 * index + 1
        status = rng.choice(["0", "0", "3", "14", "99", "", "x", "00000000000013"])
        frames += [
            frame(http2.HEADERS, 4, stream_id, http2.encode_headers(_HEADERS)),
            frame(http2.DATA, 0, stream_id, _MESSAGE),
            frame(http2.HEADERS, 5, stream_id, http2.encode_headers([("grpc-status", status), ("grpc-message", "%zz\u00fc%C3")])),
        ]
    for _ in range(rng.randrange(4)):
        frames.insert(rng.randrange(len(frames) + 1), _any_frame(rng, streams))
    written = bytearray(b"".join(frames))
    for _ in range(rng.choice([0, 1, 1, 2, 8])):
        add_fault(written, rng)
    return bytes(written)


def _any_frame(rng: random.Random, streams: int) -> bytes:
    kind = rng.choice([*range(10), 0xFA])
    payload = rng.choice([b"", rng.randbytes(4), rng.randbytes(8), rng.randbytes(6), rng.randbytes(rng.randrange(40))])
    if kind == http2.SETTINGS and rng.random() < 0.7:
        key, value = rng.randrange(8), rng.choice([0, 1, 10, 100, 65_535, 1 << 20, rng.randrange(1 << 32)])
        payload = key.to_bytes(2) + value.to_bytes(4)
    return frame(kind, rng.choice([0, 1, 4, 5, 8, 0x20, rng.randrange(256)]), rng.randrange(2 * streams + 3), payload)


def try_frames(rng: random.Random) -> str:
    """One connection with a few streams that receives a broken answer in parts."""
    listener, streams = CheckingListener(), rng.randrange(1, 5)
    listener.connection.open()
    listener.connection.receive(GREETING)
    for _ in range(streams):
        listener.connection.send(Stream(), _REQUEST)
    answer = broken_answer(rng, streams)
    position, outcome = 0, "read"
    try:
        while position < len(answer):
            size = rng.choice([1, 2, 9, 30, len(answer)])
            listener.connection.receive(answer[position : position + size])
            position += size
    except Http2Error as error:
        outcome = f"rejected: {http2.error_name(error.code)}"
    assert len(listener.ended) + len(listener.connection.streams) == streams, "a stream is neither open nor ended"
    _check_frames(bytes(listener.written))
    return outcome


def _check_frames(written: bytes) -> None:
    position = len(http2.PREFACE)
    while position < len(written):
        upper, lower, kind, _, _ = http2.read_head(written, position)
        assert kind <= http2.CONTINUATION, "the client wrote bytes that are not a frame"
        position += http2.HEAD_BYTES + (upper << 8 | lower)
    assert position == len(written), "the client wrote an incomplete frame"


def try_flood(rng: random.Random) -> str:
    """One connection with two requests that receives a few frames again and again, often with a fault."""
    listener = CheckingListener()
    listener.connection.open()
    listener.connection.receive(GREETING)
    streams = [Stream[AnswerHeaders](), Stream[AnswerHeaders]()]
    for stream in streams:
        listener.connection.send(stream, _REQUEST)
    block = bytearray(b"".join(_flood_frame(rng) for _ in range(rng.randrange(1, 4))))
    if rng.random() < 0.3:
        add_fault(block, rng)
    block = (block or bytearray(b"x")) * (1 + rng.choice([0, 1 << 10, 1 << 16]) // max(len(block), 1))
    head = frame(http2.HEADERS, 4, 1, http2.encode_headers(_HEADERS))
    received_bytes = 0
    try:
        for index, data in enumerate(itertools.chain([head], itertools.repeat(bytes(block)))):
            listener.connection.receive(data)
            received_bytes += len(data)
            assert received_bytes < _MAX_FLOOD_BYTES, "a flood was not ended"
            if index % 1000 and len(data) < 1000:  # counting takes long
                continue
            held_bytes = sum(sum(map(len, stream.chunks)) + BYTES_PER_CHUNK * len(stream.chunks) for stream in streams)
            assert held_bytes < _MAX_HELD_BYTES, f"{held_bytes:,} B of answers are held"
            assert len(listener.written) < _MAX_HELD_BYTES, "the client wrote too much"
    except LimitError as error:
        return str(error).partition(":")[0]
    except Http2Error as error:
        return f"rejected: {http2.error_name(error.code)}"
    raise AssertionError


def _flood_frame(rng: random.Random) -> bytes:
    stream_id = rng.choice([0, 1, 1, 3])
    match rng.randrange(6):
        case 0:
            return frame(http2.DATA, rng.choice([0, 0, 0x8]), stream_id or 1, bytes(rng.choice([0, 1, 2, 100, 16_384])))
        case 1:
            block = http2.encode_headers([(":status", rng.choice(["100", "103", "200"]))])
            return frame(http2.HEADERS, rng.choice([0, 4, 4]), stream_id or 1, block)
        case 2:
            return frame(http2.CONTINUATION, 0, stream_id or 1, bytes(rng.choice([0, 1, 16_384])))
        case 3:
            return http2.number_frame(http2.WINDOW_UPDATE, stream_id, rng.choice([1, 16_384]))
        case 4:
            return frame(http2.PING, rng.choice([0, 0, 1]), 0, bytes(8))
        case _:
            return _any_frame(rng, 2)


def try_message(rng: random.Random) -> str:
    """Decodes one broken message under some encoding."""
    message = bytearray(rng.choice([_MESSAGE, b"\x01" + (30).to_bytes(4) + gzip.compress(b"0123456789", mtime=0)[:30], rng.randbytes(20)]))
    for _ in range(rng.randrange(3)):
        add_fault(message, rng)
    try:
        read_message(bytes(message), rng.choice(["", "identity", "gzip", "deflate", "br"]), _LIMIT.max_bytes)
    except ProtocolError:
        return "rejected"
    return "decoded"


def try_exchange(rng: random.Random) -> str:
    """A few requests over sockets to a server that answers with broken frames and then closes the connection or hangs."""
    outcomes = uvloop.run(_exchange(rng))
    return ", ".join(sorted({outcome.value for outcome in outcomes}))


async def _exchange(rng: random.Random) -> list[Outcome]:
    streams, count = rng.randrange(1, 4), rng.randrange(1, 6)
    async with fuzzing.serving(functools.partial(_reply, rng, streams)) as port:
        address = Address("grpc", "127.0.0.1", port)
        transport = WireGrpcTransport(
            address, TransportOptions(max_connections=2, timeout_ns=_TIMEOUT_NS, streams_per_connection=streams), time.monotonic_ns
        )
        replies = await asyncio.wait_for(asyncio.gather(*(transport.send(Prepared(_REQUEST)) for _ in range(count))), _HANG_TIMEOUT_S)
        await transport.aclose()
    for reply in replies:
        assert reply.started_ns <= reply.finished_ns
        with contextlib.suppress(ProtocolError):
            decode_infer_response(transport.answer(reply))
    return [reply.outcome for reply in replies]


async def _reply(rng: random.Random, streams: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    answer, is_hanging = broken_answer(rng, streams), rng.random() < 0.2
    writer.write(GREETING if rng.random() < 0.9 else b"")
    await reader.readexactly(rng.choice([1, 100, 200, 1000]))
    writer.write(answer)
    if is_hanging:
        await reader.read()


# an exchange takes as long as some 50 of the other trials: this way each takes about half of the time
KINDS = (
    TrialKind("frames", try_frames),
    TrialKind("messages", try_message),
    TrialKind("floods", try_flood, seeds_per_trial=25),
    TrialKind("exchanges", try_exchange, seeds_per_trial=25),
)


def main() -> int:
    """Runs the trials; the exit code is 1 at a violation."""
    guarantee = (
        "Every answer is decoded or rejected; a stream ends once; over sockets each request gets one outcome before its timeout; "
        "frames without an end end the session."
    )
    return fuzzing.fuzz(KINDS, "Fuzzing the wire engine for gRPC with broken answers", guarantee, fuzzing.parse_options(__doc__))


if __name__ == "__main__":
    sys.exit(main())
