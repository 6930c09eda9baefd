"""Asks the real perf_analyzer and perfkit which generated command lines they accept, and which they refuse.

    python -m benchmarks.perf_analyzer_arguments [--lines 1500] [--seed 0] [--peers FOLDER] [--out reports/perf-analyzer-arguments.md]

No server is needed: a line that perf_analyzer accepts ends when it cannot connect, since each has the URL of a port of the loopback on which
nothing listens. The answers go to tests/perf_analyzer/recorded_arguments.json, which the test suite replays. Disagreements beside malformed numbers give exit code 1.
"""

import collections
import contextlib
import json
import pathlib
import re
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import NamedTuple

from benchmarks.peers.install import peers_folder
from benchmarks.perf_analyzer_lines import FILES, generate_lines
from benchmarks.report import option_parser, publish, table_head, table_row
from perfkit.perf_analyzer.command_line import parse
from perfkit.perf_analyzer.options import CommandLineError, UnsupportedError

_RECORDED = pathlib.Path(__file__).parents[1] / "tests" / "perf_analyzer" / "recorded_arguments.json"
_TIMEOUT_S = 60
_MOST_DIFFERING = 0.01
"""The share of lines that may differ beside malformed numbers: values of options that perfkit ignores."""
_USAGE_EXIT_CODE, _ABORTED_EXIT_CODE = 99, 134
_MALFORMED = re.compile(r"expected a (whole )?number")
_ACCEPTED = ("error: failed to", "error: Failed to", "error: unable to", "error: Unable to")


class Answer(NamedTuple):
    """Whether a line is accepted, or refused with this exit code and message."""

    exit_code: int | None
    """None if it is accepted."""
    message: str = ""

    @property
    def is_accepted(self) -> bool:
        """Whether the line is run, or its version is printed."""
        return not self.exit_code


_UNSUPPORTED = Answer(None, "perfkit cannot run it")
"""For a service kind or load mode that it does not have, whether the line is one of perf_analyzer's or not."""


def main() -> int:
    """Runs the program and returns its exit code."""
    parser = option_parser(__doc__, out=pathlib.Path("reports/perf-analyzer-arguments.md"))
    parser.add_argument("--lines", type=int, default=1500, metavar="N", help="how many command lines (default: 1500)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="the seed of the lines (default: 0)")
    parser.add_argument("--peers", type=pathlib.Path, default=peers_folder(), metavar="FOLDER", help="where the peers are installed")
    options = parser.parse_args()
    program = options.peers.absolute() / "bin" / "perf_analyzer"
    if not program.is_file():
        print(f"{program}: not installed; see benchmarks/peers/README.md", file=sys.stderr)
        return 2
    lines = generate_lines(options.seed, options.lines)
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), _closed_port() as port:
        write_files(pathlib.Path(folder))
        first = ["-u", f"127.0.0.1:{port}"]
        real = [_ask(program, [*first, *line]) for line in lines]
        own = [answer_of(line) for line in lines]
        version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stderr.strip()
    _record(version, options.seed, lines, real)
    report, agrees = _report(version, options.seed, lines, real, own)
    return publish(options.out, report, is_met=agrees)


def answer_of(line: list[str]) -> Answer:
    """What perfkit's parser answers."""
    try:
        parse(line)
    except UnsupportedError:
        return _UNSUPPORTED
    except CommandLineError as error:
        return Answer(error.exit_code, str(error))
    return Answer(None)


def write_files(folder: pathlib.Path) -> None:
    """Writes the files that the lines name."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


@contextlib.contextmanager
def _closed_port() -> Iterator[int]:
    with socket.socket() as bound:  # bound and not listening: connections are refused
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def _ask(program: pathlib.Path, arguments: list[str]) -> Answer:
    done = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    complaints = [line for line in lines if line.startswith("Error: ")]
    if done.returncode == 0:
        return Answer(0, lines[-1] if lines else "")
    if done.returncode == -signal.SIGABRT:
        return Answer(_ABORTED_EXIT_CODE, lines[-1].strip())
    if complaints:
        return Answer(done.returncode, complaints[-1])
    if lines and lines[-1].startswith(_ACCEPTED):
        return Answer(None)
    raise RuntimeError(f"{shlex.join(arguments)}: exit code {done.returncode}, which says neither yes nor no: {lines[-1:]}")


def _record(version: str, seed: int, lines: list[list[str]], answers: list[Answer]) -> None:
    """Writes the answers, with equal messages once."""
    messages = list(dict.fromkeys(answer.message for answer in answers if answer.exit_code not in (None, 0)))
    head = json.dumps({"perf_analyzer": version, "seed": seed, "files": FILES, "messages": messages}, indent=0)[:-2]
    rows = []
    for line, answer in zip(lines, answers, strict=True):
        number = messages.index(answer.message) if answer.exit_code else None
        rows.append(json.dumps([shlex.join(line), answer.exit_code, number]))
    _RECORDED.write_text(head + ',\n"lines": [\n' + ",\n".join(rows) + "\n]}\n")


def _report(version: str, seed: int, lines: list[list[str]], real: list[Answer], own: list[Answer]) -> tuple[list[str], bool]:
    runnable = [one for one in zip(lines, real, own, strict=True) if one[2] is not _UNSUPPORTED]
    pairs = [(line, theirs, ours) for line, theirs, ours in runnable if theirs.is_accepted != ours.is_accepted]
    malformed = [one for one in pairs if _MALFORMED.search(one[2].message)]
    differing = [one for one in pairs if one not in malformed]
    counts = collections.Counter(theirs.exit_code for theirs in real)
    report = [
        "# Command lines beside the real perf_analyzer",
        "",
        f"{len(lines):,} generated command lines (seed {seed}), {version}:",
        f"{len(runnable) - len(pairs):,} accepted or refused alike. {len(lines) - len(runnable):,} have a service kind or a load mode that perfkit has not.",
        "",
        *table_head("perf_analyzer's answer", ">lines"),
        table_row("accepted", counts[None]),
        table_row("refused with its usage, exit code 99", counts[_USAGE_EXIT_CODE]),
        table_row("aborted, exit code 134", counts[_ABORTED_EXIT_CODE]),
        table_row("`--version`, exit code 0", counts[0]),
        "",
        f"perfkit refuses {len(malformed):,} lines with a number that has something behind it, such as `3x` or `50%`; perf_analyzer reads its begin.",
        "perfkit's exit code is 99 wherever it refuses a line, and its messages name the option and what it expects.",
        "",
    ]
    if differing:
        report += ["Other differences:", "", *table_head("line", "perf_analyzer", "perfkit")]
        report += [
            table_row(f"`{shlex.join(line)}`", theirs.message or "accepted", ours.message or "accepted") for line, theirs, ours in differing
        ]
    return report, len(differing) < _MOST_DIFFERING * len(lines)


if __name__ == "__main__":
    sys.exit(main())
