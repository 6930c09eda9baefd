"""Waits for conditions; the timeout of the test is the limit."""

import asyncio
import os
import select


async def until(holds):
    """Runs the event loop until `holds()`."""
    while not holds():
        await passes(1)


async def passes(count):
    """Runs the event loop for so many turns."""
    for _ in range(count):
        await asyncio.sleep(0)


def until_ended(processes):
    """Waits until processes, which need not be children, have ended; a zombie has ended."""
    for process in processes:
        try:
            descriptor = os.pidfd_open(process.pid)
        except ProcessLookupError:
            continue
        try:
            if process.is_running():  # otherwise its number has been reused
                select.select([descriptor], [], [])
        finally:
            os.close(descriptor)
