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
from perfkit.figures.resources import ComposingModelFigures, ServerFigures
from perfkit.protocol.statistics import ModelStatistics, TotalTime
from perfkit.recorder.recording import AnswerTotals
from perfkit.units import NS_PER_S, format_duration_ns

Reading: TypeAlias = Mapping[str, ModelStatistics]
"""The statistics of each version of the model since it was loaded, by version; empty if they cannot be read."""


def falls(readings: Sequence[Reading]) -> bool:
    """Whether any counter falls, or a version disappears, from one reading to the next: counts and times of every kind."""
    return any(
        version not in later or any(now < was for now, was in zip(_counters(later[version]), _counters(statistics), strict=True))
        for earlier, later in itertools.pairwise(readings)
        for version, statistics in earlier.items()
    )


def increases(before: Reading, after: Reading) -> list[ModelStatistics]:
    """The increase of the counters of each version that did anything; a version that was loaded in between counts from 0."""
    all_versions = [_increase(now, before.get(version)) for version, now in after.items()]
    return [increase for increase in all_versions if increase.executions or any(total.count for total in increase.times.values())]


def _counters(statistics: ModelStatistics) -> list[int]:
    times = (value for total in statistics.times.values() for value in (total.count, total.ns))
    return [statistics.inferences, statistics.executions, *times]


def _increase(now: ModelStatistics, was: ModelStatistics | None) -> ModelStatistics:
    if was is None:
        return now
    before = was.times
    times = {name: TotalTime(total.count - before[name].count, total.ns - before[name].ns) for name, total in now.times.items()}
    return ModelStatistics(now.version, now.inferences - was.inferences, now.executions - was.executions, **times)


ComposingCounts: TypeAlias = Mapping[str, Sequence[ModelStatistics]]
"""The increase of the counters by model, one value for each version."""


class ComposingModelsReader:
    """Reads before the first request and after the last answer, when the ensemble's own counts no longer change.

    `read` gives the statistics of each model by name. A model whose counters fell in between, or could not be read, is left out.
    """

    def __init__(self, read: Callable[[], Awaitable[Mapping[str, Sequence[ModelStatistics]]]]) -> None:
        self._read = read
        self._before: Mapping[str, Reading] = {}

    async def before(self) -> None:
        """Reads before the first request."""
        self._before = await self._readings()

    async def after(self) -> ComposingCounts:
        """Reads after the last answer, and returns the counts of the load."""
        now = await self._readings()
        both = {name: (before, now[name]) for name, before in self._before.items() if before and now.get(name)}
        return {name: increases(*readings) for name, readings in both.items() if not falls(readings)}

    async def _readings(self) -> Mapping[str, Reading]:
        try:
            return {name: {one.version: one for one in versions} for name, versions in (await self._read()).items()}
        except TargetError:
            return {}


def composing_figures(counts: ComposingCounts) -> tuple[ComposingModelFigures, ...]:
    """The figures of each model, its versions together."""
    return tuple(_figures(name, versions) for name, versions in counts.items())


def _figures(name: str, versions: Sequence[ModelStatistics]) -> ComposingModelFigures:
    total = ModelStatistics.added(versions)
    return ComposingModelFigures(
        name=name,
        versions=tuple(sorted({one.version for one in versions})),
        requests=total.success.count,
        failed=total.fail.count,
        queue_ns=total.queue.mean_ns,
        compute_input_ns=total.compute_input.mean_ns,
        compute_infer_ns=total.compute_infer.mean_ns,
        compute_output_ns=total.compute_output.mean_ns,
        executions=total.executions,
        mean_batch=total.inferences / total.executions if total.executions else None,
        success_ns=total.success.mean_ns,
    )


# several replicas behind one name differ in some of these readings
_MIN_READINGS = 3
# the last one comes later: executions are counted after their answers
_AT_ONCE = _MIN_READINGS - 1
_SETTLE_TIMEOUT_NS, _READ_INTERVAL_NS = 2 * NS_PER_S, NS_PER_S // 50
# while requests that the client gave up are still executed
_LEFT_TIMEOUT_NS = 20 * NS_PER_S

# a mean of the server may be longer than the client's by so much: it may count until its answer is released
_SERVER_EXCESS, _SERVER_EXCESS_NS = 1.25, 5_000_000
_RESET = "the server restarted or reloaded the model, so the point has no server figures."


