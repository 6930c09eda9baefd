"""The measured window of a load point: a recording without its warm-up."""

import collections
import dataclasses
from collections.abc import Mapping

from perfkit.recorder.batches import Batch
from perfkit.recorder.failures import FailureKind
from perfkit.recorder.recording import AddressWindow, Recording, cut_addresses
from perfkit.recorder.series import Series
from perfkit.recorder.stops import Stop
from perfkit.recorder.token_figures import PER_TOKEN_TIME
from perfkit.stats.buckets import EMPTY, BucketCounts
from perfkit.transport.base import Outcome
from perfkit.units import NS_PER_S

_OF_REQUESTS = ("service_time", "failure_time", "touched_time", "touched_least", "touched_most")
"""The times that every window has."""
_OF_ARRIVALS = ("response_time", "start_delay", "pacing_delay", "late_time", "late_least")
"""The times that the windows of open loops have besides."""
_UNKNOWN_TIMES = {PER_TOKEN_TIME: ("per_token_unknown", "per_token_cut_off")}
"""The counts of requests that have such a time, but none that is known."""


@dataclasses.dataclass(frozen=True, slots=True)
class Window:
    """The counts and times of one window, by the names under which they were recorded; see `Recorder`."""

    start_ns: int
    end_ns: int
    outcomes: Mapping[Outcome, int]
    times: Mapping[str, BucketCounts]
    """The times of requests, in an open loop the times of arrivals, and all others that the load has."""
    failures: Mapping[FailureKind, int]
    finished_per_s: tuple[int, ...]
    """OK answers in each second of the window."""
    series: Series
    batches: tuple[BucketCounts, ...]
    """The response times (closed loop: service times) in equal parts of the window."""
    batch_ns: int = 0
    """The length of these parts."""
    counts: Mapping[str, int] = dataclasses.field(default_factory=dict)
    """The counts that are not 0."""
    failed_per_s: tuple[int, ...] = ()
    """Requests that ended without an OK answer, and dropped arrivals, in each second of the window."""
    attempts_per_s: tuple[int, ...] = ()
    """Attempts sent in each second of the window; zeros for loads without `load.retry`, as are the next."""
    retries_per_s: tuple[int, ...] = ()
    """Attempts in each second that were not the first of their request."""
    batch_counts: tuple[Mapping[str, int], ...] = ()
    """The counts in the same parts, 0 for names that are missing; those of requests by their ends."""
    untouched: tuple[BucketCounts, ...] = ()
    """The same parts without the requests that a stop of the load generator touched."""
    prompt: tuple[BucketCounts, ...] = ()
    """The same parts as they would be if the late requests had been answered earlier by their delay."""
    further_batches: Mapping[str, tuple[BucketCounts, ...]] = dataclasses.field(default_factory=dict)
    """The times in the same parts that are neither those of requests nor those of arrivals."""
    stops: tuple[Stop, ...] = ()
    """The stops in the window and in its drain, and those before whose delayed requests lie in the window."""
    by_address: Mapping[str, AddressWindow] = dataclasses.field(default_factory=dict)
    """Empty for a target with a single address."""
    load_series: Series | None = None
    """The series with that of the warm-up before the window, as far as it was recorded."""

    def count(self, name: str) -> int:
        """The count of a name."""
        return self.counts.get(name, 0)

    def count_unknown(self, name: str) -> int:
        """The number of requests whose time of this name is not known; an SLO is judged with these times within its limit, and beyond it."""
        return sum(map(self.count, _UNKNOWN_TIMES.get(name, ())))

    @property
    def statuses(self) -> Mapping[str, int]:
        """The rejected requests by status."""
        counts = collections.Counter[str]()
        for kind, count in self.failures.items():
            if kind.outcome is Outcome.REJECTED:
                counts[kind.status] += count
        return counts

    @property
    def length_ns(self) -> int:
        """The length of the window."""
        return max(self.end_ns - self.start_ns, 0)


def cut(recording: Recording, start_ns: int, *, is_open: bool) -> Window:
    """The window from `start_ns`, rounded up to whole batches and whole seconds after the recording's origin, to the end of the recording."""
    step_ns = max(recording.batch_ns, NS_PER_S)
    skipped_ns = max(-((recording.origin_ns - start_ns) // step_ns), 0) * step_ns
    first, skipped_s = skipped_ns // recording.batch_ns, skipped_ns // NS_PER_S
    start_ns = recording.origin_ns + skipped_ns
    whole = Batch.merged([batch for number, batch in recording.batches.items() if number >= first])
    length_ns = max(recording.end_ns - start_ns, 0)
    seconds = range(skipped_s, skipped_s - (-length_ns // NS_PER_S))
    waited = "response_time" if is_open else "service_time"
    batches = [recording.batches.get(first + number, Batch()) for number in range(length_ns // recording.batch_ns)]
    parts = [batch.times for batch in batches]
    further = [name for name, times in whole.times.items() if times.count and name not in (*_OF_REQUESTS, *_OF_ARRIVALS)]
    return Window(
        start_ns=start_ns,
        end_ns=recording.end_ns,
        outcomes={outcome: int(count) for outcome, count in zip(Outcome, whole.outcomes, strict=True)},
        times={name: whole.times.get(name, EMPTY) for name in (*_OF_REQUESTS, *(_OF_ARRIVALS if is_open else ()), *further)},
        failures=whole.failures,
        counts=whole.counts,
        finished_per_s=tuple(recording.finished_per_s.get(second, 0) for second in seconds),
        failed_per_s=tuple(recording.failed_per_s.get(second, 0) for second in seconds),
        attempts_per_s=tuple(recording.attempts_per_s.get(second, 0) for second in seconds),
        retries_per_s=tuple(recording.retries_per_s.get(second, 0) for second in seconds),
        series=recording.series.between(start_ns, recording.end_ns),
        batches=tuple(part.get(waited, EMPTY) for part in parts),
        batch_ns=recording.batch_ns,
        batch_counts=tuple(batch.counts for batch in batches),
        untouched=tuple(part.get(waited, EMPTY).without(part.get("touched_time", EMPTY)) for part in parts),
        prompt=tuple(
            BucketCounts.merged((part.get(waited, EMPTY).without(part.get("late_time", EMPTY)), part.get("late_least", EMPTY)))
            for part in parts
        ),
        further_batches={name: tuple(part.get(name, EMPTY) for part in parts) for name in further},
        stops=tuple(stop for stop in recording.stops if stop.settled_ns > start_ns),
        by_address=cut_addresses(recording.by_address, first, length_ns // recording.batch_ns, waited),
        load_series=recording.series.between(recording.series.origin_ns, recording.end_ns),
    )
