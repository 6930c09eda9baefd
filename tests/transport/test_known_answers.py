"""Answers that repeat, which the wire engine compares with one that it parsed: what they say is what a parser reads in them."""

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.protocol import http2
from perfkit.protocol.http2 import frame
from perfkit.transport.base import Outcome, Prepared, Reply
from perfkit.transport.grpc.messages import parse_headers
from perfkit.transport.grpc.request_writer import request_buffers
from perfkit.transport.grpc.transport import WireGrpcTransport
from perfkit.transport.http.connection import parse_response
from perfkit.transport.http.transport import WireHttpTransport
from perfkit.transport.options import TransportOptions
from tests.transport import servers
from tests.transport.clients import client_of
from tests.transport.http2_peer import OK_HEADERS, OK_TRAILERS, RecordingListener, framed, h2_server

ENOUGH = 20  # equal answers, until the next one is compared
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n"
PING = Prepared((b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",))
REJECTED = b"HTTP/1.1 404 No\r\nContent-Length: 7\r\n\r\nmissing"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n7\r\nchunked\r\n0\r\n\r\n"
OTHER_HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\nbodybody"
OTHER_DATE = b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\nanother"


async def replies_to(*answers, count):
    async with servers.scripted_server(servers.answering(*answers), servers.answering(*answers)) as address:
        options = TransportOptions(max_connections=1, timeout_ns=30_000_000_000)
        wire = client_of(WireHttpTransport, address, options, time.monotonic_ns)
        replies = [await wire.send(PING) for _ in range(count)]
        await wire.aclose()
        return replies, wire.counts


@given(
    st.lists(
        st.sampled_from([HEAD + b"example", HEAD + b"\r\n\r\n\0ab", [HEAD, b"inparts"], REJECTED, CHUNKED, OTHER_HEAD, OTHER_DATE]),
        max_size=6,
    )
)
def test_answers_between_equal_ones_are_read_as_a_parser_reads_them(odd):
    equal = [HEAD + b"answer%d" % (number % 10) for number in range(ENOUGH)]
    answers = [*equal, *odd, *equal]
    replies, counts = asyncio.run(replies_to(*answers, count=len(answers)))
    expected = [parse_response(answer if isinstance(answer, list) else [answer]) for answer in answers]
    assert [parse_response(reply.payload) for reply in replies] == expected
    assert [reply.outcome for reply in replies] == [Outcome.OK if one.status == 200 else Outcome.REJECTED for one in expected]
    assert counts.opened == 1


def attributes_of(reply):
    return {name: getattr(reply, name) for name in (*Reply.__slots__, *Reply.__annotations__) if name != "__dict__"}


async def first_and_later_replies(engine, address, prepared, now_ns, stop_parsing):
    """The attributes of the first reply, and of a hundred after `stop_parsing`; each request is sent at 0 on the clock `now_ns`."""
    options = TransportOptions(max_connections=1, timeout_ns=30_000_000_000)
    wire = client_of(engine, address, options, lambda: now_ns[0])
    replies = []
    for number in range(ENOUGH + 100):
        if number == ENOUGH:
            stop_parsing(*wire._pool._connections)
        now_ns[0] = 0
        replies.append(attributes_of(await wire.send(prepared)))
    await wire.aclose()
    return replies[0], replies[ENOUGH:]


def test_equal_http_answers_are_parsed_only_until_one_is_known_and_their_replies_are_equal(run, monkeypatch):
    now_ns = [0]

    async def answering(reader, writer):
        while True:
            await servers.read_request(reader)
            now_ns[0] = 5
            writer.write(HEAD + b"example")

    async def main():
        async with servers.scripted_server(answering) as address:
            stop_parsing = lambda connection: monkeypatch.setattr(connection, "_parser", None)  # noqa: E731 - of this connection alone
            return await first_and_later_replies(WireHttpTransport, address, PING, now_ns, stop_parsing)

    first, later = run(main())
    assert first == attributes_of(Reply(Outcome.OK, 0, 5, [HEAD + b"example"]))
    assert later == 100 * [first]


@pytest.mark.parametrize("surplus", [b"x", b"\r\njunk", HEAD + b"example"])
def test_bytes_after_a_known_answer_close_the_connection(surplus):
    answers = [HEAD + b"example"] * ENOUGH
    replies, counts = asyncio.run(replies_to(*answers, HEAD + b"example" + surplus, *answers, count=ENOUGH + 3))
    assert {reply.outcome for reply in replies} == {Outcome.OK}
    assert counts.opened == 2


def test_a_known_answer_that_ends_early_is_broken():
    answers = [HEAD + b"example"] * ENOUGH
    replies, _ = asyncio.run(replies_to(*answers, HEAD + b"exampl", count=ENOUGH + 1))
    assert replies[-1].outcome is Outcome.BROKEN


REQUEST = request_buffers([(":method", "POST"), (":scheme", "http"), (":path", "/x"), (":authority", "x")], framed(b"abc"))
BLOCK, TRAILERS = http2.encode_headers(OK_HEADERS), http2.encode_headers(OK_TRAILERS)
FAILED = http2.encode_headers([("grpc-status", "5")])


def answer(stream_id, message, *, block=BLOCK, trailers=TRAILERS, ids=(0, 0)):
    """The frames of an answer; `ids` are added to the stream ids of its second and third."""
    second, third = (stream_id + added for added in ids)
    return frame(1, 4, stream_id, block) + frame(0, 0, second, framed(message)) + frame(1, 5, third, trailers)


ODD = {
    "as it was": {},
    "another message": {"message": b"another message!"},
    "a longer message": {"message": b"a message that is longer"},
    "a failure": {"trailers": FAILED},
    "a literal block": {"block": BLOCK[:1] + http2.literal_header("content-type", "application/grpc")},
    "data of another stream": {"ids": (2, 0)},
    "trailers of another stream": {"ids": (0, 2)},
}


def events_after(odd, *, piece):
    """A session's events in answers of which those in the middle may be odd, and what it wrote, received in pieces of that size."""
    listener = RecordingListener()
    listener.session.open()
    listener.session.receive(frame(http2.SETTINGS, 0, 0) + frame(http2.SETTINGS, 1, 0))
    listener.session.receive(http2.number_frame(http2.WINDOW_UPDATE, 0, 1 << 20))
    streams = 2 * ENOUGH + len(odd) + 1
    for _ in range(streams):
        listener.send(REQUEST)
    listener.take_written()
    for number in range(streams - 1):
        changes = {"message": b"a plain message!", **(odd[number - ENOUGH] if ENOUGH <= number < ENOUGH + len(odd) else {})}
        data = answer(2 * number + 1, **changes)
        if not number:
            data = answer(1, **changes, block=http2.NO_TABLE + BLOCK)
        for first in range(0, len(data), piece or len(data)):
            listener.session.receive(data[first : first + (piece or len(data))])
    return listener.stream_events(), listener.take_written(), sorted(listener.session.streams)


@given(st.lists(st.sampled_from(list(ODD.values())), max_size=5))
def test_whole_answers_mean_what_the_same_bytes_mean_one_by_one(odd):
    assert events_after(odd, piece=0) == events_after(odd, piece=7)


def test_replies_to_grpc_calls_are_equal_whether_the_answer_is_parsed_or_known(run, monkeypatch):
    now_ns = [0]

    async def answering(peer):
        while True:
            stream_id, _, _ = await peer.requests.get()
            now_ns[0] = 5
            peer.answer(stream_id, b"a plain message!")

    async def main():
        async with h2_server(answering) as address:
            stop_parsing = lambda _: monkeypatch.setattr("perfkit.transport.grpc.session._read_head", None)  # noqa: E731 - like that of HTTP
            return await first_and_later_replies(WireGrpcTransport, address, Prepared(REQUEST), now_ns, stop_parsing)

    first, later = run(main())
    expected = attributes_of(Reply(Outcome.OK, 0, 5, (parse_headers(OK_HEADERS), [framed(b"a plain message!")])))
    assert first == expected
    assert later == 100 * [first]


def test_equal_frames_are_parsed_only_until_one_answer_is_known(monkeypatch):
    listener = RecordingListener()
    listener.session.open()
    listener.session.receive(frame(http2.SETTINGS, 0, 0) + http2.number_frame(http2.WINDOW_UPDATE, 0, 1 << 20))
    for number in range(ENOUGH):
        listener.send(REQUEST)
        listener.session.receive(answer(2 * number + 1, b"a plain message!", block=BLOCK if number else http2.NO_TABLE + BLOCK))
    monkeypatch.setattr("perfkit.transport.grpc.session._read_head", None)
    for number in range(ENOUGH, 100):
        listener.send(REQUEST)
        listener.session.receive(answer(2 * number + 1, b"message %8d" % number))
    assert [event[3] for event in listener.stream_events()[ENOUGH:]] == [framed(b"message %8d" % number) for number in range(ENOUGH, 100)]
