"""This process's stdin as a stream: what a process runs ends with it, so that nothing is left when the starting process is gone."""

import asyncio
import sys

_READ_AHEAD_BYTES = 2**20


async def open_stdin() -> asyncio.StreamReader:
    """A reader of stdin, in the running event loop."""
    reader = asyncio.StreamReader(limit=_READ_AHEAD_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader
