"""The outputs of `perfkit gate` when it ends without a verdict, and while it has none: whatever ends it, each output says why."""

import argparse
import asyncio
import contextlib
import json
import os
import pathlib
import signal
import sys
from typing import TYPE_CHECKING

from perfkit.cli.exit_code import ExitCode, exit_code_of
from perfkit.cli.options import command_that_continues, secrets_hint, shown_words
from perfkit.cli.output import reader_may_leave
from perfkit.errors import PerfkitError, TimeTooShortError, UsageError
from perfkit.override import override
from perfkit.report.live import LiveGate
from perfkit.result.output_folder import write_whole
from perfkit.text import write_raw

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perfkit.gate.folder import GateFolder
    from perfkit.gate.paired_gate import GateRequest
    from perfkit.gate.pairs import Pair, Stage
    from perfkit.gate.verdict import GateFailure, NextStep, Verdict


class GateProgress(LiveGate):
    """Prints the progress of a gate, and writes before each run and after each pair how far it has come, for a perfkit that is killed."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__(quiet=options.quiet)
        self._options = options
        self._gate: tuple[GateRequest, GateFolder] | None = None
        self._stage: Stage | None = None
        self.signal_code: ExitCode | None = None
        """The exit code of the signal that interrupted perfkit; None without one."""
        self._write_unfinished()

    def begin(self, request: "GateRequest", folder: "GateFolder") -> None:
        """The gate's folder is there."""
        self._gate = (request, folder)
        self._write_unfinished()

    @override
    def run_started(self, stage: "Stage") -> None:
        super().run_started(stage)
        self._stage = stage
        self._write_unfinished()

    @override
    def pair_finished(self, pair: "Pair") -> None:
        super().pair_finished(pair)
        self._write_unfinished()

    def fail(self, error: BaseException) -> ExitCode:
        """Writes every output of a gate that an error ended, and returns its exit code; raises the error again where that says it."""
        from perfkit.gate.sentences import failure_of, interruption

        if self.signal_code is not None and isinstance(error, asyncio.CancelledError):
            name = signal.Signals(self.signal_code - 128).name
            failure, code = interruption(name, self.signal_code, self._stage, self._log()), self.signal_code
        else:
            failure = failure_of(error, self._stage, self._log())
            other = ExitCode.INTERRUPTED if failure.cause == "interrupted" else ExitCode.INTERNAL
            code = exit_code_of(error) if isinstance(error, PerfkitError) else other
        verdict = self._verdict(failure, enough_time=error.enough if isinstance(error, TimeTooShortError) else "")
        is_told = self._gate is not None and (isinstance(error, PerfkitError) or failure.cause == "interrupted")
        with contextlib.suppress(OSError):  # a terminal that is gone
            self._print(verdict, code, is_told=is_told)
        if self._gate is not None:
            with contextlib.suppress(PerfkitError):  # a full disk
                self._gate[1].note(verdict)
        try:
            write_verdict_outputs(verdict, self._options)
        except PerfkitError as unwritten:
            print(f"perfkit: {unwritten}", file=sys.stderr)
        if not is_told:
            raise error
        return code

    def _print(self, verdict: "Verdict", code: ExitCode, *, is_told: bool) -> None:
        from perfkit.report.terminal import print_failure_status
        from perfkit.report.verdict import print_verdict

        with reader_may_leave():
            if self._options.format == "json":
                print(json.dumps(verdict.document(), indent=1))
            elif is_told:
                print_verdict(verdict)
        if is_told:
            print_failure_status(verdict, code)

    def _write_unfinished(self) -> None:
        from perfkit.gate.sentences import unfinished

        pairs = 0 if self._gate is None else len(self._gate[1].pairs)
        verdict = self._verdict(unfinished(self._stage, pairs, self._log()))
        with contextlib.suppress(OSError, PerfkitError):  # what cannot be written is told at the end
            if self._gate is not None:
                self._gate[1].note(verdict)
            write_verdict_files(verdict, self._options, is_final=False)

    def _verdict(self, failure: "GateFailure", *, enough_time: str = "") -> "Verdict":
        from perfkit.gate.paired_gate import error_verdict

        if self._gate is None:
            steps = (self._step_with_time(enough_time),) if enough_time else ()
            return self._verdict_without_gate(failure).model_copy(update={"next_steps": steps})
        request, folder = self._gate
        step = self._next_step(folder, failure, enough_time)
        return error_verdict(request, folder, failure).model_copy(update={"next_steps": (step,)})

    def _next_step(self, folder: "GateFolder", failure: "GateFailure", enough_time: str) -> "NextStep":
        """How to go on: after the measured pairs, after the trial, or from the start; `enough_time` is empty unless --time was too short."""
        from perfkit.gate.verdict import NextStep

        if folder.pairs or folder.manifest.settings is not None:
            pairs = f"{len(folder.pairs)} pair{'s' * (len(folder.pairs) != 1)}"
            measured = f"{pairs} measured so far, in {_shown(folder.partial)}; this continues after them."
            text = measured if folder.pairs else f"The trial is in {_shown(folder.partial)}; this continues after it."
            return NextStep(text=text, command=command_that_continues(self._options, folder.folder, "--resume"))
        if enough_time:
            return self._step_with_time(enough_time)
        was_interrupted = failure.cause in ("interrupted", "unfinished")
        text = "Run the same command again." if was_interrupted else "Run the same command again, once that is mended."
        return NextStep(text=text, command=self._same_command())

    def _step_with_time(self, enough_time: str) -> "NextStep":
        from perfkit.gate.verdict import NextStep

        return NextStep(text=f"A time of {enough_time} should be enough.", command=self._same_command({"--time": enough_time}))

    def _same_command(self, options: "Mapping[str, str] | None" = None) -> str:
        """The command that was given, with these options in place of its own."""
        from perfkit.gate.undecided import changed_command

        folder = {"--out": str(self._options.out)} if self._options.out else {}
        return f"{changed_command(shown_words(self._options), options={**(options or {}), **folder})}{secrets_hint(self._options)}"

    def _verdict_without_gate(self, failure: "GateFailure") -> "Verdict":
        import perfkit
        from perfkit.clock import utc_now
        from perfkit.gate.paired import FALSE_ALARM_RATE
        from perfkit.gate.verdict import Verdict
        from perfkit.target.address import redacted_url

        scenario = self._options.scenario
        return Verdict(
            kind="error",
            reasons=(failure.reason,),
            mode="stored" if scenario is None else "paired",
            scenario="" if scenario is None else scenario.stem,
            baseline=redacted_url(self._options.baseline),
            candidate=redacted_url(self._options.candidate),
            false_alarm_rate=FALSE_ALARM_RATE,
            pairs=0,
            failure=failure,
            started_at=utc_now().isoformat(timespec="milliseconds"),
            perfkit_version=perfkit.__version__,
        )

    def _log(self) -> str | None:
        """The log of the run under way; None for servers that perfkit did not start."""
        if self._gate is None or self._stage is None or self._gate[0].arms[self._stage.arm].command is None:
            return None
        return _shown(self._gate[1].runs / self._stage.log_name)


