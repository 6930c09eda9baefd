"""Fuzzes the wire engine's HTTP with answers that are broken at random: heads, bodies, binary tensors, whole exchanges over sockets.

    python -m benchmarks.fuzz_http1 [--minutes 10] [--seed 0] [--out reports/fuzz-http1.md]

Whatever a server writes, an answer is read or refused with `ProtocolError`, a connection ends each of its requests once
(with an outcome, or by sending it again), and a request sent over a socket ends in exactly one outcome within its time-out.
"""

import asyncio
import contextlib
import functools
import gzip
import json
import random
import sys
import time
import zlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import uvloop

from benchmarks import fuzzing
from benchmarks.fuzzing import Kind, harm, pieces
from perfkit.errors import ProtocolError
from perfkit.target.address import Address
from perfkit.transport.base import Outcome, Prepared, Reply
from perfkit.transport.http.calls import HttpResponse, RestTransport
from perfkit.transport.http.connection import HttpConnection, parse_response
from perfkit.transport.http.transport import WireHttpTransport
from perfkit.transport.options import TransportOptions
from perfkit.transport.pool import ConnectionPool

_TIMEOUT_NS = 100_000_000
_HANGS_AFTER_S = 60  # far longer than a request with that time-out takes on a busy machine
_BODY = b'{"inputs":[]}'
_REQUEST = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(_BODY), _BODY)
_STATUSES = (*["200 OK"] * 9, "200", "204 No Content", "304 Not Modified", "400 Bad Request", "503 Busy", "999 ?", "20", "-1 x")
_INTERIM = (
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
)


def broken_answer(chance: random.Random, count: int) -> bytes:
    """So many answers as a server may write them one after the other, with faults in some."""
    written = bytearray()
    for _ in range(count):
        if chance.random() < 0.15:
            written += chance.choice(_INTERIM)
        written += _answer(chance)
    for _ in range(chance.choice([0, 0, 0, 1, 2, 8])):
        harm(written, chance)
    return bytes(written)


