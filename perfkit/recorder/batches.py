"""A load point in thirty to sixty equal parts, each with its counts and times: what can be left out, and what intervals rest on."""

import collections
import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from perfkit.recorder.histogram import Histogram
from perfkit.stats.buckets import BucketCounts
from perfkit.transport.base import Outcome
from perfkit.units import NS_PER_S

_Numbers = npt.NDArray[np.int64]
_SHORTEST_NS, _MOST, _OPEN = NS_PER_S // 64, 60, 3
_OUTCOMES = tuple(Outcome)
TIMES = ("service_time", "response_time", "start_delay", "pacing_delay", "failure_time")


@dataclasses.dataclass(slots=True)
class Batch:
    """The requests meant to start in one part of the load, and what ended in it, whenever it was sent."""

    outcomes: _Numbers
    """How many of each outcome, in the order of `Outcome`."""
    times: Mapping[str, BucketCounts]
    """By the names of `TIMES`; an open loop alone has all of them."""
    statuses: collections.Counter[str] = dataclasses.field(default_factory=collections.Counter)
    """What rejected requests were answered with."""
    dropped: int = 0
    unsent: int = 0
    """How many of the dropped ones the loop never came to."""
    checked: int = 0
    """How many answers were read and compared."""
    ended: int = 0
    """Requests of any outcome but unfinished that ended in it."""
    finished: int = 0
    """The ok ones among them."""
    good: int = 0
    """The ok ones among them that kept to the SLO."""

    @classmethod
    def merged(cls, parts: "list[Batch]") -> "Batch":
        """One with the counts of all parts."""
        names = [name for name in TIMES if any(name in part.times for part in parts)]
        whole = cls(
            sum((part.outcomes for part in parts), start=np.zeros(len(_OUTCOMES), dtype=np.int64)),
            {name: BucketCounts.merged(part.times[name] for part in parts if name in part.times) for name in names},
        )
        for part in parts:
            whole.statuses.update(part.statuses)
            for name in ("dropped", "unsent", "checked", "ended", "finished", "good"):
                setattr(whole, name, getattr(whole, name) + getattr(part, name))
        return whole


def batch_length_ns(length_ns: int | None) -> int:
    """How long the batches of so long a load are, those of one without a known length at its beginning."""
    batch_ns = _SHORTEST_NS
    while length_ns is not None and batch_ns * _MOST < length_ns:
        batch_ns *= 2
    return batch_ns


def tally(numbers: _Numbers) -> list[tuple[int, int]]:
    """The different numbers, ascending, and how often each is there; quicker than `np.unique` where they lie close together."""
    if not numbers.size:
        return []
    lowest = int(numbers.min())
    return [(lowest + place, count) for place, count in enumerate(np.bincount(numbers - lowest).tolist()) if count]


class BatchRecorder:
    """Batches from `origin_ns` on, 1/64 s times a power of two long, so that they end with whole seconds; at most 60 of them.

    Where the length is not known, None, they double as the load goes on.
    """

    def __init__(self, origin_ns: int, length_ns: int | None) -> None:
        self.batch_ns = batch_length_ns(length_ns)
        self._origin_ns = origin_ns
        self._open: collections.OrderedDict[int, dict[str, Histogram]] = collections.OrderedDict()
        self._batches: dict[int, Batch] = {}

    def add(
        self,
        intended_ns: _Numbers,
        codes: _Numbers,
        inside: npt.NDArray[np.bool_],
        times: Mapping[str, tuple[_Numbers, _Numbers]],
        statuses: Mapping[int, str],
    ) -> Iterator[None]:
        """Takes those requests that are inside the window, a step at a time.

        `codes` are the outcomes' places in `Outcome`; `times` for each name the requests that have it (as places in the
        arrays) and their nanoseconds; `statuses` those of rejected requests, by their places.
        """
        numbers = self._numbers(np.where(inside, intended_ns, self._origin_ns))
        for number, _ in tally(numbers[inside]):
            chosen = inside & (numbers == number)
            batch = self._batch(number)
            batch.outcomes += np.bincount(codes[chosen], minlength=len(_OUTCOMES))
            batch.statuses.update(status for place, status in statuses.items() if chosen[place])
            yield
            histograms = self._histograms(number)
            for name, (places, values_ns) in times.items():
                if name not in histograms:
                    histograms[name] = Histogram()
                histograms[name].record_many(values_ns[chosen[places]])
                yield

    def count(self, name: str, instants_ns: _Numbers) -> None:
        """Adds one to a count of `Batch` for each instant; what lies before the first batch is left out."""
        instants_ns = instants_ns[instants_ns >= self._origin_ns]
        if instants_ns.size:
            for number, count in tally(self._numbers(instants_ns)):
                batch = self._batch(number)
                setattr(batch, name, getattr(batch, name) + count)

    def finish(self) -> dict[int, Batch]:
        """All batches that hold anything, by their numbers."""
        while self._open:
            self._pack()
        return self._batches

    def _numbers(self, instants_ns: _Numbers) -> _Numbers:
        numbers: _Numbers = (instants_ns - self._origin_ns) // self.batch_ns
        while int(numbers.max()) >= _MOST:
            self._double()
            numbers >>= 1
        return numbers

    def _double(self) -> None:
        while self._open:
            self._pack()
        pairs: dict[int, list[Batch]] = {}
        for number, batch in self._batches.items():
            pairs.setdefault(number >> 1, []).append(batch)
        self._batches = {number: Batch.merged(pair) for number, pair in pairs.items()}
        self.batch_ns *= 2

    def _batch(self, number: int) -> Batch:
        if number not in self._batches:
            self._batches[number] = Batch(np.zeros(len(_OUTCOMES), dtype=np.int64), {})
        return self._batches[number]

    def _histograms(self, number: int) -> dict[str, Histogram]:
        if number not in self._open:
            self._open[number] = {}
            if len(self._open) > _OPEN:
                self._pack()
        self._open.move_to_end(number)
        return self._open[number]

    def _pack(self) -> None:
        number, histograms = self._open.popitem(last=False)
        batch = self._batch(number)
        new = {name: histogram.bucket_counts() for name, histogram in histograms.items()}
        # late answers may have opened it again: its parts add up
        batch.times = {
            name: BucketCounts.merged(part[name] for part in (batch.times, new) if name in part)
            for name in TIMES
            if name in {*batch.times, *new}
        }
