"""Streams that stay open on the client's side, against the h2 package, whose windows may be small."""

import h2.events
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perfkit.protocol import http2
from perfkit.protocol.http2 import HeaderBlockReader
from perfkit.transport.grpc.messages import AnswerHeaders, parse_headers
from perfkit.transport.grpc.session import ClientSession, Stream
from tests.transport.http2_peer import OK_HEADERS, OK_TRAILERS, RecordingListener, framed, make_h2

BLOCK = http2.encode_headers([(":method", "POST"), (":scheme", "http"), (":path", "/x"), (":authority", "a")])


class Pair:
    """A session connected to an h2 server, with the data that the server received by stream."""

    def __init__(self, **settings):
        self.listener = RecordingListener()
        self.session = ClientSession(self.listener, self.listener, HeaderBlockReader(parse_headers, {}))
        self.server = make_h2(**settings)
        self.data: dict[int, bytes] = {}
        self.ended: list[int] = []
        self.reset: list[int] = []
        self.session.open()
        self.exchange()

    def exchange(self):
        """Carries bytes in both directions until neither side has any; the server renews its windows as it reads."""
        while True:
            written = self.listener.take_written()
            for event in self.server.receive_data(written) if written else ():
                match event:
                    case h2.events.DataReceived():
                        self.data[event.stream_id] = self.data.get(event.stream_id, b"") + event.data
                        self.server.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                    case h2.events.StreamEnded():
                        self.ended.append(event.stream_id)
                    case h2.events.StreamReset():
                        self.reset.append(event.stream_id)
            answered = self.server.data_to_send()
            if answered:
                self.session.receive(answered)
            if not written and not answered:
                return


messages = st.lists(st.binary(max_size=300), min_size=1, max_size=12)


@settings(deadline=None)
@given(messages, st.sampled_from([16, 100, 65_535]), st.booleans())
def test_messages_arrive_in_order_through_windows_of_any_size(sent, window_bytes, exchanges_between):
    pair = Pair(initial_window_size=window_bytes)
    stream = Stream[AnswerHeaders]()
    pair.session.open_stream(stream, BLOCK)
    for index, message in enumerate(sent):
        pair.session.send_data(stream, framed(message), ends_stream=index == len(sent) - 1)
        if exchanges_between:
            pair.exchange()
    pair.exchange()
    assert pair.data == {1: b"".join(map(framed, sent))}
    assert pair.ended == [1]


def test_a_stream_ends_while_its_window_is_negative():
    pair = Pair()
    stream = Stream[AnswerHeaders]()
    pair.session.open_stream(stream, BLOCK)
    pair.session.send_data(stream, bytes(60_000))
    pair.session.receive(http2.settings({http2.INITIAL_WINDOW_SIZE: 100}))
    pair.listener.take_written()
    pair.session.send_data(stream, b"", ends_stream=True)
    assert pair.listener.take_written() == http2.frame(http2.DATA, http2.END_STREAM, 1, b"")


def test_a_stream_stays_open_until_it_is_ended_and_others_beside_it():
    pair = Pair()
    first, second = Stream[AnswerHeaders](), Stream[AnswerHeaders]()
    for stream in (first, second):
        pair.session.open_stream(stream, BLOCK)
        pair.session.send_data(stream, framed(b"a"))
    pair.exchange()
    assert pair.ended == []
    pair.session.send_data(second, b"", ends_stream=True)
    pair.exchange()
    assert pair.ended == [second.id]
    assert set(pair.session.streams) == {first.id, second.id}


@pytest.mark.parametrize("has_ended", [True, False])
def test_an_answer_ends_the_stream_on_both_sides(has_ended):
    pair = Pair()
    stream = Stream[AnswerHeaders]()
    pair.session.open_stream(stream, BLOCK)
    pair.session.send_data(stream, framed(b"a"), ends_stream=has_ended)
    pair.exchange()
    pair.server.send_headers(stream.id, OK_HEADERS)
    pair.server.send_data(stream.id, framed(b"answer"))
    pair.server.send_headers(stream.id, OK_TRAILERS, end_stream=True)
    pair.exchange()
    ((kind, stream_id, _, data, trailers),) = pair.listener.stream_events()
    assert (kind, stream_id, data, trailers.is_ok) == ("answer", stream.id, framed(b"answer"), True)
    assert not pair.session.streams


def test_the_receive_window_of_a_stream_of_many_messages_is_renewed():
    class Endless(Stream[AnswerHeaders]):
        has_many_messages = True

    pair = Pair()
    stream = Endless()
    pair.session.open_stream(stream, BLOCK)
    pair.exchange()
    pair.server.send_headers(stream.id, OK_HEADERS)
    sent_on = pair.server.streams[stream.id]
    window_bytes, size = sent_on.outbound_flow_control_window, pair.server.max_outbound_frame_size
    for _ in range(200):
        pair.server.send_data(stream.id, bytes(size))
        pair.exchange()
        stream.chunks.clear()
    assert window_bytes - sent_on.outbound_flow_control_window <= 1 << 21, "of 3.2 MB that were sent"
