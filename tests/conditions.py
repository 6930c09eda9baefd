"""Waiting for what is to become true, however long that takes: the test's own time-out is the limit."""

import asyncio
import time

import psutil


async def until(holds):
    """Lets the event loop go on until `holds()`."""
    while not holds():  # noqa: ASYNC110 - any condition, of code that sets no events
        await asyncio.sleep(0)


def until_ended(processes):
    """Waits for the end of processes that are not our children: a run's end comes a moment before that of all it started.

    One that has ended and that nobody has collected yet has ended.
    """
    while any(_is_alive(process) for process in processes):
        time.sleep(0.01)


def _is_alive(process):
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
