"""A gRPC client on the h2 package, for complete, partial and broken calls."""

import socket
import struct

import h2.config
import h2.connection
import h2.events
import h2.exceptions

SERVICE = "/inference.GRPCInferenceService"


class Caller:
    """One HTTP/2 connection."""

    def __init__(self, port):
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else a second small frame waits for an acknowledgement
        # no validation: tests send invalid requests and read raw headers
        self._http2 = h2.connection.H2Connection(h2.config.H2Configuration(validate_outbound_headers=False, header_encoding=None))
        self._http2.initiate_connection()
        self._ended, self._trailers, self._came = set(), {}, {}
        self._is_greeted = False

    def __enter__(self):
        try:
            self._flush()
            while not self._is_greeted:  # the server may reject streams opened before its settings arrive
                self._receive()
        except BaseException:
            self._socket.close()
            raise
        return self

    def __exit__(self, *exc):
        self._socket.close()

    def open(self, path, *more):
        """Begin a call and return its stream number."""
        stream = self._http2.get_next_available_stream_id()
        path = path if isinstance(path, bytes) else f"{SERVICE}/{path}".encode()
        headers = [(b":method", b"POST"), (b":scheme", b"http"), (b":path", path), (b":authority", b"a"),
                   (b"content-type", b"application/grpc"), (b"te", b"trailers"), *more]  # fmt: skip
        self._http2.send_headers(stream, headers)
        self._flush()
        return stream

    def send(self, stream, data, *, end=False):
        """Send bytes of a call, as flow control allows."""
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
        """Wait for the end of a call: its status number (None if it was reset), message and data."""
        while stream not in self._ended:
            self._receive()
        trailers = self._trailers.get(stream, {})
        status = trailers.get(b"grpc-status")
        return None if status is None else int(status), trailers.get(b"grpc-message", b"").decode(), bytes(self._came.get(stream, b""))

    def _receive(self):
        data = self._socket.recv(1 << 16)
        if not data:
            raise ConnectionResetError("the server closed the connection")
        try:
            events = self._http2.receive_data(data)
        except h2.exceptions.ProtocolError as error:  # h2 rejects everything after the server's GOAWAY
            raise ConnectionResetError(str(error)) from None
        for event in events:
            if isinstance(event, h2.events.RemoteSettingsChanged):
                self._is_greeted = True
            elif isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
                self._trailers.setdefault(event.stream_id, {}).update(dict(event.headers))
            elif isinstance(event, h2.events.DataReceived):
                self._came.setdefault(event.stream_id, bytearray()).extend(event.data)
                self._http2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.StreamEnded | h2.events.StreamReset):
                self._ended.add(event.stream_id)
        self._flush()

    def _flush(self):
        self._socket.sendall(self._http2.data_to_send())


def framed(message, *, packed=False):
    """A message with gRPC's frame header."""
    return struct.pack(">BI", packed, len(message)) + message
