"""Starts the bundled server in a process of its own, waits until it is ready, and always stops it."""

import asyncio
import asyncio.subprocess
import collections
import contextlib
import dataclasses
import json
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

from perfkit.errors import TargetError
from perfkit.target.address import Protocol

_STOP_WITHIN_S = 10
_KEPT_LINES = 20


@dataclasses.dataclass(frozen=True)
class BundledServer:
    """A running server: its URLs by protocol, what it said of itself, and a future of the sentence for its end."""

    urls: dict[Protocol, str]
    description: dict[str, Any]
    ended: "asyncio.Task[str]"


@contextlib.asynccontextmanager
async def bundled_server(
    model: str, *, device: str, threads: int, cpus: tuple[int, ...], synthetic: str | None = None, on_line: Callable[[str], None]
) -> AsyncIterator[BundledServer]:
    """Runs `python -m server_stub` on free ports of the loopback for the length of the block.

    `on_line` is given what the server says on stderr, such as that it makes a model's weights. The server ends with
    this process however that ends, since its stdin is a pipe from here. Raises TargetError where it does not start.
    """
    command = [sys.executable, "-m", "server_stub", "--http-port", "0", "--grpc-port", "0", "--exit-with-stdin"]
    command += ["--model", model, "--device", device, "--threads", str(threads)]
    if synthetic is not None:
        command += ["--synthetic", synthetic]
    if cpus:
        command += ["--cpus", ",".join(map(str, cpus))]
    pipe = asyncio.subprocess.PIPE
    # a session of its own: Ctrl-C in the terminal is for perfkit, which drains before it stops the server
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
    last_lines: collections.deque[str] = collections.deque(maxlen=_KEPT_LINES)
    reading = asyncio.ensure_future(_read_lines(process, last_lines, on_line))
    ended = asyncio.ensure_future(_end(process, reading, last_lines))
    try:
        yield await _ready(process, ended)
    finally:
        ended.cancel()
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), _STOP_WITHIN_S)
            except TimeoutError:
                process.kill()
                await process.wait()
        reading.cancel()
        await asyncio.gather(reading, ended, return_exceptions=True)


async def _ready(process: asyncio.subprocess.Process, ended: "asyncio.Task[str]") -> BundledServer:
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        raise TargetError(f"the bundled server did not start: {await ended}")
    description = json.loads(line)
    urls: dict[Protocol, str] = {
        "http": f"http://127.0.0.1:{description['http_port']}",
        "grpc": f"grpc://127.0.0.1:{description['grpc_port']}",
    }
    return BundledServer(urls, description, ended)


async def _read_lines(process: asyncio.subprocess.Process, last_lines: "collections.deque[str]", on_line: Callable[[str], None]) -> None:
    assert process.stderr is not None
    async for line in process.stderr:
        text = line.decode(errors="replace").rstrip()
        last_lines.append(text)
        on_line(text)


async def _end(process: asyncio.subprocess.Process, reading: "asyncio.Task[None]", last_lines: "collections.deque[str]") -> str:
    code = await process.wait()
    await reading
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"it ended with {how}{f': {last_lines[-1]}' if last_lines else ''}"
