"""What a run tells while it goes on, on stderr: a line a load point, and on a terminal the point under way.

Nothing is drawn while a point is measured, since drawing would take time from the loop that measures.
"""

import sys

from perfkit.report.text import describe_point
from perfkit.result.model import Point


class LiveReport:
    """An observer of `perfkit.run` for people."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._shows_progress = sys.stderr.isatty() and not quiet
        self._total = self._done = 0

    def server_line(self, line: str) -> None:
        """See `Observer.server_line`."""
        self._say(f"server: {line}")

    def published(self, url: str) -> None:
        """See `Observer.published`."""
        self._say(f"prometheus: {url}")

    def target_ready(self, description: str) -> None:
        """See `Observer.target_ready`."""
        self._say(f"target: {description}")

    def noted(self, note: str) -> None:
        """See `Observer.noted`."""
        self._say(f"note: {note}")

    def point_started(self, index: int, total: int, description: str, seconds: float | None, seconds_left: float | None) -> None:
        """See `Observer.point_started`."""
        self._total = total
        if self._shows_progress:
            length = "" if seconds is None else f", {seconds:.0f} s"
            left = "" if seconds_left is None else f"; about {seconds_left:.0f} s left"
            print(f"\r\033[K[{index + 1}/{total}] {description}{length}{left} …", end="", file=sys.stderr, flush=True)

    def point_finished(self, finished: Point) -> None:
        """See `Observer.point_finished`."""
        self._done += 1
        self._say(f"[{self._done}/{self._total}] {describe_point(finished)}{'' if finished.valid else ', NOT VALID'}")

    def say(self, text: str) -> None:
        """A line of its own, such as that the run was interrupted; also when quiet."""
        if self._shows_progress:
            print("\r\033[K", end="", file=sys.stderr)
        print(text, file=sys.stderr, flush=True)

    def _say(self, text: str) -> None:
        if not self._quiet:
            self.say(text)
