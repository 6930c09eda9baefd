"""Clients that violate HTTP/2 or send too much: each with the error that ends its connection, or its stream."""

import pytest

from perfkit.protocol import http2
from perfkit.protocol.http2 import Http2Error, LimitError, frame, number_frame
from tests.server_stub.grpc.h2_caller import framed
from tests.server_stub.grpc.session_recorder import BLOCK, GREETING, SessionRecorder, call, data_frame, headers_frame, opened

MAX_WINDOW = 2**31 - 1
PROTOCOL, FLOW, SIZE, COMPRESSION, CALM = (
    http2.PROTOCOL_ERROR, http2.FLOW_CONTROL_ERROR, http2.FRAME_SIZE_ERROR, http2.COMPRESSION_ERROR, http2.ENHANCE_YOUR_CALM,
)  # fmt: skip
VIOLATIONS = {
    "a second preface": (http2.PREFACE, CALM, "that is not data"),
    "data on an idle stream": (data_frame(b"x"), PROTOCOL, "stream 1, which is not open"),
    "data on an even stream": (call(b"", 3) + data_frame(b"x", 2), PROTOCOL, "stream 2, which is not open"),
    "data on stream 0": (data_frame(b"x", 0), PROTOCOL, "stream 0, which is not open"),
    "a reset of an idle stream": (number_frame(http2.RST_STREAM, 1, 8), PROTOCOL, "stream 1, which was never opened"),
    "a reset of the connection": (number_frame(http2.RST_STREAM, 0, 8), PROTOCOL, "stream 0, which was never opened"),
    "a window of an idle stream": (number_frame(http2.WINDOW_UPDATE, 1, 1), PROTOCOL, "stream 1, which was never opened"),
    "an even stream": (headers_frame(2), PROTOCOL, "opens stream 2"),
    "headers on stream 0": (headers_frame(0), PROTOCOL, "opens stream 0"),
    "data within headers": (frame(http2.HEADERS, 0, 1, BLOCK) + data_frame(b""), PROTOCOL, "interrupts a header block"),
    "headers within headers": (frame(http2.HEADERS, 0, 1, BLOCK) + headers_frame(3), PROTOCOL, "interrupts a header block"),
    "an unknown frame within headers": (frame(http2.HEADERS, 0, 1, BLOCK) + frame(0xFA, 0, 0), PROTOCOL, "interrupts a header block"),
    "another stream's continuation": (frame(http2.HEADERS, 0, 1, BLOCK) + frame(http2.CONTINUATION, 4, 3), PROTOCOL, "follows no HEADERS"),
    "a continuation of nothing": (frame(http2.CONTINUATION, 4, 1, BLOCK), PROTOCOL, "follows no HEADERS"),
    "a continuation of complete headers": (headers_frame() + frame(http2.CONTINUATION, 4, 1), PROTOCOL, "follows no HEADERS"),
    "a short ping": (frame(http2.PING, 0, 0, bytes(7)), SIZE, "wrong length"),
    "a long ping": (frame(http2.PING, 0, 0, bytes(9)), SIZE, "wrong length"),
    "a short reset": (headers_frame() + frame(http2.RST_STREAM, 0, 1, bytes(3)), SIZE, "wrong length"),
    "a long window update": (frame(http2.WINDOW_UPDATE, 0, 0, bytes(5)), SIZE, "wrong length"),
    "a short priority": (frame(http2.PRIORITY, 0, 1, bytes(4)), SIZE, "wrong length"),
    "settings of half a length": (frame(http2.SETTINGS, 0, 0, bytes(5)), SIZE, "multiple of 6"),
    "an acknowledgement with settings": (frame(http2.SETTINGS, 1, 0, bytes(6)), SIZE, "has a payload"),
    "settings of a stream": (frame(http2.SETTINGS, 0, 1), PROTOCOL, "names a stream"),
    "a ping of a stream": (frame(http2.PING, 0, 1, bytes(8)), PROTOCOL, "names a stream"),
    "a goaway of a stream": (frame(http2.GOAWAY, 0, 1, bytes(8)), PROTOCOL, "names a stream"),
    "a window beyond the maximum": (number_frame(http2.WINDOW_UPDATE, 0, MAX_WINDOW), FLOW, "exceeds the maximum"),
    "an increment of 0": (number_frame(http2.WINDOW_UPDATE, 0, 0), PROTOCOL, "increment of 0"),
    "an initial window beyond the maximum": (frame(http2.SETTINGS, 0, 0, b"\0\4\x80\0\0\0"), FLOW, "initial window"),
    "an initial window beyond a stream's maximum": (
        headers_frame() + number_frame(http2.WINDOW_UPDATE, 1, MAX_WINDOW - 65_535) + frame(http2.SETTINGS, 0, 0, b"\0\4\0\1\0\0"),
        FLOW, "exceeds the maximum",
    ),
    "a frame size below the minimum": (frame(http2.SETTINGS, 0, 0, b"\0\5\0\0\x3f\xff"), PROTOCOL, "largest frame"),
    "a promise": (frame(http2.PUSH_PROMISE, 4, 1, bytes(4)), PROTOCOL, "pushes a response"),
    "padding longer than data": (headers_frame() + frame(http2.DATA, 8, 1, b"\x04abc"), PROTOCOL, "shorter than its padding"),
    "padded data without its length": (headers_frame() + frame(http2.DATA, 8, 1) + b"\0", PROTOCOL, "shorter than its padding"),
    "padding longer than headers": (frame(http2.HEADERS, 0xC, 1, b"\x03abc"[:3]), PROTOCOL, "shorter than its padding"),
    "a header block that cannot be read": (headers_frame(block=b"\xbe"), COMPRESSION, "cannot be read"),
    "headers in a frame too long": (frame(http2.HEADERS, 4, 1, bytes(2**14 + 1)), CALM, "16,385 B that is not data"),
    "headers too long in continuations": (
        frame(http2.HEADERS, 0, 1, bytes(2**13)) + frame(http2.CONTINUATION, 0, 1, bytes(2**13)) + frame(http2.CONTINUATION, 0, 1, b"x"),
        CALM, "headers are longer than 16,384 B",
    ),
    "headers too long once read": (headers_frame(block=b"\x40\1a\x7f\xb9\x16" + b"b" * 3000 + b"\xbe" * 30), COMPRESSION, "cannot be read"),
    "a flood of continuations": (frame(http2.HEADERS, 0, 1) + frame(http2.CONTINUATION, 0, 1) * 64, CALM, "headers are longer"),
}  # fmt: skip


