"""How a caller follows a run and ends it early: an observer of its progress, and an interruption."""

import asyncio
import contextlib
import pathlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from perfkit.load.loop import StopCause, Stoppable

if TYPE_CHECKING:
    from perfkit.result.model import Point
    from perfkit.target.started_server import StartedServer
    from perfkit.telemetry.messages import OpenView


class RunObserver:
    """Receives the progress of a run; this one ignores it. Subclass it and override what you need."""

    def server_output(self, line: str) -> None:
        """The bundled server wrote a line to its log, or the start of another one has got so far."""

    def metrics_published(self, url: str) -> None:
        """Live metrics can be scraped at this URL."""

    def target_ready(self, description: str) -> None:
        """The target is ready and serves the model."""

    def note_added(self, note: str) -> None:
        """A note on the run as a whole, such as that there is no GPU to sample; each comes once."""

    is_quiet = False
    """Whether notes are not shown."""

    screen: "OpenView | None" = None
    """Opens the run's live view, in the sampler process; None for none."""

    def screen_opened(self, show_line: Callable[[str], bool]) -> None:
        """The live view is on the terminal; lines must go through `show_line`, which returns whether it took them."""

    def screen_closed(self) -> None:
        """The live view is gone."""

    def case_begins(self, title: str) -> None:
        """The next load point is that of one of several interleaved cases; the title is empty for a scenario of its own."""

    def point_started(self, index: int, total: int, description: str, seconds: float | None, seconds_left: float | None) -> None:
        """A load point starts: its length and the run's remaining time, None if a number of requests ends it."""

    def point_finished(self, point: "Point") -> None:
        """A load point of one repetition has been measured."""

    def partial_result_kept(self, folder: pathlib.Path) -> None:
        """The run failed; what it had measured is in this folder."""


class Interruption:
    """Ends a run early: the first interrupt stops sending and drains, the second does not wait for answers."""

    def __init__(self) -> None:
        self.count = 0
        self.loop: Stoppable | None = None
        """Stopped by an interrupt while a load point is measured; None between load points."""
        self.task: asyncio.Task[Any] | None = None
        """Cancelled by an interrupt while no load is sent."""

    def interrupt(self) -> None:
        """Interrupts the run; to be called in its event loop, for instance by a signal handler."""
        self.count += 1
        if self.loop is not None:
            self.loop.stop("interrupted", drain=self.count == 1)
        elif self.task is not None:
            self.task.cancel()

    @contextlib.contextmanager
    def stopping(self, server: "StartedServer | None") -> Iterator[Callable[[Stoppable], None]]:
        """Gives a setter for the loop, which an interrupt or the end of the server that perfkit started then stops."""
        loops: list[Stoppable] = []
        ends: list[str] = []

        def set_loop(loop: Stoppable) -> None:
            loops.append(loop)
            self.loop = loop
            if self.count:  # since the attempt before
                loop.stop("interrupted", drain=self.count == 1)
            stop_lost()

        def on_end(sentence: str) -> None:
            ends.append(sentence)
            stop_lost()

        def stop_lost() -> None:
            if loops and ends:
                loops[-1].stop(ends[0], StopCause.TARGET_LOST)

        try:
            with contextlib.nullcontext() if server is None else server.watched(on_end):
                yield set_loop
        finally:
            self.loop = None
