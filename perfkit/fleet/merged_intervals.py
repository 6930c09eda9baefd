"""The intervals of a machine's workers, merged by second before they are sent, and kept apart as well while a worker may still be lost."""

import collections
import pickle
import zlib

from perfkit.recorder.recording import Interval, merge_intervals

_FASTEST = 1


class MergedIntervals:
    """Adds up the intervals of several workers.

    An interval keeps its worker until a checkpoint counts it, because the intervals of a lost worker do not count from its last checkpoint
    on. A checkpoint is given as the number of the first second after it.
    """

    def __init__(self, workers: int) -> None:
        self._new: list[Interval] = []
        self._given = [list[tuple[int, bytes]]() for _ in range(workers)]
        """For each worker, the intervals that were given and that no checkpoint counts yet: their second, and the packed interval."""
        self._late: list[tuple[int, int, Interval]] = []
        """Intervals that came too late for a checkpoint that covers their second: the worker, the checkpoint's end, and the interval."""
        self._reached: list[collections.deque[int]] = [collections.deque() for _ in range(workers)]

    def add(self, worker: int, interval: Interval) -> None:
        """Adds an interval, which `take` gives, unless it must come after a checkpoint that not all workers have reached."""
        if self._reached[worker] and interval.index < self._reached[worker][-1]:
            self._late.append((worker, self._reached[worker][-1], interval))
        else:
            self._give(worker, interval)

    def take(self) -> list[Interval]:
        """The sums of those that were added since the last call."""
        new, self._new = self._new, []
        return merge_intervals(new)

    def reach(self, worker: int, end: int) -> None:
        """A worker sent its checkpoint: what it adds from now on for seconds before `end` is counted by a later one."""
        self._reached[worker].append(end)

    def count_before(self, end: int) -> None:
        """All workers that are left have reached a checkpoint, which counts what they gave for seconds before `end`."""
        for worker, given in enumerate(self._given):
            self._given[worker] = [one for one in given if one[0] >= end]
            if self._reached[worker]:
                self._reached[worker].popleft()
        late, self._late = self._late, []
        for worker, after, interval in late:
            if after <= end:
                self._give(worker, interval)
            else:
                self._late.append((worker, after, interval))

    def lose(self, worker: int) -> tuple[list[Interval], list[Interval]]:
        """What no checkpoint counts of the workers that are left and of one that is lost, to take the place of all that was given of it."""
        self._new = []
        lost = [*map(_unpacked, self._given[worker]), *(interval for one, _, interval in self._late if one == worker)]
        self._given[worker] = []
        self._reached[worker].clear()
        self._late = [one for one in self._late if one[0] != worker]
        return merge_intervals([_unpacked(one) for given in self._given for one in given]), merge_intervals(lost)

    def _give(self, worker: int, interval: Interval) -> None:
        self._new.append(interval)
        self._given[worker].append((interval.index, _packed(interval)))


def _packed(interval: Interval) -> bytes:
    return zlib.compress(pickle.dumps(interval, protocol=pickle.HIGHEST_PROTOCOL), _FASTEST)


def _unpacked(given: tuple[int, bytes]) -> Interval:
    interval: Interval = pickle.loads(zlib.decompress(given[1]))  # noqa: S301 - packed above
    return interval
