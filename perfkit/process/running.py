"""The children that this process has started and that have not been reaped, each with a process group of its own."""

import contextlib
import os
import signal
import subprocess

_running: "set[subprocess.Popen[bytes]]" = set()


def register(process: "subprocess.Popen[bytes]") -> None:
    """Adds a child that leads a process group."""
    _running.add(process)


def unregister(process: "subprocess.Popen[bytes]") -> None:
    """Removes a child that has been reaped, whose number may be another process's from then on."""
    _running.discard(process)


def kill_group(process: "subprocess.Popen[bytes]") -> None:
    """Kills a child and all that it started, as long as the child has not been reaped."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)


def kill_all() -> None:
    """Kills all children at once, also stopped ones, from any thread; they are reaped where they are waited for."""
    for process in tuple(_running):
        kill_group(process)
