"""A server that is started by a command which the user gave, as a child process."""

import asyncio
import contextlib
import os
import pathlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from collections.abc import Set as AbstractSet

from perfkit.clock import Clock
from perfkit.errors import ServerFailedError, TargetError
from perfkit.machine.cpus import pinned
from perfkit.machine.process_tree import listening_ports
from perfkit.process.child import Child, child_process
from perfkit.target.command import command_words
from perfkit.target.started_server import RunningServer, ServerEnd
from perfkit.units import NS_PER_S, format_duration_ns, write_duration_ns

STARTS_WITHIN_NS = 300 * NS_PER_S
# a hundredth of the time so far, so that the instant of readiness is as exact and a slow start is not slowed down
_CHECKS_PER_START, _SHORTEST_WAIT_NS, _LONGEST_WAIT_NS = 100, NS_PER_S // 500, NS_PER_S // 20
_REPORT_EVERY_NS = 10 * NS_PER_S
_STOPS_WITHIN_S = 10
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
    stop_within_s: float = _STOPS_WITHIN_S,
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
