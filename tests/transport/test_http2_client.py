"""A client's side of HTTP/2 against literal bytes, and against the h2 package."""

import hpack
import pytest
from h2.errors import ErrorCodes
from h2.events import DataReceived, PingAckReceived, RequestReceived, SettingsAcknowledged, StreamEnded, StreamReset
from hypothesis import given
from hypothesis import strategies as st

from perfkit.protocol import http2
from perfkit.protocol.http2 import Http2Error, frame
from perfkit.transport.grpc.stream import prepare
from tests.transport.http2_peer import OK_HEADERS, OK_TRAILERS, Told, make_h2

GREETING = frame(http2.SETTINGS, 0, 0)
HEAD = frame(http2.HEADERS, 0x4, 1, http2.encode_headers(OK_HEADERS))
BODY = frame(http2.DATA, 0, 1, b"\x00\x00\x00\x00\x02hi")
TRAILERS = frame(http2.HEADERS, 0x5, 1, http2.encode_headers(OK_TRAILERS))
ANSWER = HEAD + BODY + TRAILERS
REQUEST = prepare([(":method", "POST"), (":path", "/x")], b"\x00\x00\x00\x00\x03abc")


def opened(greeting=GREETING, requests=1):
    """A connection whose peer has greeted, and that many streams of it."""
    told = Told()
    told.connection.open()
    told.connection.receive(greeting)
    told.taken()
    for _ in range(requests):
        told.send(REQUEST)
    return told


def data_of(written):
    """What the DATA frames of written bytes carry, and whether they end their stream."""
    data, ended, position = b"", False, 0
    while position < len(written):
        length, kind, flags = int.from_bytes(written[position : position + 3]), written[position + 3], written[position + 4]
        if kind == http2.DATA:
            data, ended = data + written[position + 9 : position + 9 + length], ended or bool(flags & 1)
        position += 9 + length
    return data, ended


def test_the_first_bytes_announce_no_table_no_push_and_wide_windows():
    told = Told()
    told.connection.open()
    assert told.taken() == (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        b"\x00\x00\x18\x04\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x04\x3f\xff\xff\xff\x00\x06\x00\x01\x00\x00"
        b"\x00\x00\x04\x08\x00\x00\x00\x00\x00\x3f\xff\x00\x00"
    )


def test_requests_are_these_frames_the_first_of_which_gives_the_table_up():
    told = opened(requests=0)
    headers_start, block, data_start, data = REQUEST
    told.send(REQUEST)
    length = (len(block) + 1).to_bytes(3)
    assert told.taken() == length + b"\x01\x04\x00\x00\x00\x01\x20" + block + b"\x00\x00\x08\x00\x01\x00\x00\x00\x01" + data
    told.send(REQUEST)
    assert told.taken() == headers_start + b"\x00\x00\x00\x03" + block + data_start + b"\x00\x00\x00\x03" + data


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_an_answer_is_read_whatever_the_pieces(size):
    told = opened()
    for first in range(0, len(ANSWER), size):
        told.connection.receive(ANSWER[first : first + size])
    ((what, stream_id, head, data, trailers),) = told.of_streams()
    assert (what, stream_id, data) == ("answer", 1, b"\x00\x00\x00\x00\x02hi")
    assert (head.http_status, head.content_type) == (200, "application/grpc")
    assert trailers.is_ok
    assert not told.connection.streams


@pytest.mark.parametrize(
    "behind", [b"\x00", ANSWER, frame(http2.DATA, 1, 1, b"x"), frame(http2.RST_STREAM, 0, 1, bytes(4)), frame(0xFA, 0, 1, b"new")]
)
def test_what_stands_behind_an_answer_is_nobody_s(behind):
    told = opened()
    told.connection.receive(ANSWER + behind)
    assert [event[:2] for event in told.of_streams()] == [("answer", 1)]


def test_an_answer_may_be_announced_padded_spread_over_frames_and_end_with_data():
    told = opened()
    block = http2.encode_headers(OK_HEADERS)
    told.connection.receive(
        frame(http2.HEADERS, 0x4, 1, http2.encode_headers([(":status", "103")]))
        + frame(http2.HEADERS, 0x8 | 0x20, 1, b"\x02" + bytes(5) + block[:3] + b"\x00\x00")
        + frame(http2.CONTINUATION, 0, 1, block[3:5])
        + frame(http2.CONTINUATION, 0x4, 1, block[5:])
        + frame(http2.DATA, 0x8, 1, b"\x03ab\x00\x00\x00")
        + frame(http2.DATA, 0, 1)
        + frame(http2.DATA, 0x1, 1, b"c")
    )
    ((_, _, head, data, trailers),) = told.of_streams()
    assert (head.http_status, data, trailers) == (200, b"abc", None)


