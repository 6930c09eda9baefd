"""A run's side of the process that samples for it: started, asked for windows, ended."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

from perfkit.errors import UsageError
from perfkit.process.child import Child, child_process
from perfkit.telemetry.messages import FollowWorkers, IntervalTimes, PublishMetrics, Started, TelemetryConfig, WindowReport, WindowRequest

# the sampler process itself bounds its start by 40 s and an answer by two times 20 s
_ANSWERS_WITHIN_S, _ENDS_WITHIN_S = 60, 10


class TelemetryClient:
    """The process, once its samplers run. Where it is gone, that is noted once, and there is nothing to see any more.

    Without a process there is nothing to see either, and nothing to note.
    """

    def __init__(self, child: Child | None = None) -> None:
        self.notes: list[str] = []
        self.url = ""
        """Where the run is published for Prometheus; empty where it is not."""
        self._child = child

    async def started(self, watched: TelemetryConfig) -> None:
        """Hands over what is to be sampled, and waits until it is; raises UsageError where the run cannot be published."""
        self._send(watched)
        answer = await self._answer()
        if isinstance(answer, Started):
            self.notes += answer.notes
            if watched.listen is not None:
                host, port = watched.listen
                if answer.port is None:
                    raise UsageError(
                        f"--prometheus {host}:{port}: cannot be listened on: {answer.error}; give another port, or 0 for a free one"
                    )
                self.url = f"http://{f'[{host}]' if ':' in host else host}:{answer.port}/metrics"

    def follow(self, pids: Sequence[int]) -> None:
        """Says which processes generate the load from now on."""
        self._send(FollowWorkers(tuple(pids)))

    def publish(self, message: PublishMetrics | IntervalTimes) -> None:
        """Hands on what is for those who watch the run, where that is asked for."""
        if self.url:
            self._send(message)

    async def window(self, start_ns: int, end_ns: int) -> WindowReport:
        """What every sampler saw of a span that has just passed."""
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
        """The next answer; None where the process has ended or does not answer."""
        if self._child is not None:
            try:
                return await asyncio.wait_for(self._child.receive(), _ANSWERS_WITHIN_S)
            except (EOFError, TimeoutError) as error:
                self._child.kill()  # a late answer would be taken for that to another question
                self._child = None
                how = "ended" if isinstance(error, EOFError) else f"did not answer within {_ANSWERS_WITHIN_S} s"
                self.notes.append(f"The process that samples this run {how}: there is no telemetry from then on.")
        return None


@contextlib.asynccontextmanager
async def open_telemetry(watched: TelemetryConfig | None) -> AsyncIterator[TelemetryClient]:
    """Samples for the length of the block, in a process of its own; None samples nothing, without one.

    Raises UsageError where the run cannot be published.
    """
    if watched is None:
        yield TelemetryClient()
        return
    async with child_process((sys.executable, "-m", "perfkit.telemetry.sampler_process"), stop_within_s=_ENDS_WITHIN_S) as child:
        client = TelemetryClient(child)
        await client.started(watched)
        yield client
