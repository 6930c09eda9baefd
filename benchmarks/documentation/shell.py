"""A shell that runs one command after the other and keeps its variables, background jobs and environment between them."""

import contextlib
import pathlib
import queue
import re
import secrets
import shlex
import subprocess
import threading
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

import psutil

_ENDS_WITHIN_S = 15


class TimedOutError(Exception):
    """A command did not end in time; the shell cannot be used any more."""


class Shell:
    """A bash in a folder; a context manager. Commands read an empty stdin; stdout and stderr are one."""

    def __init__(self, folder: pathlib.Path, environment: Mapping[str, str], prefix: Sequence[str] = ()) -> None:
        self._mark = secrets.token_hex(8)
        # its jobs would go on ignoring an interrupt that this process ignores, as one in the background does
        command = [*prefix, "env", "--default-signal=INT", "bash", "--noprofile", "--norc"]
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
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        # a prefix may have another folder; with job control a background job can be interrupted as by Ctrl-C
        self._write(f"cd {shlex.quote(str(folder))} || exit\nset -m\n")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Ends the shell and all that runs in it."""
        inside = psutil.Process(self._process.pid).children(recursive=True)
        for process in inside:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        _, alive = psutil.wait_procs(inside, _ENDS_WITHIN_S)
        for process in alive:
            process.kill()
        self._process.kill()
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

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
