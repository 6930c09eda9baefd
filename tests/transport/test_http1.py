"""HTTP/1.1 connections of the wire engine against servers that send literal bytes."""

import asyncio
import itertools
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.errors import ProtocolError
from perfkit.protocol import rest
from perfkit.transport.base import Outcome, Prepared
from perfkit.transport.http.connection import parse_response
from perfkit.transport.http.transport import WireHttpTransport
from perfkit.transport.options import TransportOptions
from tests.transport import servers
from tests.transport.clients import client_of

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-One: a b\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n"
CONTINUED = b"HTTP/1.1 100 Continue\r\n\r\n" + OK
EARLY_HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\nX-One: hint\r\n\r\n" + OK
REJECTED = b'HTTP/1.1 404 Not Found\r\nContent-Length: 19\r\n\r\n{"error":"no such"}'
CLOSING = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello"
UNFRAMED = b"HTTP/1.1 200 OK\r\nX-One: a b\r\n\r\nhello"  # the end of the connection ends the answer
PING = Prepared((b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",))
SECOND_NS = 1_000_000_000


def transport(address, *, connections=4):
    return client_of(
        WireHttpTransport, address, TransportOptions(max_connections=connections, timeout_ns=30 * SECOND_NS), time.monotonic_ns
    )


async def replies_of(*handlers, count=1):
    async with servers.scripted_server(*handlers) as address:
        wire = transport(address)
        await wire.open(1)
        replies = [await wire.send(PING) for _ in range(count)]
        await wire.aclose()
        return replies, wire.counts


@pytest.mark.parametrize(
    "answer",
    [OK, CHUNKED, CONTINUED, EARLY_HINTS, CLOSING, UNFRAMED, CONTINUED[:25] + UNFRAMED],
    ids=["length", "chunked", "continue", "hints", "close", "unframed", "unframed surplus continue"],
)
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "byte by byte"])
def test_an_answer_is_read_with_any_framing_and_in_any_pieces(run, answer, whole):
    parts = answer if whole else [answer[index : index + 1] for index in range(len(answer))]
    (reply,), counts = run(replies_of(servers.answering(parts)))
    assert reply.outcome is Outcome.OK
    assert parse_response(reply.payload).body == b"hello"
    assert reply.started_ns <= reply.finished_ns
    assert (counts.opened, counts.reconnects) == (1, 0)


def test_an_error_status_is_a_rejection_with_its_message(run):
    (reply,), _ = run(replies_of(servers.answering(REJECTED)))
    assert reply.outcome is Outcome.REJECTED
    answer = parse_response(reply.payload)
    assert (answer.status, rest.decode_error(answer.body)) == (404, "no such")


@pytest.mark.parametrize(
    "answer",
    [b"", OK[:-1], OK[:20], b"SMTP ready\r\n\r\n", CHUNKED[:-5], CONTINUED[:30], UNFRAMED[:20]],
    ids=["nothing", "short body", "short head", "garbage", "short chunks", "interim response only", "short head without a length"],
)
def test_a_broken_answer_breaks_only_its_request(run, answer):
    (broken, fine), counts = run(replies_of(servers.answering(answer), servers.answering(OK), count=2))
    assert broken.outcome is Outcome.BROKEN
    assert broken.error
    assert fine.outcome is Outcome.OK
    assert (counts.opened, counts.reconnects) == (2, 1)


@pytest.mark.parametrize("surplus", [b"junk", b"\r\njunk", REJECTED, REJECTED[:-1], REJECTED[:20]])
def test_bytes_after_an_answer_close_the_connection_and_do_not_answer_the_next_request(run, surplus):
    replies, counts = run(replies_of(servers.answering(OK + surplus, OK), servers.answering(OK, OK), count=3))
    assert [reply.outcome for reply in replies] == [Outcome.OK] * 3
    assert [parse_response(reply.payload).body for reply in replies] == [b"hello"] * 3
    assert (counts.opened, counts.reconnects) == (2, 1)


def test_a_connection_that_the_server_closes_is_opened_again(run):
    replies, counts = run(replies_of(servers.answering(CLOSING), count=3))
    assert [reply.outcome for reply in replies] == [Outcome.OK] * 3
    assert (counts.opened, counts.reconnects) == (3, 2)


def test_an_answer_without_a_length_is_complete_if_the_connection_is_closed_and_broken_if_it_is_reset(run):
    async def reset(reader, writer):
        await servers.read_request(reader)
        writer.write(UNFRAMED)
        await writer.drain()
        servers.reset(writer)

    (broken, whole), _ = run(replies_of(reset, servers.answering(UNFRAMED), count=2))
    assert (broken.outcome, whole.outcome) == (Outcome.BROKEN, Outcome.OK)
    assert parse_response(whole.payload).body == b"hello"


def test_no_more_connections_are_opened_than_allowed(run):
    open_now, maximum = [0], [0]

    async def counting(reader, writer):
        open_now[0] += 1
        maximum[0] = max(maximum[0], open_now[0])
        await servers.answering(*[OK] * 100)(reader, writer)

    async def main():
        async with servers.scripted_server(counting) as address:
            wire = transport(address, connections=3)
            replies = await asyncio.gather(*(wire.send(PING) for _ in range(40)))
            await wire.aclose()
            return replies, wire.counts

    replies, counts = run(main())
    assert {reply.outcome for reply in replies} == {Outcome.OK}
    assert counts.opened == maximum[0] == 3


@given(st.lists(st.integers(0, 200), max_size=8), st.sampled_from([OK, CHUNKED, CONTINUED, EARLY_HINTS, REJECTED]))
def test_an_answer_is_parsed_alike_however_it_is_cut(cuts, answer):
    edges = [0, *sorted(cut for cut in cuts if cut < len(answer)), len(answer)]
    chunks = [answer[first:last] for first, last in itertools.pairwise(edges)]
    assert parse_response([chunk for chunk in chunks if chunk]) == parse_response([answer])


def test_an_answer_is_parsed_without_interim_responses_and_trailing_bytes():
    answer = parse_response([EARLY_HINTS + REJECTED])
    assert (answer.status, answer.headers, answer.body) == (200, {"content-length": "5", "x-one": "a b"}, b"hello")


@pytest.mark.parametrize("chunks", [[OK[:-1]], [b"garbage"], [], [CONTINUED[:25]], [CONTINUED[:-1]], [CONTINUED[:25], b"garbage"]])
def test_malformed_answers_are_refused(chunks):
    with pytest.raises(ProtocolError):
        parse_response(chunks)
