"""The lean server's HTTP side: it finds where a request ends, and writes what was made ahead of time."""

import asyncio
import re
from collections.abc import Mapping
from typing import cast

from perfkit.calibration.lean_answers import http_refusal

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,18})[ \t]*\r\n", re.IGNORECASE)
_HEAD_END = b"\r\n\r\n"
_LARGEST_HEAD_BYTES, _MOST_HEADS = 1 << 16, 1024


class LeanHttp(asyncio.Protocol):
    """One keep-alive connection; a body's end is known by Content-Length alone."""

    def __init__(self, answers: Mapping[str, bytes], known: dict[bytes, tuple[int, bytes]]) -> None:
        self._answers = answers
        self._known = known  # heads, which connections share: clients send the same ones over and over
        self._unread = b""
        self._left_bytes = 0
        self._answer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        while data:
            if not self._left_bytes:
                data = self._unread + data
                stop = data.find(_HEAD_END) + len(_HEAD_END)
                if stop < len(_HEAD_END):
                    self._unread = data
                    if len(data) > _LARGEST_HEAD_BYTES:
                        self._transport.close()
                    return
                self._unread, head, data = b"", data[:stop], data[stop:]
                self._left_bytes, self._answer = self._known.get(head) or self._read(head)
            taken_bytes = min(len(data), self._left_bytes)
            self._left_bytes -= taken_bytes
            if self._left_bytes:
                return
            self._transport.write(self._answer)
            data = data[taken_bytes:]

    def _read(self, head: bytes) -> tuple[int, bytes]:
        path = [*head.split(b" ", 2), b""][1].decode("latin-1")
        length = _LENGTH.search(head)
        read = (int(length[1]) if length else 0, self._answers.get(path) or http_refusal(path))
        if len(self._known) >= _MOST_HEADS:
            self._known.clear()
        self._known[head] = read
        return read
