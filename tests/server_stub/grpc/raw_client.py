"""A connection for literal frames of HTTP/2."""

import socket

from tests.server_stub.grpc.session_recorder import GREETING, frames_of


class RawClient:
    """One connection, which has sent its greeting."""

    def __init__(self, port):
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._came = b""
        self.send(GREETING)

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self._socket.close()

    def send(self, data):
        self._socket.sendall(data)

    def read(self):
        """The next frame; None at the connection's end."""
        while len(self._came) < 9 or len(self._came) < 9 + int.from_bytes(self._came[:3]):
            data = self._socket.recv(1 << 16)
            if not data:
                assert not self._came
                return None
            self._came += data
        length = 9 + int.from_bytes(self._came[:3])
        first, self._came = self._came[:length], self._came[length:]
        return frames_of(first)[0]

    def until(self, kind, stream_id=0, flags=0):
        """Read up to a frame of that type, stream and flags, and return the frames of that stream."""
        frames: list[tuple[int, int, int, bytes]] = []
        while not frames or frames[-1][0] != kind or frames[-1][1] & flags != flags:
            one = self.read()
            assert one is not None
            if one[2] == stream_id:
                frames.append(one)
        return frames
