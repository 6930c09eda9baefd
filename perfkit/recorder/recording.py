"""One worker's recording of one load point: outcomes, distributions, and a histogram a second."""

import collections
import dataclasses
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from perfkit.load.phases import Phases
from perfkit.recorder.histogram import Histogram
from perfkit.transport.base import Outcome, Reply
from perfkit.units import NS_PER_S

_BATCH = 1024
_OPEN_INTERVALS = 4
_SAMPLED_ERRORS = 3

# a distribution holds answers, and those that never came at their age, as lower bounds
_IN_DISTRIBUTION = (Outcome.OK, Outcome.INVALID_OUTPUT, Outcome.TIMED_OUT, Outcome.UNFINISHED)
_OUTCOMES = tuple(Outcome)
_OK = Outcome.OK


@dataclasses.dataclass(frozen=True, slots=True)
class Interval:
    """The service times of the requests that started in one second of the window."""

    index: int
    service_time: Histogram


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


class Recorder:
    """Takes replies one by one and records them in batches.

    `on_interval` is given each interval's histogram when later ones push it out; an interval with late answers comes
    more than once, and the parts add up. Memory does not grow with the length of the window. `describe_failure` gives
    the sentence of a failed reply, and is asked for a few of them.
    """

    def __init__(
        self, phases: Phases, on_interval: Callable[[Interval], None], describe_failure: Callable[[Reply], str] = lambda reply: reply.error
    ) -> None:
        self._phases = phases
        self._window_end_ns = phases.window_end_ns
        self._describe_failure = describe_failure
        self._on_interval = on_interval
        self._batch: list[Reply] = []
        self._open: collections.OrderedDict[int, Histogram] = collections.OrderedDict()
        self._recording = Recording(dict.fromkeys(Outcome, 0), Histogram(), Histogram(), {}, 0, 0, 0, 0, {})

    def add(self, reply: Reply) -> None:
        """Takes one reply; cheap, since a thousand are recorded at once."""
        if reply.outcome is not _OK:
            self._sample_error(reply)
        reply.payload = None
        self._batch.append(reply)
        if len(self._batch) >= _BATCH:
            self._flush(self._window_end_ns)

    def end_window(self, instant_ns: int) -> None:
        """Says that the window ends then, earlier than planned: what is answered while it drains is no throughput."""
        self._window_end_ns = instant_ns

    def finish(self, window_end_ns: int) -> Recording:
        """The recording of a window that ended then."""
        self._flush(window_end_ns)
        for index in tuple(self._open):
            self._on_interval(Interval(index, self._open.pop(index)))
        return self._recording

    def _flush(self, window_end_ns: int | None) -> None:
        batch, self._batch = self._batch, []
        started = np.array([reply.started_ns for reply in batch], dtype=np.int64)
        finished = np.array([reply.finished_ns for reply in batch], dtype=np.int64)
        codes = np.array([_OUTCOMES.index(reply.outcome) for reply in batch], dtype=np.int64)
        self._count_finished(finished[codes == _OUTCOMES.index(Outcome.OK)], window_end_ns)
        inside = started >= self._phases.window_start_ns
        if window_end_ns is not None:
            inside &= started < window_end_ns
        if inside.any():
            self._record(started[inside], finished[inside], codes[inside])

    def _count_finished(self, finished_ns: npt.NDArray[np.int64], window_end_ns: int | None) -> None:
        start_ns, recording = self._phases.window_start_ns, self._recording
        inside = finished_ns[finished_ns >= start_ns]
        if window_end_ns is not None:
            inside = inside[inside < window_end_ns]
        recording.finished_in_window += inside.size
        for index, count in zip(*np.unique((inside - start_ns) // NS_PER_S, return_counts=True), strict=True):
            recording.finished_per_interval[int(index)] = recording.finished_per_interval.get(int(index), 0) + int(count)

    def _record(self, started: npt.NDArray[np.int64], finished: npt.NDArray[np.int64], codes: npt.NDArray[np.int64]) -> None:
        recording, service_ns = self._recording, finished - started
        for outcome, count in zip(_OUTCOMES, np.bincount(codes, minlength=len(_OUTCOMES)), strict=True):
            recording.outcomes[outcome] += int(count)
            if outcome in (Outcome.TIMED_OUT, Outcome.UNFINISHED):
                recording.censored += int(count)
        recording.first_started_ns = min(recording.first_started_ns or int(started.min()), int(started.min()))
        recording.last_finished_ns = max(recording.last_finished_ns, int(finished.max()))
        kept = np.isin(codes, [_OUTCOMES.index(outcome) for outcome in _IN_DISTRIBUTION])
        recording.service_time.record_many(service_ns[kept])
        recording.failure_time.record_many(service_ns[~kept])
        indices = (started[kept] - self._phases.window_start_ns) // NS_PER_S
        for index in np.unique(indices):
            self._interval(int(index)).record_many(service_ns[kept][indices == index])

    def _interval(self, index: int) -> Histogram:
        if index not in self._open:
            self._open[index] = Histogram()
        self._open.move_to_end(index)
        if len(self._open) > _OPEN_INTERVALS:
            oldest, histogram = self._open.popitem(last=False)
            self._on_interval(Interval(oldest, histogram))
        return self._open[index]

    def _sample_error(self, reply: Reply) -> None:
        texts = self._recording.errors.setdefault(reply.outcome, [])
        if len(texts) < _SAMPLED_ERRORS and reply.started_ns >= self._phases.window_start_ns:
            texts.append(self._describe_failure(reply))
