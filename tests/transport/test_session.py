"""The HTTP/2 client session against literal bytes and against the h2 package."""

import hpack
import pytest
from h2.errors import ErrorCodes
from h2.events import DataReceived, PingAckReceived, RequestReceived, SettingsAcknowledged, StreamEnded, StreamReset
from hypothesis import given
from hypothesis import strategies as st

from perfkit.protocol import http2
from perfkit.protocol.http2 import Http2Error, LimitError, frame
from perfkit.protocol.http2_session import MAX_CONTROL_FRAMES_PER_S
from perfkit.transport.grpc.request_writer import request_buffers
from tests.transport.http2_peer import OK_HEADERS, OK_TRAILERS, RecordingListener, make_h2

GREETING = frame(http2.SETTINGS, 0, 0)
HEAD = frame(http2.HEADERS, 0x4, 1, http2.encode_headers(OK_HEADERS))
BODY = frame(http2.DATA, 0, 1, b"\x00\x00\x00\x00\x02hi")
TRAILERS = frame(http2.HEADERS, 0x5, 1, http2.encode_headers(OK_TRAILERS))
ANSWER = HEAD + BODY + TRAILERS
REQUEST = request_buffers([(":method", "POST"), (":path", "/x")], b"\x00\x00\x00\x00\x03abc")


def opened(greeting=GREETING, requests=1, limit_bytes=1 << 30):
    """A listener whose session has received the greeting and sent that many requests."""
    listener = RecordingListener(limit_bytes)
    listener.session.open()
    listener.session.receive(greeting)
    listener.take_written()
    for _ in range(requests):
        listener.send(REQUEST)
    return listener


def data_of(written):
    """The data of all DATA frames, and whether one of them ends its stream."""
    data, ended, position = b"", False, 0
    while position < len(written):
        length, kind, flags = int.from_bytes(written[position : position + 3]), written[position + 3], written[position + 4]
        if kind == http2.DATA:
            data, ended = data + written[position + 9 : position + 9 + length], ended or bool(flags & 1)
        position += 9 + length
    return data, ended


def test_the_first_bytes_disable_header_table_and_push_and_set_large_windows():
    listener = RecordingListener()
    listener.session.open()
    assert listener.take_written() == (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
        b"\x00\x00\x18\x04\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x02\x00\x00\x00\x00\x00\x04\x3f\xff\xff\xff\x00\x06\x00\x01\x00\x00"
        b"\x00\x00\x04\x08\x00\x00\x00\x00\x00\x3f\xff\x00\x00"
    )


def test_a_request_is_a_headers_and_a_data_frame_and_the_first_one_empties_the_header_table():
    listener = opened(requests=0)
    headers_start, block, data_start, data = REQUEST
    listener.send(REQUEST)
    length = (len(block) + 1).to_bytes(3)
    assert listener.take_written() == length + b"\x01\x04\x00\x00\x00\x01\x20" + block + b"\x00\x00\x08\x00\x01\x00\x00\x00\x01" + data
    listener.send(REQUEST)
    assert listener.take_written() == headers_start + b"\x00\x00\x00\x03" + block + data_start + b"\x00\x00\x00\x03" + data


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_an_answer_is_read_in_any_pieces(size):
    listener = opened()
    for first in range(0, len(ANSWER), size):
        listener.session.receive(ANSWER[first : first + size])
    ((kind, stream_id, head, data, trailers),) = listener.stream_events()
    assert (kind, stream_id, data) == ("answer", 1, b"\x00\x00\x00\x00\x02hi")
    assert (head.http_status, head.content_type) == (200, "application/grpc")
    assert trailers.is_ok
    assert not listener.session.streams


@pytest.mark.parametrize(
    "behind", [b"\x00", ANSWER, frame(http2.DATA, 1, 1, b"x"), frame(http2.RST_STREAM, 0, 1, bytes(4)), frame(0xFA, 0, 1, b"new")]
)
def test_frames_after_an_answer_are_ignored(behind):
    listener = opened()
    listener.session.receive(ANSWER + behind)
    assert [event[:2] for event in listener.stream_events()] == [("answer", 1)]


