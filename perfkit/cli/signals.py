"""Handles SIGINT and SIGTERM while a command measures."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from perfkit.cli.exit_code import ExitCode

if TYPE_CHECKING:
    from perfkit.measurement.control import Interruption

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class SignalHandler:
    """Passes signals on to an interruption, and remembers them for the exit code."""

    def __init__(self, interruption: "Interruption", on_first: Callable[[], None] | None = None) -> None:
        self.count = 0
        self.exit_code: ExitCode | None = None
        """The exit code of the interrupted command; None before the first signal."""
        self._interruption, self._on_first = interruption, on_first

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Handles signals in the running event loop for the length of the block."""
        loop = asyncio.get_running_loop()
        for number in _SIGNALS:
            loop.add_signal_handler(number, self._handle, number)
        try:
            yield
        finally:
            for number in _SIGNALS:
                loop.remove_signal_handler(number)

    def _handle(self, number: signal.Signals) -> None:
        self.count += 1
        self._interruption.interrupt()
        if self.count == 1:
            self.exit_code = ExitCode.TERMINATED if number is signal.SIGTERM else ExitCode.INTERRUPTED
            if self._on_first is not None:
                self._on_first()
