"""Fuzzes the wire engine for HTTP with randomly broken answers: heads, bodies, binary tensors, floods, exchanges over sockets.

    python -m benchmarks.fuzz_http1 [--minutes 10] [--seed 0] [--out reports/fuzz-http1.md]

Guarantees that it checks, whatever a server writes: an answer is decoded or rejected with `ProtocolError`; a connection ends
each request exactly once, with an outcome or by resending it; an answer without an end closes its connection before more than the
limit is held; a request over a socket gets one outcome before its timeout.
"""

import asyncio
import contextlib
import functools
import gzip
import itertools
import json
import random
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from typing import Any, cast

import uvloop

from benchmarks import fuzzing
from benchmarks.fuzzing import TrialKind, add_fault, split_randomly
from perfkit.api_v2.http import HttpCalls
from perfkit.errors import ProtocolError
from perfkit.target.address import Address
from perfkit.transport.base import Outcome, Prepared, Reply
from perfkit.transport.http.connection import HttpConnection, parse_response
from perfkit.transport.http.transport import WireHttpTransport
from perfkit.transport.options import MAX_HEAD_BYTES, AnswerLimit, TransportOptions
from perfkit.transport.pool import ConnectionPool
from tests.hostile.http_floods import FLOODS

_TIMEOUT_NS = 100_000_000
_LIMIT = AnswerLimit(1 << 20)
_HANG_TIMEOUT_S = 60  # far longer than a request with that timeout takes on a busy machine
_BODY = b'{"inputs":[]}'
_REQUEST = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(_BODY), _BODY)
_STATUSES = (*["200 OK"] * 9, "200", "204 No Content", "304 Not Modified", "400 Bad Request", "503 Busy", "999 ?", "20", "-1 x")
_INTERIM = (
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n",
    b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
)


def broken_answer(rng: random.Random, count: int) -> bytes:
    """`count` answers as a server may write them in sequence, with faults in some."""
    written = bytearray()
    for _ in range(count):
        if rng.random() < 0.15:
            written += rng.choice(_INTERIM)
        written += _answer(rng)
    for _ in range(rng.choice([0, 0, 0, 1, 2, 8])):
        add_fault(written, rng)
    return bytes(written)


