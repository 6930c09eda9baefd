"""The server's statistics over time: queue and compute times between readings during the load.

Requests are under way at each reading, so the means cover the requests that the server finished since the previous one. A load
point's figures come from `perfkit.telemetry.server.statistics` instead, which reads before and after the load.
"""

import asyncio
from collections.abc import Callable, Sequence

from perfkit.api_v2.client import Client, make_client
from perfkit.clock import Clock
from perfkit.errors import TargetError
from perfkit.override import override
from perfkit.protocol.statistics import ModelStatistics
from perfkit.target.address import Address
from perfkit.telemetry.messages import StatisticsConfig
from perfkit.telemetry.series import Sampler, SamplerReport, Series, SeriesBuffer, Span, newest
from perfkit.telemetry.server.statistics import Reading, falls
from perfkit.transport.options import STATISTICS_LIMIT, TransportOptions
from perfkit.units import NS_PER_S

_TIMES = ("queue", "compute_input", "compute_infer", "compute_output")
_TIMEOUT_NS = 2 * NS_PER_S


class ServerStatisticsSampler(Sampler[tuple[Span, ...]]):
    """A `Sampler` that reads over one connection; a server without statistics is noted, and not read again."""

    def __init__(
        self, config: StatisticsConfig, clock: Clock, make: Callable[[Address, TransportOptions, Clock], Client] = make_client
    ) -> None:
        super().__init__()
        self._config, self._clock, self._make = config, clock, make
        self._runner = asyncio.Runner()
        self._client: Client | None = None
        units = {f"server_{name}": "ns" for name in _TIMES} | {"server_answers_per_s": "per_s", "server_mean_batch": "count"}
        self._buffers = {name: SeriesBuffer(name, unit) for name, unit in units.items()}
        self._previous: tuple[int, Reading] | None = None
        self._resets: list[Span] = []

    @override
    def start(self) -> bool:
        self._client = self._runner.run(self._connect())
        statistics = self._read()
        if statistics == {}:
            instead = (
                "those of its page of metrics, as far as it has them"
                if self._config.has_page
                else "not known. If it has a page of metrics, target.metrics_url takes them from there"
            )
            self.notes.append(f"The server has no v2 statistics: its queue and compute times are {instead}.")
        return statistics != {}  # a server that did not answer may do so later

    @override
    def sample(self) -> int:
        now_ns = self._clock.now_ns()
        if (statistics := self._read()) is not None:
            self._add(now_ns, statistics)
        return now_ns + self._config.interval_ns

    @override
    def window(self, start_ns: int, end_ns: int) -> SamplerReport[tuple[Span, ...]]:
        """The summary is the spans of the whole run so far in which counters fell."""
        series = tuple(series for buffer in self._buffers.values() if (series := buffer.between(start_ns, end_ns)).values)
        for buffer in self._buffers.values():
            buffer.forget_before(start_ns)
        return SamplerReport(tuple(self._resets), series)

    @override
    def latest(self) -> Sequence[Series]:
        return newest(self._buffers.values())

    @override
    def close(self) -> None:
        if self._client is not None:
            self._runner.run(self._client.aclose())
        self._runner.close()

    async def _connect(self) -> Client:
        """A coroutine because transports are made on the event loop that they use."""
        return self._make(self._config.address, TransportOptions(timeout_ns=_TIMEOUT_NS, answer_limit=STATISTICS_LIMIT), self._clock)

    def _read(self) -> Reading | None:
        """The statistics by version, empty if the server has none of the model; None if it does not answer, which is noted once."""
        assert self._client is not None
        try:
            versions = self._runner.run(self._client.model_statistics(self._config.model, self._config.version))
        except TargetError as error:
            self.note_once("failed", f"Some readings of the server's statistics failed ({error}): their series have gaps.")
            return None
        return {statistics.version: statistics for statistics in versions}

    def _add(self, now_ns: int, reading: Reading) -> None:
        previous, self._previous = self._previous, (now_ns, reading)
        if previous is None:
            return
        previous_ns, previous_reading = previous
        if has_fallen := falls((previous_reading, reading)):
            self._resets.append((previous_ns, now_ns))
        if has_fallen or not previous_reading:
            return
        now, before = (ModelStatistics.added(tuple(one.values())) for one in (reading, previous_reading))
        answers = now.success.count - before.success.count
        self._buffers["server_answers_per_s"].add(now_ns, answers * NS_PER_S / (now_ns - previous_ns))
        for name in _TIMES:
            total, earlier = getattr(now, name), getattr(before, name)
            if total.count > earlier.count:
                self._buffers[f"server_{name}"].add(now_ns, (total.ns - earlier.ns) / (total.count - earlier.count))
        if now.executions > before.executions:
            batch = (now.inferences - before.inferences) / (now.executions - before.executions)
            self._buffers["server_mean_batch"].add(now_ns, batch)
