"""A run's connection to its sampler process."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

from perfkit.errors import UsageError
from perfkit.process.child import Child
from perfkit.process.start_module import start_module
from perfkit.recorder.recent import LiveFigures
from perfkit.telemetry.messages import (
    CloseScreen,
    FollowWorkers,
    IntervalTimes,
    PointBegins,
    PublishMetrics,
    ScreenClosed,
    ScreenLine,
    Started,
    TelemetryConfig,
    Waiting,
    WindowReport,
    WindowRequest,
)

# while the sampler process waits for its samplers, it says so every second; before its first message it imports libraries
_STARTS_WITHIN_S, _MAX_SILENCE_S, _CLOSE_TIMEOUT_S = 60, 10, 10


class TelemetryClient:
    """Follows workers, publishes live metrics, and requests reports of windows.

    If the process ends, or is silent for `max_silence_s`, it is killed, that is noted once, and all later reports are empty. Without a
    process they are empty without a note.
    """

    def __init__(self, child: Child | None = None, max_silence_s: int = _MAX_SILENCE_S) -> None:
        self.notes: list[str] = []
        self.url = ""
        """Where Prometheus can read the run's live metrics; empty if they are not served."""
        self.lost = ""
        """Why the process is gone, as a sentence; empty as long as it runs."""
        self._has_screen = False
        self._child, self._max_silence_s, self._may_be_silent_s = child, max_silence_s, _STARTS_WITHIN_S

    async def configure(self, config: TelemetryConfig) -> None:
        """Starts the samplers and waits until they run; raises UsageError if the port for live metrics cannot be used."""
        self._send(config)
        answer = await self._answer()
        if isinstance(answer, Started):
            self.notes += answer.notes
            self._has_screen = answer.has_screen
            if config.listen is not None:
                host, port = config.listen
                if answer.port is None:
                    raise UsageError(f"--prometheus {host}:{port}: cannot listen: {answer.error}; use another port, or 0 for a free one")
                self.url = f"http://{f'[{host}]' if ':' in host else host}:{answer.port}/metrics"

    def follow(self, pids: Sequence[int]) -> None:
        """Names the processes that generate the load from now on."""
        self._send(FollowWorkers(tuple(pids)))

    @property
    def has_screen(self) -> bool:
        """Whether the process draws a live view; lines for the terminal must then go through `show`."""
        return self._has_screen and self._child is not None and not self._child.ended.done()

    def show(self, message: PointBegins | LiveFigures | ScreenLine) -> None:
        """Sends a message to the live view, if there is one."""
        if self.has_screen:
            self._send(message)

    async def close_screen(self) -> None:
        """Removes the live view; afterwards the terminal is the run's own."""
        if self.has_screen:
            self._send(CloseScreen())
            while self._child is not None and not isinstance(await self._answer(), ScreenClosed):
                pass
        self._has_screen = False

    def publish(self, message: PublishMetrics | IntervalTimes) -> None:
        """Sends live metrics, if they are served."""
        if self.url:
            self._send(message)

    async def window(self, start_ns: int, end_ns: int) -> WindowReport:
        """The samplers' reports of a span that has just ended."""
        self._send(WindowRequest(start_ns, end_ns))
        answer = await self._answer()
        if not isinstance(answer, WindowReport):
            return WindowReport({}, ())
        self.notes += answer.notes
        return answer

    def _send(self, message: object) -> None:
        if self._child is not None:
            self._child.send(message)

    async def _answer(self) -> Any:
        """The next answer; None if the process has ended or is silent."""
        while self._child is not None:
            message = await self._message(self._child)
            if not isinstance(message, Waiting):
                return message
        return None

    async def _message(self, child: Child) -> Any:
        receiving = asyncio.ensure_future(child.receive())
        try:
            for _ in range(self._may_be_silent_s):  # second by second: a pause of this process is not the child's silence
                if (await asyncio.wait([receiving], timeout=1))[0]:
                    self._may_be_silent_s = self._max_silence_s
                    return receiving.result()
            how = f"said nothing for {self._may_be_silent_s} s and was killed"
        except EOFError:
            how = "ended"
        finally:
            receiving.cancel()
        child.kill()  # a late answer would be taken for the next one
        self._child = None
        self.lost = f"The telemetry process {child.pid} {how}: the rest of the run has no telemetry."
        self.notes.append(self.lost)
        return None


@contextlib.asynccontextmanager
async def open_telemetry(config: TelemetryConfig | None, max_silence_s: int = _MAX_SILENCE_S) -> AsyncIterator[TelemetryClient]:
    """Samples in a process of its own while the block lasts; without a configuration nothing is sampled.

    Raises UsageError if the port for live metrics cannot be used.
    """
    if config is None:
        yield TelemetryClient()
        return
    async with start_module("perfkit.telemetry.sampler_process", stop_within_s=_CLOSE_TIMEOUT_S) as child:
        client = TelemetryClient(child, max_silence_s)
        await client.configure(config)
        yield client
