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
from typing import NamedTuple, TypeVar

from benchmarks.peers.clients import ClientError, Load, Reported, closed_scenario, run_h2load, run_own, run_wrk
from benchmarks.processes import Checkout
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
_T = TypeVar("_T")


class PerRequest(NamedTuple):
    """What one request costs."""

    instructions: float
    calls: float
    """System calls; under Valgrind a reading of the clock is one, too."""


class _Count(NamedTuple):
    requests: int
    instructions: int
    calls: int


def count_perfkit(name: str, checkout: Checkout, load: Load, folder: pathlib.Path) -> PerRequest:
    """What a request costs the worker of a checkout's perfkit, under the name of this client; raises ClientError."""
    log, interpreter = folder / f"{name}.callgrind.log", folder / "python"
    callgrind = shlex.join([*_CALLGRIND, f"--log-file={log}"])
    interpreter.write_text(_INTERPRETER.format(worker=WORKER, callgrind=callgrind, python=shlex.quote(checkout.python)), encoding="utf-8")
    interpreter.chmod(0o755)
    started = checkout._replace(program=("-c", _START, str(interpreter)))

    def run(think_time: str) -> int:
        return run_own(started, closed_scenario(load, _LONG_S, think_time), folder, _LONG_S)[0]

    return _difference(name, _counted(log, run, _THINK_TIME), _counted(log, run, "0s"))


def count_peer(name: str, load: Load, folder: pathlib.Path) -> PerRequest:
    """What a request costs wrk or h2load; raises ClientError."""
    client: Callable[[Load, pathlib.Path, Sequence[str]], Reported] = {"wrk": run_wrk, "h2load": run_h2load}[name]
    log = folder / f"{name}.callgrind.log"

    def run(seconds: float) -> int:
        return client(dataclasses.replace(load, seconds=seconds), folder, [*_CALLGRIND, f"--log-file={log}"]).requests

    return _difference(name, _counted(log, run, _SHORT_S), _counted(log, run, _LONG_S))


def _counted(log: pathlib.Path, run: Callable[[_T], int], length: _T) -> _Count:
    """A run, which returns its requests, with what callgrind wrote to its log; the log of an earlier run does not count."""
    log.unlink(missing_ok=True)
    return _Count(run(length), *_totals(log))


def _totals(log: pathlib.Path) -> tuple[int, int]:
    """Instructions and system calls of a process that has ended."""
    text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else "it did not start"
    found = re.search(r"Collected : (\d+) (\d+)", text)
    if found is None:
        raise ClientError(f"callgrind counted nothing: {text[-1000:]}")
    return int(found[1]), int(found[2])


def _difference(name: str, less: _Count, more: _Count) -> PerRequest:
    requests = more.requests - less.requests
    if requests < _LEAST_REQUESTS:
        raise ClientError(f"{name} sent {less.requests} requests and then {more.requests} under callgrind: the machine is too busy for it")
    instructions, calls = more.instructions - less.instructions, more.calls - less.calls
    if instructions <= 0 or calls <= 0:
        raise ClientError(
            f"{name} took {instructions:,} instructions and {calls:,} system calls for {requests:,} more requests under callgrind"
        )
    return PerRequest(instructions / requests, calls / requests)
