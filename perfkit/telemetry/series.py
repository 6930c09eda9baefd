"""Time series on the requests' clock, means and integrals of them, and the interface of all samplers.

A load point's window is known only after it has ended, because the end of its warm-up may be detected in the recording.
So a sampler keeps its samples, and is asked for a window afterwards.
"""

import abc
import array
import bisect
import concurrent.futures
import dataclasses
import itertools
import queue
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from perfkit.clock import Clock
from perfkit.errors import MeasurementWarning
from perfkit.units import NS_PER_S

Span = tuple[int, int]
"""Start and end, in nanoseconds of the monotonic clock."""
_Summary_co = TypeVar("_Summary_co", covariant=True)
_COUNTER_REFRESH_NS = NS_PER_S


@dataclasses.dataclass(frozen=True, slots=True)
class Series:
    """One quantity over time. `times_ns` are ascending instants of the monotonic clock at which the values were new."""

    name: str
    unit: str
    """`share` (a fraction of one), `bytes`, `W`, `J`, `MHz`, `celsius`, `per_s`, `ns`, `count`, or empty if unknown."""
    labels: Mapping[str, str]
    times_ns: tuple[int, ...]
    values: tuple[float, ...]

    def between(self, start_ns: int, end_ns: int) -> "Series":
        """The samples of a span, both ends included."""
        first, last = bisect.bisect_left(self.times_ns, start_ns), bisect.bisect_right(self.times_ns, end_ns)
        return dataclasses.replace(self, times_ns=self.times_ns[first:last], values=self.values[first:last])

    def effective_from(self, start_ns: int) -> "Series":
        """The samples from an instant on, preceded by the sample in effect at that instant."""
        first = max(bisect.bisect_right(self.times_ns, start_ns) - 1, 0)
        return dataclasses.replace(self, times_ns=self.times_ns[first:], values=self.values[first:])

    def shifted(self, by_ns: int) -> "Series":
        """A copy with `by_ns` added to each instant, to convert it to another clock."""
        return dataclasses.replace(self, times_ns=tuple(time_ns + by_ns for time_ns in self.times_ns))

    @property
    def mean(self) -> float | None:
        """The unweighted mean of the samples; None without samples."""
        return sum(self.values) / len(self.values) if self.values else None


class SeriesBuffer:
    """A series that grows; used by its sampler's thread only."""

    def __init__(self, name: str, unit: str, labels: Mapping[str, str] | None = None) -> None:
        self.name, self.unit, self.labels = name, unit, dict(labels or {})
        self._times_ns, self._values = array.array("q"), array.array("d")  # eight bytes each, for runs of hours

    def add(self, time_ns: int, value: float) -> None:
        """Appends a sample, unless it is no newer than the last one, which is then the same sample read again."""
        if not self._times_ns or time_ns > self._times_ns[-1]:
            self._times_ns.append(time_ns)
            self._values.append(value)

    @property
    def size(self) -> int:
        """The number of samples."""
        return len(self._values)

    def drop_every_second(self) -> None:
        """Drops every second sample; those that stay are as fair a sample as all."""
        self._times_ns, self._values = self._times_ns[::2], self._values[::2]

    @property
    def latest(self) -> float | None:
        """The newest value; None without samples."""
        return self._values[-1] if self._values else None

    @property
    def span_ns(self) -> Span | None:
        """The instants of the first and the last sample; None without samples."""
        return (self._times_ns[0], self._times_ns[-1]) if self._times_ns else None

    def between(self, start_ns: int, end_ns: int) -> Series:
        """The samples of a span, both ends included."""
        return self._slice(bisect.bisect_left(self._times_ns, start_ns), bisect.bisect_right(self._times_ns, end_ns))

    def around(self, start_ns: int, end_ns: int) -> Series:
        """The samples of a span, and the neighbouring sample on either side."""
        first, last = bisect.bisect_right(self._times_ns, start_ns) - 1, bisect.bisect_left(self._times_ns, end_ns)
        return self._slice(max(first, 0), last + 1)

    def whole(self) -> Series:
        """All samples."""
        return self._slice(0, len(self._times_ns))

    def last(self) -> Series | None:
        """The newest sample alone; None without samples."""
        return self._slice(len(self._times_ns) - 1, len(self._times_ns)) if self._times_ns else None

    def at(self, instant_ns: int) -> float | None:
        """The value at an instant: linear between samples, constant beyond the first and the last; None without samples."""
        if not self._times_ns:
            return None
        after = bisect.bisect_left(self._times_ns, instant_ns)
        if after in (0, len(self._times_ns)):
            return self._values[min(after, len(self._values) - 1)]
        return _interpolate(self._times_ns, self._values, after - 1, after, instant_ns)

    def forget_before(self, instant_ns: int) -> None:
        """Drops the samples before an instant, except the last of them, which `at` needs."""
        first = max(bisect.bisect_left(self._times_ns, instant_ns) - 1, 0)
        del self._times_ns[:first], self._values[:first]

    def _slice(self, first: int, last: int) -> Series:
        return Series(self.name, self.unit, self.labels, tuple(self._times_ns[first:last]), tuple(self._values[first:last]))


