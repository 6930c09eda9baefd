"""`perfkit help`: prints a command's options, a topic of the documentation, or what it says about some words."""

import argparse
import difflib
import io
import os
import pathlib
import re
import shutil
import sys

import perfkit
from perfkit.cli.exit_code import ExitCode
from perfkit.cli.help_search import search_topics
from perfkit.errors import UsageError
from perfkit.text import write_styled

_FOLDER = pathlib.Path(perfkit.__file__).absolute().parent / "docs"
_WIDTH = 100
_LEAST_SIMILARITY = 0.75
# of the page of scenario keys: a mapping's heading, and a key's row in its table
_SECTION = re.compile(r"^#+ `([^`]+)`.*\n", re.MULTILINE)
_KEY = re.compile(r"^\| `([^`]+)` \| (.+?) \| (.+?) \| (.+) \|$", re.MULTILINE)


def configure(parser: argparse.ArgumentParser) -> None:
    """Adds the command's options."""
    parser.add_argument(
        "topic",
        nargs="*",
        metavar="TOPIC",
        help="a topic, a command, the code of a warning, a key of a scenario, or words to look for; default: the list of topics",
    )
    parser.set_defaults(execute=_execute)


def _execute(options: argparse.Namespace) -> ExitCode:
    topics = help_topics()
    if not options.topic:
        print("perfkit help TOPIC prints one of these:\n")
        width = max(map(len, topics))
        for topic, text in topics.items():
            print(f"  {topic.ljust(width)}  {text.lstrip('# ').partition(chr(10))[0]}")
        print("\nperfkit help COMMAND prints the options of a command; perfkit --help lists the commands.")
        print("perfkit help CODE explains a warning, such as late_starts; perfkit help KEY a key of a scenario, such as measure.workers.")
        print("perfkit help WORD looks for any other word, such as tls, or an exit code, in all of them.")
        return ExitCode.DONE
    from perfkit.cli.main import COMMANDS, main
    from perfkit.report.warning_texts import warning_texts

    words: list[str] = options.topic
    asked = " ".join(words)
    warnings, keys = warning_texts(), scenario_keys(topics["scenario-keys"])
    for texts in (topics, {code: text.section for code, text in warnings.items()}):
        if asked in texts:
            _print(texts[asked])
            return ExitCode.DONE
    if asked in COMMANDS:
        return ExitCode(main([asked, "--help"]))
    if asked in keys:
        _print(keys[asked])
        return ExitCode.DONE
    if not any(map(str.isalnum, asked)):
        raise UsageError(f"no help on {asked!r}; perfkit help lists the topics")
    found = search_topics({path.stem: topics[path.stem] for path in _pages()}, words)
    if not found.passages:
        known = [*topics, *COMMANDS, *warnings, *keys]
        near = difflib.get_close_matches(asked, known, n=1, cutoff=_LEAST_SIMILARITY)
        raise UsageError(f"no help on {asked}{f'; did you mean {near[0]}?' if near else ''}; perfkit help lists the topics")
    for passage in found.passages:
        _print(f"### {passage.topic}: {passage.heading}\n\n{passage.text}\n")
        print()
    also = ", ".join(f"{topic} ({count})" for topic, count in found.others.items())
    print(f"{f'Also in {also}; ' * bool(also)}perfkit help TOPIC prints a whole page.")
    return ExitCode.DONE


def help_topics() -> dict[str, str]:
    """The Markdown text of each topic: a page of the documentation, by its file's name; the pages that only list others are none."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted(_pages(), key=lambda path: path.stem)}


def _pages() -> list[pathlib.Path]:
    """The documentation's pages: those of the reference come first, those for contributors last."""
    folders = ("reference", "how-to", "concepts", "tutorials", _FOLDER.name)
    pages = [path for path in _FOLDER.rglob("*.md") if path.stem != "index"]
    return sorted(pages, key=lambda path: (folders.index(path.parent.name), path))


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