def test_an_answer_may_follow_interim_headers_be_padded_be_split_and_end_with_data():
    listener = opened()
    block = http2.encode_headers(OK_HEADERS)
    listener.session.receive(
        frame(http2.HEADERS, 0x4, 1, http2.encode_headers([(":status", "103")]))
        + frame(http2.HEADERS, 0x8 | 0x20, 1, b"\x02" + bytes(5) + block[:3] + b"\x00\x00")
        + frame(http2.CONTINUATION, 0, 1, block[3:5])
        + frame(http2.CONTINUATION, 0x4, 1, block[5:])
        + frame(http2.DATA, 0x8, 1, b"\x03ab\x00\x00\x00")
        + frame(http2.DATA, 0, 1)
        + frame(http2.DATA, 0x1, 1, b"c")
    )
    ((_, _, head, data, trailers),) = listener.stream_events()
    assert (head.http_status, data, trailers) == (200, b"abc", None)


def test_an_answer_may_be_only_trailers():
    listener = opened()
    listener.session.receive(frame(http2.HEADERS, 0x5, 1, http2.encode_headers([*OK_HEADERS, ("grpc-status", "3")])))
    ((_, _, head, data, trailers),) = listener.stream_events()
    assert (head, data, trailers.error) == (None, b"", "INVALID_ARGUMENT: ")


def test_a_ping_is_acknowledged_and_an_acknowledgement_is_not():
    listener = opened()
    listener.take_written()
    listener.session.receive(frame(http2.PING, 1, 0, b"87654321"))
    assert listener.take_written() == b""
    listener.session.receive(frame(http2.PING, 0, 0, b"12345678"))
    assert listener.take_written() == b"\x00\x00\x08\x06\x01\x00\x00\x00\x0012345678"


def test_settings_are_acknowledged():
    listener = opened(requests=0)
    listener.session.receive(frame(http2.SETTINGS, 0, 0, b"\x00\x03\x00\x00\x00\x07"))
    assert listener.take_written() == b"\x00\x00\x00\x04\x01\x00\x00\x00\x00"
    assert listener.session.max_concurrent_streams == 7
    listener.session.receive(frame(http2.SETTINGS, 1, 0))
    assert listener.take_written() == b""


def test_goaway_refuses_the_unprocessed_streams():
    listener = opened(requests=3)
    listener.session.receive(frame(http2.GOAWAY, 0, 0, b"\x00\x00\x00\x01\x00\x00\x00\x0btoo many pings"))
    goaway_reason = "the server sent GOAWAY (ENHANCE_YOUR_CALM: too many pings)"
    assert listener.events[1:] == [("goaway",), ("refused", 3, goaway_reason), ("refused", 5, goaway_reason)]
    assert listener.session.goaway_reason == goaway_reason
    listener.session.receive(ANSWER)
    assert listener.events[-1][:2] == ("answer", 1)


def test_refused_streams_are_distinguished_from_other_resets():
    listener = opened(requests=2)
    listener.session.receive(frame(http2.RST_STREAM, 0, 1, b"\x00\x00\x00\x07") + frame(http2.RST_STREAM, 0, 3, b"\x00\x00\x00\x02"))
    assert listener.stream_events() == [("refused", 1, "the server refused the stream"), ("reset", 3, 2)]


def test_frames_for_a_cancelled_request_are_ignored():
    listener = opened(requests=0)
    stream = listener.send(REQUEST)
    listener.take_written()
    listener.session.cancel(stream)
    assert listener.take_written() == b"\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x08"
    listener.session.receive(ANSWER)
    assert not listener.stream_events()


