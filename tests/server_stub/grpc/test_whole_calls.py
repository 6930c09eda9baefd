"""Calls that arrive whole and are answered at once: what is read as such a call, and that their answers are those of the general path."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.protocol import http2
from perfkit.protocol.grpc_call import Status
from perfkit.protocol.http2 import frame, number_frame
from server_stub.grpc.whole_calls import read_whole_call
from tests.server_stub.grpc.h2_caller import framed
from tests.server_stub.grpc.raw_client import RawClient, block, infer_request, whole_call
from tests.server_stub.grpc.session_recorder import (
    BLOCK,
    call,
    data_frame,
    data_of,
    endlessly,
    feed,
    frames_of,
    headers_frame,
    opened,
    settings_frame,
    trailers_of,
)

RESPONSE_BLOCK = http2.encode_headers(
    [(":status", "200"), ("content-type", "application/grpc"), ("grpc-accept-encoding", "identity, deflate, gzip")]
)
OK_BLOCK = b"\x10" + http2.encode_headers([("grpc-status", "0")])[1:]


def read(data, position=0, last_id=0):
    return read_whole_call(data, position, last_id, {BLOCK: "headers"}.get)


def test_a_whole_call_is_these_bytes():
    sent = b"\x00\x00%c\x01\x04\x00\x00\x00\x07%b" % (len(BLOCK), BLOCK) + b"\x00\x00\x08\x00\x01\x00\x00\x00\x07\x00\x00\x00\x00\x03abc"
    assert read(sent, last_id=5) == (7, "headers", len(sent) - 3, len(sent))
    assert read(memoryview(b"x" + sent + sent), 1) == (7, "headers", 1 + len(sent) - 3, 1 + len(sent))
    assert read(sent, last_id=7) is None
    assert [read(sent[:length]) for length in range(len(sent))] == [None] * len(sent)


WHOLE_DATA = data_frame(framed(b"abc"), end=True)


@pytest.mark.parametrize(
    "sent",
    [
        call(b"abc", 2),
        frame(http2.HEADERS, 0x4, 1 << 31 | 1, BLOCK) + WHOLE_DATA,
        headers_frame(block=b"\x88") + WHOLE_DATA,
        headers_frame(end=True) + WHOLE_DATA,
        frame(http2.HEADERS, 0, 1, BLOCK) + WHOLE_DATA,
        frame(http2.HEADERS, 0x24, 1, b"\x80\x00\x00\x00\x10" + BLOCK) + WHOLE_DATA,
        frame(http2.CONTINUATION, 0x4, 1, BLOCK) + WHOLE_DATA,
        headers_frame() + data_frame(framed(b"abc")),
        headers_frame() + data_frame(framed(b"abc"), 3, end=True),
        headers_frame() + frame(http2.DATA, 1, 1 << 31 | 1, framed(b"abc")),
        headers_frame() + frame(http2.DATA, 0x9, 1, b"\x00" + framed(b"abc")),
        headers_frame() + frame(http2.HEADERS, 0x1, 1, framed(b"abc")),
        headers_frame() + data_frame(framed(b"abc", packed=True), end=True),
        headers_frame() + data_frame(framed(b"abc")[:-1], end=True) + b"more",
        headers_frame() + data_frame(framed(b"abc") + b"d", end=True),
        headers_frame() + data_frame(framed(b"abc") + framed(b""), end=True),
        headers_frame() + data_frame(b"", end=True) + b"12345",
    ],
    ids=[
        "even id", "reserved bit", "unknown block", "no data", "continuations", "priority", "a continuation", "no end",
        "data of another stream", "reserved bit of data", "padding", "trailers", "compressed", "part of a message", "more than a message",
        "two messages", "empty data",
    ],
)  # fmt: skip
def test_other_forms_of_a_call_are_left_to_the_general_path(sent):
    assert read(sent) is None


def known(answer=None, **options):
    """A recorder that knows the usual header block after its first two calls, and answers calls at once by `answer` from stream 5 on."""
    first = frame(http2.HEADERS, 0x4, 1, http2.NO_TABLE + BLOCK) + data_frame(framed(b""), end=True)
    recorder = opened(first + call(b"", 3), echoes=True, prompt=answer, **options)
    recorder.take_written()
    recorder.events.clear()
    return recorder


def echo(message):
    return [message]


def test_the_answers_to_the_calls_of_one_read_are_these_bytes_of_one_write():
    recorder = known(lambda message: [message[:1], message[1:]])
    written: list[bytes] = []
    recorder.session._write = written.append
    recorder.receive(call(b"abc", 5) + call(b"", 7))
    expected = b""
    for stream_id, data in ((5, b"\x00\x00\x00\x00\x03abc"), (7, bytes(5))):
        expected += b"\x00\x00%c\x01\x04\x00\x00\x00%c%b" % (len(RESPONSE_BLOCK), stream_id, RESPONSE_BLOCK)
        expected += b"\x00\x00%c\x00\x00\x00\x00\x00%c%b" % (len(data), stream_id, data)
        expected += b"\x00\x00%c\x01\x05\x00\x00\x00%c%b" % (len(OK_BLOCK), stream_id, OK_BLOCK)
    assert written == [expected]
    assert recorder.events == [], "no stream was opened"
    assert (recorder.session.last_id, recorder.session.sent_bytes) == (7, 5 + 5 + 8 + 5)


def outcome(recorder):
    """By stream what is written: frames may be cut differently, and streams interleaved differently."""
    written = recorder.take_written()
    frames = frames_of(written)
    return {
        stream: ([one for one in frames if one[2] == stream and one[0] != http2.DATA], data_of(written, stream))
        for _, _, stream, _ in frames
    }


SIZES = st.sampled_from([0, 1, 100, 5000, 16_379, 16_380, 40_000])


@given(
    st.lists(st.tuples(SIZES, st.booleans()), min_size=1, max_size=12), st.sampled_from([0, 9_000, 65_535, 1 << 20]), st.integers(0, 2**32)
)
def test_answers_are_those_of_the_general_path_in_whatever_pieces_and_windows(calls, window_bytes, seed):
    choices = random.Random(seed)
    sent, late = settings_frame(initial_window_size=window_bytes), b""
    for index, (size, is_whole) in enumerate(calls):
        stream_id, message = 2 * index + 5, framed(choices.randbytes(size))
        if is_whole:
            sent += headers_frame(stream_id) + data_frame(message, stream_id, end=True)
        else:
            sent += headers_frame(stream_id) + data_frame(message[:3], stream_id)
            late += data_frame(message[3:], stream_id, end=True)
        late += number_frame(http2.WINDOW_UPDATE, stream_id, 1 << 20)
        sent += choices.choice([b"", frame(http2.PING, 0, 0, choices.randbytes(8))])
    sent += late + number_frame(http2.WINDOW_UPDATE, 0, 1 << 30)
    general = known()
    general.receive(sent)
    expected = outcome(general)
    for sizes in ((1 << 16,), (100, 7000, 20_000), (9, 400)):
        prompt = known(lambda message: choices.choice([None, [message], [message[:7], message[7:]]]))
        feed(prompt.session, sent, endlessly(choices, sizes))
        assert outcome(prompt) == expected
        for name in ("last_id", "sent_bytes", "unsent_bytes", "_answers", "_received_bytes", "_window_bytes", "streams"):
            assert getattr(prompt.session, name) == getattr(general.session, name), name


def test_an_answer_that_does_not_fit_the_window_waits_for_it_on_a_stream():
    recorder = known(lambda message: [bytes(len(message) * 1000)])
    recorder.receive(b"".join(call(bytes(16), stream_id) for stream_id in (5, 7, 9, 11, 13)))
    written = recorder.take_written()
    assert [len(data_of(written, stream_id)) for stream_id in (5, 7, 9, 11)] == [16_005] * 4
    assert len(data_of(written, 13)) == 65_535 - 10 - 4 * 16_005, "what the connection's window has left"
    assert list(recorder.session.streams) == [13]
    recorder.receive(number_frame(http2.WINDOW_UPDATE, 0, 1 << 20))
    assert len(data_of(recorder.take_written(), 13)) == 16_005 - (65_535 - 10 - 4 * 16_005)
    assert not recorder.session.streams


def test_a_call_that_fails_at_once_ends_with_its_status():
    recorder = known(lambda message: ValueError() if message == b"bad" else [message])
    recorder.receive(call(b"a", 5) + call(b"bad", 7) + call(b"b", 9))
    assert not recorder.session.streams
    written = recorder.take_written()
    assert [data_of(written, stream_id) for stream_id in (5, 9)] == [framed(b"a"), framed(b"b")]
    failed = [one for one in frames_of(written) if one[2] == 7]
    assert [(kind, flags) for kind, flags, _, _ in failed] == [(http2.HEADERS, 0x5)]
    assert trailers_of(failed[0][3])["grpc-status"] == "13"
    assert recorder.events == [("headers", 7, "/s/M"), ("closed", 7)]


def test_calls_after_going_away_are_refused():
    recorder = known(echo)
    recorder.session.go_away()
    recorder.take_written()
    recorder.receive(call(b"abc", 5))
    assert recorder.take_written() == number_frame(http2.RST_STREAM, 5, http2.REFUSED_STREAM)


def test_a_call_beyond_the_limit_of_streams_is_refused():
    recorder = known(echo, max_streams=1)
    recorder.receive(headers_frame(5) + call(b"abc", 7))
    assert recorder.take_written() == number_frame(http2.RST_STREAM, 7, http2.REFUSED_STREAM)


def test_a_message_beyond_the_limit_is_refused():
    recorder = known(echo, max_message_bytes=5)
    recorder.receive(call(b"abcdef", 5) + call(b"abcde", 7))
    assert ("too large", 5, "SERVER: Received message larger than max (6 vs. 5)") in recorder.events
    assert data_of(recorder.take_written(), 7) == framed(b"abcde")


def test_the_connections_window_is_renewed_once_half_of_it_is_used():
    recorder = known(echo)
    recorder.session._received_bytes = (1 << 30) - 7
    recorder.receive(call(b"a", 5))
    assert not [one for one in frames_of(recorder.take_written()) if one[0] == http2.WINDOW_UPDATE]
    recorder.receive(call(b"a", 7))
    assert (http2.WINDOW_UPDATE, 0, 0, ((1 << 30) + 5).to_bytes(4)) in frames_of(recorder.take_written())


def test_a_header_block_that_another_frame_interrupts_is_a_violation():
    recorder = known(echo)
    with pytest.raises(http2.Http2Error, match="interrupts a header block"):
        recorder.receive(frame(http2.HEADERS, 0, 5, BLOCK[:1]) + call(b"abc", 7))


INFER = block("ModelInfer")


def test_a_call_beyond_the_limit_of_calls_is_refused_among_others_that_are_answered_at_once(start_server):
    message = infer_request()
    with start_server("--model", "simple", "--max-calls=1") as server, RawClient(server.grpc_port) as client:
        client.send(whole_call(1, http2.NO_TABLE + INFER, message))
        for stream_id in (3, 5):
            client.send(whole_call(stream_id, INFER, message))
            assert client.statuses(stream_id) == ["0"]
        client.send(headers_frame(7, block("ModelStreamInfer")) + whole_call(9, INFER, message))
        assert client.statuses(9) == [str(Status.RESOURCE_EXHAUSTED.value)]
        client.send(data_frame(b"", 7, end=True))
        assert client.statuses(7) == ["0"]
        client.send(whole_call(11, INFER, message))
        assert client.statuses(11) == ["0"]


def test_a_known_call_whose_model_fails_ends_with_its_status_between_others(server):
    good, bad = (infer_request("simple_string", "BYTES", (b"\x01\x00\x00\x00" + text) * 16) for text in (b"1", b"x"))
    with RawClient(server.grpc_port) as client:
        client.send(whole_call(1, http2.NO_TABLE + INFER, good) + whole_call(3, INFER, good))
        client.ends(3)
        client.send(whole_call(5, INFER, good) + whole_call(7, INFER, bad) + whole_call(9, INFER, good))
        before, failed, after = client.ends(5, 7, 9)
        # the same in two data frames, which takes the general way
        client.send(headers_frame(11, INFER) + data_frame(bad[:9], 11) + data_frame(bad[9:], 11, end=True))
        assert client.ends(11) == [failed]
    assert (before["grpc-status"], failed["grpc-status"], after["grpc-status"]) == ("0", str(Status.INVALID_ARGUMENT.value), "0")


def test_a_known_call_whose_answer_waits_for_a_window_counts_until_its_deadline_passes(start_server):
    message, timed = infer_request(), block("ModelInfer", **{"grpc-timeout": "300m"})
    with start_server("--model", "simple", "--max-calls=1") as server, RawClient(server.grpc_port) as client:
        client.send(whole_call(1, http2.NO_TABLE + INFER, message))
        for stream_id in (3, 5):
            client.send(whole_call(stream_id, timed, message))
            assert client.statuses(stream_id) == ["0"]
        client.send(settings_frame(initial_window_size=10) + whole_call(7, timed, message) + whole_call(9, INFER, message))
        assert client.statuses(9) == [str(Status.RESOURCE_EXHAUSTED.value)]
        assert client.until(http2.RST_STREAM, 7)[-1][3] == http2.CANCEL.to_bytes(4)
        client.send(settings_frame(initial_window_size=65_535) + whole_call(11, INFER, message))
        assert client.statuses(11) == ["0"]
