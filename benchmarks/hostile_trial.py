"""Hostile inputs, one process tree each: the exit code, the peak memory, the time, and how soon Ctrl-C is answered.

    python -m benchmarks.hostile_trial [--only TEXT] [--out reports/hostile-trial.md]

A tree that exceeds 2 GiB or 60 s is killed. The memory is the resident memory of all processes, read every 10 ms. Linux only.
The exit code is 1 if a case ended otherwise than promised.
"""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import IO, NamedTuple, cast

import psutil

from benchmarks.hostile_cases import CASES, Case
from benchmarks.hostile_inputs import family_cases
from benchmarks.processes import ROOT
from benchmarks.report import Report, describe_machine, program_options
from perfkit.target.started_server import free_ports

_MIB, _LONGEST_COMMAND = 2**20, 100
_MAX_MIB, _MAX_S = 2048, 60.0
_SAMPLE_S, _TREE_S = 0.01, 0.1
_OF_SENTENCES = {*range(7), 99}
"""The exit codes of perfkit, and of perf_analyzer's command line, with which a sentence comes."""


class Trial(NamedTuple):
    """How a case ended; `exit_code` is None for a tree that was killed."""

    exit_code: int | None
    peak_mib: int
    seconds: float
    answered_s: float | None
    """From the signal to the end; None without one."""
    left_mib: int
    """A server's memory after its clients have left."""
    has_failed: bool = False
    """Whether the clients failed, or the good one among them."""
    has_traceback: bool = False

    def faults(self, case: Case, said: str) -> list[str]:
        """What differs from the case's expectation."""
        took_s, limit_s = (self.seconds, case.seconds) if self.answered_s is None else (self.answered_s, case.answered_within_s)
        found = {
            "exit code": self.exit_code not in (_OF_SENTENCES if case.exit_code is None else {case.exit_code}),
            "memory": self.peak_mib > case.peak_mib or self.left_mib > case.left_mib,
            "time": took_s > limit_s,
            "clients": self.has_failed,
            "traceback": self.has_traceback,
            "other words": case.text not in said or not (said or self.exit_code == 0),
        }
        return [fault for fault, holds in found.items() if holds]

    def __str__(self) -> str:
        code = "killed" if self.exit_code is None else f"exit {self.exit_code}"
        answered = "" if self.answered_s is None else f", ended {self.answered_s:.1f} s after the signal"
        left = f", {self.left_mib} MiB left" if self.left_mib else ""
        return f"{code}, {self.peak_mib} MiB{left}, {self.seconds:.1f} s{answered}"


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


def try_case(case: Case) -> tuple[Trial, str]:
    """Runs a case; how it ended, and what it said on stderr."""
    with tempfile.TemporaryDirectory(prefix="perfkit-hostile-") as name, contextlib.ExitStack() as opened:
        folder = pathlib.Path(name)
        server = opened.enter_context(case.server()) if case.server is not None else "http://127.0.0.1:9"
        url, grpc = (server, "") if isinstance(server, str) else (server.url(), server.url("grpc"))
        ports = free_ports(2)
        places = {"{url}": url, "{grpc}": grpc, "{http_port}": str(ports[0]), "{grpc_port}": str(ports[1])}
        for file, content in case.files.items():
            match content:
                case str():
                    (folder / file).write_text(content.replace("{url}", url), encoding="utf-8")
                case bytes():
                    (folder / file).write_bytes(content)
                case _:
                    (folder / file).symlink_to(content)
        words = [sys.executable, "-m", "perfkit", *(_placed(word, places) for word in case.words)]
        words = ["sh", "-c", case.script, "sh", *words] if case.script else words
        given = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT), **case.environ}
        environment = {name: value for name, value in given.items() if value is not None}
        stderr = opened.enter_context((folder / "stderr").open("wb"))
        pipe = subprocess.PIPE if case.client and case.words[0] != "record" else subprocess.DEVNULL
        with subprocess.Popen(words, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=pipe, stderr=stderr) as process:
            ready = json.dumps(dict(zip(("http_port", "grpc_port"), ports, strict=True))) if case.words[0] == "record" else ""
            trial = _observe(case, process, ready)
        return trial._replace(has_traceback=b"Traceback" in (folder / "stderr").read_bytes()), _said(folder / "stderr", case.text)


def _placed(word: str, places: Mapping[str, str]) -> str:
    for name, place in places.items():
        word = word.replace(name, place)
    return word


def _observe(case: Case, process: "subprocess.Popen[bytes]", ready: str) -> Trial:
    """`ready` is what the clients are told; empty where the server says it."""
    tree, started_s = _Tree(process.pid), time.monotonic()
    clients = None
    if case.client is not None:
        ready = ready or cast("IO[bytes]", process.stdout).readline().decode()
        clients = subprocess.Popen([sys.executable, "-m", "benchmarks.hostile_clients", case.client, ready], cwd=ROOT)
    interrupted_s, left_mib, code = None, 0, None
    while (code := process.poll()) is None:
        memory_mib, now_s = tree.memory_mib(), time.monotonic() - started_s
        if memory_mib > _MAX_MIB or now_s > _MAX_S:
            tree.kill()
            break
        if interrupted_s is None and clients is not None and clients.poll() is not None:
            time.sleep(1)  # the allocator returns memory
            left_mib, interrupted_s = tree.memory_mib(), time.monotonic() - started_s
            process.send_signal(signal.SIGTERM)
        elif interrupted_s is None and case.interrupt_at_mib is not None and memory_mib > case.interrupt_at_mib:
            interrupted_s = now_s
            process.send_signal(signal.SIGINT)
        time.sleep(_SAMPLE_S)
    seconds = time.monotonic() - started_s
    if clients is not None:
        clients.kill()
        clients.wait()
    has_failed = clients is not None and clients.returncode != 0
    return Trial(code, tree.peak_mib, seconds, None if interrupted_s is None else seconds - interrupted_s, left_mib, has_failed=has_failed)


def _said(file: pathlib.Path, text: str) -> str:
    """The line of stderr with the text; without one, the first error, or the last line. Lines that were wrapped are joined."""
    content = file.read_text(encoding="utf-8", errors="replace").replace(" \n", " ")
    lines = [line.strip() for line in content.splitlines() if line.strip()]
    found = [line for line in lines if text and text in line] or [line for line in lines if line.startswith("perfkit:")] or lines[-1:]
    return found[0][:600] if found else ""


def main() -> int:
    """Runs the cases and writes the report."""
    options = program_options(__doc__, out="hostile-trial", only=("", "only the cases whose names contain it"))
    report = Report(options.out, "Hostile trial")
    report.add(f"{describe_machine()} A tree that exceeded {_MAX_MIB} MiB or {_MAX_S:g} s was killed.", "")
    report.table("case", "command", ">ended", "said", "as promised")
    for case in (*CASES, *family_cases()):
        if options.only in case.name:
            trial, said = try_case(case)
            faults = trial.faults(case, said)
            report.is_met &= not faults
            command, said = (text.replace("|", "\\|") for text in (" ".join(["perfkit", *case.words]), said))
            command = command if len(command) <= _LONGEST_COMMAND else f"{command[:_LONGEST_COMMAND]}…"
            report.row(case.name, f"`{command}`", trial, said, ", ".join(faults) or "yes")
    return report.write()


if __name__ == "__main__":
    sys.exit(main())
