"""Fuzzes the wire engine's gRPC with answers that are broken at random: frames, messages, whole exchanges over sockets.

    python -m benchmarks.fuzz_http2 [--minutes 10] [--seed 0] [--out reports/fuzz-http2.md]

Whatever a server writes, HTTP/2 is read or refused with `Http2Error`, a message is read or refused with `ProtocolError`,
a stream comes to one end at most, and a request sent over a socket ends in exactly one outcome within its time-out.
"""

import asyncio
import collections
import contextlib
import functools
import gzip
import random
import sys
import time

import uvloop

from benchmarks import fuzzing
from benchmarks.fuzzing import Kind, harm
from perfkit.errors import ProtocolError
from perfkit.protocol import http2
from perfkit.protocol.http2 import HeaderBlockReader, Http2Error, frame
from perfkit.target.address import Address
from perfkit.transport.base import Outcome, Prepared, Reply
from perfkit.transport.grpc.messages import AnswerHeaders, classify, parse_headers, read_message
from perfkit.transport.grpc.session import ClientSession
from perfkit.transport.grpc.stream import SessionListener, Stream, request_buffers
from perfkit.transport.grpc.transport import WireGrpcTransport
from perfkit.transport.options import TransportOptions

GREETING = frame(http2.SETTINGS, 0, 0)
_REQUEST = request_buffers([(":method", "POST"), (":scheme", "http"), (":path", "/x"), (":authority", "a")], bytes(100_000))
_TIMEOUT_NS = 100_000_000
_HANGS_AFTER_S = 60  # far longer than a request with that time-out takes on a busy machine
_HEADERS = [(":status", "200"), ("content-type", "application/grpc"), ("grpc-encoding", "gzip")]
_MESSAGE = b"\x00\x00\x00\x00\x06\x0a\x01m\x12\x011"


class Referee(SessionListener[Stream[AnswerHeaders], AnswerHeaders]):
    """A connection's listener and writer: it holds each stream to one end."""

    def __init__(self) -> None:
        self.ended: collections.Counter[int] = collections.Counter()
        self.written = bytearray()
        self.connection = ClientSession(self, self, HeaderBlockReader(parse_headers, {}))

    def write(self, data: bytes) -> None:
        """As a transport has it."""
        self.written += data

    def writelines(self, list_of_data: object) -> None:
        """As a transport has it."""
        self.written += b"".join(list_of_data)  # type: ignore[arg-type] # buffers, whatever their type

    def on_answer(self, stream: Stream[AnswerHeaders], trailers: AnswerHeaders | None) -> None:
        """One end, which can be judged."""
        self._end(stream)
        outcome, text, _ = classify(stream.headers, trailers, stream.chunks)
        assert outcome is Outcome.OK or text, "a failure without a sentence"

    def on_reset(self, stream: Stream[AnswerHeaders], code: int) -> None:
        """One end."""
        self._end(stream)
        assert http2.error_name(code)

    def on_refused(self, stream: Stream[AnswerHeaders], reason: str) -> None:
        """One end."""
        self._end(stream)
        assert reason

    def on_settings(self) -> None:
        """Nothing to hold."""

    def on_goaway(self) -> None:
        """Nothing to hold."""
        assert self.connection.goaway_reason

    def _end(self, stream: Stream[AnswerHeaders]) -> None:
        self.ended[stream.id] += 1
        assert self.ended[stream.id] == 1, f"stream {stream.id} came to two ends"
        assert stream.id not in self.connection.streams


def broken_answer(chance: random.Random, streams: int) -> bytes:
    """Frames as a server may write them for that many streams, with faults put into some of them."""
    frames = []
    for index in range(streams):
        stream_id = 2 * index + 1
        status = chance.choice(["0", "0", "3", "14", "99", "", "x", "00000000000013"])
        frames += [
            frame(http2.HEADERS, 4, stream_id, http2.encode_headers(_HEADERS)),
            frame(http2.DATA, 0, stream_id, _MESSAGE),
            frame(http2.HEADERS, 5, stream_id, http2.encode_headers([("grpc-status", status), ("grpc-message", "%zz\u00fc%C3")])),
        ]
    for _ in range(chance.randrange(4)):
        frames.insert(chance.randrange(len(frames) + 1), _any_frame(chance, streams))
    written = bytearray(b"".join(frames))
    for _ in range(chance.choice([0, 1, 1, 2, 8])):
        harm(written, chance)
    return bytes(written)


