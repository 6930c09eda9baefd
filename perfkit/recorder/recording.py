"""One worker's recording of one load point: outcomes, distributions, and a histogram a second."""

import collections
import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from perfkit.load.phases import Phases
from perfkit.recorder.histogram import Histogram
from perfkit.recorder.series import Series, SeriesRecorder
from perfkit.transport.base import Outcome, Reply
from perfkit.units import NS_PER_S

_BATCH = 1024
_OPEN_INTERVALS = 4
_SAMPLED_ERRORS = 3

# a distribution holds answers, and those that never came at their age, as lower bounds
_IN_DISTRIBUTION = (Outcome.OK, Outcome.INVALID_OUTPUT, Outcome.TIMED_OUT, Outcome.UNFINISHED)
_OUTCOMES = tuple(Outcome)
# what came to an end by itself: a request timed out or unfinished is still somebody's work
_ANSWERED_CODES = [_OUTCOMES.index(outcome) for outcome in Outcome if outcome not in (Outcome.TIMED_OUT, Outcome.UNFINISHED)]
_OK = Outcome.OK


@dataclasses.dataclass(frozen=True, slots=True)
class Interval:
    """The times of the requests that belong to one second of the window; an open loop has response time and start delay."""

    index: int
    service_time: Histogram
    response_time: Histogram | None = None
    start_delay: Histogram | None = None


@dataclasses.dataclass(slots=True)
class Recording:
    """What one worker saw in one load point's window."""

    outcomes: dict[Outcome, int]
    service_time: Histogram
    failure_time: Histogram
    finished_per_interval: dict[int, int]
    """Ok completions inside the window, by the second of it in which they finished."""
    finished_in_window: int
    censored: int
    """How many values in `service_time` are lower bounds."""
    first_started_ns: int
    last_finished_ns: int
    errors: dict[Outcome, list[str]]
    response_time: Histogram | None = None
    """Finished − intended start; None in a closed loop, as the two below."""
    start_delay: Histogram | None = None
    """Started − intended start: waiting for a socket and connecting are part of it."""
    lag: Histogram | None = None
    """The generator's own part of the start delay: when the loop came to a request − its intended start."""
    series: Series | None = None
    """How the window went on; None where a number of requests ended it."""
    dropped: int = 0
    unsent: int = 0
    """How many of the dropped ones the loop never came to, since it could not keep up."""


