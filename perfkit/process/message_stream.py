"""Messages between perfkit and its child processes, read in an event loop."""

import asyncio
import contextlib
import os
import pickle
import sys
from collections.abc import AsyncIterator
from typing import Any

from perfkit.process.loop_pipe import pipe_of_loop
from perfkit.process.messages import LENGTH_BYTES

_READ_AHEAD_BYTES = 2**20


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """The next bytes; raises EOFError at the end of the stream, also within them."""
    try:
        return await reader.readexactly(int.from_bytes(await reader.readexactly(LENGTH_BYTES), "big"))
    except (asyncio.IncompleteReadError, ConnectionError):
        raise EOFError from None


async def read_message(reader: asyncio.StreamReader) -> Any:
    """The next message; raises EOFError at the end of the stream, also within a message."""
    return pickle.loads(await read_frame(reader))  # noqa: S301 - from perfkit's own process, through a private pipe


@contextlib.asynccontextmanager
async def opened_stdin() -> AsyncIterator[asyncio.StreamReader]:
    """A reader of stdin in the running event loop, for the length of the block; it is closed then, since event loops warn of what is open at their end."""
    reader = asyncio.StreamReader(limit=_READ_AHEAD_BYTES)
    pipe = pipe_of_loop(os.fdopen(os.dup(sys.stdin.fileno()), "rb"))  # a copy: the number 0 stays taken
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    try:
        yield reader
    finally:
        transport.close()
        await asyncio.sleep(0)  # it closes in the loop's next turn
