"""Progress of a run or a gate on stderr: a line per finished repetition of a load point, or per pair, and on a terminal the point under way.

This process prints nothing while a point is measured, because that would take time from the loop that sends requests. If stdout and
stderr are a terminal, the sampler process draws the live view (`live_view`), with the load points that have ended, and prints the other lines.
"""

import contextlib
import os
import pathlib
import statistics
import sys
import textwrap
from collections.abc import Callable
from typing import TYPE_CHECKING

from perfkit.measurement.control import RunObserver
from perfkit.report.live_screen import LiveScreen
from perfkit.text import bounded, one_line, safe_lines, write_raw
from perfkit.units import format_duration_ns, format_minutes, format_rate_per_s

if TYPE_CHECKING:
    from perfkit.gate.pairs import ArmName, Pair, PairKind, Stage
    from perfkit.report.screen import Screen
    from perfkit.result.model import Point

_WIDTH = 80


def describe_point(point: "Point") -> str:
    """A finished load point on one line: `http, concurrency 4: 25.1/s, p50 159 ms, p99 188 ms`."""
    values_ns = {name: getattr(point.times, name) for name in ("p50", "p99")}
    percentiles = "".join(f", {name} {format_duration_ns(value_ns)}" for name, value_ns in values_ns.items() if value_ns is not None)
    share = point.failed_share.estimate  # as in the headline: with the wrong ones among the answers that were not checked
    failed = f", {share:.2%} failed" if share else ""
    return f"{point.title}: {format_rate_per_s(point.throughput_per_s)}{percentiles}{failed}"


