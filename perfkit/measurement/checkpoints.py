"""The checkpoints of a load point: its figures so far, on disk while load is sent, from which a killed run is recovered."""

import asyncio
import contextlib
import ctypes
from collections.abc import Callable

from perfkit.errors import StorageError
from perfkit.workers.checkpoints import CheckpointCollector
from perfkit.workers.messages import Checkpoint
from perfkit.workers.point_recording import PointRecording, after_known_part


class PointCheckpoints:
    """Has the checkpoints of a load point's workers written, one after the other.

    `make` returns what writes the checkpoint of an instant and a recording until then, or None if there is nothing to write yet; that is
    called in another thread, because a disk may be slow. `note` gets a sentence if it fails; the load goes on.
    """

    def __init__(self, make: Callable[[int, PointRecording], Callable[[], None] | None], note: Callable[[str], None]) -> None:
        self._collector, self._make, self._note = CheckpointCollector(0), make, note
        self._lost = list[str]()
        self._newest: tuple[int, PointRecording] | None = None
        self._writing: asyncio.Task[None] | None = None

    def expect(self, workers: int) -> None:
        """Sets the number of workers, before the first checkpoint."""
        self._collector = CheckpointCollector(workers)

    def add(self, worker: int, checkpoint: Checkpoint) -> int | None:
        """Takes a worker's next checkpoint; returns the newest instant that all workers have reached, if this one was the last of them."""
        self._collector.add(worker, checkpoint)
        return self._write_complete()

    def lose(self, worker: int, reason: str) -> tuple[PointRecording | None, int | None]:
        """Waits no longer for a worker; returns what is known of its recording, and the instant as `add` does."""
        known = self._collector.lose(worker)
        self._lost.append(f"{reason}{after_known_part(known)}")
        return known, self._write_complete()

    async def finish(self) -> None:
        """Waits for what is being written."""
        if self._writing is not None:
            await self._writing

    def _write_complete(self) -> int | None:
        if (complete := self._collector.take(self._lost)) is None:
            return None
        self._newest = complete
        if self._writing is None or self._writing.done():
            self._writing = asyncio.ensure_future(self._write())
        return complete[0]

    async def _write(self) -> None:
        while self._newest is not None:
            (at_ns, recorded), self._newest = self._newest, None
            write = self._make(at_ns, recorded)
            del recorded
            _return_memory()
            try:
                if write is not None:
                    await asyncio.to_thread(write)
            except StorageError as error:
                self._note(f"The checkpoint was not written: {error}")


def _return_memory() -> None:
    """Returns freed memory to the system, where the C library can: the figures of a checkpoint take some megabytes for a moment."""
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
