"""A server that perfkit started: it can be restarted at the same addresses, and its unexpected end is reported."""

import asyncio
import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal

from perfkit.errors import quotation
from perfkit.machine.cpus import pinned, usable_cpus
from perfkit.target.address import WireProtocol


@dataclasses.dataclass(frozen=True, slots=True)
class ServerEnd:
    """The end of a server that nobody stopped."""

    how: str
    """The end of a sentence: `ended with exit code 3`."""
    status: int
    """The exit status, negative for a signal."""
    last_lines: tuple[str, ...] = ()
    """What it wrote last."""

    def __str__(self) -> str:
        return f"{self.how}{quotation(self.last_lines)}"


@dataclasses.dataclass(frozen=True)
class RunningServer:
    """One run of a server, from its readiness on."""

    urls: Mapping[WireProtocol, str]
    """As far as perfkit chose them."""
    description: Mapping[str, Any]
    """Facts for the result, among them the time from its start until it was ready, `ready_after_s`."""
    began_ns: int
    """The instant at which its process was started."""
    pid: int
    """Its first process."""
    ended: "asyncio.Task[ServerEnd]"
    """Waits for its end."""
    last_lines: Callable[[], tuple[str, ...]] = tuple
    """Reads what it wrote last, without secrets."""


class StartedServer:
    """A server that perfkit started; `make` runs it once, at the same addresses each time.

    It may use the CPUs that this process could use at first, whatever this process is pinned to by then.
    """

    def __init__(
        self, kind: Literal["bundled_server", "command_server"], make: Callable[[], AbstractAsyncContextManager[RunningServer]]
    ) -> None:
        self.kind = kind
        self._make, self._cpus = make, tuple(usable_cpus())
        self._running = contextlib.AsyncExitStack()
        self._end = ""
        self._on_end: Callable[[str], None] | None = None
        self.description: Mapping[str, Any] = {}
        """That of its first run."""
        self.pid: int | None = None
        """The first process of its last run; None before the first."""

    async def start(self) -> RunningServer:
        """Starts the server; raises TargetError if it does not start."""
        with pinned(self._cpus):
            running = await self._running.enter_async_context(self._make())
        self.description, self._end, self.pid = self.description or running.description, "", running.pid
        running.ended.add_done_callback(self._has_ended)
        return running

    async def restart(self) -> int:
        """Stops the server and starts it again; the instant at which that start began, in nanoseconds. Raises TargetError."""
        await self.stop()
        return (await self.start()).began_ns

    async def stop(self) -> None:
        """Stops the server."""
        await self._running.aclose()

    @contextlib.contextmanager
    def watched(self, on_end: Callable[[str], None]) -> Iterator[None]:
        """Calls `on_end` with a sentence when the server ends by itself, also after a restart; at once if it has ended already."""
        self._on_end = on_end
        if self._end:
            on_end(self._end)
        try:
            yield
        finally:
            self._on_end = None

    def _has_ended(self, ended: "asyncio.Task[ServerEnd]") -> None:
        if ended.cancelled():  # it was stopped
            return
        self._end = f"the {'bundled ' if self.kind == 'bundled_server' else ''}server is gone: it {ended.result()}"
        if self._on_end is not None:
            self._on_end(self._end)
