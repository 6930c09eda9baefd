"""A run's connection to its sampler process."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from typing import Any

from perfkit.errors import UsageError
from perfkit.process.child import Child
from perfkit.process.start_module import start_module
from perfkit.telemetry.messages import FollowWorkers, IntervalTimes, PublishMetrics, Started, TelemetryConfig, WindowReport, WindowRequest

# the sampler process starts within 40 s, and answers within two times 20 s
_ANSWER_TIMEOUT_S, _CLOSE_TIMEOUT_S = 60, 10


class TelemetryClient:
    """Follows workers, publishes live metrics, and requests reports of windows.

    If the process ends, that is noted once, and all later reports are empty. Without a process they are empty without a note.
    """

    def __init__(self, child: Child | None = None) -> None:
        self.notes: list[str] = []
        self.url = ""
        """Where Prometheus can read the run's live metrics; empty if they are not served."""
        self._child = child

    async def configure(self, config: TelemetryConfig) -> None:
        """Starts the samplers and waits until they run; raises UsageError if the port for live metrics cannot be used."""
        self._send(config)
        answer = await self._answer()
        if isinstance(answer, Started):
            self.notes += answer.notes
            if config.listen is not None:
                host, port = config.listen
                if answer.port is None:
                    raise UsageError(f"--prometheus {host}:{port}: cannot listen: {answer.error}; use another port, or 0 for a free one")
                self.url = f"http://{f'[{host}]' if ':' in host else host}:{answer.port}/metrics"

    def follow(self, pids: Sequence[int]) -> None:
        """Names the processes that generate the load from now on."""
        self._send(FollowWorkers(tuple(pids)))

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
        """The next answer; None if the process has ended or does not answer."""
        if self._child is not None:
            try:
                return await asyncio.wait_for(self._child.receive(), _ANSWER_TIMEOUT_S)
            except (EOFError, TimeoutError) as error:
                self._child.kill()  # a late answer would be taken for the next one
                self._child = None
                how = "ended" if isinstance(error, EOFError) else f"did not answer within {_ANSWER_TIMEOUT_S} s"
                self.notes.append(f"The telemetry process {how}: the rest of the run has no telemetry.")
        return None


@contextlib.asynccontextmanager
async def open_telemetry(config: TelemetryConfig | None) -> AsyncIterator[TelemetryClient]:
    """Samples in a process of its own while the block lasts; without a configuration nothing is sampled.

    Raises UsageError if the port for live metrics cannot be used.
    """
    if config is None:
        yield TelemetryClient()
        return
    async with start_module("perfkit.telemetry.sampler_process", stop_within_s=_CLOSE_TIMEOUT_S) as child:
        client = TelemetryClient(child)
        await client.configure(config)
        yield client