def _shown(path: pathlib.Path) -> str:
    """A path from the current folder, if it is in it."""
    with contextlib.suppress(ValueError):
        return str(path.relative_to(pathlib.Path.cwd()))
    return str(path)


def add_verdict_outputs(parser: argparse.ArgumentParser) -> None:
    """Adds --junit, --markdown, --html and --github."""
    parser.add_argument("--junit", type=pathlib.Path, metavar="FILE", help="write JUnit XML, with a test case per metric and load point")
    parser.add_argument("--markdown", type=pathlib.Path, metavar="FILE", help="write a Markdown report for a pull request")
    parser.add_argument("--html", type=pathlib.Path, metavar="FILE", help="write a page with the metrics and a chart of the pairs")
    github = "print annotations and append to the job summary; auto: if $GITHUB_ACTIONS is true"
    parser.add_argument("--github", choices=("auto", "on", "off"), default="auto", help=github)


def prepare_verdict_outputs(options: argparse.Namespace) -> None:
    """Create the files' folders before anything is measured; raises UsageError."""
    for name in ("junit", "markdown", "html"):
        path = getattr(options, name)
        try:
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
            if path is not None and path.is_dir():
                raise UsageError(f"--{name} {path}: this is a folder; give a file")
        except OSError as error:
            raise UsageError(f"--{name} {path}: cannot be written: {error.strerror}") from None


def write_verdict_files(verdict: "Verdict", options: argparse.Namespace, *, is_final: bool) -> None:
    """Write the requested files, each completely or not at all; what is no file, such as a pipe, gets the final verdict only.

    Raises UsageError.
    """
    from perfkit.report.ci import render_junit
    from perfkit.report.verdict import render_verdict_markdown
    from perfkit.report.verdict_page import render_verdict_html

    for name, render in (("junit", render_junit), ("markdown", render_verdict_markdown), ("html", render_verdict_html)):
        path = getattr(options, name)
        if path is None:
            continue
        try:
            if path.is_file() or not path.exists():
                write_whole(path.resolve(), render(verdict))
            elif is_final:
                path.write_text(render(verdict), encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--{name} {path}: cannot be written: {error.strerror}") from None


def write_verdict_outputs(verdict: "Verdict", options: argparse.Namespace) -> None:
    """Write the requested outputs; annotations go to stdout, or to stderr if stdout is JSON.

    A job summary that cannot be written is told of on stderr. Raises UsageError for the others.
    """
    from perfkit.report.ci import append_summary, render_annotations
    from perfkit.report.verdict import render_verdict_markdown

    write_verdict_files(verdict, options, is_final=True)
    if options.github == "on" or (options.github == "auto" and os.environ.get("GITHUB_ACTIONS") == "true"):
        with contextlib.suppress(BrokenPipeError):  # the reader has left, but the exit code still tells the verdict
            stream = sys.stdout if options.format == "text" else sys.stderr
            write_raw(stream, render_annotations(verdict))  # its foreign parts are escaped
            stream.flush()
        if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
            try:
                append_summary(pathlib.Path(summary), render_verdict_markdown(verdict))
            except UsageError as error:  # the exit code still tells the verdict
                print(f"perfkit: {error}", file=sys.stderr)
