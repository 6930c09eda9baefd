"""Waiting for what is to become true, however long that takes: the test's own time-out is the limit."""

import asyncio
import os
import select


async def until(holds):
    """Lets the event loop go on until `holds()`."""
    while not holds():
        await passes(1)


async def passes(count):
    """Lets the event loop go round so often: what was begun gets so far, and no farther."""
    for _ in range(count):
        await asyncio.sleep(0)


def until_ended(processes):
    """Waits for the end of processes that are not our children: a run's end comes a moment before that of all it started.

    One that has ended and that nobody has collected yet has ended.
    """
    for process in processes:
        try:
            descriptor = os.pidfd_open(process.pid)
        except ProcessLookupError:
            continue
        try:
            if process.is_running():  # not another one, which has got its number meanwhile
                select.select([descriptor], [], [])
        finally:
            os.close(descriptor)
