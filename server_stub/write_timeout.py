"""The time-out of a client that does not read its response."""

import asyncio
from typing import cast


class WriteTimeout:
    """Aborts a connection if nothing of what waits to be written to it was written within the time-out."""

    def __init__(self, transport: asyncio.BaseTransport, timeout_s: float) -> None:
        self._transport, self._timeout_s = cast("asyncio.Transport", transport), timeout_s  # uvloop's transports are not of that class
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Writing is paused."""
        unsent_bytes = self._transport.get_write_buffer_size()
        self._timer = asyncio.get_running_loop().call_later(self._timeout_s, self._check, unsent_bytes)

    def stop(self) -> None:
        """Writing is resumed, or the connection is over."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self, unsent_bytes: int) -> None:
        if self._transport.get_write_buffer_size() < unsent_bytes:
            self.start()
        else:
            self._transport.abort()
