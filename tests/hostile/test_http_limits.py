"""Answers over HTTP that never end, or that switch protocols: the request is broken, says why, and takes little memory."""

import time

import pytest

from perfkit.errors import ProtocolError
from perfkit.transport.base import Outcome
from perfkit.transport.http.connection import parse_response
from perfkit.transport.http.reference import ReferenceHttpTransport
from perfkit.transport.http.transport import WireHttpTransport
from perfkit.transport.options import AnswerLimit, TransportOptions, limit_for_load
from tests.hostile.http_floods import FLOODS, EndlessAnswer
from tests.transport import servers
from tests.transport.clients import client_of

S = 1_000_000_000
LIMIT = AnswerLimit(1 << 20)
# what the sockets of both sides and one read hold besides
BUFFERED_BYTES = 8 << 20
REASONS = {
    "a header's value": "the answer's head is longer than 65,536 B",
    "headers": "the answer's head is longer than 65,536 B",
    "interim answers": "the answer's head is longer than 65,536 B",
    "an announced body": "the answer announces 7,000,000,000 B, more than 1,048,576 B",
}
TOO_LONG = "the answer is longer than 1,048,576 B"


async def reply_from(handler, engine, request, limit=LIMIT, timeout_ns=10 * S):
    async with servers.scripted_server(handler) as address:
        transport = client_of(engine, address, TransportOptions(timeout_ns=timeout_ns, answer_limit=limit), time.monotonic_ns)
        reply = await transport.send(transport.prepare(request))
        await transport.aclose()
        return reply


@pytest.mark.parametrize("part", FLOODS)
def test_an_answer_without_an_end_is_broken_and_its_connection_closed(run, infer_request, part):
    answer = EndlessAnswer(*FLOODS[part])
    reply = run(reply_from(answer, WireHttpTransport, infer_request))
    assert (reply.outcome, reply.error) == (Outcome.BROKEN, REASONS.get(part, TOO_LONG))
    assert answer.sent_bytes < LIMIT.max_bytes + BUFFERED_BYTES


@pytest.mark.parametrize("part", ["an announced body", "a body without a length", "chunks"])
def test_the_reference_engine_keeps_to_the_limit(run, infer_request, part):
    answer = EndlessAnswer(*FLOODS[part])
    reply = run(reply_from(answer, ReferenceHttpTransport, infer_request))
    assert (reply.outcome, reply.error) == (Outcome.BROKEN, REASONS.get(part, TOO_LONG))
    assert answer.sent_bytes < LIMIT.max_bytes + BUFFERED_BYTES


@pytest.mark.parametrize("framing", ["length", "chunks"])
@pytest.mark.parametrize("engine", [WireHttpTransport, ReferenceHttpTransport])
def test_an_answer_up_to_the_limit_is_read(run, infer_request, engine, framing):
    body = bytes(1_040_000)
    head = b"Content-Length: %d\r\n\r\n" % len(body) if framing == "length" else b"Transfer-Encoding: chunked\r\n\r\n"
    blocks = [body] if framing == "length" else [b"%x\r\n%s\r\n" % (40_000, body[:40_000])] * 26 + [b"0\r\n\r\n"]
    answer = servers.answering([b"HTTP/1.1 200 OK\r\n" + head, *blocks])
    assert run(reply_from(answer, engine, infer_request)).outcome is Outcome.OK


@pytest.mark.parametrize("engine", [WireHttpTransport, ReferenceHttpTransport])
def test_switched_protocols_are_broken(run, infer_request, engine):
    answer = servers.answering(b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n")
    reply = run(reply_from(answer, engine, infer_request))
    assert (reply.outcome, reply.error) == (Outcome.BROKEN, "the server switched protocols (HTTP 101), which no request asks for")


def test_an_answer_with_very_many_headers_is_not_decoded():
    answer = b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 1001 + b"\r\n"
    with pytest.raises(ProtocolError, match="1,001 headers"):
        parse_response([answer])
    with pytest.raises(ProtocolError, match="HTTP 101"):
        parse_response([b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n"])


def test_the_limit_under_load_is_a_share_of_the_memory_for_all_and_never_below_what_is_known():
    in_flight = (1, 4, 64, 1024, 65_536)
    assert [limit_for_load(0, number).max_bytes for number in in_flight] == [1 << 28, 1 << 28, 1 << 24, 1 << 20, 1 << 20]
    assert [limit_for_load(size, 1024).max_bytes for size in (1000, 10**6, 10**9)] == [4000 + (1 << 20), 4 * 10**6 + (1 << 20), 1 << 28]
