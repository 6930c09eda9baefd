"""Differences of the server's v2 statistics over a load point, read before its first request and after its last answer.

No request is under way at either reading, so server and client count the same requests, including the warm-up and the drain.
Servers that update their counts after they answer, such as Triton, are given time to do so. Definitions: Triton's
`extension_statistics.md`.
"""

import dataclasses
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

from perfkit.clock import Clock
from perfkit.errors import MeasurementWarning, TargetError
from perfkit.protocol.statistics import ModelStatistics, TotalTime
from perfkit.recorder.recording import AnswerTotals
from perfkit.telemetry.figures import ServerFigures
from perfkit.units import NS_PER_S

# several replicas behind one name differ in some of these readings
_MIN_READINGS = 3
_SETTLE_TIMEOUT_NS, _READ_INTERVAL_NS = 2 * NS_PER_S, NS_PER_S // 50

Reading: TypeAlias = Mapping[str, ModelStatistics]
"""The statistics of each version of the model since it was loaded, by version; empty if they cannot be read."""


@dataclasses.dataclass(frozen=True, slots=True)
class ServerCounts:
    """The increase of the server's counters over a load point, all versions together, and the client's counts."""

    server: ModelStatistics
    versions: tuple[str, ...]
    sent: AnswerTotals

    @classmethod
    def added(cls, parts: "Sequence[ServerCounts]") -> "ServerCounts":
        """The counts of several load points together."""
        return cls(
            ModelStatistics.added([part.server for part in parts]),
            tuple(sorted({version for part in parts for version in part.versions})),
            AnswerTotals.added(part.sent for part in parts),
        )

    def figures(self) -> ServerFigures:
        """The figures, with each mean over the requests that its own counter counted: cache hits have no compute time."""
        server, sent = self.server, self.sent
        means = {name: total.ns / total.count if total.count else None for name, total in server.times.items()}
        return ServerFigures(
            requests=server.success.count,
            failed=server.fail.count,
            success_ns=means["success"],
            queue_ns=means["queue"],
            compute_input_ns=means["compute_input"],
            compute_infer_ns=means["compute_infer"],
            compute_output_ns=means["compute_output"],
            executions=server.executions,
            mean_batch=server.inferences / server.executions if server.executions else None,
            inferences=server.inferences,
            cache_hits=server.cache_hit.count,
            client_requests=sent.answered,
            client_mean_ns=sent.answered_ns / sent.answered if sent.answered else None,
            versions=self.versions,
        )


class ServerStatisticsReader:
    """Reads a server's statistics around one load point.

    `read` uses a new connection each time, which may lead to another replica. A server without statistics has no counts.
    """

    def __init__(self, read: Callable[[], Awaitable[Sequence[ModelStatistics]]], clock: Clock) -> None:
        self._read, self._clock = read, clock
        self._before: list[Reading] = []

    async def before(self) -> None:
        """Reads before the first request, until the counts stop changing or two seconds have passed.

        Requests that were just answered, or that the previous load point stopped waiting for, may not be counted yet.
        """
        self._before, deadline_ns = [], self._clock.now_ns() + _SETTLE_TIMEOUT_NS
        while True:
            self._before.append(await self._reading())
            if not self._before[-1]:
                self._before = []
                return
            if len(self._before) < _MIN_READINGS:
                continue
            if self._before[-1] == self._before[-2] or _falls(self._before) or self._clock.now_ns() >= deadline_ns:
                return
            await self._clock.sleep_until_ns(self._clock.now_ns() + _READ_INTERVAL_NS)

    async def after(self, sent: AnswerTotals) -> tuple[ServerCounts | None, tuple[MeasurementWarning, ...]]:
        """Reads after the last answer, until the counts match the client's or two seconds have passed."""
        if not self._before:
            return None, ()
        readings, deadline_ns = list[Reading](), self._clock.now_ns() + _SETTLE_TIMEOUT_NS
        while True:
            reading = await self._reading()
            if not reading:
                message = "The server's statistics could not be read after the load, so the point has no server figures."
                return None, (MeasurementWarning("server_statistics", message),)
            readings.append(reading)
            counts, warnings = difference(self._before, readings, sent)
            is_settled = counts is not None and _matches(counts) and len(readings) >= _MIN_READINGS and readings[-1] == readings[-2]
            if is_settled or self._clock.now_ns() >= deadline_ns:
                return counts, warnings
            await self._clock.sleep_until_ns(self._clock.now_ns() + _READ_INTERVAL_NS)

    async def _reading(self) -> Reading:
        try:
            return {statistics.version: statistics for statistics in await self._read()}
        except TargetError:
            return {}


