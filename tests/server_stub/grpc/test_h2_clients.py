"""The server's session with clients of the h2 package: random calls, sizes, windows and interleavings."""

import collections
import random

import h2.config
import h2.connection
import h2.events
import h2.settings
from hypothesis import given
from hypothesis import strategies as st

from tests.server_stub.grpc.h2_caller import framed
from tests.server_stub.grpc.session_recorder import SessionRecorder, endlessly, feed

HEADERS = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/s/M"),
    (":authority", "a"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
]
CODES = h2.settings.SettingCodes
SIZES = st.lists(st.sampled_from([0, 1, 10, 1000, 16_379, 16_384, 70_000, 300_000]), min_size=1, max_size=3)


class Client:
    """An h2 connection and the calls on it."""

    def __init__(self, choices, initial_window_bytes, max_frame_bytes):
        self._choices = choices
        self._http2 = h2.connection.H2Connection(h2.config.H2Configuration(header_encoding="utf-8"))
        values = {CODES.INITIAL_WINDOW_SIZE: initial_window_bytes, CODES.MAX_FRAME_SIZE: max_frame_bytes, CODES.ENABLE_PUSH: 0}
        self._http2.local_settings = h2.settings.Settings(client=True, initial_values=values)
        self._http2.max_inbound_frame_size = max_frame_bytes
        self._http2.initiate_connection()
        self._unsent: dict[int, bytes] = {}
        self._unread: collections.deque[tuple[int, int]] = collections.deque()
        self.came: dict[int, bytes] = collections.defaultdict(bytes)
        self.statuses: dict[int, str] = {}

    def call(self, messages):
        stream_id = self._http2.get_next_available_stream_id()
        self._http2.send_headers(stream_id, HEADERS)
        self._unsent[stream_id] = b"".join(map(framed, messages))
        return stream_id

    def send(self):
        """Send a part of one call, as its window allows."""
        if self._unsent:
            stream_id = self._choices.choice(list(self._unsent))
            data = self._unsent[stream_id]
            room = min(self._http2.local_flow_control_window(stream_id), self._http2.max_outbound_frame_size, len(data))
            part = data[: self._choices.choice([1, 5, 100, room, room]) if room else 0][:room]
            padding = self._choices.choice([None, None, 0, 9]) if len(part) + 10 <= room else None
            if part or not data:
                self._http2.send_data(stream_id, part, end_stream=len(part) == len(data), pad_length=padding)
                self._unsent[stream_id] = data[len(part) :]
                if len(part) == len(data):
                    del self._unsent[stream_id]

    def set_window(self, window_bytes):
        self._http2.update_settings({CODES.INITIAL_WINDOW_SIZE: window_bytes})

    def acknowledge(self):
        """Open the windows for some of the data that came."""
        if self._unread:
            byte_count, stream_id = self._unread.popleft()
            self._http2.acknowledge_received_data(byte_count, stream_id)

    def data_to_send(self):
        return self._http2.data_to_send()

    def receive(self, data):
        for event in self._http2.receive_data(data):
            match event:
                case h2.events.DataReceived():
                    self.came[event.stream_id] += event.data
                    self._unread.append((event.flow_controlled_length, event.stream_id))
                case h2.events.TrailersReceived():
                    (self.statuses[event.stream_id],) = [str(value) for name, value in event.headers if str(name) == "grpc-status"]
                case h2.events.StreamReset() | h2.events.ConnectionTerminated():
                    raise AssertionError(event)


class Server(SessionRecorder):
    """Answers calls with the given messages, when it is told to."""

    def __init__(self, responses):
        super().__init__()
        self._responses, self.ready = responses, []
        self.sending = []
        self.session.open()

    def on_end(self, stream):
        super().on_end(stream)
        messages = self._responses[(stream.id - 1) // 2]
        if len(messages) == 1:
            self.ready.append((stream, messages[0]))
        else:
            self.sending.append((stream, collections.deque(messages)))

    def answer(self, choices):
        """Answers a call, or sends one message of several."""
        if self.ready:
            stream, message = self.ready.pop(choices.randrange(len(self.ready)))
            cut = len(message) // 2
            self.session.respond(stream, [message[:cut], message[cut:]])
        elif self.sending:
            stream, messages = self.sending.pop(choices.randrange(len(self.sending)))
            if messages:
                self.session.send(stream, [messages.popleft()])
                self.sending.append((stream, messages))
            else:
                self.session.end(stream)


@given(
    st.lists(st.tuples(SIZES, SIZES), min_size=1, max_size=6),
    st.sampled_from([20_000, 65_535, 1 << 20]),
    st.sampled_from([16_384, 40_000, (1 << 24) - 1]),
    st.none() | st.sampled_from([0, 100, 20_000]),
    st.integers(0, 2**32),
)
def test_every_message_arrives(calls, window_bytes, frame_bytes, shrunk_bytes, seed):
    choices = random.Random(seed)
    requests = [[choices.randbytes(size) for size in sizes] for sizes, _ in calls]
    responses = [[choices.randbytes(size) for size in sizes] for _, sizes in calls]
    server, client = Server(responses), Client(choices, window_bytes, frame_bytes)
    to_open, shrinks_in = collections.deque(requests), choices.randrange(300)
    steps = 0
    while len(client.statuses) < len(calls):
        steps += 1
        assert steps < 100_000, "nothing moves any more"
        if steps == shrinks_in and shrunk_bytes is not None:
            client.set_window(shrunk_bytes)
        if steps == shrinks_in + 200:
            client.set_window(1 << 20)
        action = choices.randrange(6)
        if action == 0 and to_open and steps > 3:
            client.call(to_open.popleft())
        elif action in (1, 2):
            client.send()
        elif action == 3:
            server.answer(choices)
        elif action == 4:
            client.acknowledge()
        elif action == 5:
            feed(server.session, client.data_to_send(), endlessly(choices, (9, 1000, 1 << 16, 1 << 20)))
            client.receive(server.take_written())
    assert set(client.statuses.values()) == {"0"}
    for index, (asked, answered) in enumerate(zip(requests, responses, strict=True)):
        stream_id = 2 * index + 1
        assert [one[2] for one in server.events if one[:2] == ("message", stream_id)] == asked
        assert client.came[stream_id] == b"".join(map(framed, answered))
    assert not server.session.streams
    assert server.session.unsent_bytes == 0
