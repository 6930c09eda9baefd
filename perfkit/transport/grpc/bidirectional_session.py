"""An HTTP/2 session whose streams can stay open on the client's side, so that each carries many requests."""

from perfkit.transport.grpc.session import ClientSession
from perfkit.transport.grpc.stream import H, S


class BidirectionalSession(ClientSession[S, H]):
    """Adds streams that are opened without data, and end when their owner says so."""

    def open_stream(self, stream: S, block: bytes) -> None:
        """Opens a stream with a header block."""
        self._requests.open_stream(self._number(stream), block)

    def send_data(self, stream: S, data: bytes, *, ends_stream: bool = False) -> None:
        """Writes as much of a message as the send windows allow; the rest follows. With `ends_stream` it is the stream's last."""
        self._requests.send_data(stream.id, data, ends_stream=ends_stream)
