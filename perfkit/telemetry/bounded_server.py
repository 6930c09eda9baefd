"""An HTTP server in threads that strangers may connect to: bounded in its connections, and in the time of each request."""

import contextlib
import http.server
import socket
import socketserver
import threading
from collections.abc import Callable

from perfkit.clock import Clock
from perfkit.override import override
from perfkit.units import NS_PER_S

MOST_CONNECTIONS, REQUEST_WITHIN_S = 16, 20
"""The limits of connections, and of a request, from the answer before it to its last byte."""
_POLL_INTERVAL_S = 0.1
_SENDS_WITHIN_S = 30


class BoundedHandler(http.server.BaseHTTPRequestHandler):
    """Handles the requests of one connection; `BoundedServer.has_come` is to be called for each when it is there as a whole."""

    protocol_version = "HTTP/1.1"
    timeout = _SENDS_WITHIN_S
    server: "BoundedServer"

    @override
    def handle_one_request(self) -> None:
        self.server.next_request(self.connection)
        super().handle_one_request()

    @override
    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the library's name
        """Writes no log."""


class BoundedServer(http.server.ThreadingHTTPServer):
    """Serves at most `MOST_CONNECTIONS` clients; for a new one, the connection that has waited longest for its request ends."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], handler: type[BoundedHandler], clock: Clock) -> None:
        """Raises OSError if it cannot listen there."""
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self._clock = clock
        self._waiting_until_ns: dict[socket.socket, int] = {}
        self._busy: set[socket.socket] = set()
        self._lock = threading.Lock()
        super().__init__(address, handler)

    def serve(self, name: str) -> Callable[[], None]:
        """Starts serving in a thread of this name; what is returned stops listening, and ends all connections that wait for a request."""
        thread = threading.Thread(target=self.serve_forever, args=(_POLL_INTERVAL_S,), name=name, daemon=True)
        thread.start()

        def close() -> None:
            self.shutdown()
            self.server_close()
            with self._lock:
                for connection in list(self._waiting_until_ns):
                    self._disconnect(connection)
            thread.join()

        return close

    @override
    def server_bind(self) -> None:
        """Binds without the library's look-up of the host name, which may take seconds."""
        socketserver.TCPServer.server_bind(self)

    @override
    def verify_request(self, request: object, client_address: object) -> bool:
        """Whether there is room for a new connection."""
        assert isinstance(request, socket.socket)
        with self._lock:
            if len(self._waiting_until_ns) + len(self._busy) >= MOST_CONNECTIONS:
                if not self._waiting_until_ns:
                    return False
                self._disconnect(min(self._waiting_until_ns, key=self._waiting_until_ns.__getitem__))
            self._wait_for_request(request)
        return True

    def next_request(self, connection: socket.socket) -> None:
        """Gives a connection the time for its next request."""
        with self._lock:
            self._busy.discard(connection)
            self._wait_for_request(connection)

    def has_come(self, connection: socket.socket) -> bool:
        """Ends the time of a connection whose request has come; False if the connection has been ended."""
        with self._lock:
            if self._waiting_until_ns.pop(connection, None) is None:
                return False
            self._busy.add(connection)
            return True

    @override
    def service_actions(self) -> None:
        """Ends the connections whose time is over; the library calls this ten times a second."""
        now_ns = self._clock.now_ns()
        with self._lock:
            for connection in [waiting for waiting, until_ns in self._waiting_until_ns.items() if until_ns <= now_ns]:
                self._disconnect(connection)

    @override
    def shutdown_request(self, request: object) -> None:
        """Closes a connection when its thread ends."""
        assert isinstance(request, socket.socket)
        with self._lock:
            self._waiting_until_ns.pop(request, None)
            self._busy.discard(request)
        super().shutdown_request(request)

    @override
    def handle_error(self, request: object, client_address: object) -> None:
        """Ignores clients that disconnect."""

    def _wait_for_request(self, connection: socket.socket) -> None:
        self._waiting_until_ns[connection] = self._clock.now_ns() + REQUEST_WITHIN_S * NS_PER_S

    def _disconnect(self, connection: socket.socket) -> None:
        del self._waiting_until_ns[connection]
        with contextlib.suppress(OSError):  # it has ended already
            connection.shutdown(socket.SHUT_RDWR)