@dataclasses.dataclass(frozen=True, slots=True)
class ServerCounts:
    """The increase of the server's counters over a load point, all versions together, and the client's counts."""

    server: ModelStatistics
    versions: tuple[str, ...]
    sent: AnswerTotals
    composing: ComposingCounts = dataclasses.field(default_factory=dict)
    """The same increase for the models of an ensemble's steps; empty for other models."""

    @classmethod
    def added(cls, parts: "Sequence[ServerCounts]") -> "ServerCounts":
        """The counts of several load points together."""
        return cls(
            ModelStatistics.added([part.server for part in parts]),
            tuple(sorted({version for part in parts for version in part.versions})),
            AnswerTotals.added(part.sent for part in parts),
            {name: [one for part in parts for one in part.composing.get(name, ())] for part in parts for name in part.composing},
        )

    def figures(self) -> ServerFigures:
        """The figures, with each mean over the requests that its own counter counted: cache hits have no compute time."""
        server, sent = self.server, self.sent
        means = {name: total.mean_ns for name, total in server.times.items()}
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
            cache_misses=server.cache_miss.count,
            cache_hit_ns=means["cache_hit"],
            cache_miss_ns=means["cache_miss"],
            client_requests=sent.answered,
            client_mean_ns=sent.answered_ns / sent.answered if sent.answered else None,
            versions=self.versions,
            composing_models=composing_figures(self.composing),
        )


@dataclasses.dataclass(slots=True)
class OtherClients:
    """Whether other clients used a model besides the previous load point, so that its counts are not awaited to stop changing before the next."""

    are_seen: bool = False