def test_an_answer_before_the_whole_request_is_sent_ends_the_request():
    listener = opened(requests=0)
    listener.send(request_buffers([(":path", "/")], bytes(100_000)))
    assert data_of(listener.take_written()) == (bytes(65_535), False)
    listener.session.receive(ANSWER)
    assert listener.stream_events()[0][0] == "answer"
    assert listener.take_written() == b"\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x00"
    listener.session.receive(http2.number_frame(http2.WINDOW_UPDATE, 0, 1000))
    assert listener.take_written() == b""


def test_data_waits_for_both_windows_and_is_sent_in_the_order_of_the_requests():
    listener = opened(requests=0)
    for byte in b"ab":
        listener.send(request_buffers([(":path", "/")], bytes([byte]) * 60_000))
    assert data_of(listener.take_written()) == (b"a" * 60_000 + b"b" * 5_535, True)
    listener.session.receive(http2.number_frame(http2.WINDOW_UPDATE, 3, 1 << 20))
    assert listener.take_written() == b"", "the connection's window is used up"
    listener.session.receive(http2.number_frame(http2.WINDOW_UPDATE, 0, 50_000))
    assert data_of(listener.take_written()) == (b"b" * 50_000, False)
    listener.session.receive(http2.number_frame(http2.WINDOW_UPDATE, 0, 50_000))
    assert data_of(listener.take_written()) == (b"b" * 4_465, True)


def test_a_stream_window_above_the_maximum_is_an_error():
    listener = opened(requests=0)
    listener.send(request_buffers([(":method", "POST")], bytes(70_000)))  # uses up both windows
    listener.session.receive(http2.number_frame(http2.WINDOW_UPDATE, 1, http2.LARGEST_WINDOW_BYTES))
    with pytest.raises(Http2Error) as caught:
        listener.session.receive(http2.number_frame(http2.WINDOW_UPDATE, 1, 1))
    assert caught.value.code == http2.FLOW_CONTROL_ERROR


def updates(connection_increment, stream_id, stream_increment):
    """The updates of both windows in one piece, as servers send them."""
    both = ((0, connection_increment), (stream_id, stream_increment))
    return b"".join(http2.number_frame(http2.WINDOW_UPDATE, *one) for one in both)


@pytest.mark.parametrize(("connection", "stream", "more"), [(40_000, 40_000, 40_000), (40_000, 100, 100), (100, 40_000, 100)])
def test_updates_of_both_windows_in_one_piece_send_what_both_allow(connection, stream, more):
    listener = opened(requests=0)
    data = bytes(range(256)) * 600
    listener.send(request_buffers([(":method", "POST")], data))
    sent, _ = data_of(listener.take_written())
    assert sent == data[:65_535]
    listener.session.receive(updates(connection, 1, stream))
    assert data_of(listener.take_written()) == (data[65_535 : 65_535 + more], False)
    listener.session.receive(updates(1 << 20, 1, 1 << 20))
    assert data_of(listener.take_written()) == (data[65_535 + more :], True)
    listener.session.receive(updates(1, 1, 1))
    assert listener.take_written() == b""


def test_updates_of_both_windows_serve_the_other_requests_too():
    listener = opened(requests=0)
    for _ in range(2):
        listener.send(request_buffers([(":method", "POST")], bytes(60_000)))
    listener.take_written()
    listener.session.receive(updates(100_000, 1, 1))
    assert data_of(listener.take_written()) == (bytes(54_465), True), "stream 3, which the connection's window held back"


@pytest.mark.parametrize(
    ("received", "code"),
    [
        ([updates(0, 1, 5)], http2.PROTOCOL_ERROR),
        ([updates(5, 1, 0)], http2.PROTOCOL_ERROR),
        ([updates(http2.LARGEST_WINDOW_BYTES, 1, 5), updates(9, 1, 1)], http2.FLOW_CONTROL_ERROR),
        ([updates(5, 1, http2.LARGEST_WINDOW_BYTES), updates(1, 1, 9)], http2.FLOW_CONTROL_ERROR),
        ([updates(5, 9, 5)], http2.PROTOCOL_ERROR),
    ],
)
def test_invalid_updates_in_one_piece_are_errors(received, code):
    listener = opened(requests=0)
    listener.send(request_buffers([(":method", "POST")], bytes(70_000)))  # uses up both windows
    *before, last = received
    for piece in before:
        listener.session.receive(piece)
    with pytest.raises(Http2Error) as raised:
        listener.session.receive(last)
    assert raised.value.code == code


