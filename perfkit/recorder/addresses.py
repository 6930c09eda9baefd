"""The requests of a load point by the address that they were sent to, where a target has several."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from perfkit.recorder.batches import Batch, BatchRecorder, longer_batches, tally
from perfkit.stats.buckets import EMPTY, BucketCounts
from perfkit.transport.base import Outcome

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
    """The same in equal parts of the window."""


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
