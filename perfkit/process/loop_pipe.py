"""Pipes that belong to an event loop."""

import asyncio
import os
from typing import IO


def pipe_of_loop(pipe: IO[bytes]) -> IO[bytes]:
    """The pipe for `connect_read_pipe` or `connect_write_pipe` of the running event loop, which closes it with the transport; `pipe` itself is closed.

    uvloop closes the descriptor, and then the file as well. In between another thread may have been given the same descriptor, so that the file
    must not close it.
    """
    is_uvloop = type(asyncio.get_running_loop()).__module__.partition(".")[0] == "uvloop"
    descriptor, mode = os.dup(pipe.fileno()), "wb" if pipe.writable() else "rb"
    pipe.close()
    return open(descriptor, mode, buffering=0, closefd=not is_uvloop)
