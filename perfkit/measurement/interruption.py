"""Ctrl-C and SIGTERM, as the loops understand them."""

import asyncio
from typing import Any, Protocol


class Stoppable(Protocol):
    """A loop, or several that share a load point."""

    def stop(self, reason: str, *, drain: bool = True) -> None:
        """Sends nothing more, and awaits the answers, or not."""
        ...


class Interruption:
    """Ctrl-C, counted: the first stops sending and drains, the second stops at once."""

    def __init__(self) -> None:
        self.count = 0
        self._loop: Stoppable | None = None
        self._task: asyncio.Task[Any] | None = None

    def interrupt(self) -> None:
        """Call it from the event loop, once a signal."""
        self.count += 1
        if self._loop is not None:
            self._loop.stop("interrupted", drain=self.count == 1)
        elif self._task is not None:
            self._task.cancel()

    def watch(self, loop: Stoppable | None) -> None:
        """Names the loop that an interruption stops; None while there is none."""
        self._loop = loop

    def cancel_between_points(self, task: "asyncio.Task[Any]") -> None:
        """Names the task that an interruption cancels while no load is sent."""
        self._task = task
