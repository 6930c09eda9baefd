"""A load point in equal batches with counts and times: the units of the warm-up cut, of confidence intervals, and of the interval log."""

import collections
import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from perfkit.recorder.failures import FailureKind
from perfkit.recorder.histogram import Histogram
from perfkit.stats.buckets import BucketCounts
from perfkit.transport.base import Outcome
from perfkit.units import NS_PER_S

_Numbers = npt.NDArray[np.int64]
_MAX_BATCHES = 60
_MIN_LENGTH_NS, _MAX_OPEN = NS_PER_S // 64, 3


@dataclasses.dataclass(slots=True)
class Batch:
    """The requests meant to start in one part of the load, and the counts of those that ended in it."""

    outcomes: _Numbers = dataclasses.field(default_factory=lambda: np.zeros(len(Outcome), dtype=np.int64))
    """The number of requests of each outcome, in the order of `Outcome`."""
    times: Mapping[str, BucketCounts] = dataclasses.field(default_factory=dict)
    """By the names under which they were recorded; see `Recorder`."""
    failures: collections.Counter[FailureKind] = dataclasses.field(default_factory=collections.Counter)
    """The requests of every outcome but OK."""
    counts: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    """By the names under which they were counted; see `Recorder`."""

    @classmethod
    def merged(cls, parts: "list[Batch]") -> "Batch":
        """The sum of several batches."""
        whole = cls(times=merge_times([part.times for part in parts]))
        for part in parts:
            whole.outcomes = whole.outcomes + part.outcomes
            whole.failures.update(part.failures)
            whole.counts.update(part.counts)
        return whole


def batch_length_ns(length_ns: int) -> int:
    """The length of the batches of a load: the shortest with which there are at most 60."""
    batch_ns = _MIN_LENGTH_NS
    while batch_ns * _MAX_BATCHES < length_ns:
        batch_ns *= 2
    return batch_ns


def longer_batches(batches: "Mapping[int, Batch]", factor: int) -> "dict[int, Batch]":
    """The batches by number, each as the sum of `factor` of them."""
    together = collections.defaultdict[int, list[Batch]](list)
    for number, batch in batches.items():
        together[number // factor].append(batch)
    return {number: Batch.merged(parts) for number, parts in together.items()}


def tally(numbers: _Numbers) -> list[tuple[int, int]]:
    """The distinct numbers in ascending order with their counts; faster than `np.unique` for numbers close together."""
    if not numbers.size:
        return []
    lowest = int(numbers.min())
    return [(lowest + place, count) for place, count in enumerate(np.bincount(numbers - lowest).tolist()) if count]


class BatchRecorder:
    """Records batches from `origin_ns` on; their length is 1/64 s times a power of two and at most a second, so that seconds are whole batches.

    If the length of the load is unknown, None, their length doubles, up to a second, whenever there would be more than 60. Batches can be
    taken out while the load lasts.
    """

    def __init__(self, origin_ns: int, length_ns: int | None) -> None:
        self.batch_ns = min(batch_length_ns(length_ns or 0), NS_PER_S)
        self._may_double = length_ns is None
        self._origin_ns = origin_ns
        self._open: dict[int, collections.defaultdict[str, Histogram]] = {}  # the last used one last
        self._batches = collections.defaultdict[int, Batch](Batch)

    def add(
        self,
        intended_ns: _Numbers,
        codes: _Numbers,
        inside: npt.NDArray[np.bool_],
        times: Mapping[str, tuple[_Numbers, _Numbers]],
        failures: Mapping[int, FailureKind],
    ) -> Iterator[None]:
        """Adds the requests that are inside the window, in steps.

        `codes` are the positions of outcomes in `Outcome`; `times` gives for each name the indices of the requests that have
        this time, and its nanoseconds; `failures` the kinds of failed requests by index.
        """
        numbers = self._numbers(np.where(inside, intended_ns, self._origin_ns))
        for number, _ in tally(numbers[inside]):
            chosen = inside & (numbers == number)
            batch = self._batches[number]
            batch.outcomes += np.bincount(codes[chosen], minlength=len(Outcome))
            batch.failures.update(kind for place, kind in failures.items() if chosen[place])
            yield
            histograms = self._histograms(number)
            for name, (places, values_ns) in times.items():
                histograms[name].record_many(values_ns[chosen[places]])
                yield

    def add_times(self, name: str, begun_ns: _Numbers, times_ns: _Numbers) -> None:
        """Adds times of the window that do not belong to a request, by the instants at which they began."""
        numbers = self._numbers(begun_ns) if begun_ns.size else begun_ns
        for number, _ in tally(numbers):
            self._histograms(number)[name].record_many(times_ns[numbers == number])

    def count(self, name: str, instants_ns: _Numbers, amounts: _Numbers | None = None) -> None:
        """Adds to the count of a name 1, or an amount, for each instant that is not before the first batch."""
        is_inside = instants_ns >= self._origin_ns
        instants_ns = instants_ns[is_inside]
        if not instants_ns.size:
            return
        numbers = self._numbers(instants_ns)
        for number, count in tally(numbers):
            self._batches[number].counts[name] += count if amounts is None else int(amounts[is_inside][numbers == number].sum())

    def take_before(self, instant_ns: int | None) -> dict[int, Batch]:
        """Removes and returns the batches before an instant, which is whole seconds after the origin, or all.

        What is added to them afterwards is returned by the next call.
        """
        end = None if instant_ns is None else (instant_ns - self._origin_ns) // self.batch_ns
        taken = sorted(number for number in self._batches.keys() | self._open.keys() if end is None or number < end)
        for number in taken:
            if number in self._open:
                self._pack(number)
        return {number: self._batches.pop(number) for number in taken}

    def _numbers(self, instants_ns: _Numbers) -> _Numbers:
        times_ns = instants_ns - self._origin_ns
        while self._may_double and self.batch_ns < NS_PER_S and int(times_ns.max()) >= _MAX_BATCHES * self.batch_ns:
            self.batch_ns *= 2
            for number in tuple(self._open):
                self._pack(number)
            self._batches = collections.defaultdict(Batch, longer_batches(self._batches, 2))
        return times_ns // self.batch_ns

    def _histograms(self, number: int) -> dict[str, Histogram]:
        self._open[number] = histograms = self._open.pop(number, None) or collections.defaultdict(Histogram)
        if len(self._open) > _MAX_OPEN:
            self._pack(next(iter(self._open)))
        return histograms

    def _pack(self, number: int) -> None:
        new = {name: histogram.bucket_counts() for name, histogram in self._open.pop(number).items()}
        batch = self._batches[number]
        batch.times = merge_times([batch.times, new])  # late answers may have reopened it, so there may be a part already


def merge_times(parts: Sequence[Mapping[str, BucketCounts]]) -> dict[str, BucketCounts]:
    """The times of several parts together, by name."""
    names = dict.fromkeys(name for part in parts for name in part)
    return {name: BucketCounts.merged(part[name] for part in parts if name in part) for name in names}
