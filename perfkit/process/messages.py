"""Messages between perfkit and its child processes, each behind its length, through stdin and stdout: pickled values, or bytes as they are."""

import asyncio
import contextlib
import os
import pickle
import sys
from collections.abc import AsyncIterator
from typing import IO, Any, BinaryIO

from perfkit.process.loop_pipe import pipe_of_loop

_LENGTH_BYTES = 8
_READ_AHEAD_BYTES = 2**20


def framed(body: bytes) -> bytes:
    """Bytes as `read_frame` and `load_frame` read them."""
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    """The next bytes; raises EOFError at the end of the stream, also within them."""
    try:
        return await reader.readexactly(int.from_bytes(await reader.readexactly(_LENGTH_BYTES), "big"))
    except (asyncio.IncompleteReadError, ConnectionError):
        raise EOFError from None


def load_frame(file: IO[bytes]) -> bytes:
    """`read_frame` for a blocking file."""
    return _read_exactly(file, int.from_bytes(_read_exactly(file, _LENGTH_BYTES), "big"))


def message_bytes(message: object) -> bytes:
    """A message as `read_message` and `load_message` read it."""
    return framed(pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL))


async def read_message(reader: asyncio.StreamReader) -> Any:
    """The next message; raises EOFError at the end of the stream, also within a message."""
    return pickle.loads(await read_frame(reader))  # noqa: S301 - from perfkit's own process, through a private pipe


def load_message(file: IO[bytes]) -> Any:
    """`read_message` for a blocking file."""
    return pickle.loads(load_frame(file))  # noqa: S301 - as in `read_message`


def claim_stdout() -> BinaryIO:
    """Takes stdout for messages; what libraries print goes to stderr from then on."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")  # buffered: one write to an unbuffered file may write a part only
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return out


def _read_exactly(file: IO[bytes], size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise EOFError
    return data


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
