"""Starts a server by the command that a person gave, waits until its model is ready, and always stops it."""

import asyncio
import collections
import contextlib
import os
import pathlib
import shlex
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

from perfkit.clock import Clock
from perfkit.errors import TargetError, UsageError
from perfkit.machine.cpus import pinned
from perfkit.units import NS_PER_S

PREFIX, PORT = "cmd:", "{port}"
_STARTS_WITHIN_NS, _ASK_EVERY_NS = 300 * NS_PER_S, NS_PER_S // 20
_STOP_WITHIN_S = 10
_LAST_LINES = 5
# waits for the end of its stdin, which is perfkit's, and ends the process group $1 within $2 s, as perfkit would have
_GUARD = """
read -r _
kill -s TERM -- "-$1"
left=$2
while [ "$left" -gt 0 ]; do kill -s 0 -- "-$1" || exit 0; sleep 1; left=$((left - 1)); done
kill -s KILL -- "-$1"
"""


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
    """A port of the loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.asynccontextmanager
async def command_server(
    command: str, why_not_ready: Callable[[], Awaitable[str]], *, cpus: tuple[int, ...], log: pathlib.Path, clock: Clock
) -> AsyncIterator[None]:
    """Runs a command for the length of the block, which begins when `why_not_ready` returns an empty string.

    What it says goes to `log`. It runs in a process group of its own, which gets SIGTERM at the end and is killed where it does
    not go: also where this process is killed, since a guard of the group sees its end. Its stdin is a pipe from here as well.
    Raises TargetError where it does not start.
    """
    words = command_words(command)
    with log.open("ab") as output:
        try:
            with pinned(cpus):  # which the process takes over
                # not the event loop's own way: that forks, which hangs where gRPC's threads run, and may be cancelled halfway
                process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True)  # noqa: ASYNC220
        except OSError as error:
            raise TargetError(f"cmd:{command} cannot be started: {error.strerror}") from None
    with process, contextlib.ExitStack() as guarded:
        try:
            guarded.enter_context(_guard(process.pid))
            await _until_ready(command, process, why_not_ready, log, clock)
            yield
        finally:
            await _stop(process)


@contextlib.contextmanager
def _guard(group: int) -> Iterator[None]:
    """Ends a process group where this process ends within the block: as by SIGKILL, or for want of memory."""
    words = ["sh", "-c", _GUARD, "perfkit-guard", str(group), str(_STOP_WITHIN_S)]
    guard = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    with guard:
        try:
            yield
        finally:
            guard.kill()


async def _until_ready(
    command: str, process: subprocess.Popen[bytes], why_not_ready: Callable[[], Awaitable[str]], log: pathlib.Path, clock: Clock
) -> None:
    start_ns, last = clock.now_ns(), "it does not answer"
    while clock.now_ns() - start_ns < _STARTS_WITHIN_NS:
        if process.poll() is not None:
            raise TargetError(f"cmd:{command} ended with exit code {process.returncode} before it was ready{_last_lines(log)}")
        reason = await why_not_ready()
        if not reason and process.poll() is None:  # otherwise it was another server that answered
            return
        last = reason or last
        await clock.sleep_until_ns(clock.now_ns() + _ASK_EVERY_NS)
    raise TargetError(f"cmd:{command} was not ready within {_STARTS_WITHIN_NS // NS_PER_S} s: {last}{_last_lines(log)}")


async def _stop(process: subprocess.Popen[bytes]) -> None:
    _signal(process, signal.SIGTERM)
    ended = asyncio.ensure_future(asyncio.to_thread(process.wait))
    try:
        await asyncio.wait([ended], timeout=_STOP_WITHIN_S)
    finally:
        _signal(process, signal.SIGKILL)  # also what it started and left behind
        await ended


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _last_lines(log: pathlib.Path) -> str:
    lines = collections.deque(log.read_text(encoding="utf-8", errors="replace").splitlines(), _LAST_LINES)
    return f"; it said: {' / '.join(lines)}" if lines else ""