class ServerStatisticsReader:
    """Reads a server's statistics around one load point.

    `read` uses a new connection each time, because several replicas may answer at one address, as behind a Service of Kubernetes, and one
    connection leads to one of them only. A server without statistics has no counts.
    """

    def __init__(
        self,
        read: Callable[[], Awaitable[Sequence[ModelStatistics]]],
        clock: Clock,
        composing: ComposingModelsReader | None = None,
        others: OtherClients | None = None,
    ) -> None:
        self._read, self._clock, self._composing, self._others = read, clock, composing, others or OtherClients()
        self._before: list[Reading] = []
        self._read_before_ns = 0
        self._failure = ""
        """Why the last reading failed; empty if it did not, or if the server has no statistics."""

    async def before(self) -> None:
        """Reads before the first request, until the counts stop changing or two seconds have passed; no longer than needed where others use the model.

        Requests that were just answered, or that the previous load point stopped waiting for, may not be counted yet.
        """
        self._before, deadline_ns = [], self._clock.now_ns() + _SETTLE_TIMEOUT_NS
        while True:
            self._before.append(await self._reading())
            if not self._before[-1]:
                self._before = []
                return
            if len(self._before) < _AT_ONCE:
                continue
            if len(self._before) >= _MIN_READINGS:
                if self._before[-1] == self._before[-2] or falls(self._before) or self._others.are_seen:
                    break
                if self._clock.now_ns() >= deadline_ns:
                    self._others.are_seen = True
                    break
            await self._clock.sleep_until_ns(self._clock.now_ns() + _READ_INTERVAL_NS)
        if self._composing is not None:
            await self._composing.before()
        self._read_before_ns = self._clock.now_ns()

    async def after(self, sent: AnswerTotals, reconnects: int = 0) -> tuple[ServerCounts | None, tuple[MeasurementWarning, ...]]:
        """Reads after the last answer, until the counts match the client's, exceed them because others use the model, or two seconds have passed.

        `reconnects` is the number of connections that replaced a lost one during the load.
        """
        if not self._before:
            return None, self._unreadable("before") if self._failure else ()
        readings, changed_ns = list[Reading](), self._clock.now_ns()
        deadline_ns, latest_ns = changed_ns + _SETTLE_TIMEOUT_NS, changed_ns + _LEFT_TIMEOUT_NS
        quiet_ns = min(2 * sent.answered_ns // max(sent.answered, 1) + _READ_INTERVAL_NS, _SETTLE_TIMEOUT_NS)
        while True:
            reading = await self._reading()
            if not reading:
                return None, self._unreadable("after")
            readings.append(reading)
            counts, warnings = difference(self._before, readings, sent, reconnects)
            if self._clock.now_ns() >= deadline_ns:
                break
            if counts is not None and len(readings) >= _MIN_READINGS:
                is_settled = (_matches(counts) or _counts_errors(counts)) and readings[-1] == readings[-2]
                if sent.abandoned and readings[-1] != readings[-2]:  # it works on for clients that have left
                    changed_ns = self._clock.now_ns()
                    deadline_ns = max(deadline_ns, min(changed_ns + _SETTLE_TIMEOUT_NS, latest_ns))
                is_settled = is_settled and (not sent.abandoned or self._clock.now_ns() - changed_ns >= quiet_ns)
                if is_settled or _exceeds(counts):
                    break
            is_complete = counts is not None and counts.server.success.count == sent.answered and not sent.perhaps_answered
            if is_complete and len(readings) < _AT_ONCE:  # no answer is to come
                continue
            await self._clock.sleep_until_ns(self._clock.now_ns() + _READ_INTERVAL_NS)
        self._others.are_seen = counts is not None and _exceeds(counts)
        if counts is not None and self._composing is not None:
            counts = dataclasses.replace(counts, composing=await self._composing.after())
        if counts is not None and (impossible := impossible_times(counts, self._clock.now_ns() - self._read_before_ns)):
            return None, (*warnings, impossible)
        return counts, warnings

    async def _reading(self) -> Reading:
        self._failure = ""
        try:
            return {statistics.version: statistics for statistics in await self._read()}
        except TargetError as error:
            self._failure = str(error)
            return {}

    def _unreadable(self, when: str) -> tuple[MeasurementWarning, ...]:
        reason = f": {self._failure}" if self._failure else ""
        message = f"The server's statistics could not be read {when} the load, so the point has no server figures{reason}."
        return (MeasurementWarning("server_statistics", message),)


def difference(
    before: Sequence[Reading], after: Sequence[Reading], sent: AnswerTotals, reconnects: int = 0
) -> tuple[ServerCounts | None, tuple[MeasurementWarning, ...]]:
    """The counts between the last reading before a load and the last one after it, and their warnings.

    Where counters fell there are no counts: readings of different replicas, or around a restart, have no difference. The counters
    of a server that restarted may have passed their old values: then they lack answers, and connections were lost.
    """
    if falls(before) or falls(after):
        message = (
            "The server's counters fell between readings while nothing was sent: several replicas with separate statistics answer at "
            "this address, so the point has no server figures."
        )
        return None, (MeasurementWarning("server_replicas", message),)
    if falls((before[-1], after[0])):
        message = f"The server's counters are lower after the load than before it: {_RESET}"
        return None, (MeasurementWarning("server_counters_reset", message),)
    active = increases(before[-1], after[-1])
    counts = ServerCounts(ModelStatistics.added(active), tuple(sorted(increase.version for increase in active)), sent)
    if reconnects and (requests := counts.server.success.count) < sent.answered:
        message = (
            f"The server counted {requests:,} answered requests but perfkit {sent.answered:,}, and {reconnects:,} connections were lost "
            f"meanwhile: {_RESET}"
        )
        return None, (MeasurementWarning("server_counters_reset", message),)
    return counts, tuple(_warnings(counts))


def impossible_times(counts: ServerCounts, elapsed_ns: int) -> MeasurementWarning | None:
    """A warning if the server's own times cannot be those of this load: longer than `elapsed_ns` between the readings, or than the client's.

    A request lies within its service time as the client sees it, so their sums compare where both count the same requests, and none that
    the client stopped waiting for.
    """
    server, sent = counts.server, counts.sent
    bound_ns, what = float(elapsed_ns), f"and {format_duration_ns(elapsed_ns)} passed between the readings"
    if server.success.count == sent.answered and not sent.perhaps_answered:
        client_ns = sent.answered_ns / max(sent.answered, 1)
        if (_SERVER_EXCESS * client_ns + _SERVER_EXCESS_NS) < bound_ns:
            bound_ns = _SERVER_EXCESS * client_ns + _SERVER_EXCESS_NS
            what = f"and the same requests took {format_duration_ns(client_ns)} with perfkit's own time and the network"
    name, mean_ns = max(((name, one.mean_ns or 0.0) for name, one in server.times.items() if name != "fail"), key=lambda pair: pair[1])
    if mean_ns <= bound_ns:
        return None
    told = f"The server says that a request took {format_duration_ns(mean_ns)} ({name.replace('_', ' ')}), {what}"
    return MeasurementWarning("server_times_impossible", f"{told}: both cannot be true, so the point has no server figures.")


def _warnings(counts: ServerCounts) -> list[MeasurementWarning]:
    warnings, requests, sent = [], counts.server.success.count, counts.sent
    if len(counts.versions) > 1:
        message = (
            f"Versions {', '.join(counts.versions)} of the model answered, and the server's figures cover them together; "
            "set target.version to choose one."
        )
        warnings.append(MeasurementWarning("server_versions", message))
    if _counts_errors(counts):
        message = (
            f"The server counted {requests:,} successful requests, and {sent.rejected:,} of them ended in an error: like Triton's Python "
            "backend, it counts errors of single requests as successes, so its times include theirs."
        )
        warnings.append(MeasurementWarning("server_counts_errors", message))
    elif not _matches(counts):
        unknown = f", and {sent.perhaps_answered:,} more possibly answered" if sent.perhaps_answered else ""
        if requests < sent.answered:
            reason = "some requests went to other replicas, were answered without the model, or the server restarted"
        elif requests <= sent.answered + sent.perhaps_answered + sent.rejected:
            unknown += f", and {sent.rejected:,} with an error"
            reason = "the server counts some errors as successes, as Triton's Python backend does, or other clients used this model"
        else:
            reason = "other clients used this model at the same time, or earlier requests were still under way"
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


def _exceeds(counts: ServerCounts) -> bool:
    """Whether the server counts more requests than the client can have sent."""
    return counts.server.success.count > counts.sent.answered + counts.sent.perhaps_answered + counts.sent.rejected


def _counts_errors(counts: ServerCounts) -> bool:
    """Whether the server counts requests that ended in an error as successes: its total is the client's, but not its successes."""
    server, sent = counts.server, counts.sent
    finished, refused = server.success.count + server.fail.count, sent.answered + sent.rejected
    return server.success.count > sent.answered + sent.perhaps_answered and refused <= finished <= refused + sent.perhaps_answered