def receive_repeatedly(listener, piece, times):
    for _ in range(times):
        listener.session.receive(piece)


def test_updates_of_both_windows_count_as_two_control_frames():
    listener = opened(requests=0)
    listener.send(request_buffers([(":method", "POST")], bytes(70_000)))
    with pytest.raises(LimitError):
        receive_repeatedly(listener, updates(1, 1, 1), MAX_CONTROL_FRAMES_PER_S)


def test_updates_of_both_windows_before_the_settings_are_an_error():
    listener = RecordingListener()
    listener.session.open()
    listener.send(request_buffers([(":method", "POST")], bytes(70_000)))
    with pytest.raises(Http2Error, match="first frame is not SETTINGS"):
        listener.session.receive(updates(5, 1, 5))


def test_updates_of_both_windows_within_a_header_block_are_an_error():
    listener = opened(requests=0)
    listener.send(request_buffers([(":method", "POST")], bytes(70_000)))
    listener.session.receive(frame(http2.HEADERS, 0, 1, http2.encode_headers(OK_HEADERS)))
    with pytest.raises(Http2Error, match="interrupts a header block"):
        listener.session.receive(updates(5, 1, 5))


def test_the_reserved_bit_of_an_update_is_ignored():
    listener = opened(requests=0)
    listener.send(request_buffers([(":method", "POST")], bytes(70_000)))
    listener.take_written()
    received = bytearray(updates(10, 1, 5))
    received[9] |= 0x80
    received[22] |= 0x80
    listener.session.receive(bytes(received))
    assert data_of(listener.take_written()) == (bytes(5), False)


def test_updates_of_both_windows_may_leave_a_stream_window_negative():
    listener = opened(requests=0)
    listener.send(request_buffers([(":method", "POST")], bytes(70_000)))
    listener.session.receive(http2.settings({http2.INITIAL_WINDOW_SIZE: 65_525}))
    listener.take_written()
    listener.session.receive(updates(100, 1, 10))
    assert listener.take_written() == b""
    listener.session.receive(updates(100, 1, 7))
    assert data_of(listener.take_written()) == (bytes(7), False)


def test_other_frames_as_long_as_two_updates_are_read_as_themselves():
    listener = opened(requests=0)
    listener.send(request_buffers([(":method", "POST")], bytes(70_000)))
    listener.take_written()
    listener.session.receive(frame(http2.PING, 0, 0, b"12345678") + frame(http2.SETTINGS, 1, 0))
    assert listener.take_written() == frame(http2.PING, 1, 0, b"12345678")


def test_a_window_update_for_an_answered_stream_is_ignored():
    listener = opened(requests=1)
    listener.session.receive(ANSWER)
    listener.take_written()
    listener.session.receive(http2.number_frame(http2.WINDOW_UPDATE, 1, 1))
    assert listener.take_written() == b""
    assert [kind for kind, *_ in listener.stream_events()] == ["answer"]


def test_a_stream_window_may_become_negative_when_the_server_reduces_it():
    listener = opened(requests=0)
    listener.session.receive(http2.number_frame(http2.WINDOW_UPDATE, 0, 1 << 20))
    listener.send(request_buffers([(":path", "/")], bytes(70_000)))
    assert data_of(listener.take_written())[0] == bytes(65_535)
    listener.session.receive(http2.settings({http2.INITIAL_WINDOW_SIZE: 10}))
    listener.take_written()
    listener.session.receive(http2.number_frame(http2.WINDOW_UPDATE, 1, 65_525))
    assert listener.take_written() == b""
    listener.session.receive(http2.number_frame(http2.WINDOW_UPDATE, 1, 7))
    assert data_of(listener.take_written()) == (bytes(7), False)
    listener.session.receive(http2.settings({http2.INITIAL_WINDOW_SIZE: 1 << 20}))
    assert data_of(listener.take_written()) == (bytes(4_458), True)


