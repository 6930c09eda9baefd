"""Servers that answer a request with bytes that never end, each in its own part of an HTTP/1.1 answer."""

import itertools

from tests.transport import servers

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"
BLOCK = bytes(1 << 14)
# the first bytes, and what follows them again and again
FLOODS = {
    "a header's value": (OK + b"X: ", b"a" * 4096),
    "headers": (OK, b"X: a\r\n" * 1000),
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 100),
    "an announced body": (OK + b"Content-Length: 7000000000\r\n\r\n", BLOCK),
    "a body without a length": (OK + b"\r\n", BLOCK),
    "chunks": (CHUNKED, b"4000\r\n" + BLOCK + b"\r\n"),
    "tiny chunks": (CHUNKED, b"1\r\na\r\n" * 1000),
    "a chunk's extension": (CHUNKED + b"1;", b"a" * 4096),
    "trailers": (CHUNKED + b"0\r\n", b"X: a\r\n" * 1000),
}


class EndlessAnswer:
    """A connection handler that counts what it could write until the client closed the connection."""

    def __init__(self, start, block):
        self._start, self._block = start, block
        self.sent_bytes = 0
        self.was_closed = False

    async def __call__(self, reader, writer):
        await servers.read_request(reader)
        try:
            for part in itertools.chain([self._start], itertools.repeat(self._block)):
                writer.write(part)
                await writer.drain()
                self.sent_bytes += len(part)
        except ConnectionError:
            self.was_closed = True
