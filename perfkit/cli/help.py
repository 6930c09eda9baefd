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
from perfkit.errors import UsageError, suggestion
from perfkit.text import write_styled

_FOLDER = pathlib.Path(perfkit.__file__).absolute().parent / "docs"
_WIDTH = 100
# of the page of scenario keys: a mapping's heading, and a key's row in its table
_SECTION = re.compile(r"^#+ `([^`]+)`.*\n", re.MULTILINE)
_KEY = re.compile(r"^\| `([^`]+)` \| (.+?) \| (.+?) \| (.+) \|$", re.MULTILINE)


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.add_argument(
        "topic",
        nargs="?",
        metavar="TOPIC",
        help="a topic, a command, the code of a warning or a key of a scenario; default: the list of topics",
    )
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> ExitCode:
    topics = help_topics()
    if options.topic is None:
        print("perfkit help TOPIC prints one of these:\n")
        width = max(map(len, topics))
        for topic, text in topics.items():
            print(f"  {topic.ljust(width)}  {text.lstrip('# ').partition(chr(10))[0]}")
        print("\nperfkit help COMMAND prints the options of a command; perfkit --help lists the commands.")
        print("perfkit help CODE explains a warning, such as late_starts; perfkit help KEY a key of a scenario, such as measure.workers.")
        return ExitCode.DONE
    if options.topic in topics:
        _print(topics[options.topic])
        return ExitCode.DONE
    from perfkit.cli.main import COMMANDS, main
    from perfkit.report.warning_texts import warning_texts

    warnings = warning_texts()
    if options.topic in warnings:
        _print(warnings[options.topic].section)
        return ExitCode.DONE
    if options.topic in COMMANDS:
        return ExitCode(main([options.topic, "--help"]))
    keys = scenario_keys(topics["scenario-keys"])
    if options.topic in keys:
        _print(keys[options.topic])
        return ExitCode.DONE
    known = [*topics, *COMMANDS, *warnings, *keys]
    raise UsageError(f"no help on {options.topic}{suggestion(options.topic, known)}; perfkit help lists the topics")


def help_topics() -> dict[str, str]:
    """The Markdown text of each topic: a page of the documentation, by its file's name; the pages that only list others are none."""
    pages = sorted(_FOLDER.rglob("*.md"), key=lambda path: path.stem)
    return {path.stem: path.read_text(encoding="utf-8") for path in pages if path.stem != "index"}


def scenario_keys(page: str) -> dict[str, str]:
    """What the page of scenario keys says of each key, as Markdown, by dotted names such as `measure.workers`; of a mapping, all of its keys."""
    start, *parts = _SECTION.split(page)
    sections = {"": start}
    for section, text in zip(parts[::2], parts[1::2], strict=True):  # several have the same name, for the kinds of a mapping
        sections[section] = f"{sections.get(section, '')}{text}"
    keys = {}
    for section, text in sections.items():
        for row in _KEY.finditer(text):
            name, kind, default, meaning = row.groups()
            key = f"{section}.{name}" if section else name
            keys[key] = f"### `{key}`\n\n{meaning}\n\nType: {kind}. Default: {default}.\n"
    return keys | {section: f"### `{section}`\n{text}" for section, text in sections.items() if section}


def _print(markdown: str) -> None:
    """Prints Markdown without its comments, formatted if stdout is a terminal."""
    markdown = re.sub(r"<!--.*?-->\n+", "", markdown)
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
