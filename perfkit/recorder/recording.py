"""The recording of one load point: outcomes, distributions, series; those of several workers are merged."""

import collections
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from perfkit.recorder.addresses import AddressBatches, merge_addresses
from perfkit.recorder.batches import Batch, merge_times, tally
from perfkit.recorder.histogram import Histogram
from perfkit.recorder.series import Instants, Series
from perfkit.recorder.stops import Stop
from perfkit.stats.buckets import BucketCounts
from perfkit.transport.base import Outcome
from perfkit.units import NS_PER_S

OF_ALL_LOADS = ("service_time", "failure_time")
"""The times that loads of both kinds have together."""
_MOST_OPEN = 4
_ANSWERED = np.array([outcome in (Outcome.OK, Outcome.INVALID_OUTPUT) for outcome in Outcome])
# requests that a server may have answered after the client stopped waiting
_PERHAPS_ANSWERED = (Outcome.TIMED_OUT, Outcome.UNFINISHED, Outcome.BROKEN)


@dataclasses.dataclass(frozen=True, slots=True)
class AnswerTotals:
    """Answers of a whole load point, warm-up included, for comparison with the server's own counts."""

    answered: int = 0
    answered_ns: int = 0
    """The total of their service times."""
    perhaps_answered: int = 0
    """Requests that ended without an answer, although the server may have sent one."""
    rejected: int = 0

    @classmethod
    def added(cls, parts: "Iterable[AnswerTotals]") -> "AnswerTotals":
        """The sums over several workers."""
        return cls(*map(sum, zip(*map(dataclasses.astuple, parts), strict=True)))

    @classmethod
    def counted(cls, codes: Instants, service_ns: Instants) -> "AnswerTotals":
        """The totals of requests; `codes` are the positions of their outcomes in `Outcome`."""
        counts = np.bincount(codes, minlength=len(Outcome)).tolist()
        by_outcome = dict(zip(Outcome, counts, strict=True))
        return cls(
            answered=by_outcome[Outcome.OK] + by_outcome[Outcome.INVALID_OUTPUT],
            answered_ns=int(service_ns[_ANSWERED[codes]].sum()),
            perhaps_answered=sum(by_outcome[outcome] for outcome in _PERHAPS_ANSWERED),
            rejected=by_outcome[Outcome.REJECTED],
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Interval:
    """The times of one second of the window, by the names under which they were recorded."""

    index: int
    times: Mapping[str, BucketCounts]
    workload: int = 0
    """The number of the workload in a mix."""


def merge_intervals(parts: Sequence[Interval]) -> list[Interval]:
    """One interval for each second and workload, from those of several workers or in several parts; in the order of time."""
    together = collections.defaultdict[tuple[int, int], list[Mapping[str, BucketCounts]]](list)
    for part in parts:
        together[part.index, part.workload].append(part.times)
    return [Interval(index, merge_times(same), workload) for (index, workload), same in sorted(together.items(), key=lambda item: item[0])]


class OpenIntervals:
    """Collects times by the second of their request after `origin_ns`, at most four seconds at once; `on_interval` gets what is emitted.

    A second can be emitted several times, each with what was added since.
    """

    def __init__(self, origin_ns: int, on_interval: Callable[[Interval], None]) -> None:
        self._origin_ns, self._on_interval = origin_ns, on_interval
        self._seconds: dict[int, collections.defaultdict[str, Histogram]] = {}  # the last used one last

    def add(self, begun_ns: Instants, times: Mapping[str, Instants]) -> Iterator[None]:
        """Adds times of each kind, of the requests that began at these instants, in steps."""
        indices = (begun_ns - self._origin_ns) // NS_PER_S
        for index, _ in tally(indices):
            chosen, histograms = indices == index, self._second(index)
            for name, values_ns in times.items():
                histograms[name].record_many(values_ns[chosen])
                yield

    def emit_before(self, instant_ns: int | None) -> Iterator[None]:
        """Emits the seconds that have ended by an instant, or all; in steps."""
        end = None if instant_ns is None else (instant_ns - self._origin_ns) // NS_PER_S
        for index in sorted(index for index in self._seconds if end is None or index < end):
            if index in self._seconds:  # it may have been emitted meanwhile
                self._emit(index)
            yield

    def _second(self, index: int) -> dict[str, Histogram]:
        self._seconds[index] = histograms = self._seconds.pop(index, None) or collections.defaultdict(Histogram)
        if len(self._seconds) > _MOST_OPEN:
            self._emit(next(iter(self._seconds)))
        return histograms

    def _emit(self, index: int) -> None:
        self._on_interval(Interval(index, {name: one.bucket_counts() for name, one in self._seconds.pop(index).items()}))


@dataclasses.dataclass(frozen=True, slots=True)
class Recording:
    """What one worker recorded from the earliest start of the window on; `window.cut` extracts the window."""

    origin_ns: int
    end_ns: int
    batch_ns: int
    batches: dict[int, Batch]
    series: Series
    """From the start of the load if the end of its warm-up is still to be found, otherwise from the window's start."""
    finished_per_s: dict[int, int]
    """OK answers by the second in which they came."""
    failed_per_s: dict[int, int]
    """All other requests by the second in which they ended, without unfinished ones, and dropped arrivals by the second of their arrival."""
    answer_totals: AnswerTotals
    stops: tuple[Stop, ...] = ()
    """The stops of the worker, or of all workers, in the order of time."""
    by_address: AddressBatches = dataclasses.field(default_factory=dict)
    """Empty for a target with a single address."""

    def shifted(self, by_ns: int) -> "Recording":
        """The same on a clock that shows `by_ns` more."""
        return dataclasses.replace(
            self,
            origin_ns=self.origin_ns + by_ns,
            end_ns=self.end_ns + by_ns,
            series=dataclasses.replace(self.series, origin_ns=self.series.origin_ns + by_ns),
            stops=tuple(stop.shifted(by_ns) for stop in self.stops),
        )


def merge(recordings: Sequence[Recording]) -> Recording:
    """The recording that a single worker would have made; raises ValueError if the recordings begin at different instants."""
    first = recordings[0]
    if len(recordings) == 1:
        return first
    if len({recording.origin_ns for recording in recordings}) > 1:
        raise ValueError("the recordings of one load point must begin at the same instant")
    batch_ns = max(recording.batch_ns for recording in recordings)
    batches = collections.defaultdict[int, list[Batch]](list)
    finished_per_s, failed_per_s = collections.Counter[int](), collections.Counter[int]()
    for recording in recordings:
        for number, batch in recording.batches.items():  # the lengths differ by powers of two
            batches[number * recording.batch_ns // batch_ns].append(batch)
        finished_per_s.update(recording.finished_per_s)
        failed_per_s.update(recording.failed_per_s)
    return Recording(
        origin_ns=first.origin_ns,
        end_ns=max(recording.end_ns for recording in recordings),
        batch_ns=batch_ns,
        batches={number: Batch.merged(parts) for number, parts in batches.items()},
        series=_sum_series([recording.series for recording in recordings]),
        finished_per_s=dict(finished_per_s),
        failed_per_s=dict(failed_per_s),
        answer_totals=AnswerTotals.added(recording.answer_totals for recording in recordings),
        stops=tuple(sorted(stop for recording in recordings for stop in recording.stops)),
        by_address=merge_addresses([(recording.by_address, recording.batch_ns) for recording in recordings], batch_ns),
    )


def merge_workloads(parts: Sequence[Recording], *, are_alike: bool) -> Recording:
    """The recording of a whole mix by one worker, from those of its workloads; `are_alike` unless only some of the loads are open.

    Response times and service times are not added up: of loads of both kinds, the whole has service times only.
    """
    whole = merge(parts)
    batches = whole.batches
    if not are_alike:
        batches = {
            number: dataclasses.replace(batch, times={name: times for name, times in batch.times.items() if name in OF_ALL_LOADS})
            for number, batch in batches.items()
        }
    # the workloads share the worker's stops, and addresses tell the whole apart only if they do so for each
    by_address = whole.by_address if all(part.by_address for part in parts) else {}
    return dataclasses.replace(whole, batches=batches, stops=parts[0].stops, by_address=by_address)


def _sum_series(parts: Sequence[Series]) -> Series:
    """The sum of series that may differ in length."""
    longest_ns = max(part.interval_ns for part in parts)
    size = max(-(-part.timed.size * part.interval_ns // longest_ns) for part in parts)
    total = np.zeros((4, size), dtype=np.int64)
    for part in parts:
        np.add.at(total.T, np.arange(part.timed.size) * part.interval_ns // longest_ns, part.rows().T)
    return Series(parts[0].origin_ns, longest_ns, *total)
