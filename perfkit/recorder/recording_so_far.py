"""A recording in pieces, each passed on while load is still sent, so that a crash does not lose all of it."""

import collections
import dataclasses
from collections.abc import Iterator, Mapping

from perfkit.recorder.batches import Batch
from perfkit.recorder.packed_batches import PackedBatches
from perfkit.recorder.recording import Recording


class RecordingSoFar:
    """The sum of the pieces. Each has the batches and seconds since the one before, and the series, totals and stops since the start.

    Their batches may differ in length by powers of two; the sum has the longest.
    """

    def __init__(self) -> None:
        self._newest: Recording | None = None
        self._batch_ns = 0
        self._batches = PackedBatches()
        self._by_address = collections.defaultdict[str, PackedBatches](PackedBatches)
        self._finished_per_s, self._failed_per_s = collections.Counter[int](), collections.Counter[int]()

    def add(self, piece: Recording) -> None:
        """Adds the next piece."""
        collections.deque(self.add_in_steps(piece), maxlen=0)

    def add_in_steps(self, piece: Recording) -> Iterator[None]:
        """Adds the next piece, in steps of about a millisecond."""
        self._newest = piece
        yield from self._coarsen(piece.batch_ns)
        self._finished_per_s.update(piece.finished_per_s)
        self._failed_per_s.update(piece.failed_per_s)
        for number, batch in piece.batches.items():
            self._batches.add(number * piece.batch_ns // self._batch_ns, batch)
            yield
        for label, batches in piece.by_address.items():
            packed = self._by_address[label]
            for number, batch in batches.items():
                packed.add(number * piece.batch_ns // self._batch_ns, batch)
                yield

    def _coarsen(self, batch_ns: int) -> Iterator[None]:
        if batch_ns <= self._batch_ns:
            return
        for packed in (self._batches, *self._by_address.values()):
            yield from packed.coarsen(batch_ns // (self._batch_ns or batch_ns))
        self._batch_ns = batch_ns

    def totals(self) -> Recording:
        """The newest piece without what pieces add up; there must be one."""
        assert self._newest is not None
        return dataclasses.replace(self._newest, batches={}, finished_per_s={}, failed_per_s={}, by_address={})

    def whole(self, last: Recording | None = None) -> Recording:
        """The recording of all pieces, with a last one that is not kept; there must be at least one piece."""
        own = last or self.totals()
        collections.deque(self._coarsen(own.batch_ns), maxlen=0)

        def renumbered(batches: Mapping[int, Batch]) -> Iterator[tuple[int, Batch]]:
            return ((number * own.batch_ns // self._batch_ns, batch) for number, batch in batches.items())

        return dataclasses.replace(
            own,
            batch_ns=self._batch_ns,
            batches=self._batches.all(renumbered(own.batches)),
            finished_per_s=dict(self._finished_per_s + collections.Counter(own.finished_per_s)),
            failed_per_s=dict(self._failed_per_s + collections.Counter(own.failed_per_s)),
            by_address={
                label: self._by_address[label].all(renumbered(own.by_address.get(label, {})))
                for label in dict.fromkeys((*self._by_address, *own.by_address))
            },
        )
