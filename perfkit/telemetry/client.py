"""A run's side of the process that samples for it: started, asked for windows, ended."""

import asyncio
import contextlib
import pickle
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from typing import Any

from perfkit.errors import UsageError
from perfkit.telemetry.messages import FollowWorkers, IntervalTimes, PublishMetrics, Started, TelemetryConfig, WindowReport, WindowRequest

_ENDS_WITHIN_S = 10


class TelemetryClient:
    """The process, once its samplers run. Where it is gone, that is noted once, and there is nothing to see any more.

    Without a process there is nothing to see either, and nothing to note.
    """

    def __init__(self, process: "subprocess.Popen[bytes] | None" = None, orders: asyncio.WriteTransport | None = None) -> None:
        self.notes: list[str] = []
        self.url = ""
        """Where the run is published for Prometheus; empty where it is not."""
        self._process, self._orders = process, orders
        self._is_gone = process is None

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
        if self._orders is not None and not self._orders.is_closing():
            self._orders.write(pickle.dumps(message))

    async def _answer(self) -> Any:
        """The next one; None where the process is gone."""
        if self._process is not None and not self._is_gone:
            try:
                return await asyncio.to_thread(pickle.load, self._process.stdout)  # type: ignore[arg-type]
            except (EOFError, pickle.UnpicklingError, OSError):
                self._is_gone = True
                self.notes.append("The process that samples this run ended: there is no telemetry from then on.")
        return None


@contextlib.asynccontextmanager
async def open_telemetry(watched: TelemetryConfig | None) -> AsyncIterator[TelemetryClient]:
    """Samples for the length of the block, in a process of its own; None samples nothing, without one.

    Raises UsageError where the run cannot be published.
    """
    if watched is None:
        yield TelemetryClient()
        return
    process = subprocess.Popen(  # noqa: ASYNC220 - the event loop's own way forks, which hangs where gRPC's threads run
        [sys.executable, "-m", "perfkit.telemetry.sampler_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C in the terminal is for perfkit
    )
    assert process.stdin is not None
    assert process.stdout is not None
    connecting = asyncio.ensure_future(asyncio.get_running_loop().connect_write_pipe(asyncio.BaseProtocol, process.stdin))
    try:
        await asyncio.wait([connecting])  # which is not cancelled with us: halfway the pipe would be neither the loop's nor ours
        watch = TelemetryClient(process, connecting.result()[0])
        await watch.started(watched)
        yield watch
    finally:
        orders, _ = await connecting
        if not orders.is_closing():  # it closes by itself where the process is gone, and must not be asked to again
            orders.abort()  # which ends it
        ended = asyncio.ensure_future(asyncio.to_thread(process.wait))
        await asyncio.wait([ended], timeout=_ENDS_WITHIN_S)
        if not ended.done():
            process.kill()
        await ended
        process.stdout.close()