@dataclasses.dataclass(frozen=True, slots=True)
class SamplerReport(Generic[_Summary_co]):
    """A sampler's data of one window: figures for `result.json`, series for the telemetry file, and warnings."""

    summary: _Summary_co | None
    series: tuple[Series, ...] = ()
    warnings: tuple[MeasurementWarning, ...] = ()


class Sampler(abc.ABC, Generic[_Summary_co]):
    """Samples one source. All calls come from one thread, and may block.

    No call raises because of the source. If the source is absent, refuses access, or is lost, the sampler adds one sentence to
    `notes` and continues with what remains.
    """

    def __init__(self) -> None:
        self.notes: list[str] = []
        """Sentences about the run as a whole, such as a missing driver; the caller removes those it has read."""
        self._noted: set[str] = set()

    def note_once(self, subject: str, sentence: str) -> None:
        """Notes the first sentence on a subject."""
        if subject not in self._noted:
            self._noted.add(subject)
            self.notes.append(sentence)

    def start(self) -> bool:
        """Opens the source, before any load; False if there is nothing to sample, after which only `close` is called."""
        self.sample()
        return True

    @abc.abstractmethod
    def sample(self) -> int | None:
        """Takes a sample and returns the instant at which the next one is due; None for never."""

    @abc.abstractmethod
    def window(self, start_ns: int, end_ns: int) -> SamplerReport[_Summary_co]:
        """The report of a span that has just ended. Spans ascend, so samples before `start_ns` may be dropped."""

    def latest(self) -> Sequence[Series]:
        """The newest sample of each series, for live metrics."""
        return ()

    def close(self) -> None:
        """Closes the source; also called after `start` returned False."""


def newest(buffers: Iterable[SeriesBuffer]) -> list[Series]:
    """The newest sample of each series that has any."""
    return [series for buffer in buffers if (series := buffer.last())]


def held_mean(times_ns: Sequence[int], values: Sequence[float], span: Span, of: Callable[[float], float] = float) -> float | None:
    """The time-weighted mean of `of(value)` over a span, where each value holds until the next sample.

    The part of the span before the first sample is left out; None if that is all of it.
    """
    start_ns, end_ns = span
    first = max(bisect.bisect_right(times_ns, start_ns) - 1, 0)
    total = covered_ns = 0.0
    for index in range(first, len(times_ns)):
        if times_ns[index] >= end_ns:
            break
        until_ns = min(times_ns[index + 1], end_ns) if index + 1 < len(times_ns) else end_ns
        held_ns = until_ns - max(times_ns[index], start_ns)
        total += of(values[index]) * held_ns
        covered_ns += held_ns
    return total / covered_ns if covered_ns else None


def preceding_mean(times_ns: Sequence[int], values: Sequence[float], span: Span) -> float | None:
    """The time-weighted mean over a span, where each value is the mean since the previous sample.

    Only the part between the first and the last sample counts; None if the span has no such part.
    """
    start_ns, end_ns = span
    total = covered_ns = 0.0
    for index in range(max(bisect.bisect_right(times_ns, start_ns), 1), len(times_ns)):
        from_ns = max(times_ns[index - 1], start_ns)
        if from_ns >= end_ns:
            break
        length_ns = min(times_ns[index], end_ns) - from_ns
        total += values[index] * length_ns
        covered_ns += length_ns
    return total / covered_ns if covered_ns else None


