"""A run's connection to its sampler process."""

import asyncio
import collections
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

from perfkit.errors import UsageError
from perfkit.process.child import Child
from perfkit.process.start_module import SAMPLER, start_module
from perfkit.telemetry.messages import (
    CloseScreen,
    FollowWorkers,
    IntervalTimes,
    PointBegins,
    PublishMetrics,
    RunEnded,
    ScreenClosed,
    ScreenLines,
    SpanCounts,
    SpansReport,
    SpansRequest,
    Started,
    TelemetryConfig,
    Waiting,
    WindowReport,
    WindowRequest,
)

if TYPE_CHECKING:
    from perfkit.recorder.recent import LiveFigures

# while the sampler process waits for its samplers, it says so every second; before its first message it imports libraries
_STARTS_WITHIN_S, _MAX_SILENCE_S, _CLOSE_TIMEOUT_S = 60, 10, 10
_SHOW_EVERY_S, _MOST_UNSENT_BYTES, _MOST_FIGURES, _MOST_LINES = 0.1, 2**16, 64, 500


class ScreenQueue:
    """The messages for the live view that are still to be sent to the sampler process; a full queue drops the oldest.

    `send` sends a message to the process, and `unsent_bytes` returns the size of the sent messages that the process has not read yet.
    Lines that come within a tenth of a second are sent, and printed, together.
    """

    def __init__(self, send: Callable[[object], None], unsent_bytes: Callable[[], int]) -> None:
        self._send, self._unsent_bytes = send, unsent_bytes
        self._begins: PointBegins | None = None
        self._figures: collections.deque[LiveFigures] = collections.deque(maxlen=_MOST_FIGURES)
        self._lines: collections.deque[str] = collections.deque(maxlen=_MOST_LINES)
        self._lines_left_out = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, message: "PointBegins | LiveFigures") -> None:
        """Adds a state, and sends what is waiting unless the process is behind."""
        if isinstance(message, PointBegins):
            self._begins = message
            self._figures.clear()  # of the load point before
        else:
            self._figures.append(message)
        self._send_waiting()

    def add_line(self, text: str) -> None:
        """Adds a line; the first is sent at once, those within the next tenth of a second after it."""
        self._lines_left_out += len(self._lines) == _MOST_LINES
        self._lines.append(text)
        if self._timer is None:
            self._send_waiting()
            self._start_timer()

    def close(self) -> None:
        """Sends the lines that are waiting, however far the process is behind."""
        if self._timer is not None:
            self._timer.cancel()
        self._send_lines()

    def _send_waiting(self) -> None:
        if self._unsent_bytes() > _MOST_UNSENT_BYTES:
            if self._timer is None:
                self._start_timer()
            return
        self._send_lines()
        if self._begins is not None:
            self._send(self._begins)
            self._begins = None
        while self._figures and self._unsent_bytes() <= _MOST_UNSENT_BYTES:
            self._send(self._figures.popleft())

    def _send_lines(self) -> None:
        if self._lines:
            self._send(ScreenLines(tuple(self._lines), self._lines_left_out))
            self._lines.clear()
            self._lines_left_out = 0

    def _start_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(_SHOW_EVERY_S, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._lines or self._begins is not None or self._figures:
            self._start_timer()
            self._send_waiting()


class TelemetryClient:
    """Follows workers, publishes live metrics, and requests reports of windows.

    If the process ends, or is silent for `max_silence_s`, it is killed, that is noted once, and all later reports are empty. Without a
    process they are empty without a note.
    """

    def __init__(self, child: Child | None = None, max_silence_s: int = _MAX_SILENCE_S) -> None:
        self.notes: list[str] = []
        self.url = ""
        """Where Prometheus can read the run's live metrics; empty if they are not served."""
        self.spans_port: int | None = None
        """Where the server's spans are received; None if they are not."""
        self.lost = ""
        """Why the process is gone, as a sentence; empty as long as it runs."""
        self.is_configured = False
        self._has_screen = self._pushes = False
        self._child, self._max_silence_s, self._may_be_silent_s = child, max_silence_s, _STARTS_WITHIN_S
        self._screen = ScreenQueue(self._send, lambda: child.unsent_bytes if child is not None else 0)

    async def configure(self, config: TelemetryConfig) -> None:
        """Starts the samplers and waits until they run; raises UsageError if the port for live metrics or for spans cannot be used."""
        self.is_configured, self._pushes = True, bool(config.otlp)
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
            if config.spans is not None:
                host, port = config.spans.host, config.spans.port
                if answer.spans_port is None:
                    raise UsageError(f"traces.listen: {host}:{port}: cannot listen: {answer.spans_error}; use another port")
                self.spans_port = answer.spans_port

    def end_run(self) -> None:
        """Ends the sampling of this run; the process goes on for another."""
        self._send(RunEnded())

    def follow(self, pids: Sequence[int]) -> None:
        """Names the processes that generate the load from now on."""
        self._send(FollowWorkers(tuple(pids)))

    @property
    def has_screen(self) -> bool:
        """Whether the process draws a live view; lines for the terminal must then go through `show_line`."""
        return self._has_screen and self._child is not None and not self._child.ended.done()

    def show(self, message: "PointBegins | LiveFigures") -> None:
        """Shows a state in the live view, if there is one."""
        if self.has_screen:
            self._screen.add(message)

    def show_line(self, text: str) -> bool:
        """Prints a line above the live view; False if there is none."""
        if self.has_screen:
            self._screen.add_line(text)
        return self.has_screen

    async def close_screen(self) -> None:
        """Removes the live view; afterwards the terminal is the run's own."""
        if self.has_screen:
            self._screen.close()
            self._send(CloseScreen())
            while self._child is not None and not isinstance(await self._answer(), ScreenClosed):
                pass
        self._has_screen = False

    @property
    def is_published(self) -> bool:
        """Whether live metrics are served or pushed."""
        return bool(self.url) or self._pushes

    def publish(self, message: PublishMetrics | IntervalTimes) -> None:
        """Sends live metrics, if they are served or pushed."""
        if self.is_published:
            self._send(message)

    async def window(self, start_ns: int, end_ns: int) -> WindowReport:
        """The samplers' reports of a span that has just ended."""
        self._send(WindowRequest(start_ns, end_ns))
        answer = await self._answer()
        if not isinstance(answer, WindowReport):
            return WindowReport({}, ())
        self.notes += answer.notes
        return answer

    async def spans(self, trace_ids: Sequence[str], within_s: float) -> SpansReport:
        """The server's times of these traces; waits at most `within_s` for their spans."""
        answer = None
        if self.spans_port is not None:
            self._send(SpansRequest(tuple(trace_ids), within_s))
            answer = await self._answer()
        return answer if isinstance(answer, SpansReport) else SpansReport({}, SpanCounts())

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


class SamplerProcess:
    """The sampler process, which stays from one run to the next; leaving the context ends it."""

    def __init__(self, max_silence_s: int = _MAX_SILENCE_S) -> None:
        self._max_silence_s = max_silence_s
        self._idle: Child | None = None
        self._ending = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._ending.aclose()

    @contextlib.asynccontextmanager
    async def run(self, *, is_wanted: bool = True) -> AsyncIterator[TelemetryClient]:
        """The process for a run, for the length of the block, without waiting for its start: it imports its libraries meanwhile.

        `TelemetryClient.configure` then starts the samplers. Unless it `is_wanted` there is no process, and nothing is sampled. A process
        is not used again after an error, since answers may be on their way.
        """
        if not is_wanted:
            yield TelemetryClient()
            return
        child, self._idle = self._idle, None
        if child is None or child.ended.done():
            child = await self._ending.enter_async_context(start_module(SAMPLER, stop_within_s=_CLOSE_TIMEOUT_S))
        client = TelemetryClient(child, self._max_silence_s)
        try:
            yield client
            if client.is_configured and not client.lost:
                client.end_run()
                self._idle = child
        finally:
            if not client.is_configured:  # it has nothing to end in order, and may be importing still
                child.kill()
            elif self._idle is None:
                child.close_stdin()
