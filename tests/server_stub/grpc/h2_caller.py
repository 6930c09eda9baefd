"""gRPC calls by the h2 package on a plain socket: whole, in parts, or broken."""

import socket
import struct

import h2.config
import h2.connection
import h2.events
import h2.exceptions

SERVICE = "/inference.GRPCInferenceService"


class Caller:
    """One connection."""

    def __init__(self, port):
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        # what goes out is to be what the test says, and headers are to come as they are
        self._http2 = h2.connection.H2Connection(h2.config.H2Configuration(validate_outbound_headers=False, header_encoding=None))
        self._http2.initiate_connection()
        self._ended, self._trailers, self._came = set(), {}, {}
        self._is_greeted = False

    def __enter__(self):
        try:
            self._flush()
            while not self._is_greeted:  # streams that begin before may be refused by chance
                self._receive()
        except BaseException:
            self._socket.close()
            raise
        return self

    def __exit__(self, *exc):
        self._socket.close()

    def open(self, path, *more):
        """Begins a call; its number."""
        stream = self._http2.get_next_available_stream_id()
        path = path if isinstance(path, bytes) else f"{SERVICE}/{path}".encode()
        headers = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"a"),
                   (b"content-type", b"application/grpc"), (b"te", b"trailers"), *more]  # fmt: skip
        self._http2.send_headers(stream, headers)
        self._flush()
        return stream

    def send(self, stream, data, *, end=False):
        """Sends some of a call's bytes, as fast as the server takes them."""
        view = memoryview(data)
        while view and stream not in self._ended:
            room = min(self._http2.local_flow_control_window(stream), self._http2.max_outbound_frame_size, len(view))
            if not room:
                self._receive()
                continue
            self._http2.send_data(stream, bytes(view[:room]))
            view = view[room:]
            self._flush()
        if end and stream not in self._ended:
            self._http2.end_stream(stream)
            self._flush()

    def finish(self, stream):
        """Waits for a call's end: its status as a number (None where it was reset), its message and its data."""
        while stream not in self._ended:
            self._receive()
        trailers = self._trailers.get(stream, {})
        status = trailers.get(b"grpc-status")
        return None if status is None else int(status), trailers.get(b"grpc-message", b"").decode(), self._came.get(stream, b"")

    def _receive(self):
        data = self._socket.recv(1 << 16)
        if not data:
            raise ConnectionResetError("the server closed the connection")
        try:
            events = self._http2.receive_data(data)
        except h2.exceptions.ProtocolError as error:  # h2 takes nothing more once the server has said goodbye
            raise ConnectionResetError(str(error)) from None
        for event in events:
            if isinstance(event, h2.events.RemoteSettingsChanged):
                self._is_greeted = True
            elif isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
                self._trailers.setdefault(event.stream_id, {}).update(dict(event.headers))
            elif isinstance(event, h2.events.DataReceived):
                self._came[event.stream_id] = self._came.get(event.stream_id, b"") + event.data
                self._http2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded | h2.events.StreamReset):
                self._ended.add(event.stream_id)
        self._flush()

    def _flush(self):
        self._socket.sendall(self._http2.data_to_send())


def framed(message, *, packed=False):
    """A message as gRPC frames it."""
    return struct.pack(">BI", packed, len(message)) + message
