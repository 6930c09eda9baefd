"""Waits for conditions; the timeout of the test is the limit."""

import asyncio
import os
import select
import time


async def until(holds):
    """Runs the event loop until `holds()`."""
    while not holds():
        await passes(1)


async def passes(count):
    """Runs the event loop for so many turns."""
    for _ in range(count):
        await asyncio.sleep(0)


def wait_until(holds):
    """Asks a hundred times a second, since who asks in a busy loop takes the CPU of what it waits for."""
    while not holds():
        time.sleep(0.01)


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
