"""The outputs of a verdict besides stdout: JUnit, Markdown, HTML and GitHub annotations."""

import argparse
import contextlib
import os
import pathlib
import sys
from typing import TYPE_CHECKING

from perfkit.errors import UsageError
from perfkit.result.atomic_write import write_whole
from perfkit.text.terminal import write_raw

if TYPE_CHECKING:
    from perfkit.gate.verdict import Verdict


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
    """Write the requested outputs; annotations go to stdout, or to stderr if stdout is JSON. Raises UsageError."""
    from perfkit.report.ci import append_summary, render_annotations
    from perfkit.report.verdict import render_verdict_markdown

    write_verdict_files(verdict, options, is_final=True)
    if options.github == "on" or (options.github == "auto" and os.environ.get("GITHUB_ACTIONS") == "true"):
        with contextlib.suppress(BrokenPipeError):  # the reader has left, but the exit code still tells the verdict
            stream = sys.stdout if options.format == "text" else sys.stderr
            write_raw(stream, render_annotations(verdict))  # its foreign parts are escaped
            stream.flush()
        if summary := os.environ.get("GITHUB_STEP_SUMMARY"):
            append_summary(pathlib.Path(summary), render_verdict_markdown(verdict))
