"""A recording in pieces, each passed on while load is still sent, so that a crash does not lose all of it."""

import collections
import dataclasses
from collections.abc import Iterator

from perfkit.recorder.packed_batches import PackedBatches
from perfkit.recorder.recording import Recording


class RecordingSoFar:
    """The sum of the pieces. Each has the batches and seconds since the one before, and the series, totals and stops since the start."""

    def __init__(self) -> None:
        self._newest: Recording | None = None
        self._batches = PackedBatches()
        self._by_address = collections.defaultdict[str, PackedBatches](PackedBatches)
        self._finished_per_s, self._failed_per_s = collections.Counter[int](), collections.Counter[int]()

    def add(self, piece: Recording) -> None:
        """Adds the next piece."""
        collections.deque(self.add_in_steps(piece), maxlen=0)

    def add_in_steps(self, piece: Recording) -> Iterator[None]:
        """Adds the next piece, in steps of about a millisecond."""
        self._newest = piece
        self._finished_per_s.update(piece.finished_per_s)
        self._failed_per_s.update(piece.failed_per_s)
        for number, batch in piece.batches.items():
            self._batches.add(number, batch)
            yield
        for label, batches in piece.by_address.items():
            packed = self._by_address[label]
            for number, batch in batches.items():
                packed.add(number, batch)
                yield

    def whole(self, last: Recording | None = None) -> Recording:
        """The recording of all pieces, with a last one that is not kept; there must be at least one piece."""
        newest = last or self._newest
        assert newest is not None
        own = last or dataclasses.replace(newest, batches={}, finished_per_s={}, failed_per_s={}, by_address={})
        return dataclasses.replace(
            newest,
            batches=self._batches.all(own.batches.items()),
            finished_per_s=dict(self._finished_per_s + collections.Counter(own.finished_per_s)),
            failed_per_s=dict(self._failed_per_s + collections.Counter(own.failed_per_s)),
            by_address={
                label: self._by_address[label].all(own.by_address.get(label, {}).items())
                for label in dict.fromkeys((*self._by_address, *own.by_address))
            },
        )
