"""What all runs of one `perfkit run` share: its progress display, the signals that interrupt it, and the process that draws its reports."""

import argparse
import importlib
import pathlib
from typing import TYPE_CHECKING, Any

from perfkit.cli.drawing import add_missing_report, draw_report
from perfkit.cli.exit_code import ExitCode
from perfkit.cli.options import publish_at
from perfkit.process.entry import collect_from_now_on, without_blas_threads
from perfkit.process.start_module import DRAWING, start_ahead

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from perfkit.errors import PerfkitError
    from perfkit.measurement.lifecycle import InterleavedCase
    from perfkit.measurement.scenario_run import MeasuredScenario
    from perfkit.result.model import Result
    from perfkit.scenario.file import LoadedScenario


class RunSession:
    """What all runs of one command share: the progress display, and the signals that interrupt them."""

    def __init__(self, options: argparse.Namespace) -> None:
        with without_blas_threads():
            importlib.import_module("perfkit.measurement.lifecycle")
        collect_from_now_on()
        from perfkit.cli.signals import SignalHandler
        from perfkit.measurement.control import Interruption
        from perfkit.report.live import LiveReport

        self.live = LiveReport(quiet=options.quiet)
        self._writes_reports, self._interruption = not options.no_report, Interruption()
        self._signals = SignalHandler(self._interruption, self._say_that_it_stops)
        self._is_drawing, self._added_ns = False, options.budget
        self._common: dict[str, Any] = {"publish_at": publish_at(options), "resume": options.resume}
        self.has_stored = True
        """Whether the last measurement is stored."""
        self.last_notes: list[str] = []
        """A note for each result that was not stored, and for each report that was not drawn."""

    @property
    def exit_code(self) -> ExitCode | None:
        """The exit code of an interrupted command; None if there was no signal."""
        return self._signals.exit_code

    def measure(self, loaded: "LoadedScenario", folder: pathlib.Path, print_figures: "Callable[[Result], None]") -> "Result":
        """Measures a scenario, prints its figures as soon as they are stored, and draws the report, unless nothing was measured."""
        from perfkit.measurement.lifecycle import measure_scenario

        self._start_drawing_ahead()
        measuring = measure_scenario(loaded, folder, self.live, self._interruption, added_ns=self._added_ns, **self._common)
        return self._reported(self._signals.run(measuring), print_figures)

    def measure_interleaved(self, cases: "Sequence[InterleavedCase]") -> "list[Result | PerfkitError]":
        """Measures scenarios interleaved on one server, and writes their result folders and reports."""
        from perfkit.errors import PerfkitError
        from perfkit.measurement.lifecycle import measure_interleaved

        self._start_drawing_ahead()
        measuring = measure_interleaved(cases, self.live, self._interruption, **self._common)
        return [one if isinstance(one, PerfkitError) else self._reported(one, print_nothing) for one in self._signals.run(measuring)]

    def _reported(self, measured: "MeasuredScenario", print_figures: "Callable[[Result], None]") -> "Result":
        """The result of a run after its figures are printed and its report is drawn."""
        self.has_stored = measured.folder is not None
        if measured.not_stored:
            self.last_notes.append(measured.not_stored)
        elif measured.folder is None:
            self.live.say(f"{measured.result.status_reason or measured.result.status}; nothing was measured, so nothing is written")
        elif self._writes_reports:
            if reason := self.draw_report(measured.folder, meanwhile=lambda: print_figures(measured.result)):
                result, note = add_missing_report(measured.folder, measured.result, reason)
                self.last_notes.append(note)
                return result
            return measured.result
        print_figures(measured.result)
        return measured.result

    def draw_report(self, folder: pathlib.Path, *options: str, meanwhile: "Callable[[], None]") -> str:
        """Draws a report unless the command was interrupted twice, and calls `meanwhile` in any case; returns why it is missing."""
        if self._signals.count >= 2:
            meanwhile()
            return "the run was stopped at once"
        self._is_drawing = True
        try:
            return draw_report(folder, *options, meanwhile=meanwhile, signals=self._signals)
        finally:
            self._is_drawing = False

    def _start_drawing_ahead(self) -> None:
        """Starts the process that will draw the report; it has imported its libraries before the load begins, and waits."""
        if self._writes_reports:
            start_ahead(DRAWING, reads_stderr=True)

    def say_last_notes(self) -> None:
        """Says which results were not stored and which reports were not drawn."""
        for note in self.last_notes:
            self.live.say(f"perfkit: {note}")

    def _say_that_it_stops(self) -> None:
        waits_for = "the report is left out" if self._is_drawing else "waiting for outstanding responses"
        self.live.say(f"stopping: {waits_for}; interrupt again to stop at once")


def print_nothing(_result: "Result") -> None:
    """Prints nothing of a case of a sweep, since a table of all cases follows."""
