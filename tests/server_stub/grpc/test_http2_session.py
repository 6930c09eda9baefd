"""The server's HTTP/2 session against literal bytes; its windows."""

import collections
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.protocol import http2
from perfkit.protocol.http2 import frame, number_frame
from tests.server_stub.grpc.h2_caller import framed
from tests.server_stub.grpc.session_recorder import (
    BLOCK,
    GREETING,
    SessionRecorder,
    call,
    data_frame,
    data_of,
    frames_of,
    headers_frame,
    opened,
    settings_frame,
)

MIB = 1 << 20
RESPONSE_BLOCK = http2.encode_headers(
    [(":status", "200"), ("content-type", "application/grpc"), ("grpc-accept-encoding", "identity, deflate, gzip")]
)
OK_BLOCK = b"\x10" + http2.encode_headers([("grpc-status", "0")])[1:]
CALL_EVENTS = [("headers", 1, "/s/M"), ("message", 1, b"abc", False), ("end", 1)]


def test_the_first_bytes_are_the_settings_and_a_large_window():
    recorder = SessionRecorder(max_streams=4096)
    recorder.session.open()
    assert recorder.take_written() == (
        b"\x00\x00\x1e\x04\x00\x00\x00\x00\x00"
        b"\x00\x01\x00\x00\x00\x00"  # no header table
        b"\x00\x03\x00\x00\x10\x00"  # 4096 streams
        b"\x00\x04\x00\x40\x00\x00"  # 4 MiB a stream
        b"\x00\x05\x00\xff\xff\xff"  # frames up to 2**24 - 1
        b"\x00\x06\x00\x00\x40\x00"  # 16 KiB of headers
        b"\x00\x00\x04\x08\x00\x00\x00\x00\x00\x7f\xff\x00\x00"  # 2**31 - 1 for the connection
    )


def test_the_clients_settings_are_acknowledged():
    recorder = SessionRecorder()
    recorder.receive(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
    assert not recorder.session.is_ready
    recorder.receive(b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x07")
    assert recorder.session.is_ready
    assert recorder.take_written() == b"\x00\x00\x00\x04\x01\x00\x00\x00\x00"
    recorder.receive(b"\x00\x00\x00\x04\x01\x00\x00\x00\x00")
    assert recorder.take_written() == b""


def test_a_small_call_and_its_response_are_these_bytes():
    recorder = opened(
        b"\x00\x00%c\x01\x04\x00\x00\x00\x01%b" % (len(BLOCK), BLOCK) + b"\x00\x00\x08\x00\x01\x00\x00\x00\x01\x00\x00\x00\x00\x03abc"
    )
    assert recorder.events == CALL_EVENTS
    assert recorder.streams[1].is_client_done
    recorder.session.respond(recorder.streams[1], [b"de", b"f"])
    recorder.receive(call(b"abc", 3))
    recorder.session.respond(recorder.streams[3], [b"def"])
    assert recorder.events[3:] == [("closed", 1), *[(one[0], 3, *one[2:]) for one in CALL_EVENTS], ("closed", 3)]
    assert not recorder.session.streams
    expected = b""
    for stream_id, table in ((b"\x01", b"\x20"), (b"\x03", b"")):  # the first header block says that it uses no table
        expected += b"\x00\x00%c\x01\x04\x00\x00\x00%b%b%b" % (len(table + RESPONSE_BLOCK), stream_id, table, RESPONSE_BLOCK)
        expected += b"\x00\x00\x08\x00\x00\x00\x00\x00%b\x00\x00\x00\x00\x03def" % stream_id
        expected += b"\x00\x00%c\x01\x05\x00\x00\x00%b%b" % (len(OK_BLOCK), stream_id, OK_BLOCK)
    assert recorder.take_written() == expected


def test_a_failed_call_gets_only_trailers():
    recorder = opened(headers_frame(end=True))
    assert recorder.events == [("headers", 1, "/s/M"), ("end", 1)]
    trailers = [(":status", "200"), ("content-type", "application/grpc"), ("grpc-status", "3"), ("grpc-message", "no")]
    recorder.session.end(recorder.streams[1], trailers)
    assert frames_of(recorder.take_written()) == [(http2.HEADERS, 0x5, 1, b"\x20" + http2.encode_headers(trailers))]
    assert recorder.events[-1] == ("closed", 1)


def test_messages_of_a_stream_and_then_a_failure():
    recorder = opened(headers_frame())
    stream = recorder.streams[1]
    assert recorder.session.send(stream, [b"a", b"bc"])
    assert recorder.session.send(stream, [])
    recorder.receive(data_frame(b"", end=True))
    recorder.session.end(stream, [(":status", "200"), ("grpc-status", "2"), ("grpc-message", "no")])
    assert frames_of(recorder.take_written()) == [
        (http2.HEADERS, 0x4, 1, b"\x20" + RESPONSE_BLOCK),
        (http2.DATA, 0, 1, b"\0\0\0\0\x03abc"),
        (http2.DATA, 0, 1, b"\0\0\0\0\0"),
        (http2.HEADERS, 0x5, 1, http2.encode_headers([("grpc-status", "2"), ("grpc-message", "no")])),
    ]


def test_a_response_before_the_clients_end_stops_the_client():
    recorder = opened(headers_frame())
    recorder.session.respond(recorder.streams[1], [b"abc"])
    assert frames_of(recorder.take_written())[-1] == (http2.RST_STREAM, 0, 1, bytes(4))
    recorder.receive(data_frame(framed(b"late")) + data_frame(framed(b"late"), end=True) + headers_frame(end=True))
    assert recorder.events == [("headers", 1, "/s/M"), ("closed", 1)]
    assert recorder.take_written() == b""


def test_a_call_that_is_answered_at_its_complete_headers_needs_no_reset():
    recorder = SessionRecorder()
    recorder.receive(GREETING)
    recorder.take_written()
    recorder.on_headers = lambda stream: recorder.session.end(stream, [(":status", "405")])
    recorder.receive(headers_frame(end=True))
    assert [one[:3] for one in frames_of(recorder.take_written())] == [(http2.HEADERS, 0x5, 1)]


PRIORITY = b"\x80\x00\x00\x00\x10"


@pytest.mark.parametrize(
    "sent",
    [
        headers_frame() + b"".join(data_frame(framed(b"abc")[at : at + 1]) for at in range(8)) + data_frame(b"", end=True),
        headers_frame() + data_frame(b"") + data_frame(framed(b"abc"), end=True),
        headers_frame() + frame(http2.DATA, 0x9, 1, b"\x03" + framed(b"abc") + bytes(3)),
        headers_frame() + frame(http2.DATA, 0x8, 1, b"\x00" + framed(b"abc")) + frame(http2.DATA, 0x9, 1, b"\xff" + bytes(255)),
        frame(http2.HEADERS, 0xC, 1, b"\x02" + BLOCK + bytes(2)) + data_frame(framed(b"abc"), end=True),
        frame(http2.HEADERS, 0x24, 1, PRIORITY + BLOCK) + data_frame(framed(b"abc"), end=True),
        frame(http2.HEADERS, 0x2C, 1, b"\x01" + PRIORITY + BLOCK + bytes(1)) + data_frame(framed(b"abc"), end=True),
        frame(http2.HEADERS, 0, 1, BLOCK[:1]) + frame(http2.CONTINUATION, 0, 1, b"") + frame(http2.CONTINUATION, 0x4, 1, BLOCK[1:])
        + data_frame(framed(b"abc"), end=True),
        call(b"abc")[:-17] + data_frame(framed(b"abc")) + headers_frame(block=http2.encode_headers([("x", "y")]), end=True),
        headers_frame() + frame(http2.PRIORITY, 0, 1, PRIORITY) + frame(0xFA, 0xFF, 9, b"new") + data_frame(framed(b"abc"), end=True),
        frame(http2.PRIORITY, 0, 7, PRIORITY) + frame(http2.GOAWAY, 0, 0, bytes(8) + b"bye") + call(b"abc"),
        frame(http2.PING, 0x1, 0, b"87654321") + call(b"abc"),
    ],
    ids=[
        "data split", "empty data", "padded data", "padding alone", "padded headers", "priority", "padding and priority", "continuations",
        "trailers", "unknown frame", "goaway", "acknowledged ping",
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [1 << 20, 1, 3])
def test_forms_of_a_request(sent, size):
    recorder = opened()
    for first in range(0, len(sent), size):
        recorder.receive(sent[first : first + size])
    assert recorder.events == CALL_EVENTS
    assert recorder.take_written() == b""


def test_a_request_that_ends_with_its_headers_in_a_continuation():
    recorder = opened(frame(http2.HEADERS, 0x1, 1, BLOCK[:5]) + frame(http2.CONTINUATION, 0x4, 1, BLOCK[5:]))
    assert recorder.events == [("headers", 1, "/s/M"), ("end", 1)]


def test_a_ping_is_answered():
    recorder = opened(b"\x00\x00\x08\x06\x00\x00\x00\x00\x0012345678")
    assert recorder.take_written() == b"\x00\x00\x08\x06\x01\x00\x00\x00\x0012345678"


def test_a_reset_ends_the_call():
    recorder = opened(
        headers_frame() + data_frame(framed(b"abc")[:-1]) + number_frame(http2.RST_STREAM, 1, http2.CANCEL) + data_frame(b"c")
    )
    assert recorder.events == [("headers", 1, "/s/M"), ("closed", 1)]
    recorder.receive(number_frame(http2.RST_STREAM, 1, http2.CANCEL))
    assert recorder.take_written() == b""


def test_headers_that_do_not_end_a_stream_reset_it():
    recorder = opened(headers_frame() + headers_frame())
    assert recorder.take_written() == number_frame(http2.RST_STREAM, 1, http2.PROTOCOL_ERROR)
    assert recorder.events[-1] == ("closed", 1)


def test_a_surplus_stream_is_refused_until_another_is_over():
    recorder = opened(headers_frame(1) + call(b"x", 3) + call(b"x", 5), max_streams=1)
    assert recorder.take_written() == b"".join(number_frame(http2.RST_STREAM, stream_id, http2.REFUSED_STREAM) for stream_id in (3, 5))
    recorder.session.respond(recorder.streams[1], [])
    recorder.receive(call(b"abc", 7))
    assert [one[0] for one in recorder.events if one[1] == 7] == ["headers", "message", "end"]


def test_after_going_away_streams_are_refused_and_open_ones_continue():
    recorder = opened(headers_frame(1) + headers_frame(3))
    recorder.session.go_away()
    recorder.receive(call(b"x", 5) + data_frame(framed(b"abc"), 3, end=True))
    assert recorder.take_written() == http2.goaway(http2.NO_ERROR, 3) + number_frame(http2.RST_STREAM, 5, http2.REFUSED_STREAM)
    assert recorder.events[2:] == [("message", 3, b"abc", False), ("end", 3)]
    recorder.session.respond(recorder.streams[3], [b"abc"])
    assert data_of(recorder.take_written(), 3) == framed(b"abc")


def test_closing_ends_all_streams():
    recorder = opened(headers_frame(1) + headers_frame(3) + data_frame(framed(b"abc")[:-1], 3))
    recorder.session.close()
    assert recorder.events[2:] == [("closed", 1), ("closed", 3)]
    assert recorder.session.space() is None


def test_data_waits_for_the_streams_window():
    recorder = opened(settings_frame(initial_window_size=7) + call(b""))
    recorder.session.respond(recorder.streams[1], [b"0123456789"])
    assert recorder.session.unsent_bytes == 8
    assert data_of(recorder.take_written()) == b"\0\0\0\0\x0a01"
    recorder.receive(number_frame(http2.WINDOW_UPDATE, 1, 3))
    assert recorder.take_written() == b"\x00\x00\x03\x00\x00\x00\x00\x00\x01234"
    recorder.receive(number_frame(http2.WINDOW_UPDATE, 1, 5))
    assert frames_of(recorder.take_written()) == [(http2.DATA, 0, 1, b"56789"), (http2.HEADERS, 0x5, 1, OK_BLOCK)]
    assert recorder.session.unsent_bytes == 0


def test_data_waits_for_the_connections_window():
    recorder = opened(settings_frame(initial_window_size=MIB) + call(b"", 1) + call(b"", 3))
    for stream_id in (1, 3):
        recorder.session.respond(recorder.streams[stream_id], [bytes([stream_id]) * 60_000])
    first = recorder.take_written()
    assert (len(data_of(first, 1)), len(data_of(first, 3))) == (60_005, 5530)
    recorder.receive(number_frame(http2.WINDOW_UPDATE, 0, 100) + number_frame(http2.WINDOW_UPDATE, 0, 1_000_000))
    second = recorder.take_written()
    assert data_of(first + second, 3) == framed(b"\x03" * 60_000)


def test_a_window_that_shrinks_below_what_is_sent_has_to_be_opened_again():
    recorder = opened(settings_frame(initial_window_size=15) + call(b""))
    recorder.session.respond(recorder.streams[1], [b"0123456789abcdef"])
    assert data_of(recorder.take_written()) == b"\0\0\0\0\x100123456789"
    recorder.receive(settings_frame(initial_window_size=9))
    recorder.receive(number_frame(http2.WINDOW_UPDATE, 1, 6))
    assert data_of(recorder.take_written()) == b"", "-6 and 6 are 0"
    recorder.receive(number_frame(http2.WINDOW_UPDATE, 1, 2))
    assert data_of(recorder.take_written()) == b"ab"
    recorder.receive(settings_frame(initial_window_size=100))
    assert data_of(recorder.take_written()) == b"cdef"


def test_frames_are_as_large_as_the_client_accepts():
    recorder = opened(
        settings_frame(initial_window_size=MIB, max_frame_size=20_000) + number_frame(http2.WINDOW_UPDATE, 0, MIB) + call(b"")
    )
    recorder.session.respond(recorder.streams[1], [bytes(50_000)])
    sizes = [len(payload) for kind, _, _, payload in frames_of(recorder.take_written()) if kind == http2.DATA]
    assert sizes == [20_000, 20_000, 10_005]


def test_trailers_longer_than_a_frame_are_continued():
    recorder = opened(call(b""))
    trailers = [("grpc-status", "2"), ("grpc-message", "~" * 40_000)]
    recorder.session.end(recorder.streams[1], trailers)
    frames = frames_of(recorder.take_written())
    assert [one[:3] for one in frames] == [(http2.HEADERS, 0x1, 1)] + [(http2.CONTINUATION, 0, 1)] * (len(frames) - 2) + [
        (http2.CONTINUATION, 0x4, 1)
    ]
    assert all(len(one[3]) <= 16_384 for one in frames)
    assert b"".join(one[3] for one in frames) == b"\x20" + http2.encode_headers(trailers)


def test_a_stream_tells_when_what_waited_is_sent():
    recorder = opened(settings_frame(initial_window_size=6) + headers_frame())
    assert recorder.session.send(recorder.streams[1], [b"a"])
    assert not recorder.session.send(recorder.streams[1], [b"bc"])
    recorder.receive(number_frame(http2.WINDOW_UPDATE, 1, 6))
    assert recorder.events == [("headers", 1, "/s/M")]
    recorder.receive(number_frame(http2.WINDOW_UPDATE, 1, 1))
    assert recorder.events[1:] == [("sent", 1)]
    assert data_of(recorder.take_written()) == framed(b"a") + framed(b"bc")


def test_what_a_reset_stream_did_not_send_is_dropped():
    recorder = opened(settings_frame(initial_window_size=0) + call(b"", 1) + call(b"", 3))
    for stream_id in (1, 3):
        recorder.session.respond(recorder.streams[stream_id], [b"abc"])
    recorder.receive(number_frame(http2.RST_STREAM, 1, http2.CANCEL) + settings_frame(initial_window_size=100))
    written = recorder.take_written()
    assert (data_of(written, 1), data_of(written, 3)) == (b"", framed(b"abc"))
    assert recorder.session.unsent_bytes == 0


def window_of(written, stream_id):
    return sum(int.from_bytes(one[3]) for one in frames_of(written) if one[0] == http2.WINDOW_UPDATE and one[2] == stream_id)


def test_the_window_of_a_large_message_is_renewed_once_half_of_it_is_used():
    recorder = opened(headers_frame() + data_frame(framed(bytes(10 * MIB))[: 2 * MIB]))
    assert recorder.take_written() == b""
    recorder.receive(data_frame(b"x"))
    assert recorder.take_written() == number_frame(http2.WINDOW_UPDATE, 1, 2 * MIB + 1)


def test_the_window_is_not_renewed_in_the_last_frame():
    recorder = opened(headers_frame() + data_frame(framed(bytes(3 * MIB)), end=True))
    assert recorder.take_written() == b""


def test_the_connections_window_is_renewed_also_for_data_of_streams_that_are_over():
    recorder = opened(headers_frame() + number_frame(http2.RST_STREAM, 1, http2.CANCEL))
    size, count = (1 << 24) - 1, 65
    frame_of_zeros = data_frame(bytes(size))
    for _ in range(count):
        recorder.receive(frame_of_zeros)
    assert recorder.take_written() == number_frame(http2.WINDOW_UPDATE, 0, size * count)


@given(st.lists(st.sampled_from([0, 1, 100, 50_000, MIB, 5 * MIB]), max_size=12), st.integers(0, 2**32))
def test_a_client_gets_no_more_than_4_mib_beyond_what_is_taken(sizes, seed):
    """But for a message that has begun, and a frame: messages are counted when complete, and windows are renewed before a frame."""
    choices, recorder, queue = random.Random(seed), opened(headers_frame()), collections.deque[int]()
    stream = recorder.streams[1]

    def put(stream, message):
        queue.append(len(message.data) + 5)
        stream.queued_bytes += queue[-1]

    recorder.on_message = put
    data, window = b"".join(framed(bytes(size)) for size in sizes), 4 * MIB
    while data or queue:
        if data and window and choices.random() < 0.8:
            part = data[: min(window, choices.randint(1, 2 * MIB))]
            data = data[len(part) :]
            recorder.receive(data_frame(part))
            window += window_of(recorder.take_written(), 1) - len(part)
        else:
            assert queue or window, "the client waits for a window, and the server for data"
            if queue:
                recorder.session.take(stream, queue.popleft())
            window += window_of(recorder.take_written(), 1)
        assert window + sum(queue) <= 4 * MIB + 2 * MIB + 5 + max(sizes)
