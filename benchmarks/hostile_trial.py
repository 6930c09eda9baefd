"""Hostile inputs, one process tree each: the exit code, the peak memory, the time, and how soon Ctrl-C is answered.

    python -m benchmarks.hostile_trial [--only TEXT] [--perfkit CHECKOUT] [--out reports/hostile-trial.md]

`--perfkit` runs another checkout, whose figures fill the column "before"; figures are kept beside the report, in a `.json` file. A
tree that exceeds 2 GiB or 60 s is killed. The memory is the resident memory of all processes, read every 10 ms. Linux only.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import psutil

from benchmarks.hostile_answers import ANSWER_CASES
from benchmarks.hostile_case import Case
from benchmarks.hostile_sizes import SIZE_CASES
from benchmarks.processes import ROOT
from benchmarks.report import describe_machine, option_parser, table_head, table_row, write_report

CASES: tuple[Case, ...] = (*SIZE_CASES, *ANSWER_CASES)

_MIB, _LONGEST_COMMAND = 2**20, 100
_MAX_MIB, _MAX_S = 2048, 60.0
_SAMPLE_S, _TREE_S = 0.01, 0.1


@dataclasses.dataclass(frozen=True)
class Trial:
    """How a case ended; `exit_code` is None for a tree that was killed."""

    exit_code: int | None
    peak_mib: int
    seconds: float
    answered_s: float | None
    """From SIGINT to the end; None without one."""
    said: str
    """A line of stderr."""
    left_mib: int | None = None
    """A server's memory after its clients have left."""

    def faults(self, case: Case) -> Sequence[str]:
        """What differs from the case's expectation."""
        limit_s = case.answered_within_s if self.answered_s is not None else case.seconds
        took_s = self.seconds if self.answered_s is None else self.answered_s
        found = {
            f"exit {'none' if self.exit_code is None else self.exit_code}": self.exit_code != case.exit_code,
            f"{self.peak_mib} MiB": self.peak_mib > case.peak_mib,
            f"{self.left_mib} MiB left": (self.left_mib or 0) > case.left_mib,
            f"{took_s:.1f} s": took_s > limit_s,
            "other words": case.text not in self.said,
        }
        return [fault for fault, holds in found.items() if holds]


