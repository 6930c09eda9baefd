"""A minimal client on a blocking socket, which sends the same bytes as perfkit: the floor of its service times."""

import abc
import socket
import struct
from collections.abc import Callable, Sequence

from perfkit.calibration.canned_server import call_pieces, data_frames
from perfkit.errors import MeasurementError
from perfkit.override import override
from perfkit.protocol import http2
from perfkit.target.address import Address

_READ_BYTES = 1 << 16
_TIMEOUT_S = 10
_WINDOW_BYTES = (1 << 30) - 1


class BareClient(abc.ABC):
    """One connection with one request at a time. Raises MeasurementError if the server closes it or does not answer."""

    def __init__(self, address: Address) -> None:
        try:
            self._socket = socket.create_connection((address.host, address.port))
        except OSError as error:
            raise _lost(f"cannot be reached: {error}") from None
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # not settimeout, which would add a poll to each read
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", _TIMEOUT_S, 0))

    @abc.abstractmethod
    def exchange(self) -> None:
        """Sends the request and reads the whole response."""

    def times_ns(self, now_ns: Callable[[], int], length_ns: int) -> list[int]:
        """The times of consecutive exchanges over that length; at least one."""
        times: list[int] = []
        end_ns = now_ns() + length_ns
        while not times or now_ns() < end_ns:
            started_ns = now_ns()
            self.exchange()
            times.append(now_ns() - started_ns)
        return times

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise _lost(f"accepts no more data: {error}") from None

    def _read(self) -> bytes:
        try:
            data = self._socket.recv(_READ_BYTES)
        except OSError as error:  # also a timeout
            raise _lost(f"does not answer: {error}") from None
        if not data:
            raise _lost("closed the connection")
        return data


class BareHttp(BareClient):
    """Sends `buffers`, a request that the wire engine prepared."""

    def __init__(self, address: Address, buffers: Sequence[bytes]) -> None:
        super().__init__(address)
        self._request = b"".join(buffers)
        self._response_bytes = 0

    @override
    def exchange(self) -> None:
        # every response is as long as the first
        self._send(self._request)
        data = self._read()
        while not self._response_bytes:
            head, end, _ = data.partition(b"\r\n\r\n")
            if end:
                fields = dict(line.lower().split(b":", 1) for line in head.split(b"\r\n")[1:])
                self._response_bytes = len(head) + len(end) + int(fields[b"content-length"])
            else:
                data += self._read()
        received_bytes = len(data)
        while received_bytes < self._response_bytes:
            received_bytes += len(self._read())


class BareGrpc(BareClient):
    """Sends `buffers`, a request that the wire engine prepared."""

    def __init__(self, address: Address, buffers: Sequence[bytes]) -> None:
        super().__init__(address)
        _, block, _, data = buffers
        self._pieces, self._first_pieces = call_pieces((http2.HEADERS, http2.END_HEADERS, block), data_frames(data))
        self._stream_id = 1
        self._unread = b""
        settings = {http2.HEADER_TABLE_SIZE: 0, http2.ENABLE_PUSH: 0, http2.INITIAL_WINDOW_SIZE: _WINDOW_BYTES}
        wider = http2.number_frame(http2.WINDOW_UPDATE, 0, _WINDOW_BYTES - http2.DEFAULT_WINDOW_BYTES)
        self._send(http2.PREFACE + http2.settings(settings) + wider)
        while self._next_frame()[0] != http2.SETTINGS:  # which sets its flow-control windows
            pass
        self._send(http2.frame(http2.SETTINGS, http2.ACK, 0))

    @override
    def exchange(self) -> None:
        # assumes flow-control windows wider than one request
        pieces = self._first_pieces if self._stream_id == 1 else self._pieces
        self._send(self._stream_id.to_bytes(4).join(pieces))
        while True:
            kind, flags, stream_id = self._next_frame()
            if kind in (http2.RST_STREAM, http2.GOAWAY):
                raise _lost("refused a call")
            if kind == http2.HEADERS and flags & http2.END_STREAM and stream_id == self._stream_id:
                break
        self._stream_id += 2

    def _next_frame(self) -> tuple[int, int, int]:
        """The next frame's kind, flags and stream."""
        while True:
            if len(self._unread) >= http2.HEAD_BYTES:
                upper, lower, kind, flags, stream_id = http2.read_head(self._unread, 0)
                stop = http2.HEAD_BYTES + (upper << 8 | lower)
                if len(self._unread) >= stop:
                    self._unread = self._unread[stop:]
                    return kind, flags, stream_id
            self._unread += self._read()


def _lost(what: str) -> MeasurementError:
    return MeasurementError(f"perfkit's own server {what}")
