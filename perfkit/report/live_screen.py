"""The terminal of a run's live view: the command finds it, and the sampler process, which gets it in a message, draws on it."""

import contextlib
import dataclasses
import os
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from perfkit.clock import Clock
from perfkit.telemetry.series import Series

if TYPE_CHECKING:
    from perfkit.report.live_view import LiveView


@dataclasses.dataclass(frozen=True, slots=True)
class LiveScreen:
    """A terminal's device, such as `/dev/pts/3`; a call opens the live view on it, as `telemetry.messages.OpenView` asks for it."""

    path: str
    has_colour: bool

    @classmethod
    def of_stdout(cls) -> "LiveScreen | None":
        """The terminal of stdout; None unless stderr is a terminal, too, so that no line bypasses the view."""
        if not (sys.stdout.isatty() and sys.stderr.isatty()) or os.environ.get("TERM", "dumb") == "dumb":
            return None
        with contextlib.suppress(OSError, ValueError):  # a terminal of another container has no device here
            return cls(os.ttyname(sys.stdout.fileno()), has_colour="NO_COLOR" not in os.environ)
        return None

    def __call__(self, clock: Clock, latest: Callable[[], Iterable[Series]]) -> "LiveView | None":
        """The live view with the samples that `latest` returns; None if the terminal cannot be opened."""
        from perfkit.report.live_view import LiveView  # what draws is imported in the process that draws
        from perfkit.report.screen import Screen

        screen = Screen.open(self.path)
        return None if screen is None else LiveView(screen, clock, latest, has_colour=self.has_colour)
