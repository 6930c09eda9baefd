"""The one supervisor of child processes: starts them, reads their output, and ends them in bounded time.

Every child runs in a session of its own, so that Ctrl-C in the terminal reaches perfkit alone. Its stdin is a pipe
that closes when perfkit ends, even if killed; perfkit's own children then end too.
"""

import asyncio
import contextlib
import fcntl
import math
import os
import pathlib
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, BinaryIO

from perfkit.override import override
from perfkit.process.loop_pipe import pipe_of_loop
from perfkit.process.message_stream import read_frame, read_message
from perfkit.process.messages import framed, message_bytes

_running: "set[subprocess.Popen[bytes]]" = set()
_READ_AHEAD_BYTES = 2**20
_LONGEST_LINE_BYTES = 2**16
_PIPE_BYTES = 2**18  # Linux lets everyone have 1 MiB
_KILLED_WITHIN_S = _ENDS_BY_ITSELF_WITHIN_S = 5
_LAST_OUTPUT_WITHIN_S = _UNUSED_ENDS_WITHIN_S = 1
# reads stdin, which is perfkit's to close, to its end; then stops process group $1, and kills it after $2 s
_GUARD = """
read -r _
kill -s TERM -- "-$1"
left=$2
while [ "$left" -gt 0 ]; do kill -s 0 -- "-$1" || exit 0; sleep 1; left=$((left - 1)); done
kill -s KILL -- "-$1"
"""


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


class NotReadyError(Exception):
    """A child ended, or was silent for too long, before it was ready; the text says which."""


def describe_status(status: int) -> str:
    """An exit status in words: `exit code 3`, or for a negative one `signal 9 (SIGKILL)`."""
    name = signal_name(status)
    return f"signal {-status}{f' ({name})' if name else ''}" if status < 0 else f"exit code {status}"


def signal_name(status: int) -> str:
    """The name of the signal that a negative exit status stands for; empty for an exit code, and for signals without a name."""
    with contextlib.suppress(ValueError):
        return signal.Signals(-status).name if status < 0 else ""
    return ""


class _Stdin(asyncio.BaseProtocol):
    """Whether a child takes what is sent to it, and who waits for that."""

    def __init__(self) -> None:
        self.is_full = False
        self.on_room: Callable[[], None] | None = None

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False
        if self.on_room is not None:
            self.on_room()


