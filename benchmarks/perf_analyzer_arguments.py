"""Asks the real perf_analyzer and perfkit which generated command lines they accept, and with which exit code they refuse the others.

    python -m benchmarks.perf_analyzer_arguments [--lines 1500] [--seed 0] [--peers FOLDER] [--out reports/perf-analyzer-arguments.md]

No server is needed: a line that perf_analyzer accepts ends when it cannot connect, since each has the URL of a port of the loopback on which
nothing listens. The answers go to tests/perf_analyzer/recorded_arguments.json, which the test suite replays. Any disagreement gives exit code 1.
"""

import collections
import contextlib
import json
import pathlib
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
from perfkit.perf_analyzer.command_line import CommandLineError, UnsupportedError, parse
from perfkit.perf_analyzer.draft import ABORTED_EXIT_CODE, USAGE_EXIT_CODE

_RECORDED = pathlib.Path(__file__).parents[1] / "tests" / "perf_analyzer" / "recorded_arguments.json"
_TIMEOUT_S = 60
_NAMED_BY_PERFKIT = "Error: Cannot use both RequestRate"
_ACCEPTED = ("error: failed to", "error: Failed to", "error: unable to", "error: Unable to")


class Answer(NamedTuple):
    """Whether a line is accepted, or refused with this exit code and message."""

    exit_code: int | None
    """None if it is accepted."""
    message: str = ""


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
    """What perfkit's parser answers; what it accepts and does not support counts as accepted."""
    try:
        parse(line)
    except UnsupportedError:
        return Answer(None)
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
        return Answer(ABORTED_EXIT_CODE, lines[-1].strip())
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
    pairs = list(zip(lines, real, own, strict=True))
    differing = [(line, theirs, ours) for line, theirs, ours in pairs if theirs.exit_code != ours.exit_code]
    counts = collections.Counter(theirs.exit_code for theirs in real)
    refused = [(theirs.message, ours.message) for _, theirs, ours in pairs if theirs.exit_code == ours.exit_code == USAGE_EXIT_CODE]
    alike = sum(theirs == ours for theirs, ours in refused)
    named = sum(theirs != ours and ours.startswith(_NAMED_BY_PERFKIT) for theirs, ours in refused)
    reworded = collections.Counter(pair for pair in refused if pair[0] != pair[1] and not pair[1].startswith(_NAMED_BY_PERFKIT))
    report = [
        "# Command lines beside the real perf_analyzer",
        "",
        f"{len(lines):,} generated command lines (seed {seed}), {version}:",
        f"{len(lines) - len(differing):,} accepted or refused alike, with the same exit code, and {len(differing):,} otherwise.",
        "",
        *table_head("perf_analyzer's answer", ">lines"),
        table_row("accepted", counts[None]),
        table_row("refused with its usage, exit code 99", counts[USAGE_EXIT_CODE]),
        table_row("aborted, exit code 134", counts[ABORTED_EXIT_CODE]),
        table_row("`--version`, exit code 0", counts[0]),
        "",
        f"Of the {len(refused):,} lines refused with exit code 99 by both, {alike:,} have the same message. In {named:,} a second load mode",
        "follows a rate: perf_analyzer has no name for that mode, and complains of the second option's value; perfkit names both modes.",
        "",
    ]
    if reworded:
        report += ["Other messages that differ:", "", *table_head("perf_analyzer", "perfkit", ">lines")]
        report += [table_row(theirs, ours, number) for (theirs, ours), number in reworded.most_common()]
    if differing:
        report += ["", "Disagreements:", "", *table_head("line", "perf_analyzer", "perfkit")]
        report += [table_row(f"`{shlex.join(line)}`", theirs, ours) for line, theirs, ours in differing]
    return report, not differing


if __name__ == "__main__":
    sys.exit(main())
