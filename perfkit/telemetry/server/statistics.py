"""What the server says it did in a load point: differences of its v2 statistics, read while nothing is under way.

The readings lie before the first request of a load point and after its last answer, so both sides count the same requests,
those of the warm-up and of the drain among them. Counts that a server brings up to date behind its answers, as Triton does,
are awaited for a while. Definitions: Triton's `extension_statistics.md`.
"""

import dataclasses
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

from perfkit.clock import Clock
from perfkit.errors import MeasurementWarning, TargetError
from perfkit.protocol.statistics import DURATIONS, ModelStatistics, TotalTime
from perfkit.recorder.sent import AnswerTotals
from perfkit.units import NS_PER_S

# one replica behind a name shows itself in no reading, and several in some of these
_QUIET_READINGS = 3
_SETTLES_WITHIN_NS, _LOOKS_EVERY_NS = 2 * NS_PER_S, NS_PER_S // 50

Reading: TypeAlias = Mapping[str, ModelStatistics]
"""One answer of the server: what each version of the model did since it was loaded."""


@dataclasses.dataclass(frozen=True, slots=True)
class ServerFigures:
    """A server's own figures of a load point. Times are means per request, in nanoseconds; None where nothing was counted."""

    requests: int
    """Those it answered with success: of the whole load point, its warm-up included."""
    failed: int
    success_ns: float | None
    """From entering the server's queue to the end of the answer: no network, no parsing."""
    queue_ns: float | None
    compute_input_ns: float | None
    compute_infer_ns: float | None
    compute_output_ns: float | None
    executions: int
    mean_batch: float | None
    """Inferences an execution."""
    inferences: int = 0
    cache_hits: int = 0
    client_requests: int = 0
    """Those that perfkit saw answered over the same span."""
    client_mean_ns: float | None = None
    """The mean service time of those."""
    versions: tuple[str, ...] = ()
    """Of the model, that did the work."""


@dataclasses.dataclass(frozen=True, slots=True)
class ServerCounts:
    """What the counters rose by in a load point, all versions together, and what the client counted."""

    inferences: int
    executions: int
    times: Mapping[str, TotalTime]
    """By the names of `DURATIONS`."""
    versions: tuple[str, ...]
    sent: AnswerTotals

    @classmethod
    def added(cls, parts: "Sequence[ServerCounts]") -> "ServerCounts":
        """Of several load points together."""
        return cls(
            inferences=sum(part.inferences for part in parts),
            executions=sum(part.executions for part in parts),
            times={name: TotalTime.added(part.times[name] for part in parts) for name in DURATIONS},
            versions=tuple(sorted({version for part in parts for version in part.versions})),
            sent=AnswerTotals.added(part.sent for part in parts),
        )

    def figures(self) -> ServerFigures:
        """Each mean is over what its own counter counted: compute times leave out what the cache answered."""
        means = {name: total.ns / total.count if total.count else None for name, total in self.times.items()}
        return ServerFigures(
            requests=self.times["success"].count,
            failed=self.times["fail"].count,
            success_ns=means["success"],
            queue_ns=means["queue"],
            compute_input_ns=means["compute_input"],
            compute_infer_ns=means["compute_infer"],
            compute_output_ns=means["compute_output"],
            executions=self.executions,
            mean_batch=self.inferences / self.executions if self.executions else None,
            inferences=self.inferences,
            cache_hits=self.times["cache_hit"].count,
            client_requests=self.sent.answered,
            client_mean_ns=self.sent.answered_ns / self.sent.answered if self.sent.answered else None,
            versions=self.versions,
        )


class ServerStatisticsReader:
    """The readings around one load point. `read` asks the server over a new connection, which may lead to another replica.

    A server that has no statistics, or gives none, costs the run nothing: there are no counts then.
    """

    def __init__(self, read: Callable[[], Awaitable[Sequence[ModelStatistics]]], clock: Clock) -> None:
        self._read, self._clock = read, clock
        self._before: list[Reading] = []

    async def before(self) -> None:
        """Reads, before the first request is sent, until the counts stand still, or for two seconds.

        What an earlier load point gave up waiting for, or what was just answered, may not be counted yet.
        """
        self._before, deadline_ns = [], self._clock.now_ns() + _SETTLES_WITHIN_NS
        while True:
            reading = await self._reading()
            if not reading:
                self._before = []
                return
            self._before.append(reading)
            if len(self._before) < _QUIET_READINGS:
                continue
            if self._before[-1] == self._before[-2] or _falls(self._before) or self._clock.now_ns() >= deadline_ns:
                return
            await self._clock.sleep_until_ns(self._clock.now_ns() + _LOOKS_EVERY_NS)

    async def after(self, sent: AnswerTotals) -> tuple[ServerCounts | None, tuple[MeasurementWarning, ...]]:
        """Reads, after the last answer, until the counts are those of the client, or for two seconds."""
        if not self._before:
            return None, ()
        readings, deadline_ns = list[Reading](), self._clock.now_ns() + _SETTLES_WITHIN_NS
        while True:
            reading = await self._reading()
            if not reading:
                return None, (
                    MeasurementWarning(
                        "server_statistics", "The server's statistics could not be read after the load: there are none of it."
                    ),
                )
            readings.append(reading)
            counts, _ = difference(self._before, readings, sent)
            is_settled = counts is not None and _fits(counts) and len(readings) >= _QUIET_READINGS and readings[-1] == readings[-2]
            if is_settled or self._clock.now_ns() >= deadline_ns:
                return difference(self._before, readings, sent)
            await self._clock.sleep_until_ns(self._clock.now_ns() + _LOOKS_EVERY_NS)

    async def _reading(self) -> Reading:
        try:
            return {one.version: one for one in await self._read()}
        except TargetError:
            return {}


