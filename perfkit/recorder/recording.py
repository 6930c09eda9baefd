"""The recording of one load point: outcomes, distributions, series, and the requests by address; those of several workers are merged."""

import collections
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from perfkit.recorder.batches import Batch, BatchRecorder, batch_length_ns, longer_batches, merge_times, tally
from perfkit.recorder.series import Instants, Series, sum_series
from perfkit.recorder.stops import Stop
from perfkit.stats.buckets import EMPTY, BucketCounts
from perfkit.transport.base import Outcome
from perfkit.units import NS_PER_S

_Numbers = npt.NDArray[np.int64]
_Mask = npt.NDArray[np.bool_]

Labels = Callable[[], Sequence[str]]
"""The addresses so far, in the order of `Reply.replica`."""
AddressBatches = Mapping[str, Mapping[int, Batch]]
"""The batches of each address by number, with outcomes, OK answers, and the times of waiting."""


@dataclasses.dataclass(frozen=True, slots=True)
class AddressWindow:
    """The window of one address."""

    outcomes: Mapping[Outcome, int]
    finished: int
    """OK answers whose end lies in the window."""
    times: BucketCounts
    """Response times, in a closed loop service times."""
    batches: tuple[BucketCounts, ...]
    """These times in equal parts of the window."""


class AddressRecorder:
    """Records batches for each address; their counts add up to those of the whole load point."""

    def __init__(self, labels: Labels, window_start_ns: int, window_ns: int | None, *, is_open: bool) -> None:
        self._labels, self._start_ns, self._window_ns = labels, window_start_ns, window_ns
        self._time = "response_time" if is_open else "service_time"
        self._recorders: dict[int, BatchRecorder] = {}

    def add(
        self,
        replicas: _Numbers,
        intended_ns: _Numbers,
        finished_ns: _Numbers,
        codes: _Numbers,
        timed: _Mask,
        inside: _Mask,
        ok_inside: _Mask,
    ) -> Iterator[None]:
        """Adds requests, in steps; `inside` marks those that belong to the window, `ok_inside` OK ones that ended in it."""
        for replica, _ in tally(replicas):
            recorder = self._recorders.get(replica)
            if recorder is None:
                recorder = self._recorders[replica] = BatchRecorder(self._start_ns, self._window_ns)
            own = replicas == replica
            recorder.count("finished", finished_ns[own & ok_inside])
            if (own & inside).any():
                places = np.flatnonzero((inside & timed)[own])
                waited_ns = (finished_ns - intended_ns)[own][places]
                yield from recorder.add(intended_ns[own], codes[own], inside[own], {self._time: (places, waited_ns)}, {})
            yield

    def take_before(self, instant_ns: int | None, batch_ns: int) -> AddressBatches:
        """The batches with the given length, which is at least their own; see `BatchRecorder.take_before`."""
        labels = self._labels()
        taken = {
            labels[replica]: longer_batches(recorder.take_before(instant_ns), batch_ns // recorder.batch_ns)
            for replica, recorder in self._recorders.items()
        }
        return {label: taken.get(label, {}) for label in labels}


def cut_addresses(recorded: AddressBatches, first: int, parts: int, waited: str) -> dict[str, AddressWindow]:
    """The windows from batch `first` on, with so many equal parts; `waited` names the times."""
    return {label: _cut(batches, first, parts, waited) for label, batches in recorded.items()}


def _cut(batches: Mapping[int, Batch], first: int, parts: int, waited: str) -> AddressWindow:
    whole = Batch.merged([batch for number, batch in batches.items() if number >= first])
    return AddressWindow(
        {outcome: int(count) for outcome, count in zip(Outcome, whole.outcomes, strict=True)},
        whole.counts["finished"],
        whole.times.get(waited, EMPTY),
        tuple(batches.get(first + number, Batch()).times.get(waited, EMPTY) for number in range(parts)),
    )


OF_ALL_LOADS = ("service_time", "failure_time")
"""The times that loads of both kinds have together."""
_ANSWERED = np.array([outcome in (Outcome.OK, Outcome.INVALID_OUTPUT) for outcome in Outcome])
_ABANDONED = list(Outcome).index(Outcome.ABANDONED)
# requests that a server may have answered after the client stopped waiting
_PERHAPS_ANSWERED = (Outcome.TIMED_OUT, Outcome.UNFINISHED, Outcome.BROKEN, Outcome.ABANDONED)


class AnswerTotals(NamedTuple):
    """Answers of a whole load point, warm-up included, for comparison with the server's own counts."""

    answered: int = 0
    answered_ns: int = 0
    """The total of their service times."""
    perhaps_answered: int = 0
    """Requests that ended without an answer, although the server may have sent one."""
    rejected: int = 0
    abandoned: int = 0
    """The part of `perhaps_answered` that the client gave up on purpose."""
    abandoned_ns: int = 0
    """The total of their times until then."""

    @classmethod
    def added(cls, parts: "Iterable[AnswerTotals]") -> "AnswerTotals":
        """The sums over several workers."""
        return cls(*map(sum, zip(*parts, strict=True)))

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
            abandoned=by_outcome[Outcome.ABANDONED],
            abandoned_ns=int(service_ns[codes == _ABANDONED].sum()),
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Recording:
    """What one worker recorded from the earliest start of the window on, or a piece of it; all pieces add up, those of several workers too.

    `window.cut` extracts the window.
    """

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
    attempts_per_s: dict[int, int] = dataclasses.field(default_factory=dict)
    """Attempts by the second in which they were sent; empty for loads without `load.retry`, as are the next."""
    retries_per_s: dict[int, int] = dataclasses.field(default_factory=dict)
    """Attempts by that second that were not the first of their request."""
    stops: tuple[Stop, ...] = ()
    """The stops of the worker, or of all workers, in the order of time."""
    by_address: AddressBatches = dataclasses.field(default_factory=dict)
    """Empty for a target with a single address."""

    def shifted(self, by_ns: int) -> "Recording":
        """A copy with `by_ns` added to each instant, to convert it to another clock."""
        return dataclasses.replace(
            self,
            origin_ns=self.origin_ns + by_ns,
            end_ns=self.end_ns + by_ns,
            series=dataclasses.replace(self.series, origin_ns=self.series.origin_ns + by_ns),
            stops=tuple(stop.shifted(by_ns) for stop in self.stops),
        )

    def before(self, instant_ns: int) -> "Recording":
        """The part before an instant, which is whole seconds after the origin; batches are at most a second long."""
        seconds = (instant_ns - self.origin_ns) // NS_PER_S
        batches = seconds * NS_PER_S // self.batch_ns
        return dataclasses.replace(
            self,
            end_ns=min(self.end_ns, instant_ns),
            batches=_below(self.batches, batches),
            finished_per_s=_below(self.finished_per_s, seconds),
            failed_per_s=_below(self.failed_per_s, seconds),
            attempts_per_s=_below(self.attempts_per_s, seconds),
            retries_per_s=_below(self.retries_per_s, seconds),
            stops=tuple(stop for stop in self.stops if stop.start_ns < instant_ns),
            by_address={label: _below(own, batches) for label, own in self.by_address.items()},
        )

    def times_by_second(self) -> Iterator[tuple[int, Mapping[str, BucketCounts]]]:
        """The times of each second after the origin, by the names under which they were recorded; batches are at most a second long."""
        of_seconds = collections.defaultdict[int, list[Mapping[str, BucketCounts]]](list)
        for number, batch in sorted(self.batches.items()):
            if batch.times:
                of_seconds[number * self.batch_ns // NS_PER_S].append(batch.times)
        return ((second, merge_times(parts)) for second, parts in of_seconds.items())


_T = TypeVar("_T")


def _below(numbered: Mapping[int, _T], end: int) -> dict[int, _T]:
    return {number: value for number, value in numbered.items() if number < end}


_PER_S = ("finished_per_s", "failed_per_s", "attempts_per_s", "retries_per_s")


class RecordingSum:
    """Adds up recordings that begin at the same instant: of several workers, of several workloads, or the pieces of one over time.

    Its batches get longer with the load, so that there are at most 60, unless that would make them longer than `longest_ns`: what goes into the
    log of a load point keeps its seconds apart.
    """

    def __init__(self, longest_ns: int | None = None) -> None:
        self._longest_ns = longest_ns
        self._last: Recording | None = None
        self._end_ns = self._batch_ns = 0
        self._batches = dict[int, Batch]()
        self._by_address = dict[str, dict[int, Batch]]()
        self._per_s = {name: collections.Counter[int]() for name in _PER_S}
        self._series: Series | None = None
        self._answer_totals, self._stops = AnswerTotals(), list[Stop]()

    def add(self, part: Recording) -> None:
        """Adds a recording; raises ValueError if it begins at another instant than those before."""
        if self._last is not None and self._last.origin_ns != part.origin_ns:
            raise ValueError("the recordings of one load point must begin at the same instant")
        self._last, self._end_ns = part, max(self._end_ns, part.end_ns)
        self._lengthen(part.batch_ns)
        self._add_batches(self._batches, part.batches, part.batch_ns)
        for label, batches in part.by_address.items():
            self._add_batches(self._by_address.setdefault(label, {}), batches, part.batch_ns)
        if self._batches:
            self._lengthen(batch_length_ns((max(self._batches) + 1) * self._batch_ns))
        for name, counts in self._per_s.items():
            counts.update(getattr(part, name))
        self._series = part.series if self._series is None else sum_series([self._series, part.series])
        self._answer_totals = AnswerTotals.added((self._answer_totals, part.answer_totals))
        self._stops += part.stops

    def whole(self) -> Recording:
        """The sum; there must be a recording."""
        assert self._last is not None
        assert self._series is not None
        self._lengthen(batch_length_ns(self._end_ns - self._last.origin_ns))
        return Recording(
            origin_ns=self._last.origin_ns,
            end_ns=self._end_ns,
            batch_ns=self._batch_ns,
            batches=dict(self._batches),
            series=self._series,
            **{name: dict(counts) for name, counts in self._per_s.items()},
            answer_totals=self._answer_totals,
            stops=tuple(sorted(self._stops)),
            by_address={label: dict(batches) for label, batches in self._by_address.items()},
        )

    def _add_batches(self, to: dict[int, Batch], batches: Mapping[int, Batch], batch_ns: int) -> None:
        factor = self._batch_ns // batch_ns
        for number, batch in (batches if factor == 1 else longer_batches(batches, factor)).items():
            to[number] = Batch.merged([to[number], batch]) if number in to else batch

    def _lengthen(self, batch_ns: int) -> None:
        if self._longest_ns is not None:
            batch_ns = min(batch_ns, self._longest_ns)
        if batch_ns <= self._batch_ns:
            return
        factor, self._batch_ns = batch_ns // (self._batch_ns or batch_ns), batch_ns
        self._batches = longer_batches(self._batches, factor)
        self._by_address = {label: longer_batches(batches, factor) for label, batches in self._by_address.items()}


def merge(recordings: Sequence[Recording]) -> Recording:
    """The recording that a single worker would have made; raises ValueError if the recordings begin at different instants."""
    total = RecordingSum()
    for recording in recordings:
        total.add(recording)
    return total.whole()


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
