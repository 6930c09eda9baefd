"""Batches to which little is added any more, compressed, so that hours of them take a few megabytes."""

import pickle
import zlib
from collections.abc import Iterable

from perfkit.recorder.batches import Batch

_FASTEST = 1


class PackedBatches:
    """Batches by number; what is added to a number is summed."""

    def __init__(self) -> None:
        self._packed: dict[int, bytes] = {}

    def add(self, number: int, batch: Batch) -> None:
        """Adds to a batch; takes about a millisecond."""
        earlier = self._batch(number) if number in self._packed else None
        whole = batch if earlier is None else Batch.merged([earlier, batch])
        self._packed[number] = zlib.compress(pickle.dumps(whole, protocol=pickle.HIGHEST_PROTOCOL), _FASTEST)

    def all(self, others: Iterable[tuple[int, Batch]] = ()) -> dict[int, Batch]:
        """The batches by number, with `others` added."""
        batches = {number: self._batch(number) for number in self._packed}
        for number, batch in others:
            batches[number] = Batch.merged([batches[number], batch]) if number in batches else batch
        return batches

    def _batch(self, number: int) -> Batch:
        batch: Batch = pickle.loads(zlib.decompress(self._packed[number]))  # noqa: S301 - packed above, and never stored
        return batch
