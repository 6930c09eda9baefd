"""How many requests a model is answering, so that it can be let go when there are none."""

import asyncio
from types import TracebackType


class InFlight:
    """A `with` block around each request, and an end to wait for; in one event loop."""

    def __init__(self) -> None:
        self._count = 0
        self._drained: asyncio.Event | None = None

    def __enter__(self) -> None:
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
