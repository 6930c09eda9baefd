"""A server of the v2 API over HTTP with a peculiarity: it passes requests on to another server, and changes what its clients see."""

import contextlib
import dataclasses
import gzip
import http.client
import http.server
import time
from collections.abc import Iterator

from tests.json_server import serving

_HOP = {"connection", "content-length", "transfer-encoding", "host", "keep-alive"}


@dataclasses.dataclass(frozen=True, slots=True)
class Oddness:
    """How a server differs from the one behind it."""

    base_path: str = ""
    """In front of each path; others are not found."""
    not_found: tuple[str, ...] = ()
    """Ends of paths that it does not have."""
    not_ready: bool = False
    """Whether the server says that it is not ready; the model says that it is."""
    description_s: float = 0.0
    """How long each answer to a GET takes."""
    token: str = ""
    """What `authorization` must be; empty for nothing."""
    gzips: bool = False
    """Whether answers to requests for inferences are compressed if the client accepts it."""
    is_chunked: bool = False
    """Whether answers have no length, but come in chunks."""
    closes: bool = False
    """Whether each connection takes one request."""


@contextlib.contextmanager
def odd_proxy(port: int, oddness: Oddness) -> Iterator[int]:
    """The port of a server on the loopback that passes requests on to the server at `port`, for the length of the block."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            time.sleep(oddness.description_s)
            self._pass_on(None)

        def do_POST(self) -> None:
            self._pass_on(self.rfile.read(int(self.headers["content-length"] or 0)))

        def log_message(self, *_: object) -> None:
            """Writes no log."""

        def _pass_on(self, body: bytes | None) -> None:
            if oddness.token and self.headers["authorization"] != oddness.token:
                self._answer(401, b'{"error":"no token"}', {})
            elif not self.path.startswith(f"{oddness.base_path}/v2") or self.path.endswith(oddness.not_found or ("?",)):
                self._answer(404, b"not found", {})
            elif oddness.not_ready and self.path.endswith("/health/ready"):
                self._answer(400, b"", {})
            else:
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
                headers = {name: value for name, value in self.headers.items() if name.lower() not in {*_HOP, "accept-encoding"}}
                connection.request(self.command, self.path.removeprefix(oddness.base_path), body, headers)
                answer = connection.getresponse()
                kept = {name: value for name, value in answer.getheaders() if name.lower() not in _HOP}
                content = answer.read()
                connection.close()
                if oddness.gzips and body is not None and "gzip" in (self.headers["accept-encoding"] or ""):
                    content, kept = gzip.compress(content), {**kept, "Content-Encoding": "gzip"}
                self._answer(answer.status, content, kept)

        def _answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            length = ("Transfer-Encoding", "chunked") if oddness.is_chunked else ("Content-Length", str(len(content)))
            for name, value in (*headers.items(), length, *([("Connection", "close")] if oddness.closes else [])):
                self.send_header(name, value)
            self.end_headers()
            if oddness.is_chunked:
                parts = [content[start : start + 100] for start in range(0, len(content), 100)]
                content = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (*parts, b""))
            self.wfile.write(content)

    with serving(Handler) as own_port:
        yield own_port