def difference(
    before: Sequence[Reading], after: Sequence[Reading], sent: AnswerTotals
) -> tuple[ServerCounts | None, tuple[MeasurementWarning, ...]]:
    """The counts between the last reading before a load and the last one after it, and their warnings.

    Where counters fell there are no counts: readings of different replicas, or around a restart, have no difference.
    """
    if _falls(before) or _falls(after):
        message = (
            "The server's counters fell between readings while nothing was sent: several replicas with separate statistics answer at "
            "this address, so the point has no server figures."
        )
        return None, (MeasurementWarning("server_replicas", message),)
    if _falls((before[-1], after[0])):
        message = (
            "The server's counters are lower after the load than before it: the server restarted or reloaded the model, so the point has "
            "no server figures."
        )
        return None, (MeasurementWarning("server_counters_reset", message),)
    increases = [_increase(now, before[-1].get(version)) for version, now in after[-1].items()]
    active = [increase for increase in increases if increase.executions or any(total.count for total in increase.times.values())]
    counts = ServerCounts(ModelStatistics.added(active), tuple(sorted(increase.version for increase in active)), sent)
    return counts, tuple(_warnings(counts))


def _warnings(counts: ServerCounts) -> list[MeasurementWarning]:
    warnings, requests, sent = [], counts.server.success.count, counts.sent
    if len(counts.versions) > 1:
        message = (
            f"Versions {', '.join(counts.versions)} of the model answered, and the server's figures cover them together; "
            "set target.version to choose one."
        )
        warnings.append(MeasurementWarning("server_versions", message))
    if not _matches(counts):
        unknown = f", and {sent.perhaps_answered:,} more possibly answered" if sent.perhaps_answered else ""
        reason = (
            "other clients used this model at the same time, or earlier requests were still under way"
            if requests > sent.answered
            else "some requests went to other replicas, or were answered without the model"
        )
        message = (
            f"The server counted {requests:,} answered requests but perfkit {sent.answered:,}{unknown}: {reason}, so the server's figures "
            "are not of this load alone."
        )
        warnings.append(MeasurementWarning("server_counts_differ", message))
    if hits := counts.server.cache_hit.count:
        message = (
            f"The server's response cache answered {hits:,} of {requests:,} requests without running the model: increase "
            "workload.variants, or disable the cache."
        )
        warnings.append(MeasurementWarning("cache_hits", message))
    return warnings


def _matches(counts: ServerCounts) -> bool:
    """Whether server and client count the same requests, as far as the client can know."""
    return counts.sent.answered <= counts.server.success.count <= counts.sent.answered + counts.sent.perhaps_answered


def _falls(readings: Sequence[Reading]) -> bool:
    """Whether a counter falls, or a version disappears, from one reading to the next."""
    return any(
        version not in later or any(now < was for now, was in zip(_counters(later[version]), _counters(statistics), strict=True))
        for earlier, later in itertools.pairwise(readings)
        for version, statistics in earlier.items()
    )


def _counters(statistics: ModelStatistics) -> list[int]:
    times = (value for total in statistics.times.values() for value in (total.count, total.ns))
    return [statistics.inferences, statistics.executions, *times]


def _increase(now: ModelStatistics, was: ModelStatistics | None) -> ModelStatistics:
    if was is None:  # the version was loaded in between
        return now
    before = was.times
    times = {name: TotalTime(total.count - before[name].count, total.ns - before[name].ns) for name, total in now.times.items()}
    return ModelStatistics(now.version, now.inferences - was.inferences, now.executions - was.executions, **times)
