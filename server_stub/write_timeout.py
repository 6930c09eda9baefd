"""The time-out of a client that does not read its response."""

import asyncio
from collections.abc import Callable
from typing import cast


class WriteTimeout:
    """Aborts a connection if nothing of what waits to be sent on it was sent within the time-out."""

    def __init__(
        self,
        transport: asyncio.BaseTransport,
        timeout_s: float,
        written_bytes: Callable[[], int] = lambda: 0,
        held_bytes: Callable[[], int] = lambda: 0,
    ) -> None:
        """`written_bytes` is the total so far, where more is written meanwhile; `held_bytes` is what cannot be written yet."""
        self._transport, self._timeout_s = cast("asyncio.Transport", transport), timeout_s  # uvloop's transports are not of that class
        self._written_bytes, self._held_bytes = written_bytes, held_bytes
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Something waits. The time-out ends by itself when nothing does."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._timeout_s, self._check, self._sent_bytes())

    def stop(self) -> None:
        """The connection is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _sent_bytes(self) -> int:
        return self._written_bytes() - self._transport.get_write_buffer_size()

    def _check(self, sent_bytes: int) -> None:
        self._timer = None
        if not self._transport.get_write_buffer_size() and not self._held_bytes():
            return
        if self._sent_bytes() > sent_bytes:
            self.start()
        else:
            self._transport.abort()