class _Tree:
    """A process and its descendants."""

    def __init__(self, pid: int) -> None:
        self._root = psutil.Process(pid)
        self._processes, self._listed_s = [self._root], 0.0
        self.peak_mib = 0

    def memory_mib(self) -> int:
        """The resident memory now."""
        if time.monotonic() - self._listed_s > _TREE_S:
            with contextlib.suppress(psutil.Error):
                self._processes = [self._root, *self._root.children(recursive=True)]
            self._listed_s = time.monotonic()
        total = 0
        for process in self._processes:
            with contextlib.suppress(psutil.Error):
                total += process.memory_info().rss
        self.peak_mib = max(self.peak_mib, total // _MIB)
        return total // _MIB

    def kill(self) -> None:
        """Ends all of them."""
        for process in self._processes:
            with contextlib.suppress(psutil.Error):
                process.kill()


def try_case(case: Case, command: Sequence[str]) -> Trial:
    """Runs a case with a checkout's perfkit."""
    with tempfile.TemporaryDirectory(prefix="perfkit-hostile-") as name, contextlib.ExitStack() as servers:
        folder = pathlib.Path(name)
        url = servers.enter_context(case.server()) if case.server is not None else "http://127.0.0.1:9"
        for file, content in case.files.items():
            (folder / file).write_text(content.replace("{url}", url), encoding="utf-8")
        words = [*command, *(word.replace("{url}", url) for word in case.words)]
        pipe = subprocess.PIPE if case.client else subprocess.DEVNULL
        with (
            (folder / "stderr").open("w+b") as stderr,
            subprocess.Popen(words, cwd=folder, stdin=subprocess.DEVNULL, stdout=pipe, stderr=stderr) as process,
        ):
            ended = _observe(case, process)
        return dataclasses.replace(ended, said=_said(folder / "stderr", case.text))


def _observe(case: Case, process: "subprocess.Popen[bytes]") -> Trial:
    tree, started_s = _Tree(process.pid), time.monotonic()
    clients = None
    if case.client is not None:
        assert process.stdout is not None
        ready = process.stdout.readline()
        clients = subprocess.Popen([sys.executable, "-m", "benchmarks.hostile_clients", case.client, ready.decode()], cwd=ROOT)
    interrupted_s, left_mib, code = None, None, None
    while (code := process.poll()) is None:
        memory_mib, now_s = tree.memory_mib(), time.monotonic() - started_s
        if memory_mib > _MAX_MIB or now_s > _MAX_S:
            tree.kill()
            break
        if clients is not None and clients.poll() is not None and interrupted_s is None:
            time.sleep(1)  # the allocator returns memory
            left_mib, interrupted_s = tree.memory_mib(), time.monotonic() - started_s
            process.send_signal(signal.SIGTERM)
        is_time = case.interrupt_after_s is not None and now_s > case.interrupt_after_s
        if (is_time or (case.interrupt_at_mib is not None and memory_mib > case.interrupt_at_mib)) and interrupted_s is None:
            interrupted_s = now_s
            process.send_signal(signal.SIGINT)
        time.sleep(_SAMPLE_S)
    seconds = time.monotonic() - started_s
    if clients is not None:
        clients.kill()
        clients.wait()
    answered_s = None if interrupted_s is None else seconds - interrupted_s
    return Trial(code, tree.peak_mib, seconds, answered_s, "", left_mib)


def _said(file: pathlib.Path, text: str) -> str:
    """The line of stderr with the text; without one, the first error, or the last line. Lines that were wrapped are joined."""
    content = file.read_text(encoding="utf-8", errors="replace").replace(" \n", " ")
    lines = [line.strip() for line in content.splitlines() if line.strip()]
    found = [line for line in lines if text and text in line] or [line for line in lines if line.startswith("perfkit:")] or lines[-1:]
    return found[0][:600] if found else ""


def report_lines(cases: Iterable[Case], before: Mapping[str, Any], now: Mapping[str, Any], machine: str) -> list[str]:
    """The report; trials are documents of `Trial` by the case's name."""
    head = table_head("item", "case", "command", ">before", ">now", "says now", "as promised")
    killed = f"A tree that exceeded {_MAX_MIB} MiB or {_MAX_S:g} s was killed."
    lines = ["# Hostile trial", "", f"{machine} {killed}", "", *head]
    for case in cases:
        trial = now.get(case.name)
        faults = Trial(**trial).faults(case) if trial else ["not run"]
        said = (trial or {}).get("said", "").replace("|", "\\|")
        command = " ".join(["perfkit", *case.words]).replace("|", "\\|")
        command = command if len(command) <= _LONGEST_COMMAND else f"{command[:_LONGEST_COMMAND]}…"
        cells = (_cell(before.get(case.name)), _cell(trial), said, ", ".join(faults) or "yes")
        lines.append(table_row(case.item, case.name, f"`{command}`", *cells))
    return lines


def _cell(trial: Mapping[str, Any] | None) -> str:
    if trial is None:
        return "–"
    code = "killed" if trial["exit_code"] is None else f"exit {trial['exit_code']}"
    answered = "" if trial["answered_s"] is None else f", ended {trial['answered_s']:.1f} s after the signal"
    left = "" if trial["left_mib"] is None else f", {trial['left_mib']} MiB left"
    return f"{code}, {trial['peak_mib']} MiB{left}, {trial['seconds']:.1f} s{answered}"


def _figures(file: pathlib.Path) -> dict[str, dict[str, Any]]:
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"before": {}, "now": {}}


def _command(checkout: pathlib.Path) -> Sequence[str]:
    script = checkout / ".venv" / "bin" / "perfkit"
    return [str(script)] if script.exists() else [sys.executable, "-m", "perfkit"]


def _parse_options() -> argparse.Namespace:
    parser = option_parser(__doc__, out=ROOT / "reports" / "hostile-trial.md")
    parser.add_argument("--only", default="", metavar="TEXT", help="only the cases whose names contain it")
    parser.add_argument("--perfkit", type=pathlib.Path, metavar="CHECKOUT", help="another checkout, for the column `before`")
    return parser.parse_args()


def main() -> int:
    """Prints a line a case and writes the report; returns 1 if a case ended otherwise than promised."""
    options, machine = _parse_options(), describe_machine()
    os.environ.setdefault("PYTHONUNBUFFERED", "1")
    store = options.out.with_suffix(".json")
    figures = _figures(store)
    trials = figures["now" if options.perfkit is None else "before"]
    command, failed = _command(options.perfkit or ROOT), 0
    for case in (case for case in CASES if options.only in case.name):
        trial = try_case(case, command)
        faults = [] if options.perfkit else trial.faults(case)
        failed += bool(faults)
        trials[case.name] = dataclasses.asdict(trial)
        print(f"{case.name}: {_cell(trials[case.name])}; {trial.said}{''.join(f'; NOT {fault}' for fault in faults)}", flush=True)
        write_report(store, [json.dumps(figures, indent=1)])
        write_report(options.out, report_lines(CASES, figures["before"], figures["now"], machine))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