def test_frames_are_as_long_as_the_server_allows():
    listener = opened(GREETING + http2.settings({http2.MAX_FRAME_SIZE: 40_000, http2.INITIAL_WINDOW_SIZE: 1 << 20}), requests=0)
    listener.session.receive(http2.number_frame(http2.WINDOW_UPDATE, 0, 1 << 20))
    listener.take_written()
    listener.send(request_buffers([(":path", "/")], bytes(100_000)))
    written = listener.take_written()
    assert written.count(b"\x00\x9c\x40\x00\x00\x00\x00\x00\x01") == 2
    assert data_of(written) == (bytes(100_000), True)


def received_data(frames, piece, limit_bytes):
    """A session that received that many DATA frames of an answer, and the WINDOW_UPDATE frames that it wrote."""
    listener = opened(limit_bytes=limit_bytes)
    listener.session.receive(HEAD)
    listener.take_written()
    for _ in range(frames):
        listener.session.receive(piece)
        listener.session.streams[1].chunks.clear()
    written = listener.take_written()
    return [(int.from_bytes(written[at + 5 : at + 9]), int.from_bytes(written[at + 9 : at + 13])) for at in range(0, len(written), 13)]


def test_receive_windows_are_renewed_before_they_are_used_up():
    updates = received_data(1 << 15, frame(http2.DATA, 0, 1, bytes(16_384)), limit_bytes=(1 << 29) + 1)
    assert [increment for stream_id, increment in updates if not stream_id] == [1 << 29]
    assert sum(increment for stream_id, increment in updates if stream_id) > (1 << 29) - (1 << 21)


def test_an_answer_below_half_of_the_windows_renews_none():
    assert received_data(1 << 10, frame(http2.DATA, 0, 1, bytes(16_384)), limit_bytes=(1 << 29) - 1) == []


def test_headers_longer_than_a_frame_continue_in_the_next():
    listener, peer = RecordingListener(), make_h2()
    listener.session.open()
    listener.session.receive(peer.data_to_send())
    headers = [(":method", "POST"), (":scheme", "http"), (":path", "/x"), (":authority", "a"), ("long", "~\x7e" * 15_000)]
    peer.local_settings.max_header_list_size = peer.max_inbound_frame_size = 1 << 20
    peer.decoder.max_header_list_size = 1 << 20
    for _ in range(2):
        listener.send(request_buffers(headers, b"abcde"))
    requests = [event for event in peer.receive_data(listener.take_written()) if isinstance(event, RequestReceived)]
    assert [[(str(name), str(value)) for name, value in event.headers] for event in requests] == [headers] * 2


def test_the_last_stream_id_closes_the_session():
    listener = opened(requests=0)
    listener.session.last_id = http2.LAST_STREAM_ID - 4
    listener.send(REQUEST)
    assert listener.session.goaway_reason == ""
    assert listener.send(REQUEST).id == http2.LAST_STREAM_ID
    assert listener.events[1:] == [("goaway",)]