class Child:
    """A running child process, as `child_process` gives it."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        stdin: asyncio.WriteTransport,
        room: _Stdin,
        ended: "asyncio.Future[int]",
        output: BinaryIO | None,
    ) -> None:
        self.pid = process.pid
        self.ended = ended
        """The exit status, negative for a signal, once it has ended."""
        self._process, self._stdin, self._room, self._output = process, stdin, room, output
        self._stdout = asyncio.StreamReader(limit=_READ_AHEAD_BYTES)
        self._stderr = _LineReader()
        self._pipes: list[asyncio.ReadTransport] = []
        self._guard: subprocess.Popen[bytes] | None = None

    def send(self, message: object) -> None:
        """Sends a message to its stdin; a child that has ended misses it."""
        if not self._stdin.is_closing():
            self._stdin.write(message_bytes(message))

    def send_frame(self, body: bytes) -> None:
        """Sends bytes to its stdin, which are not pickled; a child that has ended misses them."""
        if not self._stdin.is_closing():
            self._stdin.write(framed(body))

    @property
    def is_full(self) -> bool:
        """Whether it has not read what was sent, so that more would wait here."""
        return self._room.is_full

    def call_when_not_full(self, on_room: Callable[[], None]) -> None:
        """Has a function called each time that it is full no more; its pipe is made as large as allowed."""
        self._room.on_room = on_room
        with contextlib.suppress(OSError):  # more than an unprivileged user may have
            fcntl.fcntl(self._stdin.get_extra_info("pipe"), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)

    @property
    def unsent_bytes(self) -> int:
        """The size in bytes of the sent messages that the process has not read yet."""
        return 0 if self._stdin.is_closing() else self._stdin.get_write_buffer_size()

    async def receive(self) -> Any:
        """The next message from its stdout; raises EOFError when there are no more."""
        return await read_message(self._stdout)

    async def receive_frame(self) -> bytes:
        """The next bytes that `framed` made, from its stdout; raises EOFError when there are no more."""
        return await read_frame(self._stdout)

    async def read_line(self, within_s: float) -> bytes:
        """The next line of its stdout; raises NotReadyError if none comes in time."""
        try:
            line = await asyncio.wait_for(self._stdout.readline(), within_s)
        except TimeoutError:
            raise NotReadyError(f"was not ready within {within_s:g} s") from None
        if not line:
            raise NotReadyError(await self.wait_for_end(_ENDS_BY_ITSELF_WITHIN_S))
        return line

    async def wait_for_end(self, within_s: float | None = None) -> str:
        """Waits until it ends by itself, and says how: `ended with exit code 3`, and the last line of its stderr if that is read."""
        await asyncio.wait([self.ended], timeout=within_s)
        if not self.ended.done():
            return "closed its output and did not end"
        await asyncio.wait([self._stderr.ended], timeout=_LAST_OUTPUT_WITHIN_S)
        how = describe_status(self.ended.result())
        return f"ended with {how}{f': {self._stderr.last_line}' if self._stderr.last_line else ''}"

    def close_stdin(self) -> None:
        """Ends a child that watches its stdin; what was sent and not yet written is lost."""
        if not self._stdin.is_closing():  # the event loop closes it when the child ends, and uvloop fails on a second close
            self._stdin.abort()

    def kill(self) -> None:
        """Ends it at once, with everything that it started in its session, also while it is stopped."""
        kill_group(self._process)

    async def _connect(self, on_line: Callable[[str], None] | None) -> None:
        """Has the event loop read its pipes."""
        loop = asyncio.get_running_loop()
        if self._process.stdout is not None:
            pipe, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(self._stdout), pipe_of_loop(self._process.stdout))
            self._pipes.append(pipe)
        else:
            self._stdout.feed_eof()
        if self._process.stderr is not None:
            self._stderr.on_line = on_line
            pipe, _ = await loop.connect_read_pipe(lambda: self._stderr, pipe_of_loop(self._process.stderr))
            self._pipes.append(pipe)
        else:
            self._stderr.connection_lost(None)

    async def _stop(self, waits_s: tuple[float, float]) -> None:
        """Closes its stdin, waits, sends SIGTERM, waits, sends SIGKILL; gives up on a child that survives it."""
        self.close_stdin()
        discarding = asyncio.ensure_future(self._discard_output())  # a child that blocks on a full pipe could not end
        try:
            await asyncio.wait([self.ended], timeout=waits_s[0])
            self._signal(signal.SIGTERM)
            self._signal(signal.SIGCONT)  # a stopped process takes SIGTERM only when it goes on
            await asyncio.wait([self.ended], timeout=waits_s[1])
            if not self.ended.done():
                self._note(f"process {self.pid} did not end within {sum(waits_s):g} s and was killed")
                self.kill()
            await asyncio.wait([self.ended], timeout=_KILLED_WITHIN_S)
            if not self.ended.done():
                self._note(f"process {self.pid} is still there {_KILLED_WITHIN_S} s after it was killed: the system does not end it")
        finally:
            self.kill()  # if waiting was interrupted
            if self._guard is not None:
                self._guard.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._guard.communicate(timeout=_KILLED_WITHIN_S)
            discarding.cancel()
            for pipe in self._pipes:
                pipe.close()
            await asyncio.sleep(0)  # the event loop closes the files in its next turn

    def _note(self, text: str) -> None:
        """A line about this child, where its own lines go."""
        if self._stderr.on_line is not None:
            self._stderr.on_line(text)
        else:
            stream = self._output or sys.stderr.buffer
            with contextlib.suppress(OSError, ValueError):  # a full disk, or a terminal that is gone
                stream.write(f"perfkit: {text}\n".encode())
                stream.flush()

    async def _discard_output(self) -> None:
        while await self._stdout.read(_READ_AHEAD_BYTES):
            pass

    def _signal(self, number: signal.Signals) -> None:
        if not self.ended.done():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)


class _LineReader(asyncio.Protocol):
    """Splits what a child writes to stderr into lines."""

    def __init__(self) -> None:
        self.on_line: Callable[[str], None] | None = None
        self.last_line = ""
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unfinished = b""

    @override
    def data_received(self, data: bytes) -> None:
        *lines, self._unfinished = (self._unfinished + data).split(b"\n")
        if len(self._unfinished) > _LONGEST_LINE_BYTES:
            lines, self._unfinished = [*lines, self._unfinished], b""
        for line in lines:
            self._take(line)

    @override
    def connection_lost(self, _error: Exception | None) -> None:
        if self._unfinished:
            self._take(self._unfinished)
        if not self.ended.done():
            self.ended.set_result(None)

    def _take(self, line: bytes) -> None:
        self.last_line = line.decode(errors="replace").rstrip()
        if self.on_line is not None:
            self.on_line(self.last_line)


@contextlib.asynccontextmanager
async def child_process(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    output: BinaryIO | None = None,
    on_line: Callable[[str], None] | None = None,
    ends_with_stdin: bool = True,
    stop_within_s: float = 5,
    folder: pathlib.Path | None = None,
    spawned: "subprocess.Popen[bytes] | None" = None,
) -> AsyncIterator[Child]:
    """Runs a command for the length of the block, in `folder` or this process's working folder.

    It gets this process's environment, or the one given. Its stdout is a pipe; its stderr is perfkit's own, or given to `on_line` line by line; both go to `output` where that is
    set. At the end its stdin is closed; it gets SIGTERM after `stop_within_s`, and SIGKILL a second later.

    With `ends_with_stdin=False`, for programs that do not watch their stdin, it gets SIGTERM at once and SIGKILL after
    `stop_within_s`; a guard process does the same if perfkit is killed. Raises OSError if the command cannot be run.

    `spawned` is the command's process, where `spawn` has started it already.
    """
    waits_s = (stop_within_s, 1.0) if ends_with_stdin else (0.0, stop_within_s)
    process = spawned or spawn(command, environment, output, reads_stderr=on_line is not None, folder=folder)
    starting = asyncio.ensure_future(_start(process, output, on_line, None if ends_with_stdin else stop_within_s))
    try:
        await asyncio.wait([starting])  # not cancelled with this coroutine: a half-started process would never be ended
        yield starting.result()
    finally:
        if not starting.done():  # an await here may raise a cancellation that is pending, and the child would go on running
            await asyncio.wait([starting])
        if starting.exception() is None:
            await starting.result()._stop(waits_s)  # noqa: SLF001 - of this module


def spawn(
    command: Sequence[str],
    environment: Mapping[str, str] | None,
    output: BinaryIO | None = None,
    *,
    reads_stderr: bool,
    folder: pathlib.Path | None = None,
) -> "subprocess.Popen[bytes]":
    """Starts a command for `child_process`, or for `end_unused`; it blocks no longer than a fork."""
    # not asyncio's subprocesses: uvloop forks, which hangs if gRPC's threads run
    process = subprocess.Popen(
        command,
        env=environment,
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=output or subprocess.PIPE,
        stderr=output or (subprocess.PIPE if reads_stderr else None),
        start_new_session=True,
    )
    register(process)
    return process


def end_unused(process: "subprocess.Popen[bytes]") -> None:
    """Kills a process that `spawn` has started and that is not needed after all; blocks for a second at most, if the system does not end it."""
    kill_group(process)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_UNUSED_ENDS_WITHIN_S)
        unregister(process)


async def _start(
    process: "subprocess.Popen[bytes]", output: BinaryIO | None, on_line: Callable[[str], None] | None, guard_s: float | None
) -> Child:
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()
    threading.Thread(target=_wait, args=(process, loop, ended), name=f"child {process.pid}", daemon=True).start()
    try:
        assert process.stdin is not None
        stdin, room = await loop.connect_write_pipe(_Stdin, pipe_of_loop(process.stdin))
        child = Child(process, stdin, room, ended, output)
        await child._connect(on_line)  # noqa: SLF001 - of this module
        if guard_s is not None:
            words = ["sh", "-c", _GUARD, "perfkit-guard", str(process.pid), str(math.ceil(guard_s))]
            quiet = subprocess.DEVNULL
            child._guard = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=quiet, stderr=quiet, start_new_session=True)  # noqa: ASYNC220, SLF001 - as above
    except BaseException:
        process.kill()
        raise
    return child


def _wait(process: "subprocess.Popen[bytes]", loop: asyncio.AbstractEventLoop, ended: "asyncio.Future[int]") -> None:
    """Waits for the end in a thread, since event loops and systems differ in how they can wait for it."""
    status = process.wait()
    unregister(process)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)  # what it started and left running
    with contextlib.suppress(RuntimeError):  # the loop may be closed by then
        loop.call_soon_threadsafe(ended.set_result, status)
