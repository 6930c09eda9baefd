"""Starts a server by the command that a person gave, waits until its model is ready, and always stops it."""

import asyncio
import asyncio.subprocess
import collections
import contextlib
import os
import pathlib
import shlex
import signal
import socket
from collections.abc import AsyncIterator

from perfkit.address import Address
from perfkit.clock import Clock
from perfkit.errors import PerfkitError, TargetError, UsageError
from perfkit.scenario.model import Scenario
from perfkit.telemetry.host import pinned
from perfkit.transport.engine import make_transport
from perfkit.units import NS_PER_S

PREFIX, PORT = "cmd:", "{port}"
_STARTS_WITHIN_NS, _ASK_EVERY_NS = 300 * NS_PER_S, NS_PER_S // 20
_STOP_WITHIN_S = 10
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
    """A port of the loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.asynccontextmanager
async def command_server(
    command: str, scenario: Scenario, address: Address, *, cpus: tuple[int, ...], log: pathlib.Path, clock: Clock
) -> AsyncIterator[None]:
    """Runs a command for the length of the block, which begins when the scenario's model is ready at the address.

    What it says goes to `log`. It runs in a process group of its own, which gets SIGTERM at the end and is killed where it does
    not go; its stdin is a pipe from here, which ends with this process however that ends. Raises TargetError where it does
    not start.
    """
    words = command_words(command)
    with log.open("ab") as output:
        try:
            with pinned(cpus):  # which the process takes over
                process = await asyncio.create_subprocess_exec(
                    *words, stdin=asyncio.subprocess.PIPE, stdout=output, stderr=output, start_new_session=True
                )
        except OSError as error:
            raise TargetError(f"cmd:{command} cannot be started: {error.strerror}") from None
    try:
        await _until_ready(command, process, scenario, address, log, clock)
        yield
    finally:
        await _stop(process)


async def _until_ready(
    command: str, process: asyncio.subprocess.Process, scenario: Scenario, address: Address, log: pathlib.Path, clock: Clock
) -> None:
    start_ns, last = clock.now_ns(), "it does not answer"
    while clock.now_ns() - start_ns < _STARTS_WITHIN_NS:
        if process.returncode is not None:
            raise TargetError(f"cmd:{command} ended with exit code {process.returncode} before it was ready{_last_lines(log)}")
        transport = make_transport(
            address,
            scenario.target.engine,
            max_connections=1,
            timeout_ns=min(scenario.target.timeout_ns, 5 * NS_PER_S),
            clock=clock,
        )
        try:
            is_ready = await transport.is_ready(scenario.target.model, scenario.target.version)
            if is_ready and process.returncode is None:  # otherwise it was another server that answered
                return
            last = f"its model '{scenario.target.model}' is not ready"
        except PerfkitError as error:
            last = str(error)
        finally:
            await transport.aclose()
        await clock.sleep_until_ns(clock.now_ns() + _ASK_EVERY_NS)
    raise TargetError(f"cmd:{command} was not ready within {_STARTS_WITHIN_NS // NS_PER_S} s: {last}{_last_lines(log)}")


async def _stop(process: asyncio.subprocess.Process) -> None:
    _signal(process, signal.SIGTERM)
    try:
        await asyncio.wait_for(process.wait(), _STOP_WITHIN_S)
    except TimeoutError:
        pass
    finally:
        _signal(process, signal.SIGKILL)  # also what it started and left behind
        await process.wait()


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _last_lines(log: pathlib.Path) -> str:
    lines = collections.deque(log.read_text(encoding="utf-8", errors="replace").splitlines(), _LAST_LINES)
    return f"; it said: {' / '.join(lines)}" if lines else ""
