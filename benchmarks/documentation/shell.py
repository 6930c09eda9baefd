"""A shell that runs one command after the other and keeps its variables, background jobs and environment between them."""

import os
import pathlib
import queue
import re
import secrets
import shlex
import signal
import subprocess
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

_ENDS_WITHIN_S = 30


class TimedOutError(Exception):
    """A command did not end in time; the shell cannot be used any more."""


class Shell:
    """A bash in a folder; a context manager. Commands read an empty stdin; stdout and stderr are one."""

    def __init__(self, folder: pathlib.Path, environment: Mapping[str, str], prefix: Sequence[str] = ()) -> None:
        self._mark = secrets.token_hex(8)
        command = [*prefix, "bash", "--noprofile", "--norc"]
        pipe, joined = subprocess.PIPE, subprocess.STDOUT
        self._process = subprocess.Popen(
            command,
            cwd=folder,
            env=dict(environment),
            stdin=pipe,
            stdout=pipe,
            stderr=joined,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()
        # a prefix may have another folder; with job control a background job can be interrupted as by Ctrl-C
        self._write(f"cd {shlex.quote(str(folder))} || exit\nset -m\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Ends the shell and all of its jobs."""
        if self._process.poll() is None:
            self._write("trap '' TERM; jobs -p | xargs -r -I{} kill -TERM -- -{} 2>/dev/null; wait; exit\n")
        try:
            self._process.wait(_ENDS_WITHIN_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def run(self, command: str, within_s: float) -> tuple[int, str]:
        """The exit code and the output of a command of one or more lines; raises TimedOutError."""
        self._write(f"{{ {command}\n}} < /dev/null\nprintf '\\n{self._mark} %d\\n' $?\n")
        output: list[str] = []
        timer = threading.Timer(within_s, lambda: self._lines.put(None))
        timer.start()
        try:
            while (line := self._lines.get()) is not None:
                if ended := re.fullmatch(rf"{self._mark} (\d+)\n", line):
                    return int(ended[1]), "".join(output)
                output.append(line)
        finally:
            timer.cancel()
        raise TimedOutError("".join(output))

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _write(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(text)
        self._process.stdin.flush()
