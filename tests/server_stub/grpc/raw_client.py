"""A connection for literal frames of HTTP/2, and what calls consist of."""

import socket

import numpy as np
from tritonclient.grpc import service_pb2 as triton

from perfkit.protocol import http2
from tests.server_stub.grpc.h2_caller import SERVICE, framed
from tests.server_stub.grpc.session_recorder import GREETING, data_frame, frames_of, headers_frame, trailers_of

ONES = np.ones(16, np.int32).tobytes()


def block(method, **more):
    """The header block of a call."""
    return http2.encode_headers(
        [(":method", "POST"), (":path", f"{SERVICE}/{method}"), ("content-type", "application/grpc"), *more.items()]
    )


def infer_request(model="simple", datatype="INT32", raw=ONES):
    """The framed message of a request whose two inputs have the same data."""
    message = triton.ModelInferRequest(model_name=model, raw_input_contents=[raw, raw])
    for name in ("INPUT0", "INPUT1"):
        message.inputs.add(name=name, datatype=datatype, shape=[1, 16])
    return framed(message.SerializeToString())


def whole_call(stream_id, header_block, message):
    """The frames of a call with one framed message."""
    return headers_frame(stream_id, header_block) + data_frame(message, stream_id, end=True)


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

    def ends(self, *stream_ids):
        """Read up to the end of all these streams, in whatever order, and return their last headers."""
        came: dict[int, dict[str, str]] = {}
        while not came.keys() >= set(stream_ids):
            kind, flags, stream_id, payload = self.read()
            if kind == http2.HEADERS and flags & http2.END_STREAM:
                came[stream_id] = trailers_of(payload)
        return [came[stream_id] for stream_id in stream_ids]

    def statuses(self, *stream_ids):
        """The statuses of calls, as `ends` reads them."""
        return [end["grpc-status"] for end in self.ends(*stream_ids)]
