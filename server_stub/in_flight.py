"""How many requests a model is answering: it takes so many at most, and can be let go when there are none."""

import asyncio
from types import TracebackType

from perfkit.errors import ErrorKind, ProtocolError
from server_stub.limits import Limits

MAX_QUEUE = Limits().max_queue


class InFlight:
    """A `with` block around each request, and an end to wait for; in one event loop."""

    def __init__(self) -> None:
        self.most = MAX_QUEUE
        self._count = 0
        self._drained: asyncio.Event | None = None

    def __enter__(self) -> None:
        """Raises ProtocolError where there are as many as there may be."""
        if self._count >= self.most:
            raise ProtocolError("Exceeds maximum queue size", ErrorKind.UNAVAILABLE)
        self._count += 1

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._count -= 1
        if not self._count and self._drained is not None:
            self._drained.set()

    async def drain(self) -> None:
        """Returns when no request is left; none may come any more."""
        if self._count:
            self._drained = asyncio.Event()
            await self._drained.wait()
