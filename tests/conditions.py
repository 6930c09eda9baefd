"""Waiting for what is to become true, however long that takes: the test's own time-out is the limit."""

import asyncio


async def until(holds):
    """Lets the event loop go on until `holds()`."""
    while not holds():  # noqa: ASYNC110 - any condition, of code that sets no events
        await asyncio.sleep(0)