def counter_growth(times_ns: Sequence[int], values: Sequence[float], span: Span) -> float | None:
    """How much a counter grew over a span; None if its samples do not reach both ends, or it fell.

    Growth is linear between samples. Beyond the last sample the rate of the second before it continues, for up to one second:
    a counter that is refreshed at intervals has not stopped, but one that is no longer read has.
    """
    start_ns, end_ns = span
    if len(times_ns) < 2 or times_ns[0] > start_ns or times_ns[-1] + _COUNTER_REFRESH_NS < end_ns:
        return None
    first = bisect.bisect_right(times_ns, start_ns) - 1
    if falls(values[first:]):
        return None
    return _counter_at(times_ns, values, end_ns) - _counter_at(times_ns, values, start_ns)


def falls(values: Sequence[float]) -> bool:
    """Whether any value is below the one before it."""
    return any(later < earlier for earlier, later in itertools.pairwise(values))


def rate_integral(mean_per_s: float, span: Span) -> float:
    """What a mean rate adds up to over a span, such as joules from watts."""
    return mean_per_s * (span[1] - span[0]) / NS_PER_S


def _counter_at(times_ns: Sequence[int], values: Sequence[float], instant_ns: int) -> float:
    after = bisect.bisect_left(times_ns, instant_ns)
    if after == len(times_ns):
        before, after = min(bisect.bisect_right(times_ns, times_ns[-1] - _COUNTER_REFRESH_NS), after - 2), after - 1
    else:
        before, after = max(after, 1) - 1, max(after, 1)
    return _interpolate(times_ns, values, before, after, instant_ns)


def _interpolate(times_ns: Sequence[int], values: Sequence[float], before: int, after: int, instant_ns: int) -> float:
    t0, t1, v0, v1 = times_ns[before], times_ns[after], values[before], values[after]
    return v0 + (v1 - v0) * (instant_ns - t0) / (t1 - t0)


_Result = TypeVar("_Result")
_Sampler = TypeVar("_Sampler", bound=Sampler[Any])
_MIN_INTERVAL_NS = NS_PER_S // 1000


def take_notes(sampler: Sampler[Any]) -> list[str]:
    """The sampler's notes since the previous call."""
    notes, sampler.notes = sampler.notes, []
    return notes


class SamplerThread(Generic[_Sampler]):
    """Starts a sampler at once. If the sampler raises, which is a bug, it is noted and no longer sampled; the run continues."""

    def __init__(self, name: str, sampler: _Sampler, clock: Clock) -> None:
        self.name = name
        self._sampler, self._clock = sampler, clock
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)  # a hanging driver must not keep the process
        self._thread.start()

    def submit(self, call: Callable[[_Sampler], _Result]) -> "concurrent.futures.Future[_Result]":
        """Calls a function with the sampler, in its thread, after its start and all earlier calls."""
        future: concurrent.futures.Future[_Result] = concurrent.futures.Future()

        def run_call() -> None:
            try:
                future.set_result(call(self._sampler))
            except Exception as error:  # noqa: BLE001 - raised where the result is awaited
                future.set_exception(error)

        self._calls.put(run_call)
        return future

    def close(self, timeout_s: float) -> None:
        """Ends the thread; one that hangs is abandoned after the timeout."""
        self._calls.put(None)
        self._thread.join(timeout_s)

    def _run(self) -> None:
        due_ns = self._clock.now_ns() if self._guarded(self._sampler.start) else None
        while True:
            try:
                call = self._calls.get(timeout=None if due_ns is None else max(due_ns - self._clock.now_ns(), 0) / NS_PER_S)
            except queue.Empty:
                now_ns, due_ns = self._clock.now_ns(), self._guarded(self._sampler.sample)
                due_ns = None if due_ns is None else max(due_ns, now_ns + _MIN_INTERVAL_NS)
                continue
            if call is None:
                break
            call()
        self._guarded(self._sampler.close)

    def _guarded(self, call: Callable[[], _Result]) -> _Result | None:
        try:
            return call()
        except Exception:  # noqa: BLE001 - a bug in telemetry must not lose a measurement
            reason = traceback.format_exc().strip().splitlines()[-1]
            self._sampler.notes.append(f"Sampling of {self.name} failed and has ended: {reason}.")
            return None
