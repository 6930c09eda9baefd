"""A load point in 30 to 60 equal batches with counts and times: the units of the warm-up cut and of confidence intervals."""

import collections
import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from perfkit.recorder.failures import FailureKind
from perfkit.recorder.histogram import Histogram
from perfkit.stats.buckets import BucketCounts
from perfkit.transport.base import Outcome
from perfkit.units import NS_PER_S

_Numbers = npt.NDArray[np.int64]
_MIN_LENGTH_NS, _MAX_BATCHES, _MAX_OPEN = NS_PER_S // 64, 60, 3


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


def batch_length_ns(length_ns: int | None) -> int:
    """The length of the batches of a load; with None, unknown length, the initial one."""
    batch_ns = _MIN_LENGTH_NS
    while length_ns is not None and batch_ns * _MAX_BATCHES < length_ns:
        batch_ns *= 2
    return batch_ns


def tally(numbers: _Numbers) -> list[tuple[int, int]]:
    """The distinct numbers in ascending order with their counts; faster than `np.unique` for numbers close together."""
    if not numbers.size:
        return []
    lowest = int(numbers.min())
    return [(lowest + place, count) for place, count in enumerate(np.bincount(numbers - lowest).tolist()) if count]


class BatchRecorder:
    """Records at most 60 batches from `origin_ns` on; their length is 1/64 s times a power of two, so that they align with seconds.

    If the length of the load is unknown, None, the batches are merged in pairs whenever there would be more than 60. Batches can be removed
    while the load lasts, every `taken_every_ns`.
    """

    def __init__(self, origin_ns: int, length_ns: int | None, taken_every_ns: int | None = None) -> None:
        self.batch_ns = batch_length_ns(length_ns)
        self._taken_every_ns = taken_every_ns
        # parts of a batch, whose borders are both those of batches and the instants at which they are taken out
        self._part_ns = self._length_of_parts_ns()
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

    def count(self, name: str, instants_ns: _Numbers) -> None:
        """Increments the count of a name for each instant that is not before the first batch."""
        instants_ns = instants_ns[instants_ns >= self._origin_ns]
        if instants_ns.size:
            for number, count in tally(self._numbers(instants_ns)):
                self._batches[number].counts[name] += count

    def finish(self) -> dict[int, Batch]:
        """The batches that are not empty and were not taken out, by number."""
        return self._take(list(self._batches.keys() | self._open.keys()))

    def take_before(self, instant_ns: int) -> dict[int, Batch]:
        """Removes and returns the batches before an instant, which is a multiple of `taken_every_ns` after the origin.

        What is added to them afterwards is returned by the next call.
        """
        end = (instant_ns - self._origin_ns) // self._part_ns
        return self._take([part for part in self._batches.keys() | self._open.keys() if part < end])

    def _take(self, parts: list[int]) -> dict[int, Batch]:
        """Removes parts, and returns them as batches by number."""
        of_batches = collections.defaultdict[int, list[Batch]](list)
        for part in sorted(parts):
            if part in self._open:
                self._pack(part)
            of_batches[part * self._part_ns // self.batch_ns].append(self._batches.pop(part))
        return {number: several[0] if len(several) == 1 else Batch.merged(several) for number, several in of_batches.items()}

    def _numbers(self, instants_ns: _Numbers) -> _Numbers:
        times_ns = instants_ns - self._origin_ns
        while self._may_double and int(times_ns.max()) >= _MAX_BATCHES * self.batch_ns:
            self._double()
        return times_ns // self._part_ns

    def _length_of_parts_ns(self) -> int:
        return self.batch_ns if self._taken_every_ns is None else math.gcd(self.batch_ns, self._taken_every_ns)

    def _double(self) -> None:
        self.batch_ns *= 2
        if self._length_of_parts_ns() == self._part_ns:
            return
        self._part_ns *= 2
        for number in tuple(self._open):
            self._pack(number)
        pairs = collections.defaultdict[int, list[Batch]](list)
        for number, batch in self._batches.items():
            pairs[number >> 1].append(batch)
        self._batches = collections.defaultdict(Batch, {number: Batch.merged(pair) for number, pair in pairs.items()})

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