FAULTS = {
    "data before settings": (b"", frame(http2.DATA, 0, 1, b"x"), http2.PROTOCOL_ERROR),
    "an acknowledgement before settings": (b"", frame(http2.SETTINGS, 1, 0), http2.PROTOCOL_ERROR),
    "HTTP/1.1": (b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", http2.FRAME_SIZE_ERROR),
    "a frame too long": (GREETING, frame(http2.DATA, 0, 1, bytes(16_385)), http2.FRAME_SIZE_ERROR),
    "the head of a frame too long": (GREETING, b"\x00\x40\x01\x00\x00\x00\x00\x00\x01", http2.FRAME_SIZE_ERROR),
    "data on a stream never opened": (GREETING, frame(http2.DATA, 0, 9, b"x"), http2.PROTOCOL_ERROR),
    "data on the server's stream": (GREETING, frame(http2.DATA, 0, 2, b"x"), http2.PROTOCOL_ERROR),
    "data on stream 0": (GREETING, frame(http2.DATA, 0, 0, b"x"), http2.PROTOCOL_ERROR),
    "headers on a stream never opened": (GREETING, frame(http2.HEADERS, 4, 9, b"\x88"), http2.PROTOCOL_ERROR),
    "partial headers on a stream never opened": (GREETING, frame(http2.HEADERS, 0, 9, b"\x88"), http2.PROTOCOL_ERROR),
    "headers that cannot be read": (GREETING, frame(http2.HEADERS, 4, 1, b"\x80"), http2.COMPRESSION_ERROR),
    "a reset of a stream never opened": (GREETING, frame(http2.RST_STREAM, 0, 9, bytes(4)), http2.PROTOCOL_ERROR),
    "a reset too short": (GREETING, frame(http2.RST_STREAM, 0, 1, bytes(3)), http2.FRAME_SIZE_ERROR),
    "a push": (GREETING, frame(http2.PUSH_PROMISE, 4, 1, bytes(8)), http2.PROTOCOL_ERROR),
    "a ping of a stream": (GREETING, frame(http2.PING, 0, 1, bytes(8)), http2.PROTOCOL_ERROR),
    "a ping too short": (GREETING, frame(http2.PING, 0, 0, bytes(7)), http2.FRAME_SIZE_ERROR),
    "settings of a stream": (GREETING, frame(http2.SETTINGS, 0, 1), http2.PROTOCOL_ERROR),
    "an acknowledgement with settings": (GREETING, frame(http2.SETTINGS, 1, 0, bytes(6)), http2.FRAME_SIZE_ERROR),
    "a GOAWAY too short": (GREETING, frame(http2.GOAWAY, 0, 0, bytes(7)), http2.FRAME_SIZE_ERROR),
    "a window update of 0": (GREETING, frame(http2.WINDOW_UPDATE, 0, 0, bytes(4)), http2.PROTOCOL_ERROR),
    "a window above the maximum": (
        GREETING,
        http2.number_frame(http2.WINDOW_UPDATE, 0, http2.LARGEST_WINDOW_BYTES),
        http2.FLOW_CONTROL_ERROR,
    ),
    "a window update before settings": (b"", http2.number_frame(http2.WINDOW_UPDATE, 0, 1), http2.PROTOCOL_ERROR),
    "a window update of a stream never opened": (GREETING, http2.number_frame(http2.WINDOW_UPDATE, 9, 1), http2.PROTOCOL_ERROR),
    "a window update of the server's stream": (GREETING, http2.number_frame(http2.WINDOW_UPDATE, 2, 1), http2.PROTOCOL_ERROR),
    "a window update too short": (GREETING, frame(http2.WINDOW_UPDATE, 0, 0, bytes(3)), http2.FRAME_SIZE_ERROR),
    "a window update too long": (GREETING, frame(http2.WINDOW_UPDATE, 0, 0, bytes(5)), http2.FRAME_SIZE_ERROR),
    "a continuation without headers": (GREETING, frame(http2.CONTINUATION, 4, 1, b"\x88"), http2.PROTOCOL_ERROR),
    "headers interrupted": (GREETING, frame(http2.HEADERS, 0, 1, b"\x88") + BODY, http2.PROTOCOL_ERROR),
    "headers continued on another stream": (
        GREETING,
        frame(http2.HEADERS, 0, 1, b"\x88") + frame(http2.CONTINUATION, 4, 3, b"\x88"),
        http2.PROTOCOL_ERROR,
    ),
    "headers without end": (
        GREETING,
        frame(http2.HEADERS, 0, 1, b"\x88") + frame(http2.CONTINUATION, 0, 1, bytes(16_000)) * 9,
        http2.ENHANCE_YOUR_CALM,
    ),
    "headers of empty continuations": (
        GREETING,
        frame(http2.HEADERS, 0, 1) + frame(http2.CONTINUATION, 0, 1) * 99,
        http2.ENHANCE_YOUR_CALM,
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("whole", [True, False], ids=["whole", "byte by byte"])
def test_protocol_violations_raise_the_right_error_code(fault, whole):
    greeting, bad, code = FAULTS[fault]
    listener = RecordingListener()
    listener.session.open()
    listener.session.receive(greeting)
    if greeting:
        listener.send(REQUEST)
    pieces = [bad] if whole else [bad[index : index + 1] for index in range(len(bad))]
    with pytest.raises(Http2Error) as caught:
        list(map(listener.session.receive, pieces))
    assert caught.value.code == code


@pytest.mark.parametrize("bad", [BODY, HEAD + HEAD], ids=["data before headers", "headers twice"])
def test_frames_in_an_invalid_order_end_only_their_stream(bad):
    listener = opened(requests=2)
    listener.take_written()
    listener.session.receive(bad)
    assert listener.stream_events() == [("reset", 1, http2.PROTOCOL_ERROR)]
    assert listener.take_written() == b"\x00\x00\x04\x03\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    assert list(listener.session.streams) == [3]


def exchange_with_h2(messages, cuts, **settings):
    """Sends messages to an h2 server that returns them: the messages that it received, and our listener."""
    listener, peer, received, requests = RecordingListener(), make_h2(**settings), {}, []
    listener.session.open()
    listener.session.receive(peer.data_to_send())
    for message in messages:
        listener.send(request_buffers([(":method", "POST"), (":scheme", "http"), (":path", "/x"), (":authority", "a")], message))
    cut = iter(cuts)
    while written := listener.take_written():
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
            listener.session.receive(answer[:size])
            answer = answer[size:]
    return requests, listener


@given(
    st.lists(st.integers(5, 50_000), min_size=1, max_size=5),
    st.lists(st.integers(1, 40), max_size=200),
    st.sampled_from([16_384, 20_000, 1 << 20]),
    st.sampled_from([1_000, 16_384, 65_535, 1 << 20]),
)
def test_h2_receives_and_returns_every_byte_for_any_windows(sizes, cuts, frame_size, window):
    messages = [bytes([index]) * size for index, size in enumerate(sizes)]
    requests, listener = exchange_with_h2(messages, cuts, max_frame_size=frame_size, initial_window_size=window)
    assert sorted(requests) == messages
    assert sorted(event[3] for event in listener.stream_events()) == messages
    assert {event[4].status for event in listener.stream_events()} == {"OK"}


def test_h2_accepts_the_control_frames():
    listener, peer = RecordingListener(), make_h2()
    listener.session.open()
    peer.ping(b"12345678")
    listener.session.receive(peer.data_to_send())
    stream = listener.send(request_buffers([(":method", "POST"), (":scheme", "http"), (":path", "/x"), (":authority", "a")], b"12345"))
    listener.session.cancel(stream)
    events = peer.receive_data(listener.take_written())
    (reset,) = [event for event in events if isinstance(event, StreamReset)]
    assert reset.error_code is ErrorCodes.CANCEL
    assert any(isinstance(event, PingAckReceived) for event in events)
    assert any(isinstance(event, SettingsAcknowledged) for event in events)
    assert peer.encoder.header_table_size == 0


def test_a_peer_with_a_smaller_table_reads_our_blocks():
    """The default table applies until the first block, which must therefore reduce it to 0."""
    listener, decoder = opened(http2.settings({http2.HEADER_TABLE_SIZE: 0}), requests=2), hpack.Decoder()
    decoder.max_allowed_table_size = 0
    written = listener.take_written()
    length = int.from_bytes(written[:3])
    assert [(str(name), str(value)) for name, value in decoder.decode(written[9 : 9 + length])] == [(":method", "POST"), (":path", "/x")]