class LiveReport(RunObserver):
    """Prints the progress of a run; `RunObserver` describes the events."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = self.is_quiet = quiet
        self.screen = None if quiet else LiveScreen.of_stdout()
        self._show_line: Callable[[str], bool] | None = None
        self._shows_progress = sys.stderr.isatty() and not quiet
        self._total = self._done = 0
        self._case = ""

    def server_output(self, line: str) -> None:
        self.note(f"server: {line}")

    def metrics_published(self, url: str) -> None:
        self.note(f"prometheus: {url}")

    def target_ready(self, description: str) -> None:
        self.note(f"target: {description}")

    def note_added(self, note: str) -> None:
        for line in _wrapped(f"note: {note}"):
            self.note(line)

    def point_started(self, index: int, total: int, description: str, seconds: float | None, seconds_left: float | None) -> None:
        self._total, self._done = total, index
        if self._shows_progress and self._show_line is None:
            length = "" if seconds is None else f", {seconds:.0f} s"
            left = "" if seconds_left is None else f"; about {seconds_left:.0f} s left"
            with contextlib.suppress(OSError):
                write_raw(sys.stderr, f"\r\033[K[{index + 1}/{total}] {one_line(description)}{length}{left} …")
                sys.stderr.flush()

    def case_begins(self, title: str) -> None:
        self._case = title and f"{title}: "

    def point_finished(self, point: "Point") -> None:
        self._done += 1
        if self._show_line is not None:  # the live view has a line for each load point
            return
        self.note(f"[{self._done}/{self._total}] {self._case}{describe_point(point)}{'' if point.valid else ', NOT VALID'}")

    def screen_opened(self, show_line: Callable[[str], bool]) -> None:
        self._show_line = show_line

    def screen_closed(self) -> None:
        self._show_line = None

    def partial_result_kept(self, folder: pathlib.Path) -> None:
        self.say(f"the load points that were measured are in {folder}")

    def say(self, text: str) -> None:
        """Prints a line, such as that the run was interrupted, even when quiet; a terminal that is gone does not end the run."""
        if self._show_line is not None and self._show_line(text):
            return
        with contextlib.suppress(OSError):
            if self._shows_progress:
                write_raw(sys.stderr, "\r\033[K")
            print(bounded(text), file=sys.stderr, flush=True)

    def note(self, text: str) -> None:
        """Prints a line unless quiet."""
        if not self._quiet:
            self.say(text)


def _wrapped(text: str) -> list[str]:
    """A sentence in lines that fit the terminal of stderr; it stays whole where that is none."""
    if not sys.stderr.isatty():
        return [text]
    columns = _WIDTH
    with contextlib.suppress(OSError):  # a stream may say that it is a terminal and have no file
        columns = os.get_terminal_size(sys.stderr.fileno()).columns or _WIDTH
    return textwrap.wrap(text, columns, break_long_words=False, break_on_hyphens=False)


class LiveGate:
    """Prints the progress of a paired gate; `GateObserver` describes the events.

    A terminal shows the pair under way and the medians of the changes so far, in place; a pipe gets lines for each pair.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._screen = None if quiet else _screen_of_stderr()
        self._looks: tuple[int, ...] = ()
        self._control_pairs = 0
        self._head = ""
        self._changes = dict[str, dict[str, list[float]]]()

    def message(self, text: str) -> None:
        if self._screen is not None and text.startswith("trial: "):
            self._head = text
            self._draw()
        elif self._screen is not None:
            self._screen.print_above([safe_lines(bounded(line)) for line in textwrap.wrap(text, self._screen.size[0])])
            self._draw()
        elif not self._quiet:
            with contextlib.suppress(OSError):
                print(text, file=sys.stderr, flush=True)

    def close(self) -> None:
        """Removes what is shown in place; the terminal is then the command's own."""
        if self._screen is not None:
            self._screen.close()
            self._screen = None

    def run_started(self, stage: "Stage") -> None:
        pass

    def gate_started(self, looks: tuple[int, ...], control_pairs: int, done: int) -> None:
        self._changes, self._head = {}, ""
        self._looks, self._control_pairs = looks, control_pairs
        if done:
            self.message(f"continuing after {done} completed pair{'s' * (done > 1)}")

    def pair_started(self, kind: "PairKind", usable: int, order: "tuple[ArmName, ArmName]", seconds_per_pair: float | None) -> None:
        looks = self._looks if kind == "pair" else (self._control_pairs,)
        ahead = [look for look in looks if look > usable]
        of = f"{ahead[0]} to {ahead[-1]}" if len(ahead) > 1 else str(ahead[0])
        ends = dict.fromkeys(format_minutes((look - usable) * (seconds_per_pair or 0.0)) for look in (ahead[0], ahead[-1]))
        left = "" if seconds_per_pair is None else f", {' to '.join(ends)} left"
        self._head = f"{'control ' * (kind == 'control')}pair {usable + 1} of {of}{left}: {order[0]} first"
        if self._screen is None:
            self.message(self._head)
        else:
            self._draw()

    def pair_finished(self, pair: "Pair") -> None:
        if pair.invalid is not None:
            self.message(f"  not used, and measured again: {pair.invalid.message}")
            return
        for base, candidate in zip(pair.baseline.points, pair.candidate.points, strict=False):
            changes = {
                name: new / old - 1
                for name in ("throughput", "p50", "p99")
                if (old := base.figures.get(name)) and (new := candidate.figures.get(name))
            }
            if self._screen is None:
                self.message(f"  {base.load_point}: {', '.join(f'{name} {change:+.1%}' for name, change in changes.items())}")
            elif pair.kind == "pair":
                for name, change in changes.items():
                    self._changes.setdefault(base.load_point, {}).setdefault(name, []).append(change)
        self._draw()

    def _draw(self) -> None:
        """Redraws the pair under way, and for each load point the medians of the changes in the pairs so far."""
        if self._screen is None or not self._head:
            return
        columns, rows = self._screen.size
        title_width = max(map(len, self._changes), default=0)
        lines = [
            f"  {title.ljust(title_width)}  {'  '.join(f'{name} {statistics.median(changes):+7.1%}' for name, changes in of_point.items())}"
            for title, of_point in self._changes.items()
        ]
        pairs = max((len(changes) for of_point in self._changes.values() for changes in of_point.values()), default=0)
        told = [f"medians of {pairs} pair{'s' * (pairs > 1)}:", *lines] if pairs else []
        shown = [one_line(line)[: columns - 1] for line in (self._head, *told)][: max(rows - 1, 1)]
        self._screen.draw([(line, len(line)) for line in shown])


def _screen_of_stderr() -> "Screen | None":
    """The terminal of stderr, to be drawn on; None if it is none, or a dumb one."""
    if not sys.stderr.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return None
    from perfkit.report.screen import Screen

    with contextlib.suppress(OSError, ValueError):  # a terminal of another container has no device here
        return Screen.open(os.ttyname(sys.stderr.fileno()))
    return None
