"""A server that is started by a command which the user gave, as a child process."""

import asyncio
import contextlib
import os
import pathlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

from perfkit.clock import Clock
from perfkit.errors import TargetError
from perfkit.machine.cpus import pinned
from perfkit.process.child import Child, child_process
from perfkit.target.command import command_words
from perfkit.target.started_server import RunningServer
from perfkit.units import NS_PER_S, format_duration_ns, write_duration_ns

STARTS_WITHIN_NS = 300 * NS_PER_S
# a hundredth of the time so far, so that the instant of readiness is as exact and a slow start is not slowed down
_CHECKS_PER_START, _SHORTEST_WAIT_NS, _LONGEST_WAIT_NS = 100, NS_PER_S // 500, NS_PER_S // 20
_REPORT_EVERY_NS = 10 * NS_PER_S
_STOPS_WITHIN_S = 10
_LAST_LINES, _LAST_BYTES = 5, 2**14


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
    on_line: Callable[[str], None] = lambda _: None,
    redact: Callable[[str], str] = str,
    stop_within_s: float = _STOPS_WITHIN_S,
) -> AsyncIterator[RunningServer]:
    """Runs a command for the length of the block, which begins when `why_not_ready` returns an empty string.

    Its output is added to `log`; what errors quote of it is redacted. `on_line` gets a line from time to time while it is not ready. At the
    end it and everything it started get SIGTERM, and SIGKILL after `stop_within_s`, also if perfkit is killed. Raises TargetError if it does
    not start, or another server is ready in its place.
    """
    words = command_words(command)
    if not await why_not_ready():
        raise TargetError(f"`{command}` was not started: another server is ready at its address: end that one, or choose another port")
    async with contextlib.AsyncExitStack() as stack:
        output = stack.enter_context(log.open("ab"))
        begins_at = os.fstat(output.fileno()).st_size
        running = child_process(words, output=output, ends_with_stdin=False, stop_within_s=stop_within_s)
        began_ns = clock.now_ns()
        try:
            with pinned(cpus):  # which the server inherits
                server = await stack.enter_async_context(running)
        except OSError as error:
            raise TargetError(f"`{command}` cannot be started: {error.strerror}") from None

        def last_lines() -> str:
            return redact(_last_lines(log, begins_at))

        reason, deadline_ns, report_ns = "it does not answer", began_ns + ready_within_ns, began_ns + _REPORT_EVERY_NS
        while (now_ns := clock.now_ns()) < deadline_ns:
            if server.ended.done():
                raise TargetError(f"`{command}` {await server.wait_for_end()} before it was ready{last_lines()}")
            answer = await why_not_ready()
            if not answer and not server.ended.done():  # otherwise another server answered at its port
                break
            reason = answer or reason
            if now_ns >= report_ns:
                on_line(f"not ready after {format_duration_ns(now_ns - began_ns)}: {reason}")
                report_ns += _REPORT_EVERY_NS
            await clock.sleep_until_ns(now_ns + min(max((now_ns - began_ns) // _CHECKS_PER_START, _SHORTEST_WAIT_NS), _LONGEST_WAIT_NS))
        else:
            limit = f"{write_duration_ns(ready_within_ns)} (target.ready_within)"
            raise TargetError(f"`{command}` was not ready within {limit}: {reason}{last_lines()}")
        ended = asyncio.ensure_future(_how_it_ended(server, last_lines))
        try:
            yield RunningServer({}, {"ready_after_s": (clock.now_ns() - began_ns) / NS_PER_S}, began_ns, ended)
        finally:
            ended.cancel()


async def _how_it_ended(server: Child, last_lines: Callable[[], str]) -> str:
    return f"{await server.wait_for_end()}{last_lines()}"


def _last_lines(log: pathlib.Path, begins_at: int) -> str:
    """The last lines of what was written to a log from a place on, as the end of a sentence."""
    with log.open("rb") as file:
        file.seek(max(begins_at, file.seek(0, os.SEEK_END) - _LAST_BYTES))
        text = file.read().decode(errors="replace")
    lines = [line for line in text.splitlines() if line.strip()][-_LAST_LINES:]
    return f"; it said: {' / '.join(lines)}" if lines else ""
