"""The server's HTTP/2 session, fed in any pieces, and into the memory of its messages."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.protocol import http2
from perfkit.protocol.http2 import frame, number_frame
from tests.server_stub.grpc.h2_caller import framed
from tests.server_stub.grpc.session_recorder import (
    call,
    data_frame,
    data_of,
    endlessly,
    feed,
    frames_of,
    headers_frame,
    opened,
    settings_frame,
)

MIB = 1 << 20


def in_one_piece(data):
    recorder = opened(echoes=True)
    recorder.receive(data)
    return recorder


def outcome(recorder):
    """The events, and by stream what is written: frames may be cut differently, and streams interleaved differently."""
    written = recorder.take_written()
    others = [one for one in frames_of(written) if one[0] != http2.DATA]
    streams = {one[2] for one in frames_of(written)}
    return recorder.events, {stream: ([one for one in others if one[2] == stream], data_of(written, stream)) for stream in streams}


def traffic(choices, message_sizes, frame_sizes):
    """The frames of several calls, interleaved, padded and mixed with frames of the connection."""
    calls = []
    for index, sizes in enumerate(message_sizes):
        stream_id = 2 * index + 1
        data, frames = b"".join(framed(choices.randbytes(size)) for size in sizes), []
        while data:
            part = data[: choices.choice(frame_sizes)]
            data = data[len(part) :]
            padding = choices.choice([None, None, 0, 1, 255])
            if padding is None:
                frames.append(data_frame(part, stream_id, end=not data))
            else:
                frames.append(frame(http2.DATA, 0x8 | (not data), stream_id, bytes([padding]) + part + bytes(padding)))
        calls.append(frames or [data_frame(b"", stream_id, end=True)])
    sent = b"".join(headers_frame(2 * index + 1) for index in range(len(calls))) + number_frame(http2.WINDOW_UPDATE, 0, 1 << 30)
    while calls:
        frames = choices.choice(calls)
        sent += frames.pop(0)
        if not frames:
            calls.remove(frames)
        sent += choices.choice([b"", b"", frame(http2.PING, 0, 0, choices.randbytes(8)), frame(0xFA, 0, 0, b"new")])
    return sent


@given(st.lists(st.lists(st.integers(0, 300), max_size=4), min_size=1, max_size=4), st.integers(0, 2**32))
def test_small_frames_may_arrive_byte_by_byte(message_sizes, seed):
    choices = random.Random(seed)
    sent = traffic(choices, message_sizes, (1, 4, 5, 6, 50, 1000))
    expected = outcome(in_one_piece(sent))
    bytewise, mixed = opened(echoes=True), opened(echoes=True)
    for at in range(len(sent)):
        bytewise.receive(sent[at : at + 1])
    feed(mixed.session, sent, endlessly(choices, (1, 8, 9, 10, 500)))
    assert outcome(bytewise) == expected
    assert outcome(mixed) == expected


LARGE = st.sampled_from([0, 10, 1 << 15, (1 << 15) + 5, 100_000, 300_000, MIB, MIB + 5, 1_500_000])


@settings(max_examples=25)
@given(st.lists(st.lists(LARGE, max_size=2), min_size=1, max_size=2), st.integers(0, 2**32))
def test_large_messages_may_arrive_in_any_pieces_and_in_their_own_memory(message_sizes, seed):
    choices = random.Random(seed)
    open_window = settings_frame(initial_window_size=(1 << 31) - 1)
    sent = open_window + traffic(choices, message_sizes, (10_000, 1 << 14, (1 << 15) + 1, 400_000, 1 << 21))
    expected = outcome(in_one_piece(sent))
    for sizes in ((100, 20_000, 70_000, MIB), (1 << 16,), (1 << 24,)):
        recorder = opened(echoes=True)
        feed(recorder.session, sent, endlessly(choices, sizes))
        assert outcome(recorder) == expected


def test_most_of_a_large_message_is_received_into_its_own_memory():
    message = random.Random(1).randbytes(5 * MIB)
    recorder, in_place_bytes = opened(headers_frame()), 0
    sent = b"".join(
        data_frame(part) for part in (framed(message)[: 2 * MIB], framed(message)[2 * MIB : 4 * MIB], framed(message)[4 * MIB :])
    )
    session, at = recorder.session, 0
    while at < len(sent):
        space = session.space()
        size = min(len(space) if space else 1 << 16, len(sent) - at)
        if space:
            space[:size] = sent[at : at + size]
            in_place_bytes += size
            assert session.advance(size)
        else:
            assert not session.advance(size)
            recorder.receive(sent[at : at + size])
        at += size
    assert recorder.events[1:] == [("message", 1, message, False)]
    assert in_place_bytes > 4.7 * MIB


def test_data_received_in_place_for_a_stream_that_was_reset_meanwhile_is_dropped():
    recorder = opened(headers_frame(1) + data_frame(framed(bytes(100_000)), 1)[:20_000])
    space = recorder.session.space()
    assert space is not None
    recorder.session.reset(recorder.streams[1], http2.CANCEL)
    assert recorder.session.advance(50_000)
    assert recorder.session.space() is None
    recorder.receive(data_frame(framed(bytes(100_000)), 1)[70_000:] + call(b"abc", 3))
    assert recorder.events == [("headers", 1, "/s/M"), ("closed", 1), ("headers", 3, "/s/M"), ("message", 3, b"abc", False), ("end", 3)]


def test_a_stream_that_its_message_ends_gets_nothing_more():
    recorder = opened()
    on_message = recorder.on_message

    def reset(stream, message):
        on_message(stream, message)
        recorder.session.reset(stream, http2.CANCEL)

    recorder.on_message = reset
    recorder.receive(headers_frame() + data_frame(framed(b"a") + framed(bytes(100_000))[:10]) + data_frame(b"x", end=True))
    assert recorder.events == [("headers", 1, "/s/M"), ("message", 1, b"a", False), ("closed", 1)]