def _answer(rng: random.Random) -> bytes:
    head, binary = _inference(rng)
    body = head + binary
    lines = [f"HTTP/1.{rng.choice('1110')} {rng.choice(_STATUSES)}"]
    if binary or rng.random() < 0.2:
        lines.append(f"Inference-Header-Content-Length: {_number(rng, len(head))}")
    encoding: str | None = None
    match rng.randrange(20):
        case 0:
            body, encoding = gzip.compress(body, mtime=0), "gzip"
        case 1:
            body, encoding = zlib.compress(body), "deflate"
        case 2:
            encoding = rng.choice(["gzip", "br", "identity", "x", ""])
        case _:
            pass
    if encoding is not None:
        lines.append(f"Content-Encoding: {encoding}")
    match rng.randrange(8):
        case 0:  # no length: the body ends with the connection, or is read as the next answer
            pass
        case 1 | 2:
            lines.append("Transfer-Encoding: chunked")
            body = _chunked(body, rng)
        case 3:
            lines += [f"Content-Length: {_number(rng, len(body))}"] * rng.choice([1, 2])
        case _:
            lines.append(f"Content-Length: {len(body)}")
    if rng.random() < 0.1:
        lines.append(rng.choice(["Connection: close", "Connection: keep-alive", "X" * 9000, ": x", "x", "\x00: \x01", "Upgrade: h2c"]))
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def _inference(rng: random.Random) -> tuple[bytes, bytes]:
    """The JSON part and the binary tensors of an inference; they usually fit together."""
    outputs, binary = [], b""
    for index in range(rng.randrange(3)):
        values = rng.randbytes(4 * rng.randrange(5))
        output: dict[str, Any] = {"name": f"y{index}", "datatype": rng.choice(["FP32", "INT32"] * 5 + ["BYTES", "FP16", "X"])}
        output["shape"] = rng.choice([[len(values) // 4], [1, len(values) // 4]] * 8 + [[-1], ["2"], [2**40, 2**40], 7])
        if rng.random() < 0.7:
            output["parameters"] = {"binary_data_size": _number(rng, len(values))}
            binary += values
        else:
            output["data"] = rng.choice([list(values[::4])] * 8 + [[[1], [2]], "x", None, [1.5, True], [2**70]])
        outputs.append(output)
    return json.dumps({"model_name": "m", "outputs": rng.choice([*[outputs] * 10, None, {}])}).encode(), binary


def _number(rng: random.Random, correct: int) -> int:
    return rng.choice([correct] * 60 + [correct + 1, max(0, correct - 1), 0, -1, 2**31, 2**63, 2**70, rng.randrange(100)])


def _chunked(body: bytes, rng: random.Random) -> bytes:
    parts = [b"%x%s\r\n%s\r\n" % (len(part), rng.choice([b"", b"", b";a=b"]), part) for part in split_randomly(body, rng)]
    return b"".join(
        [*parts, rng.choice([b"0\r\n\r\n", b"0\r\n\r\n", b"0\r\nX: y\r\n\r\n", b"", b"0\r\n", b"-1\r\n\r\n", b"fffffffffffffffff\r\n"])]
    )


def try_answer(rng: random.Random) -> str:
    """Decodes one broken answer."""
    payload = list(split_randomly(broken_answer(rng, 1), rng))
    try:
        _decode(Reply(rng.choice([*[Outcome.OK] * 5, Outcome.REJECTED]), 0, 1, payload))
    except ProtocolError:
        return "rejected"
    return "decoded"


class FakeFuture:
    """Stands for a request's future, and checks that the request ends once."""

    def __init__(self) -> None:
        self.reply: Reply | None = None
        self.is_resent = False

    def done(self) -> bool:
        """As a future."""
        return self.reply is not None

    def set_result(self, reply: Reply) -> None:
        """As a future."""
        assert self.reply is None, "a request got two outcomes"
        assert not self.is_resent, "a resent request got an outcome"
        self.reply = reply

    def set_exception(self, error: BaseException) -> None:
        """As a future."""
        raise error


class FakeEnvironment:
    """Stands for a connection's pool, event loop and transport."""

    def __init__(self) -> None:
        self.timeout_ns, self.time_ns = 1000, 0
        self.answer_limit = _LIMIT
        self.loop = self
        self.has_connection, self.is_removed, self._is_closing = False, False, False
        self.timer: Callable[[], None] | None = None

    def now_ns(self) -> int:
        """A clock that advances by 1 ns per reading."""
        self.time_ns += 1
        return self.time_ns

    def call_later(self, _delay_s: float, call: Callable[[], None]) -> "FakeEnvironment":
        """As an event loop; this object is also the timer's handle."""
        self.timer = call
        return self

    def cancel(self) -> None:
        """As a timer's handle."""
        self.timer = None

    def release(self, _connection: HttpConnection) -> None:
        """As a pool."""
        self.has_connection = True

    def remove(self, _connection: HttpConnection) -> None:
        """As a pool."""
        assert not self.is_removed, "a connection was removed twice"
        self.is_removed = True

    def resend(self, _buffers: Sequence[bytes], reply: FakeFuture, _asked_ns: int, _started_ns: int) -> None:
        """As a pool."""
        assert reply.reply is None, "a request with an outcome was resent"
        assert not reply.is_resent, "a request was resent twice"
        reply.is_resent = True

    def set_write_buffer_limits(self, high: int) -> None:
        """As a transport."""

    def write(self, data: bytes) -> None:
        """As a transport."""
        assert not self._is_closing, "data was written to a closed connection"

    def is_closing(self) -> bool:
        """As a transport."""
        return self._is_closing

    def abort(self) -> None:
        """As a transport."""
        self._is_closing = True


def try_connection(rng: random.Random) -> str:
    """One connection and its requests, without sockets: broken answers in parts, then a timeout or the end of the connection."""
    fake, futures = FakeEnvironment(), [FakeFuture()]
    connection = HttpConnection(cast("ConnectionPool[HttpConnection]", fake))
    connection.connection_made(cast("asyncio.Transport", fake))
    connection.send([_REQUEST], cast("asyncio.Future[Reply]", futures[0]))
    for piece in split_randomly(broken_answer(rng, rng.randrange(1, 4)), rng):
        if fake.is_closing():
            break
        connection.data_received(piece)
        if fake.has_connection and connection.is_usable:
            fake.has_connection = False
            futures.append(FakeFuture())
            connection.send([_REQUEST], cast("asyncio.Future[Reply]", futures[-1]))
    if not fake.is_closing():
        match rng.randrange(3):
            case 0:
                connection.eof_received()
            case 1 if fake.timer is not None:
                fake.time_ns += fake.timeout_ns
                fake.timer()
            case _:
                pass
    connection.connection_lost(rng.choice([None, ConnectionResetError("reset")]))
    assert fake.is_removed
    outcomes = set()
    for future in futures:
        assert (future.reply is not None) != future.is_resent, "a request neither got an outcome nor was resent"
        if future.reply is not None:
            assert future.reply.started_ns < future.reply.finished_ns
            _try_to_decode(future.reply)
        outcomes.add(future.reply.outcome.value if future.reply is not None else "resent")
    return ", ".join(sorted(outcomes))


def try_flood(rng: random.Random) -> str:
    """One connection whose answer never ends in some part of it, often with a fault."""
    start, block = map(bytearray, rng.choice(list(FLOODS.values())))
    if rng.random() < 0.5:
        add_fault(rng.choice([start, block]), rng)
    piece_bytes = rng.choice([1, 100, 4096, 1 << 16, 1 << 18])
    block = (block or bytearray(b"x")) * (1 + piece_bytes // max(len(block), 1))
    fake, future = FakeEnvironment(), FakeFuture()
    connection = HttpConnection(cast("ConnectionPool[HttpConnection]", fake))
    connection.connection_made(cast("asyncio.Transport", fake))
    connection.send([_REQUEST], cast("asyncio.Future[Reply]", future))
    received_bytes = 0
    for data in itertools.chain([start], itertools.repeat(block)):
        for first in range(0, len(data), piece_bytes):
            if not fake.is_closing():
                connection.data_received(bytes(data[first : first + piece_bytes]))
                received_bytes += min(piece_bytes, len(data) - first)
        if fake.is_closing():
            break
        assert received_bytes < _LIMIT.max_bytes + 2 * MAX_HEAD_BYTES + 4 * len(data), "an answer without an end was not ended"
    assert future.reply is not None, "a request has no outcome"
    return future.reply.outcome.value


def _decode(reply: Reply) -> None:
    """Decodes an answer; raises ProtocolError."""
    HttpCalls(TransportOptions(timeout_ns=_TIMEOUT_NS)).decode(reply, parse_response(reply.payload or []))


def _try_to_decode(reply: Reply) -> None:
    if reply.payload is not None:
        with contextlib.suppress(ProtocolError):
            _decode(reply)


def try_exchange(rng: random.Random) -> str:
    """A few requests over sockets to a server that answers with broken bytes and then closes the connection or hangs."""
    outcomes = uvloop.run(_exchange(rng))
    return ", ".join(sorted({outcome.value for outcome in outcomes}))


async def _exchange(rng: random.Random) -> list[Outcome]:
    count = rng.randrange(1, 6)
    async with fuzzing.serving(functools.partial(_reply, rng)) as port:
        transport = WireHttpTransport(
            Address("http", "127.0.0.1", port), TransportOptions(max_connections=2, timeout_ns=_TIMEOUT_NS), time.monotonic_ns
        )
        replies = await asyncio.wait_for(asyncio.gather(*(transport.send(Prepared((_REQUEST,))) for _ in range(count))), _HANG_TIMEOUT_S)
        await transport.aclose()
    for reply in replies:
        assert reply.started_ns <= reply.finished_ns
        _try_to_decode(reply)
    return [reply.outcome for reply in replies]


async def _reply(rng: random.Random, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    answers = [broken_answer(rng, 1) for _ in range(rng.randrange(1, 4))]
    is_hanging = rng.random() < 0.2
    for answer in answers:
        await reader.readexactly(rng.choice([1, len(_REQUEST)]))
        for piece in split_randomly(answer, rng)[:20]:
            if writer.is_closing():
                return
            writer.write(piece)
            await asyncio.sleep(0)
    if is_hanging:
        await reader.read()


# an exchange takes as long as some 50 of the other trials: this way each takes about half of the time
KINDS = (
    TrialKind("answers", try_answer),
    TrialKind("connections", try_connection),
    TrialKind("floods", try_flood, seeds_per_trial=10),
    TrialKind("exchanges", try_exchange, seeds_per_trial=25),
)


def main() -> int:
    """Runs the trials; the exit code is 1 at a violation."""
    guarantee = (
        "Every answer is decoded or rejected; a connection ends each request exactly once, over sockets before its timeout; "
        "an answer without an end closes its connection."
    )
    return fuzzing.fuzz(KINDS, "Fuzzing the wire engine for HTTP with broken answers", guarantee, fuzzing.parse_options(__doc__))


if __name__ == "__main__":
    sys.exit(main())
