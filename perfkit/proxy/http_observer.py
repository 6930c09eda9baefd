"""Finds the inference requests on a connection that speaks HTTP/1.1."""

import contextlib
import re
import urllib.parse
from collections.abc import Callable
from typing import cast

import httptools

from perfkit.digits import whole_number
from perfkit.errors import ProtocolError
from perfkit.override import override
from perfkit.protocol import rest
from perfkit.proxy.observer import Observer
from perfkit.proxy.open_requests import BodyMemory, Call, OpenRequest
from perfkit.transport.options import MAX_HEAD_BYTES

# also below the prefix of an ingress; the query is left out, since it may hold a secret
_PATH = re.compile(rb".*/v2/models/([^/?#]+)(?:/versions/([^/?#]+))?/(infer|generate|generate_stream)(?:[?#].*)?")
_HEADER_LENGTH, _ENCODING = rest.HEADER_LENGTH.lower().encode(), b"content-encoding"
_FRAMING = (b"content-length", b"transfer-encoding")
_NOTHING = bytes(2**16)
# where one begins after an answer, reading goes on if it was lost
_REQUEST_LINE = re.compile(rb"[A-Z]+ \S+ HTTP/1\.[01]\r\n")


class HttpObserver(Observer):
    """See `Observer`. A request arrives with the first byte of its head."""

    def __init__(self, on_request: Callable[[OpenRequest], None], memory: BodyMemory) -> None:
        super().__init__(on_request, memory)
        self._parser = httptools.HttpRequestParser(self)
        self._read_ns = self._arrival_ns = 0
        self._url = b""
        self._framing: list[tuple[bytes, bytes]] = []
        self._header_length: int | None = None
        self._encoding = ""
        self._request: OpenRequest | None = None
        self._in_body = self._has_advanced = self._is_reading_on = self._is_lost = False
        self._head_bytes = 0  # of a head or a trailer, as far as it has come

    @override
    def receive(self, data: bytes, read_ns: int, *, is_first: bool) -> None:
        if self._is_lost:
            if not (is_first and _REQUEST_LINE.match(data)):
                self.unread_bytes += len(data)
                return
            self._parser, self._is_lost, self._in_body, self._head_bytes = httptools.HttpRequestParser(self), False, False, 0
        self._read_ns, self._has_advanced = read_ns, False
        try:
            self._feed(data)
        except httptools.HttpParserError as error:
            raise ProtocolError(f"the client does not send HTTP/1.1: {error}") from None
        self._head_bytes = 0 if self._has_advanced else self._head_bytes + len(data)
        if self._head_bytes > MAX_HEAD_BYTES:
            raise ProtocolError(f"the head of a request is longer than {MAX_HEAD_BYTES:,} B")

    def _feed(self, data: bytes) -> None:
        """Parses bytes; the parser stops after the head of a request that offers to speak another protocol.

        Most servers decline, so all is read on as if nothing had been offered. Where one accepts, what follows is no HTTP/1.1.
        """
        while data:
            try:
                self._parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                data = data[offer.args[0] :]
            else:
                return
            self._parser = httptools.HttpRequestParser(self)
            if self._framing:
                self._is_reading_on = True
                self._parser.feed_data(b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(b"%b: %b\r\n" % field for field in self._framing))
                self._is_reading_on = False

    @override
    def skip(self, size_bytes: int) -> None:
        if self._request is not None:
            self._memory.drop(self._request)
        with contextlib.suppress(ProtocolError):  # where the body, or its chunk, ends before
            while size_bytes and self._in_body:
                self.receive(_NOTHING[:size_bytes], self._read_ns, is_first=False)
                size_bytes -= min(size_bytes, len(_NOTHING))
        if size_bytes:
            self.close()
            self._is_lost, self._in_body = True, False

    @override
    def close(self) -> None:
        if self._request is not None:
            self._forget(self._request)
            self._request = None

    # called by the parser

    def on_message_begin(self) -> None:
        """A request begins."""
        if not self._is_reading_on:
            self._arrival_ns, self._url, self._framing, self._header_length, self._encoding = self._read_ns, b"", [], None, ""

    def on_url(self, url: bytes) -> None:
        """A part of the request's target."""
        if not self._is_reading_on:
            self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header: some say where the body ends and how it is read, and no other is kept."""
        lower = name.lower()
        if self._is_reading_on or self._in_body:  # or a trailer
            return
        if lower in _FRAMING:
            self._framing.append((lower, value))
        elif lower == _HEADER_LENGTH:
            self._header_length = whole_number(value.strip())
        elif lower == _ENCODING:
            self._encoding = value.decode("latin-1").strip().lower()

    def on_headers_complete(self) -> None:
        """The head is complete."""
        self._in_body = self._has_advanced = True
        match = _PATH.fullmatch(self._url)
        if self._is_reading_on or match is None or self._parser.get_method() != b"POST":
            return
        model, version, call = (urllib.parse.unquote((part or b"").decode("latin-1")) for part in match.groups())
        self._request = OpenRequest(
            self._arrival_ns, cast("Call", call), False, model, version, self._header_length, self._encoding
        )  # fmt: skip

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        self._has_advanced = True
        if self._request is not None:
            self._memory.add(self._request, body)

    def on_message_complete(self) -> None:
        """The request is complete, unless only its head has been read so far."""
        self._has_advanced = True
        if self._parser.should_upgrade() and self._framing:
            return
        self._in_body = False
        if self._request is not None:
            request, self._request = self._request, None
            self._complete(request)
