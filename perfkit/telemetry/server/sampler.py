"""How the server's statistics went on while it was loaded: queue and compute times of each second, from v2 statistics.

The readings fall among requests under way, so each step's means are of what the server ended in it; the figures of a load
point come from `perfkit.telemetry.server.statistics` instead, whose readings no request crosses.
"""

import asyncio
from collections.abc import Sequence

from perfkit.clock import Clock
from perfkit.errors import MeasurementWarning, TargetError
from perfkit.protocol.statistics import ModelStatistics
from perfkit.telemetry.messages import StatisticsConfig
from perfkit.telemetry.series import SamplerReport, Series, SeriesBuffer
from perfkit.transport.base import Transport
from perfkit.transport.factory import make_transport
from perfkit.transport.options import TransportOptions
from perfkit.units import NS_PER_S

_TIMES = ("queue", "compute_input", "compute_infer", "compute_output")
_TIMEOUT_NS = 2 * NS_PER_S


class ServerStatisticsSampler:
    """Reads over one connection; see `Sampler`. A server without statistics is noted, and asked no more."""

    def __init__(self, watched: StatisticsConfig, clock: Clock) -> None:
        self.notes: list[str] = []
        self._watched, self._clock = watched, clock
        self._runner = asyncio.Runner()
        self._transport: Transport | None = None
        names = [f"server_{name}" for name in _TIMES]
        self._tracks = {name: SeriesBuffer(name, "ns") for name in names} | {
            "server_answers_per_s": SeriesBuffer("server_answers_per_s", "per_s")
        }
        self._batches = SeriesBuffer("server_mean_batch", "count")
        self._before: tuple[int, ModelStatistics] | None = None
        self._resets: list[int] = []
        self._has_failed = False

    def start(self) -> bool:
        """See `Sampler.start`."""
        self._transport = self._runner.run(self._connect())
        statistics = self._read()
        if statistics is None and not self._has_failed:
            self.notes.append("The server has no v2 statistics: its queue and compute times are not known.")
        return statistics is not None or self._has_failed  # one that did not answer may do so later

    def sample(self) -> int:
        """See `Sampler.sample`."""
        began_ns = self._clock.now_ns()
        now = self._read()
        if now is not None:
            self._add(began_ns, now)
        return began_ns + self._watched.interval_ns

    def window(self, start_ns: int, end_ns: int) -> SamplerReport[None]:
        """See `Sampler.window`."""
        tracks = [*self._tracks.values(), self._batches]
        series = tuple(one for track in tracks if (one := track.between(start_ns, end_ns)).values)
        warnings: tuple[MeasurementWarning, ...] = ()
        if any(start_ns <= reset_ns <= end_ns for reset_ns in self._resets):
            text = "The server's counters fell in the middle of the load: it was restarted, its model loaded anew, or replicas with counters of their own answer in turn."
            warnings = (MeasurementWarning("server_counters_reset", text),)
        for track in tracks:
            track.forget_before(start_ns)
        return SamplerReport(None, series, warnings)

    def latest(self) -> Sequence[Series]:
        """See `Sampler.latest`."""
        return [one for track in (*self._tracks.values(), self._batches) if (one := track.whole().last())]

    def close(self) -> None:
        """See `Sampler.close`."""
        if self._transport is not None:
            self._runner.run(self._transport.aclose())
        self._runner.close()

    async def _connect(self) -> Transport:
        """On the event loop, which the transport asks for when it is made."""
        return make_transport(self._watched.address, TransportOptions(timeout_ns=_TIMEOUT_NS), self._clock)

    def _read(self) -> ModelStatistics | None:
        """All versions together; None where the server has none, or does not answer, which is noted once."""
        assert self._transport is not None
        try:
            versions = self._runner.run(self._transport.model_statistics(self._watched.model, self._watched.version))
        except TargetError:
            if not self._has_failed:
                self._has_failed = True
                self.notes.append("The server's statistics could not be read at times: their course has gaps.")
            return None
        return ModelStatistics.added(versions) if versions else None

    def _add(self, now_ns: int, now: ModelStatistics) -> None:
        before, self._before = self._before, (now_ns, now)
        if before is None:
            return
        then_ns, was = before
        if now.success.count < was.success.count or now.executions < was.executions:
            self._resets.append(now_ns)
            return
        self._tracks["server_answers_per_s"].add(now_ns, (now.success.count - was.success.count) * NS_PER_S / (now_ns - then_ns))
        for name in _TIMES:
            total, earlier = getattr(now, name), getattr(was, name)
            if total.count > earlier.count:
                self._tracks[f"server_{name}"].add(now_ns, (total.ns - earlier.ns) / (total.count - earlier.count))
        if now.executions > was.executions:
            self._batches.add(now_ns, (now.inferences - was.inferences) / (now.executions - was.executions))
