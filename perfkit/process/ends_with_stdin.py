"""Runs a command that ends with this process's stdin: `python -m perfkit.process.ends_with_stdin PROGRAM [ARGUMENT …]`.

An SSH server closes the stdin of what it runs when its client is gone, and ends nothing by itself. What the command writes goes to stderr.
"""

import asyncio
import sys
from collections.abc import Sequence
from typing import Any

from perfkit.process.child import child_process
from perfkit.process.messages import open_stdin

_STOPS_WITHIN_S = 5


async def run(command: Sequence[str], stdin: asyncio.StreamReader) -> int:
    """Runs a command until it ends or `stdin` does, and returns its exit status, negative for a signal."""
    async with child_process(command, output=sys.stderr.buffer, ends_with_stdin=False, stop_within_s=_STOPS_WITHIN_S) as child:
        reading = asyncio.ensure_future(stdin.read())
        waited: list[asyncio.Future[Any]] = [child.ended, reading]
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        reading.cancel()
    return await child.ended


async def _main() -> int:
    return await run(sys.argv[1:], await open_stdin())


if __name__ == "__main__":
    status = asyncio.run(_main())
    sys.exit(status if status >= 0 else 128 - status)