def test_an_answer_of_trailers_alone():
    told = opened()
    told.connection.receive(frame(http2.HEADERS, 0x5, 1, http2.encode_headers([*OK_HEADERS, ("grpc-status", "3")])))
    ((_, _, head, data, trailers),) = told.of_streams()
    assert (head, data, trailers.error) == (None, b"", "INVALID_ARGUMENT: ")


def test_a_ping_is_answered_and_an_answer_to_one_is_not():
    told = opened()
    told.taken()
    told.connection.receive(frame(http2.PING, 1, 0, b"87654321"))
    assert told.taken() == b""
    told.connection.receive(frame(http2.PING, 0, 0, b"12345678"))
    assert told.taken() == b"\x00\x00\x08\x06\x01\x00\x00\x00\x0012345678"


def test_settings_are_acknowledged():
    told = opened(requests=0)
    told.connection.receive(frame(http2.SETTINGS, 0, 0, b"\x00\x03\x00\x00\x00\x07"))
    assert told.taken() == b"\x00\x00\x00\x04\x01\x00\x00\x00\x00"
    assert told.connection.most_streams == 7
    told.connection.receive(frame(http2.SETTINGS, 1, 0))
    assert told.taken() == b""


def test_a_goaway_gives_back_the_streams_that_were_not_taken():
    told = opened(requests=3)
    told.connection.receive(frame(http2.GOAWAY, 0, 0, b"\x00\x00\x00\x01\x00\x00\x00\x0btoo many pings"))
    farewell = "the server said goodbye (ENHANCE_YOUR_CALM: too many pings)"
    assert told.events[1:] == [("goaway",), ("untaken", 3, farewell), ("untaken", 5, farewell)]
    assert told.connection.is_leaving
    told.connection.receive(ANSWER)
    assert told.events[-1][:2] == ("answer", 1)


def test_a_refused_stream_was_not_taken_and_any_other_reset_ends_it():
    told = opened(requests=2)
    told.connection.receive(frame(http2.RST_STREAM, 0, 1, b"\x00\x00\x00\x07") + frame(http2.RST_STREAM, 0, 3, b"\x00\x00\x00\x02"))
    assert told.of_streams() == [("untaken", 1, "the server refused the stream"), ("reset", 3, 2)]


def test_what_comes_for_a_request_that_was_taken_back_is_ignored():
    told = opened(requests=0)
    stream = told.send(REQUEST)
    told.taken()
    told.connection.cancel(stream)
    assert told.taken() == b"\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x08"
    told.connection.receive(ANSWER)
    assert not told.of_streams()


def test_an_answer_before_the_request_is_all_sent_ends_it():
    told = opened(requests=0)
    told.send(prepare([(":path", "/")], bytes(100_000)))
    assert data_of(told.taken()) == (bytes(65_535), False)
    told.connection.receive(ANSWER)
    assert told.of_streams()[0][0] == "answer"
    assert told.taken() == b"\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x00"
    told.connection.receive(http2.number_frame(http2.WINDOW_UPDATE, 0, 1000))
    assert told.taken() == b""


def test_data_waits_for_both_windows_and_goes_out_in_the_order_of_the_requests():
    told = opened(requests=0)
    for byte in b"ab":
        told.send(prepare([(":path", "/")], bytes([byte]) * 60_000))
    assert data_of(told.taken()) == (b"a" * 60_000 + b"b" * 5_535, True)
    told.connection.receive(http2.number_frame(http2.WINDOW_UPDATE, 3, 1 << 20))
    assert told.taken() == b"", "the connection's window is used up"
    told.connection.receive(http2.number_frame(http2.WINDOW_UPDATE, 0, 50_000))
    assert data_of(told.taken()) == (b"b" * 50_000, False)
    told.connection.receive(http2.number_frame(http2.WINDOW_UPDATE, 0, 50_000))
    assert data_of(told.taken()) == (b"b" * 4_465, True)


