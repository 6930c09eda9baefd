"""`perfkit help`: prints a command's options or a topic of the documentation."""

import argparse
import io
import os
import pathlib
import re
import shutil
import sys

import perfkit
from perfkit.cli.exit_code import ExitCode
from perfkit.errors import UsageError
from perfkit.text.nearest import suggestion
from perfkit.text.terminal import write_styled

_FOLDER = pathlib.Path(perfkit.__file__).absolute().parent / "docs"
_REFERENCE = "reference"
_WIDTH = 100


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.add_argument("topic", nargs="?", metavar="TOPIC", help="a topic or a command; default: the list of topics")
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> ExitCode:
    topics = help_topics()
    if options.topic is None:
        print("perfkit help TOPIC prints one of these:\n")
        width = max(map(len, topics))
        for topic, text in topics.items():
            print(f"  {topic.ljust(width)}  {text.lstrip('# ').partition(chr(10))[0]}")
        print("\nperfkit help COMMAND prints the options of a command; perfkit --help lists the commands.")
        return ExitCode.DONE
    if options.topic in topics:
        _print(_with_remedies(topics["warnings"]) if options.topic == "warnings" else topics[options.topic])
        return ExitCode.DONE
    from perfkit.cli.main import COMMANDS, main

    if options.topic in COMMANDS:
        return ExitCode(main([options.topic, "--help"]))
    raise UsageError(f"no help on {options.topic}{suggestion(options.topic, [*topics, *COMMANDS])}; perfkit help lists the topics")


def help_topics() -> dict[str, str]:
    """The Markdown text of each topic: a section of the reference, or another page of the documentation."""
    sections = re.split(r"^(?=## )", (_FOLDER / f"{_REFERENCE}.md").read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    topics = {section[3:].partition("\n")[0].strip().lower().replace(" ", "-"): section for section in sections}
    pages = {path.stem: path.read_text(encoding="utf-8") for path in sorted(_FOLDER.glob("*.md")) if path.stem != _REFERENCE}
    return topics | pages


def _with_remedies(markdown: str) -> str:
    """Adds the remedy of each warning to the tables of warnings, as in the terminal and the report."""
    from perfkit.report.grouped_warnings import REMEDIES

    titles = {"code": "remedy", "---": "---"}
    return re.sub(
        r"^\|\s*(`?)([\w-]+)\1\s*\|.*\|$",
        lambda row: f"{row[0]} {titles.get(row[2], REMEDIES.get(row[2], ''))} |",
        markdown,
        flags=re.MULTILINE,
    )


def _print(markdown: str) -> None:
    """Prints Markdown, formatted if stdout is a terminal."""
    if not sys.stdout.isatty():
        print(markdown.rstrip())
        return
    from rich.console import Console
    from rich.markdown import Markdown

    columns = min(shutil.get_terminal_size().columns, _WIDTH)
    has_colors = "NO_COLOR" not in os.environ
    console = Console(file=io.StringIO(), width=columns, force_terminal=has_colors, color_system="standard" if has_colors else None)
    with console.capture() as capture:
        console.print(Markdown(markdown, hyperlinks=False))
    write_styled(sys.stdout, capture.get())