def receive_in_parts(recorder, sent, size):
    for first in range(0, len(sent), size):
        recorder.receive(sent[first : first + size])


@pytest.mark.parametrize(("sent", "code", "text"), VIOLATIONS.values(), ids=VIOLATIONS)
@pytest.mark.parametrize("size", [1 << 20, 1 << 12])
def test_violations_end_the_session(sent, code, text, size):
    with pytest.raises(Http2Error, match=text) as caught:
        receive_in_parts(opened(), sent, size)
    assert caught.value.code == code


@pytest.mark.parametrize("sent", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01", b"PRI * HTTP/2.1", http2.PREFACE[:-1] + b"x", b"x"])
def test_bytes_that_are_not_http2_end_the_session_at_the_first_difference(sent):
    different = next(index for index, byte in enumerate(sent) if byte != http2.PREFACE[index])
    recorder = SessionRecorder()
    for index in range(different):
        recorder.receive(sent[index : index + 1])
    with pytest.raises(Http2Error, match="are not those of HTTP/2"):
        recorder.receive(sent[different : different + 1])
    assert recorder.events == []


@pytest.mark.parametrize(
    "first",
    [
        headers_frame(), data_frame(b""), frame(http2.PING, 0, 0, bytes(8)), frame(http2.SETTINGS, 1, 0), number_frame(http2.WINDOW_UPDATE, 0, 1),
        frame(0xFA, 0, 0),
    ],
    ids=["HEADERS", "DATA", "PING", "acknowledgement", "WINDOW_UPDATE", "unknown"],
)  # fmt: skip
def test_the_first_frame_is_settings(first):
    with pytest.raises(Http2Error, match="first frame is not SETTINGS"):
        SessionRecorder().receive(http2.PREFACE + first)


@pytest.mark.parametrize(
    ("update", "code"),
    [(number_frame(http2.WINDOW_UPDATE, 1, 0), PROTOCOL), (number_frame(http2.WINDOW_UPDATE, 1, MAX_WINDOW - 65_534), FLOW)],
    ids=["an increment of 0", "beyond the maximum"],
)
def test_a_wrong_window_of_a_stream_resets_it_alone(update, code):
    recorder = opened(headers_frame(1) + update + call(b"abc", 3))
    assert recorder.take_written() == number_frame(http2.RST_STREAM, 1, code)
    assert recorder.events[1:] == [("closed", 1), ("headers", 3, "/s/M"), ("message", 3, b"abc", False), ("end", 3)]
    recorder.receive(update)
    assert recorder.take_written() == b"", "the client may not know yet that it is over"


def test_the_widest_window_is_allowed():
    recorder = opened(headers_frame() + b"".join(number_frame(http2.WINDOW_UPDATE, stream, MAX_WINDOW - 65_535) for stream in (0, 1)))
    assert recorder.take_written() == b""


def test_more_data_than_the_window_allows_resets_the_stream_alone():
    recorder = opened(headers_frame())
    recorder.streams[1].queued_bytes = 4 << 20  # of messages that nobody takes
    recorder.receive(data_frame(framed(bytes(4 << 20))[: 4 << 20]) + data_frame(b""))
    assert recorder.take_written() == b""
    recorder.receive(data_frame(b"x") + call(b"abc", 3))
    assert recorder.take_written() == number_frame(http2.RST_STREAM, 1, FLOW)
    assert recorder.events[1:] == [("closed", 1), ("headers", 3, "/s/M"), ("message", 3, b"abc", False), ("end", 3)]


def test_padding_counts_for_the_window():
    recorder = opened(headers_frame())
    recorder.streams[1].queued_bytes = 4 << 20
    padded = frame(http2.DATA, 8, 1, b"\xff" + bytes(1 + 255))
    recorder.receive(padded * (2**22 // 257))
    assert recorder.take_written() == b""
    recorder.receive(padded)
    assert recorder.take_written() == number_frame(http2.RST_STREAM, 1, FLOW)


@pytest.mark.parametrize("size", [1 << 20, 1])
def test_a_message_above_the_limit_is_told_before_it_arrives_and_its_stream_is_reset(size):
    recorder = opened(max_message_bytes=10)
    sent = headers_frame(1) + data_frame(framed(bytes(10)) + b"\0\0\0\0\x0b", 1) + data_frame(b"x", 1) + call(b"abc", 3)
    receive_in_parts(recorder, sent, size)
    text = "SERVER: Received message larger than max (11 vs. 10)"
    assert recorder.events == [
        ("headers", 1, "/s/M"), ("message", 1, bytes(10), False), ("too large", 1, text), ("closed", 1), ("headers", 3, "/s/M"), ("message", 3, b"abc", False), ("end", 3),
    ]  # fmt: skip
    assert recorder.take_written() == number_frame(http2.RST_STREAM, 1, http2.CANCEL)


def test_a_call_that_its_owner_ends_for_a_too_large_message_is_not_reset_again():
    recorder = opened(max_message_bytes=10)
    recorder.on_message_too_large = lambda stream, _: recorder.session.reset(stream, http2.CANCEL)
    recorder.receive(headers_frame() + data_frame(b"\0\xff\xff\xff\xff"))
    assert recorder.take_written() == number_frame(http2.RST_STREAM, 1, http2.CANCEL)


PING, SETTINGS = frame(http2.PING, 0, 0, bytes(8)), frame(http2.SETTINGS, 0, 0)
FLOODS = {
    "PING": PING,
    "SETTINGS": SETTINGS,
    "PRIORITY": frame(http2.PRIORITY, 0, 1, bytes(5)),
    "WINDOW_UPDATE": number_frame(http2.WINDOW_UPDATE, 1, 1),
    "empty data": data_frame(b""),
    "padding": frame(http2.DATA, 8, 1, b"\0"),
    "unknown": frame(0xFA, 0, 0),
}


@pytest.mark.parametrize("flooding", FLOODS.values(), ids=FLOODS)
def test_floods_of_frames_end_the_session(flooding):
    recorder = opened(headers_frame())
    recorder.receive(flooding * 9_999)  # the greeting's SETTINGS frame is one, too
    with pytest.raises(LimitError, match="the client sent more than 10,000 control frames"):
        recorder.receive(flooding)


@pytest.mark.parametrize("flooding", FLOODS.values(), ids=FLOODS)
def test_as_many_frames_are_allowed_in_every_second(flooding):
    recorder = opened(headers_frame())
    for _ in range(3):
        recorder.time_ns += 10**9
        recorder.receive(flooding * 9_999)
    with pytest.raises(LimitError):
        recorder.receive(flooding * 10_001)


def test_streams_that_are_opened_and_reset_end_the_session():
    recorder = opened()
    opening = b"".join(headers_frame(2 * index + 1) + number_frame(http2.RST_STREAM, 2 * index + 1, 8) for index in range(10_000))
    with pytest.raises(LimitError, match="control frames"):
        recorder.receive(opening)
    assert recorder.session.last_id == 2 * 9_999 + 1


def test_streams_that_are_refused_end_the_session():
    recorder = opened(headers_frame(1), max_streams=1)
    with pytest.raises(LimitError, match="control frames"):
        recorder.receive(b"".join(headers_frame(2 * index + 3) for index in range(10_000)))


def test_answered_calls_allow_more_frames():
    recorder = opened(echoes=True)
    recorder.receive(b"".join(call(b"", 2 * index + 1) for index in range(2_000)))
    recorder.receive(PING * (29_999 + 2_000 * 5 // 512))  # ten for each answered call, and one for 512 B of data
    with pytest.raises(LimitError):
        recorder.receive(PING)


def test_the_messages_of_a_stream_allow_more_frames():
    recorder = opened(headers_frame())
    for _ in range(2_000):
        recorder.session.send(recorder.streams[1], [b""])
    recorder.receive(PING * (29_999 + 2_000 * 5 // 512))  # as for answered calls
    with pytest.raises(LimitError):
        recorder.receive(PING)


def test_a_client_that_does_not_read_gets_a_thousand_acknowledgements():
    recorder = opened(PING)
    recorder.session.is_writing_paused = True
    recorder.take_written()
    recorder.receive(PING * 500 + SETTINGS * 500)
    assert recorder.take_written().count(b"\0\0\x08\x06\x01") == 500
    with pytest.raises(LimitError, match="does not read"):
        recorder.receive(PING)


def test_acknowledgements_are_counted_anew_once_the_client_reads():
    recorder = opened()
    for _ in range(3):
        recorder.session.is_writing_paused = True
        recorder.receive(PING * 1000)
        recorder.session.is_writing_paused = False
        recorder.receive(PING)


def test_the_greeting_and_its_error_may_come_together():
    recorder = SessionRecorder()
    with pytest.raises(Http2Error, match="not open"):
        recorder.receive(GREETING + data_frame(b""))