def test_a_stream_s_window_is_no_wider_than_the_standard_allows():
    told = opened(requests=0)
    told.send(prepare([(":method", "POST")], bytes(70_000)))  # uses both windows up
    told.connection.receive(http2.number_frame(http2.WINDOW_UPDATE, 1, http2.LARGEST_WINDOW_BYTES))
    with pytest.raises(Http2Error) as caught:
        told.connection.receive(http2.number_frame(http2.WINDOW_UPDATE, 1, 1))
    assert caught.value.code == http2.FLOW_CONTROL_ERROR


def test_a_window_of_a_stream_that_was_answered_says_nothing():
    told = opened(requests=1)
    told.connection.receive(ANSWER)
    told.taken()
    told.connection.receive(http2.number_frame(http2.WINDOW_UPDATE, 1, 1))
    assert told.taken() == b""
    assert [kind for kind, *_ in told.of_streams()] == ["answer"]


def test_a_window_that_the_peer_narrows_is_minded_when_it_is_below_nothing():
    told = opened(requests=0)
    told.connection.receive(http2.number_frame(http2.WINDOW_UPDATE, 0, 1 << 20))
    told.send(prepare([(":path", "/")], bytes(70_000)))
    assert data_of(told.taken())[0] == bytes(65_535)
    told.connection.receive(http2.settings({http2.INITIAL_WINDOW_SIZE: 10}))
    told.taken()
    told.connection.receive(http2.number_frame(http2.WINDOW_UPDATE, 1, 65_525))
    assert told.taken() == b""
    told.connection.receive(http2.number_frame(http2.WINDOW_UPDATE, 1, 7))
    assert data_of(told.taken()) == (bytes(7), False)
    told.connection.receive(http2.settings({http2.INITIAL_WINDOW_SIZE: 1 << 20}))
    assert data_of(told.taken()) == (bytes(4_458), True)


def test_frames_are_as_long_as_the_peer_takes():
    told = opened(GREETING + http2.settings({http2.MAX_FRAME_SIZE: 40_000, http2.INITIAL_WINDOW_SIZE: 1 << 20}), requests=0)
    told.connection.receive(http2.number_frame(http2.WINDOW_UPDATE, 0, 1 << 20))
    told.taken()
    told.send(prepare([(":path", "/")], bytes(100_000)))
    written = told.taken()
    assert written.count(b"\x00\x9c\x40\x00\x00\x00\x00\x00\x01") == 2
    assert data_of(written) == (bytes(100_000), True)


def test_the_windows_we_give_are_renewed_in_time():
    told = opened()
    told.connection.receive(HEAD)
    told.taken()
    piece = frame(http2.DATA, 0, 1, bytes(16_384))
    for _ in range(1 << 15):
        told.connection.receive(piece)
        told.connection.streams[1].chunks.clear()
    received = (1 << 29) // 16_384 * 16_384
    updates = told.taken()
    assert updates == http2.number_frame(http2.WINDOW_UPDATE, 0, received) + http2.number_frame(http2.WINDOW_UPDATE, 1, received)


def test_headers_longer_than_a_frame_go_on_in_the_next():
    told, peer = Told(), make_h2()
    told.connection.open()
    told.connection.receive(peer.data_to_send())
    headers = [(":method", "POST"), (":scheme", "http"), (":path", "/x"), (":authority", "a"), ("long", "~\x7e" * 15_000)]
    peer.local_settings.max_header_list_size = peer.max_inbound_frame_size = 1 << 20
    peer.decoder.max_header_list_size = 1 << 20
    for _ in range(2):
        told.send(prepare(headers, b"abcde"))
    requests = [event for event in peer.receive_data(told.taken()) if isinstance(event, RequestReceived)]
    assert [[(str(name), str(value)) for name, value in event.headers] for event in requests] == [headers] * 2


def test_the_last_stream_number_is_the_connection_s_last():
    told = opened(requests=0)
    told.connection._next_id = http2.LAST_STREAM_ID - 2
    told.send(REQUEST)
    assert not told.connection.is_leaving
    assert told.send(REQUEST).id == http2.LAST_STREAM_ID
    assert told.events[1:] == [("goaway",)]


