"""A server that reads infer requests and sends an earlier answer, with nothing but system calls between: the lower bound for a server in Python.

    python -m benchmarks.bare_socket_server --upstream-port 8000

The first infer request and everything else goes to the server at the upstream port; all further infer requests must be as long
as the first, and get its answer. It prints its port, and ends when its stdin does.
"""

import argparse
import selectors
import socket
import sys

_READ_BYTES = 2**18
_HEAD_END = b"\r\n\r\n"


def read_message(connection: socket.socket) -> bytes:
    """One HTTP message with a Content-Length, or without a body; b"" at the end of the connection."""
    received = b""
    while _HEAD_END not in received:
        if not (part := connection.recv(_READ_BYTES)):
            return b""
        received += part
    end = received.index(_HEAD_END) + len(_HEAD_END)
    lengths = [line.partition(b":")[2] for line in received[:end].split(b"\r\n") if line.lower().startswith(b"content-length:")]
    missing = end + (int(lengths[0]) if lengths else 0) - len(received)
    parts = [received]
    while missing > 0 and (part := connection.recv(_READ_BYTES)):
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


class BareSocketServer:
    """Serves connections one after the other, each until its request is complete."""

    def __init__(self, upstream_port: int) -> None:
        self._upstream_port = upstream_port
        self._request_bytes, self._answer = 0, b""
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._missing: dict[socket.socket, int] = {}

    def serve(self, listener: socket.socket) -> None:
        """Serve until stdin ends."""
        with selectors.DefaultSelector() as selector:
            selector.register(listener, selectors.EVENT_READ)
            selector.register(sys.stdin, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is sys.stdin:
                        return
                    if key.fileobj is listener:
                        connection, _ = listener.accept()
                        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                        selector.register(connection, selectors.EVENT_READ)
                        continue
                    connection = key.fileobj  # type: ignore[assignment]  # only sockets are left
                    is_open = self._receive(connection) if self._answer else self._forward(connection)
                    if not is_open:
                        selector.unregister(connection)
                        self._missing.pop(connection, None)
                        connection.close()

    def _forward(self, connection: socket.socket) -> bool:
        """Have the upstream server answer a request, and keep the answer of an infer request."""
        request = read_message(connection)
        if not request:
            return False
        answer = self._ask_upstream(request)
        connection.sendall(answer)
        if request.startswith(b"POST ") and request.split(b" ", 2)[1].endswith(b"/infer"):
            self._request_bytes, self._answer = len(request), answer
        return True

    def _ask_upstream(self, request: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self._upstream_port)) as upstream:
            upstream.sendall(request)
            return read_message(upstream)

    def _receive(self, connection: socket.socket) -> bool:
        """Read what has arrived, and answer if that completes a request."""
        received = connection.recv_into(self._buffer)
        if not received:
            return False
        missing = self._missing.get(connection, 0)
        if not missing and bytes(self._buffer[:5]) != b"POST ":  # another client asks for the metadata first, in one piece
            answer = self._ask_upstream(bytes(self._buffer[:received]))
            connection.sendall(answer)
            return bool(answer)
        missing = (missing or self._request_bytes) - received
        if missing < 0:
            raise RuntimeError("a request is longer than the first one")
        self._missing[connection] = missing
        if not missing:
            connection.sendall(self._answer)
        return True


def main() -> int:
    """Serves on a free port of the loopback."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--upstream-port", type=int, required=True)
    options = parser.parse_args()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        BareSocketServer(options.upstream_port).serve(listener)
    return 0


if __name__ == "__main__":
    sys.exit(main())
