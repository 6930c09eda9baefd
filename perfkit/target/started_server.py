"""Servers that perfkit starts: by a command, or the bundled one.

They can be restarted at the same addresses, and their unexpected end is reported.
"""

import asyncio
import contextlib
import dataclasses
import json
import os
import pathlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal

from perfkit.clock import Clock, MonotonicClock
from perfkit.errors import ServerFailedError, TargetError, quotation
from perfkit.machine.cpus import pinned, usable_cpus
from perfkit.process.child import Child, NotReadyError, child_process
from perfkit.process.start_module import start_module
from perfkit.target.address import WireProtocol
from perfkit.target.command import command_words
from perfkit.units import NS_PER_S, format_duration_ns, write_duration_ns


@dataclasses.dataclass(frozen=True, slots=True)
class ServerEnd:
    """The end of a server that nobody stopped."""

    how: str
    """The end of a sentence: `ended with exit code 3`."""
    status: int
    """The exit status, negative for a signal."""
    last_lines: tuple[str, ...] = ()
    """The last lines that the server wrote."""

    def __str__(self) -> str:
        return f"{self.how}{quotation(self.last_lines)}"


@dataclasses.dataclass(frozen=True)
class RunningServer:
    """One run of a server, from its readiness on."""

    urls: Mapping[WireProtocol, str]
    """The URLs that perfkit chose for the server."""
    description: Mapping[str, Any]
    """Facts for the result, among them the time from its start until it was ready, `ready_after_s`."""
    began_ns: int
    """The instant at which its process was started."""
    pid: int
    """The ID of the server's first process."""
    ended: "asyncio.Task[ServerEnd]"
    """Waits for the server's end."""
    last_lines: Callable[[], tuple[str, ...]] = tuple
    """Reads the last lines that the server wrote, without secrets."""


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
        """The description that the server gave in its first run."""
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


_STARTS_WITHIN_S, _STOPS_WITHIN_S = 300, 10


@contextlib.asynccontextmanager
async def bundled_server(
    *models: str,
    device: str,
    threads: int,
    cpus: tuple[int, ...],
    onnx: Sequence[str] = (),
    synthetic: str | None = None,
    allow_client_shm: bool = False,
    is_explicit: bool = False,
    trace_url: str | None = None,
    ports: tuple[int, int] = (0, 0),
    on_line: Callable[[str], None],
    clock: Clock | None = None,
) -> AsyncIterator[RunningServer]:
    """Runs the module `server_stub` on the loopback for the length of the block; a port of 0, for HTTP or gRPC, becomes a free one.

    `onnx` are options `KEY=VALUE` for ONNX models; `allow_client_shm` lets clients register shared memory. `on_line` gets the lines that the server writes to stderr. The description holds the
    time from its start until it was ready, `ready_after_s`. Raises TargetError if it does not start.
    """
    clock = clock or MonotonicClock()
    options = ["--http-port", str(ports[0]), "--grpc-port", str(ports[1]), "--metrics-port", "0", "--exit-with-stdin"]
    options += ["--model", *models, "--device", device, "--threads", str(threads)]
    if onnx:
        options += ["--onnx", *onnx]
    if synthetic is not None:
        options += ["--synthetic", synthetic]
    if is_explicit:  # clients may load and unload its models
        options += ["--model-control-mode", "explicit"]
    if allow_client_shm:
        options += ["--allow-client-shm"]
    if trace_url is not None:
        options += ["--trace-url", trace_url]
    if cpus:
        options += ["--cpus", ",".join(map(str, cpus))]
    started_ns = clock.now_ns()
    async with start_module("server_stub", *options, on_line=on_line, stop_within_s=_STOPS_WITHIN_S) as child:
        try:
            description = json.loads(await child.read_line(_STARTS_WITHIN_S))
        except NotReadyError as error:
            raise TargetError(f"the bundled server did not start: it {error}") from None
        description["ready_after_s"] = (clock.now_ns() - started_ns) / NS_PER_S
        urls: dict[WireProtocol, str] = {
            "http": f"http://127.0.0.1:{description['http_port']}",
            "grpc": f"grpc://127.0.0.1:{description['grpc_port']}",
        }
        ended = asyncio.ensure_future(_end_of(child))
        try:
            yield RunningServer(urls, description, started_ns, child.pid, ended)
        finally:
            ended.cancel()


async def _end_of(child: Child) -> ServerEnd:
    return ServerEnd(await child.wait_for_end(), await child.ended)


STARTS_WITHIN_NS = 300 * NS_PER_S
# a hundredth of the time so far, so that the instant of readiness is as exact and a slow start is not slowed down
_CHECKS_PER_START, _SHORTEST_WAIT_NS, _LONGEST_WAIT_NS = 100, NS_PER_S // 500, NS_PER_S // 20
_REPORT_EVERY_NS = 10 * NS_PER_S
_COMMAND_STOPS_WITHIN_S = 10
_LAST_LINES, _LAST_BYTES = 20, 2**14