def _any_frame(chance: random.Random, streams: int) -> bytes:
    kind = chance.choice([*range(10), 0xFA])
    payload = chance.choice([b"", chance.randbytes(4), chance.randbytes(8), chance.randbytes(6), chance.randbytes(chance.randrange(40))])
    if kind == http2.SETTINGS and chance.random() < 0.7:
        key, value = chance.randrange(8), chance.choice([0, 1, 10, 100, 65_535, 1 << 20, chance.randrange(1 << 32)])
        payload = key.to_bytes(2) + value.to_bytes(4)
    return frame(kind, chance.choice([0, 1, 4, 5, 8, 0x20, chance.randrange(256)]), chance.randrange(2 * streams + 3), payload)


def try_frames(chance: random.Random) -> str:
    """One connection of a few streams, given a broken answer in pieces."""
    referee, streams = Referee(), chance.randrange(1, 5)
    referee.connection.open()
    referee.connection.receive(GREETING)
    for _ in range(streams):
        referee.connection.send(Stream(), _REQUEST)
    answer = broken_answer(chance, streams)
    position, outcome = 0, "read"
    try:
        while position < len(answer):
            size = chance.choice([1, 2, 9, 30, len(answer)])
            referee.connection.receive(answer[position : position + size])
            position += size
    except Http2Error as error:
        outcome = f"refused: {http2.error_name(error.code)}"
    assert len(referee.ended) + len(referee.connection.streams) == streams, "a stream is neither open nor ended"
    _check_frames(bytes(referee.written))
    return outcome


def _check_frames(written: bytes) -> None:
    position = len(http2.PREFACE)
    while position < len(written):
        upper, lower, kind, _, _ = http2.read_head(written, position)
        assert kind <= http2.CONTINUATION, "what was written is no frame"
        position += http2.HEAD_BYTES + (upper << 8 | lower)
    assert position == len(written), "the last frame was not written whole"


def try_message(chance: random.Random) -> str:
    """One answer's data, broken, under some encoding."""
    message = bytearray(
        chance.choice([_MESSAGE, b"\x01" + (30).to_bytes(4) + gzip.compress(b"0123456789", mtime=0)[:30], chance.randbytes(20)])
    )
    for _ in range(chance.randrange(3)):
        harm(message, chance)
    try:
        read_message(bytes(message), chance.choice(["", "identity", "gzip", "deflate", "br"]))
    except ProtocolError:
        return "refused"
    return "read"


def try_exchange(chance: random.Random) -> str:
    """A few requests over sockets, to a server whose connections answer with broken frames, and then close or hang."""
    outcomes = uvloop.run(_exchange(chance))
    return ", ".join(sorted({outcome.value for outcome in outcomes}))


async def _exchange(chance: random.Random) -> list[Outcome]:
    streams, count = chance.randrange(1, 4), chance.randrange(1, 6)
    async with fuzzing.serving(functools.partial(_reply, chance, streams)) as port:
        address = Address("grpc", "127.0.0.1", port)
        transport = WireGrpcTransport(
            address, TransportOptions(max_connections=2, timeout_ns=_TIMEOUT_NS, streams_per_connection=streams), time.monotonic_ns
        )
        replies = await asyncio.wait_for(asyncio.gather(*(_send(transport, Prepared(_REQUEST)) for _ in range(count))), _HANGS_AFTER_S)
        await transport.aclose()
    for reply in replies:
        assert reply.started_ns <= reply.finished_ns
        with contextlib.suppress(ProtocolError):
            transport.decode(reply)
    return [reply.outcome for reply in replies]


async def _send(transport: WireGrpcTransport, prepared: Prepared) -> Reply:
    return await transport.send(prepared)


async def _reply(chance: random.Random, streams: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    answer, is_hanging = broken_answer(chance, streams), chance.random() < 0.2
    writer.write(GREETING if chance.random() < 0.9 else b"")
    await reader.readexactly(chance.choice([1, 100, 200, 1000]))
    writer.write(answer)
    if is_hanging:
        await reader.read()


# frames and messages are cheap: most of the trials, in about half of the time
KINDS = (Kind("frames", try_frames), Kind("messages", try_message), Kind("exchanges", try_exchange, every=25))


def main() -> int:
    """Prints what came of the trials; the exit code is 1 where a promise was broken, with the seed that shows it again."""
    options = fuzzing.parse(__doc__)
    return fuzzing.tell(
        "gRPC's wire engine against answers broken at random",
        "Whatever a server writes is read or refused; a stream comes to one end, a request sent over a socket to one outcome in time.",
        options,
        *fuzzing.run_trials(KINDS, options.minutes, options.seed),
    )


if __name__ == "__main__":
    sys.exit(main())