def difference(
    before: Sequence[Reading], after: Sequence[Reading], sent: AnswerTotals
) -> tuple[ServerCounts | None, tuple[MeasurementWarning, ...]]:
    """What was counted between the last reading before a load and the last one after it, and what there is to say of it.

    There are no counts where counters fell: readings of different replicas, or around a restart, have no difference.
    """
    if _falls(before) or _falls(after):
        text = "The server's counters fell from one reading to the next while nothing was sent: several replicas answer at this address, each with statistics of its own, so there are none of this point."
        return None, (MeasurementWarning("server_replicas", text),)
    if _falls((before[-1], after[0])):
        text = "The server's counters are lower after the load than before: it was restarted, or the model loaded anew, so there are no statistics of this point."
        return None, (MeasurementWarning("server_counters_reset", text),)
    parts = {version: _risen(now, before[-1].get(version)) for version, now in after[-1].items()}
    parts = {version: part for version, part in parts.items() if part.executions or any(one.count for one in _times(part).values())}
    counts = ServerCounts(
        inferences=sum(part.inferences for part in parts.values()),
        executions=sum(part.executions for part in parts.values()),
        times={name: TotalTime.added(_times(part)[name] for part in parts.values()) for name in DURATIONS},
        versions=tuple(sorted(parts)),
        sent=sent,
    )
    return counts, tuple(_warnings(counts))


def _warnings(counts: ServerCounts) -> list[MeasurementWarning]:
    warnings, requests, sent = [], counts.times["success"].count, counts.sent
    if len(counts.versions) > 1:
        text = f"Versions {', '.join(counts.versions)} of the model answered: the server's figures are of them together; target.version chooses one."
        warnings.append(MeasurementWarning("server_versions", text))
    if not _fits(counts):
        perhaps = f", and {sent.perhaps_answered:,} more without an answer" if sent.perhaps_answered else ""
        why = (
            "others sent requests to this model at the same time, or earlier ones that nobody waited for were still under way"
            if requests > sent.answered
            else "some went to other replicas, or were answered without the model"
        )
        text = f"The server counts {requests:,} answered requests, perfkit {sent.answered:,}{perhaps}: {why}, so the server's figures are not of this load alone."
        warnings.append(MeasurementWarning("server_counts_differ", text))
    if hits := counts.times["cache_hit"].count:
        text = f"The server's response cache answered {hits:,} of {requests:,} requests: the model did not compute them; use more variants, or switch the cache off."
        warnings.append(MeasurementWarning("cache_hits", text))
    return warnings


def _fits(counts: ServerCounts) -> bool:
    """Whether both sides count the same requests, as far as the client can know."""
    return counts.sent.answered <= counts.times["success"].count <= counts.sent.answered + counts.sent.perhaps_answered


def _falls(readings: Sequence[Reading]) -> bool:
    """Whether a counter falls, or a version goes away, from one reading to the next."""
    return any(
        version not in later or any(now < was for now, was in zip(_counters(later[version]), _counters(statistics), strict=True))
        for earlier, later in itertools.pairwise(readings)
        for version, statistics in earlier.items()
    )


def _counters(one: ModelStatistics) -> list[int]:
    return [one.inferences, one.executions, *(value for total in _times(one).values() for value in (total.count, total.ns))]


def _risen(now: ModelStatistics, was: ModelStatistics | None) -> ModelStatistics:
    if was is None:  # loaded in between
        return now
    times = {name: TotalTime(one.count - _times(was)[name].count, one.ns - _times(was)[name].ns) for name, one in _times(now).items()}
    return ModelStatistics(now.version, now.inferences - was.inferences, now.executions - was.executions, **times)


def _times(one: ModelStatistics) -> Mapping[str, TotalTime]:
    return {name: getattr(one, name) for name in DURATIONS}
