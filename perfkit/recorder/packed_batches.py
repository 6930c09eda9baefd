"""Batches to which little is added any more, compressed, so that hours of them take a few megabytes."""

import collections
import pickle
import zlib
from collections.abc import Iterable, Iterator

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
        self._packed[number] = self._pack(whole)

    def coarsen(self, factor: int) -> Iterator[None]:
        """Makes batches `factor` times as long, in steps of a few milliseconds."""
        together = collections.defaultdict[int, list[int]](list)
        for number in self._packed:
            together[number // factor].append(number)
        packed = dict[int, bytes]()
        for number, parts in together.items():
            packed[number] = self._pack(Batch.merged([self._batch(part) for part in parts]))
            yield
        self._packed = packed

    def all(self, others: Iterable[tuple[int, Batch]] = ()) -> dict[int, Batch]:
        """The batches by number, with `others` added."""
        batches = {number: self._batch(number) for number in self._packed}
        for number, batch in others:
            batches[number] = Batch.merged([batches[number], batch]) if number in batches else batch
        return batches

    @staticmethod
    def _pack(batch: Batch) -> bytes:
        return zlib.compress(pickle.dumps(batch, protocol=pickle.HIGHEST_PROTOCOL), _FASTEST)

    def _batch(self, number: int) -> Batch:
        batch: Batch = pickle.loads(zlib.decompress(self._packed[number]))  # noqa: S301 - packed above, and never stored
        return batch
