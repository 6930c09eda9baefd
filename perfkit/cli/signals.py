"""The signals that end a command: Ctrl-C, SIGTERM, and SIGHUP, which a terminal sends when it is closed.

The first lets the command end with what it has measured. The second ends it within a second, whatever hangs: while an event loop
runs, signals are taken by a thread of their own, to which Python's handler in C passes them on, so that a blocked loop delays nothing.
"""

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeVar

from perfkit.cli.exit_code import ExitCode
from perfkit.process.child import kill_all

if TYPE_CHECKING:
    from perfkit.measurement.control import Interruption

_T = TypeVar("_T")
_EXIT_CODES = {signal.SIGINT: ExitCode.INTERRUPTED, signal.SIGTERM: ExitCode.TERMINATED, signal.SIGHUP: ExitCode.HUNG_UP}
# after the second signal: what does not hang has stored its results by then; what waits for a child goes on when it is killed
_KILLS_CHILDREN_AFTER_S, _ENDS_AFTER_S = 0.3, 0.8
_must_end = threading.Event()


def end_if_interrupted_twice(code: int) -> None:
    """Ends this process, if there was a second signal, without the interpreter's own clean-up, which no thread could cut short."""
    if _must_end.is_set():
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _handled() -> Sequence[signal.Signals]:
    """The signals to handle: under nohup, SIGHUP stays ignored."""
    return [number for number in _EXIT_CODES if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN]


class SignalHandler:
    """Passes signals on to an interruption, and remembers them for the exit code."""

    def __init__(
        self,
        interruption: "Interruption | None" = None,
        on_first: Callable[[], None] | None = None,
        *,
        code_of_ctrl_c: ExitCode = ExitCode.INTERRUPTED,
    ) -> None:
        self.count = 0
        self.has_come = False
        """Whether there was a signal; unlike `count`, which a thread changes, up to date in the main thread as soon as a block ends."""
        self.exit_code: ExitCode | None = None
        """The exit code of the interrupted command; None before the first signal."""
        self.interruption = interruption
        self.before_exit: Callable[[], ExitCode | None] | None = None
        """Called before a second signal ends the process, in any thread; its exit code if it is not that of the signal."""
        self._on_first, self._code_of_ctrl_c = on_first, code_of_ctrl_c
        self._terminals = [descriptor for descriptor in range(3) if os.isatty(descriptor)]

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Runs a coroutine in an event loop of its own, and handles signals meanwhile; the first one cancels it, unless it sends load."""
        import uvloop

        async def handled() -> _T:
            if self.interruption is not None:
                self.interruption.task = asyncio.current_task()
            with self.installed():
                return await work

        return uvloop.run(handled())

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Handles signals in the running event loop for the length of the block, which is in the main thread.

        After a second signal the process ends in any case, also if that is after the block.
        """
        loop = asyncio.get_running_loop()
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        threading.Thread(target=self._take_signals, args=(reading, loop), name="signals", daemon=True).start()
        earlier = {number: signal.signal(number, self._note) for number in _handled()}
        earlier_descriptor = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(earlier_descriptor)
            for number, handler in earlier.items():
                signal.signal(number, handler)
            os.close(writing)  # ends the thread

    @contextlib.contextmanager
    def installed_between_loops(self) -> Iterator[None]:
        """Handles signals for the length of the block, which is in the main thread, where no event loop has this handler `installed`.

        The first is counted, for the block to look at; the second ends the process.
        """
        earlier = {number: signal.signal(number, self._take) for number in _handled()}
        try:
            yield
        finally:
            for number, handler in earlier.items():
                signal.signal(number, handler)

    def _note(self, _number: int, _frame: FrameType | None) -> None:
        self.has_come = True

    def _take(self, number: int, _frame: FrameType | None) -> None:
        self.has_come = True
        self._count(signal.Signals(number))
        if self.count > 1:
            self._exit()

    def _count(self, number: signal.Signals) -> None:
        self.count += 1
        if self.count == 1:
            self.exit_code = self._code_of_ctrl_c if number is signal.SIGINT else _EXIT_CODES[number]
        if number is signal.SIGHUP:
            self._leave_terminal()

    def _exit(self) -> None:
        kill_all()
        codes = (None if self.before_exit is None else self.before_exit(), self.exit_code, ExitCode.INTERRUPTED)
        os._exit(next(code for code in codes if code is not None))

    def _take_signals(self, reading: int, loop: asyncio.AbstractEventLoop) -> None:
        """Runs in the thread; each byte is the number of a signal."""
        with open(reading, "rb", buffering=0) as signals:
            while numbers := signals.read(1):
                if numbers[0] not in _EXIT_CODES:
                    continue
                self._count(signal.Signals(numbers[0]))
                with contextlib.suppress(RuntimeError):  # the loop has been closed
                    loop.call_soon_threadsafe(self._interrupt, self.count)
                if self.count == 2:
                    _must_end.set()
                    threading.Event().wait(_KILLS_CHILDREN_AFTER_S)
                    kill_all()
                    threading.Event().wait(_ENDS_AFTER_S - _KILLS_CHILDREN_AFTER_S)
                    self._exit()

    def _interrupt(self, count: int) -> None:
        """Runs in the event loop."""
        if self.interruption is not None:
            self.interruption.interrupt()
        if count == 1 and self._on_first is not None:
            self._on_first()

    def _leave_terminal(self) -> None:
        """Has what is still read and written go nowhere instead of to a terminal that is gone, which would be an error each time."""
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in self._terminals:
            os.dup2(nowhere, descriptor)
        os.close(nowhere)
