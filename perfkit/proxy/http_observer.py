"""Finds the inference requests on a connection that speaks HTTP/1.1."""

import collections
import re
import urllib.parse
from collections.abc import Callable
from typing import cast

import httptools

from perfkit.errors import ProtocolError
from perfkit.override import override
from perfkit.protocol import rest
from perfkit.proxy.observer import MAX_BODY_BYTES, Call, CapturedRequest, Observer

# also below the prefix of an ingress; the query is left out, since it may hold a secret
_PATH = re.compile(rb".*/v2/models/([^/?#]+)(?:/versions/([^/?#]+))?/(infer|generate|generate_stream)(?:[?#].*)?")
_HEADER_LENGTH, _ENCODING = rest.HEADER_LENGTH.lower().encode(), b"content-encoding"


class HttpObserver(Observer):
    """See `Observer`. A request arrives with the first byte of its head."""

    def __init__(self, on_request: Callable[[CapturedRequest], None], on_delay: Callable[[int], None]) -> None:
        super().__init__(on_request, on_delay)
        self._parser = httptools.HttpRequestParser(self)
        self._is_readable = True
        self._read_ns = self._arrival_ns = 0
        self._url = b""
        self._header_length: int | None = None
        self._encoding = ""
        self._match: re.Match[bytes] | None = None
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._completed = 0
        self._delays_ns: collections.deque[int] = collections.deque()

    @property
    @override
    def unanswered(self) -> int:
        return len(self._delays_ns)

    @override
    def client_sent(self, data: bytes, read_ns: int, passed_ns: int) -> None:
        if not self._is_readable:
            return
        self._read_ns = read_ns
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._is_readable = False
        except httptools.HttpParserError as error:
            self._is_readable = False
            raise ProtocolError(f"the client does not send HTTP/1.1: {error}") from None
        for _ in range(self._completed):
            self._delays_ns.append(passed_ns - read_ns)
        self._completed = 0

    def server_sent(self, data: bytes, read_ns: int, passed_ns: int) -> None:
        """Without pipelining, the first bytes after a request are its answer's."""
        if self._delays_ns and not data.startswith(b"HTTP/1.1 100"):
            self._on_delay(self._delays_ns.popleft() + passed_ns - read_ns)

    # called by the parser

    def on_message_begin(self) -> None:
        """A request begins."""
        self._arrival_ns, self._url, self._match = self._read_ns, b"", None
        self._header_length, self._encoding, self._body, self._body_bytes = None, "", [], 0

    def on_url(self, url: bytes) -> None:
        """A part of the request's target."""
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header: two say how to read the body, and no other is kept."""
        lower = name.lower()
        if lower == _HEADER_LENGTH and value.isdigit():
            self._header_length = int(value)
        elif lower == _ENCODING:
            self._encoding = value.decode("latin-1").strip().lower()

    def on_headers_complete(self) -> None:
        """The head is complete."""
        self._match = _PATH.fullmatch(self._url) if self._parser.get_method() == b"POST" else None

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        if self._match is not None:
            self._body_bytes += len(body)
            if self._body_bytes <= MAX_BODY_BYTES:
                self._body.append(body)

    def on_message_complete(self) -> None:
        """The request is complete."""
        if self._match is None:
            return
        model, version, call = (urllib.parse.unquote((part or b"").decode("latin-1")) for part in self._match.groups())
        body = self._body if self._body_bytes <= MAX_BODY_BYTES else []
        self._on_request(
            CapturedRequest(
                self._arrival_ns, cast(Call, call), body, False, model, version, self._header_length, self._encoding
            )
        )  # fmt: skip
        self._completed += 1
        self._body = []
