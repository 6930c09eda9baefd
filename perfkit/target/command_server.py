"""A target that is started by a command which the user gave, as a child process."""

import contextlib
import pathlib
import shlex
import socket
from collections.abc import AsyncIterator, Awaitable, Callable

from perfkit.clock import Clock
from perfkit.errors import TargetError, UsageError
from perfkit.machine.cpus import pinned
from perfkit.process.child import Child, child_process
from perfkit.units import NS_PER_S

PREFIX, PORT = "cmd:", "{port}"
_STARTS_WITHIN_NS, _CHECK_EVERY_NS = 300 * NS_PER_S, NS_PER_S // 20
_STOPS_WITHIN_S = 10
_LAST_LINES = 5


def command_words(command: str) -> list[str]:
    """The program and its arguments as a shell would split them, but without a shell; raises UsageError."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"cmd:{command}: {error}") from None
    if not words:
        raise UsageError("cmd: without a command: give a program and its arguments, such as cmd:'my-server --port {port}'")
    return words


def free_port() -> int:
    """A free port of the loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.asynccontextmanager
async def command_server(
    command: str,
    why_not_ready: Callable[[], Awaitable[str]],
    *,
    cpus: tuple[int, ...],
    log: pathlib.Path,
    clock: Clock,
    stop_within_s: float = _STOPS_WITHIN_S,
) -> AsyncIterator[None]:
    """Runs a command for the length of the block, which begins when `why_not_ready` returns an empty string.

    Its output goes to `log`. At the end it and everything it started get SIGTERM, and SIGKILL after `stop_within_s`, also
    if perfkit is killed. Raises TargetError if it does not start.
    """
    words = command_words(command)
    async with contextlib.AsyncExitStack() as stack:
        output = stack.enter_context(log.open("ab"))
        running = child_process(words, output=output, ends_with_stdin=False, stop_within_s=stop_within_s)
        try:
            with pinned(cpus):  # which the server inherits
                server = await stack.enter_async_context(running)
        except OSError as error:
            raise TargetError(f"cmd:{command} cannot be started: {error.strerror}") from None
        await _until_ready(command, server, why_not_ready, log, clock)
        yield


async def _until_ready(command: str, server: Child, why_not_ready: Callable[[], Awaitable[str]], log: pathlib.Path, clock: Clock) -> None:
    deadline_ns, reason = clock.now_ns() + _STARTS_WITHIN_NS, "it does not answer"
    while clock.now_ns() < deadline_ns:
        if server.ended.done():
            raise TargetError(f"cmd:{command} {await server.wait_for_end()} before it was ready{_last_lines(log)}")
        answer = await why_not_ready()
        if not answer and not server.ended.done():  # otherwise another server answered at its port
            return
        reason = answer or reason
        await clock.sleep_until_ns(clock.now_ns() + _CHECK_EVERY_NS)
    raise TargetError(f"cmd:{command} was not ready within {_STARTS_WITHIN_NS // NS_PER_S} s: {reason}{_last_lines(log)}")


def _last_lines(log: pathlib.Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LAST_LINES:]
    return f"; it said: {' / '.join(lines)}" if lines else ""