FAULTS = {
    "data before settings": (b"", frame(http2.DATA, 0, 1, b"x"), http2.PROTOCOL_ERROR),
    "an acknowledgement first": (b"", frame(http2.SETTINGS, 1, 0), http2.PROTOCOL_ERROR),
    "HTTP/1.1": (b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", http2.FRAME_SIZE_ERROR),
    "a frame too long": (GREETING, frame(http2.DATA, 0, 1, bytes(16_385)), http2.FRAME_SIZE_ERROR),
    "a frame too long, not there yet": (GREETING, b"\x00\x40\x01\x00\x00\x00\x00\x00\x01", http2.FRAME_SIZE_ERROR),
    "data on a stream nobody opened": (GREETING, frame(http2.DATA, 0, 9, b"x"), http2.PROTOCOL_ERROR),
    "data on the server's stream": (GREETING, frame(http2.DATA, 0, 2, b"x"), http2.PROTOCOL_ERROR),
    "data on no stream": (GREETING, frame(http2.DATA, 0, 0, b"x"), http2.PROTOCOL_ERROR),
    "headers on a stream nobody opened": (GREETING, frame(http2.HEADERS, 4, 9, b"\x88"), http2.PROTOCOL_ERROR),
    "headers in pieces on a stream nobody opened": (GREETING, frame(http2.HEADERS, 0, 9, b"\x88"), http2.PROTOCOL_ERROR),
    "headers that cannot be read": (GREETING, frame(http2.HEADERS, 4, 1, b"\x80"), http2.COMPRESSION_ERROR),
    "a reset of a stream nobody opened": (GREETING, frame(http2.RST_STREAM, 0, 9, bytes(4)), http2.PROTOCOL_ERROR),
    "a reset too short": (GREETING, frame(http2.RST_STREAM, 0, 1, bytes(3)), http2.FRAME_SIZE_ERROR),
    "a push": (GREETING, frame(http2.PUSH_PROMISE, 4, 1, bytes(8)), http2.PROTOCOL_ERROR),
    "a ping of a stream": (GREETING, frame(http2.PING, 0, 1, bytes(8)), http2.PROTOCOL_ERROR),
    "a ping too short": (GREETING, frame(http2.PING, 0, 0, bytes(7)), http2.FRAME_SIZE_ERROR),
    "settings of a stream": (GREETING, frame(http2.SETTINGS, 0, 1), http2.PROTOCOL_ERROR),
    "an acknowledgement with settings": (GREETING, frame(http2.SETTINGS, 1, 0, bytes(6)), http2.FRAME_SIZE_ERROR),
    "a goodbye too short": (GREETING, frame(http2.GOAWAY, 0, 0, bytes(7)), http2.FRAME_SIZE_ERROR),
    "a window widened by nothing": (GREETING, frame(http2.WINDOW_UPDATE, 0, 0, bytes(4)), http2.PROTOCOL_ERROR),
    "a window too wide": (GREETING, http2.number_frame(http2.WINDOW_UPDATE, 0, http2.LARGEST_WINDOW_BYTES), http2.FLOW_CONTROL_ERROR),
    "a window before settings": (b"", http2.number_frame(http2.WINDOW_UPDATE, 0, 1), http2.PROTOCOL_ERROR),
    "a window of a stream nobody opened": (GREETING, http2.number_frame(http2.WINDOW_UPDATE, 9, 1), http2.PROTOCOL_ERROR),
    "a window of the server's stream": (GREETING, http2.number_frame(http2.WINDOW_UPDATE, 2, 1), http2.PROTOCOL_ERROR),
    "a window's update too short": (GREETING, frame(http2.WINDOW_UPDATE, 0, 0, bytes(3)), http2.FRAME_SIZE_ERROR),
    "a window's update too long": (GREETING, frame(http2.WINDOW_UPDATE, 0, 0, bytes(5)), http2.FRAME_SIZE_ERROR),
    "a continuation of nothing": (GREETING, frame(http2.CONTINUATION, 4, 1, b"\x88"), http2.PROTOCOL_ERROR),
    "headers interrupted": (GREETING, frame(http2.HEADERS, 0, 1, b"\x88") + BODY, http2.PROTOCOL_ERROR),
    "headers continued elsewhere": (
        GREETING,
        frame(http2.HEADERS, 0, 1, b"\x88") + frame(http2.CONTINUATION, 4, 3, b"\x88"),
        http2.PROTOCOL_ERROR,
    ),
    "headers without end": (
        GREETING,
        frame(http2.HEADERS, 0, 1, b"\x88") + frame(http2.CONTINUATION, 0, 1, bytes(16_000)) * 9,
        http2.ENHANCE_YOUR_CALM,
    ),
    "headers in nothing but pieces": (GREETING, frame(http2.HEADERS, 0, 1) + frame(http2.CONTINUATION, 0, 1) * 99, http2.ENHANCE_YOUR_CALM),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "byte by byte"])
