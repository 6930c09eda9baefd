"""The instructions that a client executes for a request, counted by Valgrind's callgrind: other programs on the machine do not change them.

Kernel code is not counted; its calls are. A client is many times slower under callgrind, and what it does once a second counts for far fewer
requests. For perfkit, of which only the worker is counted, a run of the same length that sends few requests is therefore subtracted; wrk
and h2load do little besides requests, so that for them a short run is.
"""

import dataclasses
import pathlib
import re
import shlex
from collections.abc import Callable, Sequence
from typing import NamedTuple

from benchmarks.peers.clients import ClientError, Load, Reported, closed_scenario, run_h2load, run_own, run_wrk
from perfkit.process.start_module import WORKER

_CALLGRIND = ("valgrind", "--tool=callgrind", "--collect-systime=msec", "--callgrind-out-file=/dev/null")
# in place of Python, for perfkit's child processes
_INTERPRETER = """#!/bin/sh
case "$*" in *{worker}*) exec env PYTHONHASHSEED=0 {callgrind} {python} "$@" ;; esac
exec {python} "$@"
"""
_START = "import sys; sys.executable = sys.argv.pop(1); from perfkit.cli.main import main; sys.exit(main())"
_LONG_S, _SHORT_S, _THINK_TIME = 10.0, 2.0, "1s"
_LEAST_REQUESTS = 1000


class PerRequest(NamedTuple):
    """What one request costs."""

    instructions: float
    calls: float
    """System calls; under Valgrind a reading of the clock is one, too."""


class _Count(NamedTuple):
    requests: int
    instructions: int
    calls: int


def count_perfkit(python: pathlib.Path, load: Load, folder: pathlib.Path) -> PerRequest:
    """That of the worker of the perfkit that this Python imports; raises ClientError."""
    log, interpreter = folder / "worker.log", folder / "python"
    callgrind = shlex.join([*_CALLGRIND, f"--log-file={log}"])
    interpreter.write_text(_INTERPRETER.format(worker=WORKER, callgrind=callgrind, python=shlex.quote(str(python))), encoding="utf-8")
    interpreter.chmod(0o755)

    def count(think_time: str) -> _Count:
        scenario = closed_scenario(load, _LONG_S, think_time)
        requests, _, _ = run_own([str(python), "-P", "-c", _START, str(interpreter)], scenario, folder, _LONG_S)
        return _Count(requests, *_totals(log))

    return _difference("perfkit", count(_THINK_TIME), count("0s"))


def count_peer(name: str, load: Load, folder: pathlib.Path) -> PerRequest:
    """The same of wrk or h2load."""
    run: Callable[[Load, pathlib.Path, Sequence[str]], Reported] = {"wrk": run_wrk, "h2load": run_h2load}[name]
    log = folder / "peer.log"

    def count(seconds: float) -> _Count:
        reported = run(dataclasses.replace(load, seconds=seconds), folder, [*_CALLGRIND, f"--log-file={log}"])
        return _Count(reported.requests, *_totals(log))

    return _difference(name, count(_SHORT_S), count(_LONG_S))


def _totals(log: pathlib.Path) -> tuple[int, int]:
    """Instructions and system calls of a process that has ended."""
    found = re.search(r"Collected : (\d+) (\d+)", log.read_text(encoding="utf-8", errors="replace"))
    if found is None:
        raise ClientError(f"callgrind counted nothing: {log.read_text(encoding='utf-8', errors='replace')[-1000:]}")
    return int(found[1]), int(found[2])


def _difference(name: str, less: _Count, more: _Count) -> PerRequest:
    requests = more.requests - less.requests
    if requests < _LEAST_REQUESTS:
        raise ClientError(f"{name} sent {less.requests} requests and then {more.requests} under callgrind: the machine is too busy for it")
    return PerRequest((more.instructions - less.instructions) / requests, (more.calls - less.calls) / requests)