def free_ports(number: int) -> list[int]:
    """Different free ports of the loopback."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


@contextlib.asynccontextmanager
async def command_server(
    command: str,
    why_not_ready: Callable[[], Awaitable[str]],
    *,
    cpus: tuple[int, ...],
    log: pathlib.Path,
    clock: Clock,
    ready_within_ns: int = STARTS_WITHIN_NS,
    limit_key: str = "target.ready_within",
    ports: AbstractSet[int] = frozenset(),
    on_line: Callable[[str], None] = lambda _: None,
    redact: Callable[[str], str] = str,
    stop_within_s: float = _COMMAND_STOPS_WITHIN_S,
    folder: pathlib.Path | None = None,
) -> AsyncIterator[RunningServer]:
    """Runs a command for the length of the block, which begins when `why_not_ready` returns an empty string.

    It runs in `folder`, or in this process's working folder. Its output is added to `log`; what errors quote of it is redacted. `on_line`
    gets a line from time to time while it is not ready; where none of `ports` is one that it listens on, this says so. `limit_key` is the
    option or key that sets `ready_within_ns`. At the end it and everything it started get SIGTERM, and SIGKILL after `stop_within_s`, also
    if perfkit is killed. Raises TargetError if it cannot be started or another server is ready in its place, and ServerFailedError if it
    ends before it is ready, or is not ready in time.
    """
    words = command_words(command)
    shown = f"`{command}`" if folder is None else f"`{command}` in {folder}"
    if not await why_not_ready():
        raise TargetError(f"{shown} was not started: another server is ready at its address: end that one, or choose another port")
    async with contextlib.AsyncExitStack() as stack:
        output = stack.enter_context(log.open("ab"))
        begins_at = os.fstat(output.fileno()).st_size
        running = child_process(words, output=output, ends_with_stdin=False, stop_within_s=stop_within_s, folder=folder)
        began_ns = clock.now_ns()
        try:
            with pinned(cpus):  # which the server inherits
                server = await stack.enter_async_context(running)
        except OSError as error:
            raise TargetError(f"{shown} cannot be started: {error.strerror}") from None

        def last_lines() -> tuple[str, ...]:
            return _last_lines(redact(_end_of_file(log, begins_at)))

        reason, deadline_ns, report_ns = "it does not answer", began_ns + ready_within_ns, began_ns + _REPORT_EVERY_NS
        while (now_ns := clock.now_ns()) < deadline_ns:
            if server.ended.done():
                what = f"{shown} {await server.wait_for_end()} before it was ready"
                raise ServerFailedError(what, status=server.ended.result(), last_lines=last_lines())
            answer = await why_not_ready()
            if not answer and not server.ended.done():  # otherwise another server answered at its port
                break
            reason = answer or reason
            if now_ns >= report_ns:
                so_far = f"{format_duration_ns(now_ns - began_ns)} of {format_duration_ns(ready_within_ns)}"
                on_line(f"not ready after {so_far}: {reason}{_other_ports(server.pid, ports)}")
                report_ns += _REPORT_EVERY_NS
            await clock.sleep_until_ns(now_ns + min(max((now_ns - began_ns) // _CHECKS_PER_START, _SHORTEST_WAIT_NS), _LONGEST_WAIT_NS))
        else:
            limit = f"{write_duration_ns(ready_within_ns)} ({limit_key})"
            what = f"{shown} was not ready within {limit}: {reason}{_other_ports(server.pid, ports)}"
            raise ServerFailedError(what, last_lines=last_lines())
        ended = asyncio.ensure_future(_how_it_ended(server, last_lines))
        try:
            yield RunningServer({}, {"ready_after_s": (clock.now_ns() - began_ns) / NS_PER_S}, began_ns, server.pid, ended, last_lines)
        finally:
            ended.cancel()


async def _how_it_ended(server: Child, last_lines: Callable[[], tuple[str, ...]]) -> ServerEnd:
    return ServerEnd(await server.wait_for_end(), await server.ended, last_lines())


def _other_ports(pid: int, expected: AbstractSet[int]) -> str:
    """Where a server listens, as the end of a sentence, if that is not at one of the ports expected."""
    from perfkit.machine.process_tree import listening_ports  # only now: runs without a server to start do without it

    if not expected or (found := listening_ports(pid)) is None or not expected.isdisjoint(found):
        return ""
    if not found:
        return "; its processes listen on no TCP port"
    where = f"port{'s' * (len(found) > 1)} {', '.join(map(str, sorted(found)))}"
    return f"; its processes listen on {where}: the server must take the port that {{port}} in its command becomes, or that of target.url"


def _end_of_file(log: pathlib.Path, begins_at: int) -> str:
    """The end of what was written to a log from a place on."""
    with log.open("rb") as file:
        file.seek(max(begins_at, file.seek(0, os.SEEK_END) - _LAST_BYTES))
        return file.read().decode(errors="replace")


def _last_lines(text: str) -> tuple[str, ...]:
    return tuple(line for line in text.splitlines() if line.strip())[-_LAST_LINES:]