def test_a_peer_that_breaks_the_protocol_is_told_how(fault, whole):
    greeting, bad, code = FAULTS[fault]
    told = Told()
    told.connection.open()
    told.connection.receive(greeting)
    if greeting:
        told.send(REQUEST)
    pieces = [bad] if whole else [bad[index : index + 1] for index in range(len(bad))]
    with pytest.raises(Http2Error) as caught:
        list(map(told.connection.receive, pieces))
    assert caught.value.code == code


@pytest.mark.parametrize("bad", [BODY, HEAD + HEAD], ids=["data before headers", "headers twice"])
def test_frames_in_no_order_of_an_answer_s_end_their_stream_alone(bad):
    told = opened(requests=2)
    told.taken()
    told.connection.receive(bad)
    assert told.of_streams() == [("reset", 1, http2.PROTOCOL_ERROR)]
    assert told.taken() == b"\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    assert list(told.connection.streams) == [3]


def exchange_with_h2(messages, cuts, **settings):
    """Sends messages to the h2 package, which gives them back; what it saw, and what we were told."""
    told, peer, received, requests = Told(), make_h2(**settings), {}, []
    told.connection.open()
    told.connection.receive(peer.data_to_send())
    for message in messages:
        told.send(prepare([(":method", "POST"), (":scheme", "http"), (":path", "/x"), (":authority", "a")], message))
    cut = iter(cuts)
    while written := told.taken():
        for event in peer.receive_data(written):
            match event:
                case RequestReceived():
                    received[event.stream_id] = b""
                case DataReceived():
                    received[event.stream_id] += event.data
                    peer.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                case StreamEnded():
                    requests.append(received[event.stream_id])
                    peer.send_headers(event.stream_id, OK_HEADERS)
                    for first in range(0, len(requests[-1]), 16_384):
                        peer.send_data(event.stream_id, requests[-1][first : first + 16_384])
                    peer.send_headers(event.stream_id, OK_TRAILERS, end_stream=True)
        answer = peer.data_to_send()
        while answer:
            size = next(cut, len(answer))
            told.connection.receive(answer[:size])
            answer = answer[size:]
    return requests, told


@given(
    st.lists(st.integers(5, 50_000), min_size=1, max_size=5),
    st.lists(st.integers(1, 40), max_size=200),
    st.sampled_from([16_384, 20_000, 1 << 20]),
    st.sampled_from([1_000, 16_384, 65_535, 1 << 20]),
)
def test_h2_gets_every_byte_whatever_its_windows_and_gives_it_back(sizes, cuts, frame_size, window):
    messages = [bytes([index]) * size for index, size in enumerate(sizes)]
    requests, told = exchange_with_h2(messages, cuts, max_frame_size=frame_size, initial_window_size=window)
    assert sorted(requests) == messages
    assert sorted(event[3] for event in told.of_streams()) == messages
    assert {event[4].status for event in told.of_streams()} == {"OK"}


def test_h2_accepts_what_we_write_beside_requests():
    told, peer = Told(), make_h2()
    told.connection.open()
    peer.ping(b"12345678")
    told.connection.receive(peer.data_to_send())
    stream = told.send(prepare([(":method", "POST"), (":scheme", "http"), (":path", "/x"), (":authority", "a")], b"12345"))
    told.connection.cancel(stream)
    events = peer.receive_data(told.taken())
    (reset,) = [event for event in events if isinstance(event, StreamReset)]
    assert reset.error_code is ErrorCodes.CANCEL
    assert any(isinstance(event, PingAckReceived) for event in events)
    assert any(isinstance(event, SettingsAcknowledged) for event in events)
    assert peer.encoder.header_table_size == 0


def test_a_peer_with_a_smaller_table_reads_our_blocks():
    """The standard's own table stands until the first block: that one must give it up."""
    told, decoder = opened(http2.settings({http2.HEADER_TABLE_SIZE: 0}), requests=2), hpack.Decoder()
    decoder.max_allowed_table_size = 0
    written = told.taken()
    length = int.from_bytes(written[:3])
    assert [(str(name), str(value)) for name, value in decoder.decode(written[9 : 9 + length])] == [(":method", "POST"), (":path", "/x")]