def _answer(chance: random.Random) -> bytes:
    head, binary = _inference(chance)
    body = head + binary
    lines = [f"HTTP/1.{chance.choice('1110')} {chance.choice(_STATUSES)}"]
    if binary or chance.random() < 0.2:
        lines.append(f"Inference-Header-Content-Length: {_number(chance, len(head))}")
    encoding: str | None = None
    match chance.randrange(20):
        case 0:
            body, encoding = gzip.compress(body, mtime=0), "gzip"
        case 1:
            body, encoding = zlib.compress(body), "deflate"
        case 2:
            encoding = chance.choice(["gzip", "br", "identity", "x", ""])
        case _:
            pass
    if encoding is not None:
        lines.append(f"Content-Encoding: {encoding}")
    match chance.randrange(8):
        case 0:  # ends where the connection does, unless that is taken for the next answer
            pass
        case 1 | 2:
            lines.append("Transfer-Encoding: chunked")
            body = _chunked(body, chance)
        case 3:
            lines += [f"Content-Length: {_number(chance, len(body))}"] * chance.choice([1, 2])
        case _:
            lines.append(f"Content-Length: {len(body)}")
    if chance.random() < 0.1:
        lines.append(chance.choice(["Connection: close", "Connection: keep-alive", "X" * 9000, ": x", "x", "\x00: \x01", "Upgrade: h2c"]))
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def _inference(chance: random.Random) -> tuple[bytes, bytes]:
    """An inference's JSON part and its binary tensors, which fit each other more often than not."""
    outputs, binary = [], b""
    for index in range(chance.randrange(3)):
        values = chance.randbytes(4 * chance.randrange(5))
        output: dict[str, Any] = {"name": f"y{index}", "datatype": chance.choice(["FP32", "INT32"] * 5 + ["BYTES", "FP16", "X"])}
        output["shape"] = chance.choice([[len(values) // 4], [1, len(values) // 4]] * 8 + [[-1], ["2"], [2**40, 2**40], 7])
        if chance.random() < 0.7:
            output["parameters"] = {"binary_data_size": _number(chance, len(values))}
            binary += values
        else:
            output["data"] = chance.choice([list(values[::4])] * 8 + [[[1], [2]], "x", None, [1.5, True], [2**70]])
        outputs.append(output)
    return json.dumps({"model_name": "m", "outputs": chance.choice([*[outputs] * 10, None, {}])}).encode(), binary


def _number(chance: random.Random, right: int) -> int:
    return chance.choice([right] * 60 + [right + 1, max(0, right - 1), 0, -1, 2**31, 2**63, 2**70, chance.randrange(100)])


def _chunked(body: bytes, chance: random.Random) -> bytes:
    parts = [b"%x%s\r\n%s\r\n" % (len(one), chance.choice([b"", b"", b";a=b"]), one) for one in pieces(body, chance)]
    return b"".join(
        [*parts, chance.choice([b"0\r\n\r\n", b"0\r\n\r\n", b"0\r\nX: y\r\n\r\n", b"", b"0\r\n", b"-1\r\n\r\n", b"fffffffffffffffff\r\n"])]
    )


class Decoder(RestTransport):
    """What reads answers, without what sends requests."""

    def __init__(self) -> None:
        super().__init__(Address("http", "a", 1), "none")

    async def _get(self, path: str) -> HttpResponse:
        raise NotImplementedError

    def _response(self, reply: Reply) -> HttpResponse:
        return parse_response(reply.payload or [])


def try_answer(chance: random.Random) -> str:
    """One answer, read and decoded."""
    payload = list(pieces(broken_answer(chance, 1), chance))
    try:
        Decoder().decode(Reply(chance.choice([*[Outcome.OK] * 5, Outcome.REJECTED]), 0, 1, payload))
    except ProtocolError:
        return "refused"
    return "read"


class Ending:
    """In place of a future: a request that comes to one end."""

    def __init__(self) -> None:
        self.reply: Reply | None = None
        self.is_sent_again = False

    def done(self) -> bool:
        """As a future has it."""
        return self.reply is not None

    def set_result(self, reply: Reply) -> None:
        """As a future has it."""
        assert self.reply is None, "a request came to two outcomes"
        assert not self.is_sent_again, "a request that is sent again came to an outcome"
        self.reply = reply


class Referee:
    """A connection's pool, loop and transport."""

    def __init__(self) -> None:
        self.timeout_ns, self.time_ns = 1000, 0
        self.loop = self
        self.has_connection, self.is_forgotten, self._is_closing = False, False, False
        self.timer: Callable[[], None] | None = None

    def now_ns(self) -> int:
        """Later each time."""
        self.time_ns += 1
        return self.time_ns

    def call_later(self, _delay_s: float, call: Callable[[], None]) -> "Referee":
        """As a loop has it; its handle is this."""
        self.timer = call
        return self

    def cancel(self) -> None:
        """As a timer's handle has it."""
        self.timer = None

    def release(self, _connection: HttpConnection) -> None:
        """As a pool has it."""
        self.has_connection = True

    def remove(self, _connection: HttpConnection) -> None:
        """As a pool has it."""
        assert not self.is_forgotten, "a connection was lost twice"
        self.is_forgotten = True

    def resend(self, _buffers: Sequence[bytes], reply: Ending, _asked_ns: int, _started_ns: int) -> None:
        """As a pool has it."""
        assert reply.reply is None, "a request that had its outcome was sent again"
        assert not reply.is_sent_again, "a request was sent again twice"
        reply.is_sent_again = True

    def set_write_buffer_limits(self, high: int) -> None:
        """As a transport has it."""

    def write(self, data: bytes) -> None:
        """As a transport has it."""
        assert not self._is_closing, "a closed connection was written to"

    def is_closing(self) -> bool:
        """As a transport has it."""
        return self._is_closing

    def abort(self) -> None:
        """As a transport has it."""
        self._is_closing = True


def try_connection(chance: random.Random) -> str:
    """One connection and its requests, without sockets: answers in pieces, and then its end or the requests'."""
    referee, endings = Referee(), [Ending()]
    connection = HttpConnection(cast("ConnectionPool[HttpConnection]", referee))
    connection.connection_made(cast("asyncio.Transport", referee))
    connection.send([_REQUEST], cast("asyncio.Future[Reply]", endings[0]))
    for piece in pieces(broken_answer(chance, chance.randrange(1, 4)), chance):
        if referee.is_closing():
            break
        connection.data_received(piece)
        if referee.has_connection and connection.is_usable:
            referee.has_connection = False
            endings.append(Ending())
            connection.send([_REQUEST], cast("asyncio.Future[Reply]", endings[-1]))
    if not referee.is_closing():
        match chance.randrange(3):
            case 0:
                connection.eof_received()
            case 1 if referee.timer is not None:
                referee.time_ns += referee.timeout_ns
                referee.timer()
            case _:
                pass
    connection.connection_lost(chance.choice([None, ConnectionResetError("reset")]))
    assert referee.is_forgotten
    outcomes = set()
    for ending in endings:
        assert (ending.reply is not None) != ending.is_sent_again, "a request came to no end"
        if ending.reply is not None:
            assert ending.reply.started_ns < ending.reply.finished_ns
            _decode(Decoder(), ending.reply)
        outcomes.add(ending.reply.outcome.value if ending.reply is not None else "sent again")
    return ", ".join(sorted(outcomes))


def _decode(transport: RestTransport, reply: Reply) -> None:
    if reply.payload is not None:
        with contextlib.suppress(ProtocolError):
            transport.decode(reply)


def try_exchange(chance: random.Random) -> str:
    """A few requests over sockets, to a server whose connections answer with broken bytes, and then close or hang."""
    outcomes = uvloop.run(_exchange(chance))
    return ", ".join(sorted({outcome.value for outcome in outcomes}))


async def _exchange(chance: random.Random) -> list[Outcome]:
    count = chance.randrange(1, 6)
    async with fuzzing.serving(functools.partial(_reply, chance)) as port:
        transport = WireHttpTransport(
            Address("http", "127.0.0.1", port), TransportOptions(max_connections=2, timeout_ns=_TIMEOUT_NS), time.monotonic_ns
        )
        replies = await asyncio.wait_for(asyncio.gather(*(_send(transport) for _ in range(count))), _HANGS_AFTER_S)
        await transport.aclose()
    for reply in replies:
        assert reply.started_ns <= reply.finished_ns
        _decode(transport, reply)
    return [reply.outcome for reply in replies]


def _send(transport: WireHttpTransport) -> Awaitable[Reply]:
    return transport.send(Prepared((_REQUEST,)))


async def _reply(chance: random.Random, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    answers = [broken_answer(chance, 1) for _ in range(chance.randrange(1, 4))]
    is_hanging = chance.random() < 0.2
    for answer in answers:
        await reader.readexactly(chance.choice([1, len(_REQUEST)]))
        for piece in pieces(answer, chance)[:20]:
            if writer.is_closing():
                return
            writer.write(piece)
            await asyncio.sleep(0)
    if is_hanging:
        await reader.read()


# answers and connections are cheap: most of the trials, in about half of the time
KINDS = (Kind("answers", try_answer), Kind("connections", try_connection), Kind("exchanges", try_exchange, every=25))


def main() -> int:
    """Prints what came of the trials; the exit code is 1 where a promise was broken, with the seed that shows it again."""
    options = fuzzing.parse(__doc__)
    return fuzzing.tell(
        "HTTP's wire engine against answers broken at random",
        "Whatever a server writes is read or refused; a connection ends each request once, and over a socket that is in time.",
        options,
        *fuzzing.run_trials(KINDS, options.minutes, options.seed),
    )


if __name__ == "__main__":
    sys.exit(main())