class Recorder:
    """Takes replies one by one and records them in batches.

    `on_interval` is given each interval's histogram when later ones push it out; an interval with late answers comes
    more than once, and the parts add up. Memory does not grow with the length of the window. `describe_failure` gives
    the sentence of a failed reply, and is asked for a few of them.
    """

    def __init__(
        self,
        phases: Phases,
        on_interval: Callable[[Interval], None],
        describe_failure: Callable[[Reply], str] = lambda reply: reply.error,
        *,
        is_open: bool = False,
    ) -> None:
        self._phases = phases
        self._window_end_ns = phases.window_end_ns
        self._describe_failure = describe_failure
        self._on_interval = on_interval
        self._batch: list[Reply] = []
        self._work: Iterator[None] | None = None
        self._is_open = is_open
        self._series = None if phases.window_end_ns is None else SeriesRecorder(phases.window_start_ns, phases.window_end_ns)
        self._open: collections.OrderedDict[int, Interval] = collections.OrderedDict()
        self._recording = Recording(dict.fromkeys(Outcome, 0), Histogram(), Histogram(), {}, 0, 0, 0, 0, {})
        if is_open:
            self._recording.response_time, self._recording.start_delay, self._recording.lag = Histogram(), Histogram(), Histogram()

    def add(self, reply: Reply) -> None:
        """Takes one reply; cheap, since a thousand are recorded at once."""
        if reply.outcome is not _OK:
            self._sample_error(reply)
        reply.payload = None
        self._batch.append(reply)
        if self._work is not None:
            self._take_a_step()
        if len(self._batch) >= _BATCH:
            self._finish_work()
            self._work = self._record_batch(self._window_end_ns)

    def drop(self, intended_ns: npt.NDArray[np.int64], is_late: bool) -> None:
        """Counts arrivals that were not sent, in the window to which they belong; `is_late` where the loop never came to them."""
        inside = intended_ns[intended_ns >= self._phases.window_start_ns]
        if self._window_end_ns is not None:
            inside = inside[inside < self._window_end_ns]
        if self._series is not None:
            self._series.add_scheduled(inside)
        self._recording.dropped += inside.size
        self._recording.unsent += inside.size * is_late

    def end_window(self, instant_ns: int) -> None:
        """Says that the window ends then, earlier than planned: what is answered while it drains is no throughput."""
        self._window_end_ns = instant_ns

    def finish(self, window_end_ns: int) -> Recording:
        """The recording of a window that ended then."""
        self._finish_work()
        self._work = self._record_batch(window_end_ns)
        self._finish_work()
        for index in tuple(self._open):
            self._on_interval(self._open.pop(index))
        if self._series is not None:
            self._recording.series = self._series.finish(window_end_ns)
        return self._recording

    def _take_a_step(self) -> None:
        assert self._work is not None
        if next(self._work, self) is self:
            self._work = None

    def _finish_work(self) -> None:
        while self._work is not None:
            self._take_a_step()

    def _record_batch(self, window_end_ns: int | None) -> Iterator[None]:
        """Records what was taken until now, a step at a time: all at once would hold up an arrival by half a millisecond."""
        batch, self._batch = self._batch, []
        return self._steps(batch, window_end_ns)

    def _steps(self, batch: list[Reply], window_end_ns: int | None) -> Iterator[None]:
        started = np.array([reply.started_ns for reply in batch], dtype=np.int64)
        finished = np.array([reply.finished_ns for reply in batch], dtype=np.int64)
        codes = np.array([_OUTCOMES.index(reply.outcome) for reply in batch], dtype=np.int64)
        self._count_finished(finished[codes == _OUTCOMES.index(Outcome.OK)], window_end_ns)
        intended = np.array([reply.intended_ns for reply in batch], dtype=np.int64) if self._is_open else started
        yield
        if self._series is not None:
            self._series.add_answered(finished[np.isin(codes, _ANSWERED_CODES)])
        inside = intended >= self._phases.window_start_ns
        if window_end_ns is not None:
            inside &= intended < window_end_ns
        if not inside.any():
            return
        yield
        if self._recording.lag is not None:
            paced = np.array([reply.paced_ns for reply in batch], dtype=np.int64)
            self._recording.lag.record_many((paced - intended)[inside])
            yield
        yield from self._record(started[inside], finished[inside], codes[inside], intended[inside])

    def _count_finished(self, finished_ns: npt.NDArray[np.int64], window_end_ns: int | None) -> None:
        start_ns, recording = self._phases.window_start_ns, self._recording
        inside = finished_ns[finished_ns >= start_ns]
        if window_end_ns is not None:
            inside = inside[inside < window_end_ns]
        recording.finished_in_window += inside.size
        for index, count in zip(*np.unique((inside - start_ns) // NS_PER_S, return_counts=True), strict=True):
            recording.finished_per_interval[int(index)] = recording.finished_per_interval.get(int(index), 0) + int(count)

    def _record(
        self,
        started: npt.NDArray[np.int64],
        finished: npt.NDArray[np.int64],
        codes: npt.NDArray[np.int64],
        intended: npt.NDArray[np.int64],
    ) -> Iterator[None]:
        recording, service_ns = self._recording, finished - started
        for outcome, count in zip(_OUTCOMES, np.bincount(codes, minlength=len(_OUTCOMES)), strict=True):
            recording.outcomes[outcome] += int(count)
            if outcome in (Outcome.TIMED_OUT, Outcome.UNFINISHED):
                recording.censored += int(count)
        recording.first_started_ns = min(recording.first_started_ns or int(started.min()), int(started.min()))
        recording.last_finished_ns = max(recording.last_finished_ns, int(finished.max()))
        kept = np.isin(codes, [_OUTCOMES.index(outcome) for outcome in _IN_DISTRIBUTION])
        recording.failure_time.record_many(service_ns[~kept])
        indices = (intended[kept] - self._phases.window_start_ns) // NS_PER_S
        times = service_ns[kept], (finished - intended)[kept], (started - intended)[kept]
        yield
        if self._series is not None:
            self._series.add_scheduled(intended)
            self._series.add_times(intended[kept], (finished - intended)[kept])
            yield
        yield from self._add_times(Interval(-1, recording.service_time, recording.response_time, recording.start_delay), *times)
        for index in np.unique(indices):
            chosen = indices == index
            yield from self._add_times(self._interval(int(index)), *(one[chosen] for one in times))

    @staticmethod
    def _add_times(
        to: Interval, service_ns: npt.NDArray[np.int64], response_ns: npt.NDArray[np.int64], delay_ns: npt.NDArray[np.int64]
    ) -> Iterator[None]:
        to.service_time.record_many(service_ns)
        yield
        if to.response_time is not None:
            to.response_time.record_many(response_ns)
            yield
        if to.start_delay is not None:
            to.start_delay.record_many(delay_ns)
            yield

    def _interval(self, index: int) -> Interval:
        if index not in self._open:
            self._open[index] = Interval(index, Histogram(), Histogram(), Histogram()) if self._is_open else Interval(index, Histogram())
        self._open.move_to_end(index)
        if len(self._open) > _OPEN_INTERVALS:
            self._on_interval(self._open.popitem(last=False)[1])
        return self._open[index]

    def _sample_error(self, reply: Reply) -> None:
        texts = self._recording.errors.setdefault(reply.outcome, [])
        if len(texts) < _SAMPLED_ERRORS and reply.started_ns >= self._phases.window_start_ns:
            texts.append(self._describe_failure(reply))
