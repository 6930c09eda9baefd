"""Memory that large requests are received into. A connection keeps its own for the next request, so that its pages stay mapped."""

import asyncio
import contextlib
import mmap

_SPARE_BYTES = 2**16  # behind a request, so that a read is rarely cut short, for the beginning of a pipelined one
_MAX_KEPT_BYTES = 2**30
_KEPT_S = 5.0


class KeptMemory:
    """How much memory the connections of a port keep between requests."""

    def __init__(self, max_bytes: int = _MAX_KEPT_BYTES, kept_s: float = _KEPT_S) -> None:
        self.max_bytes, self.kept_s, self.kept_bytes = max_bytes, kept_s, 0


class RequestBuffer:
    """The memory of one connection, with one request at a time from its beginning. It is kept for a few seconds without requests.

    It is as large as the request announced itself to be. That is safe, because pages take memory only once bytes have arrived.
    """

    def __init__(self, kept: KeptMemory) -> None:
        self._kept = kept
        self._memory: mmap.mmap | None = None
        self._body_start = self._end = 0  # of the request; unknown while 0
        self._kept_bytes = 0
        self._release_timer: asyncio.TimerHandle | None = None
        self.filled = 0
        """The number of bytes received: of the current request, and behind it."""

    @property
    def missing_bytes(self) -> int:
        """What is left to receive of the request that has begun. Negative if bytes of the next one have arrived."""
        return self._end - self.filled

    def space(self) -> memoryview:
        """Where the next bytes belong. It is not empty unless bytes of a next request have arrived."""
        try:
            memory = self._reserve()
        except OSError:  # between requests, and only because as much is reserved as the last one needed
            self.release()
            memory = self._reserve()
        return memoryview(memory)[self.filled : (self._end or len(memory) - _SPARE_BYTES) + _SPARE_BYTES]

    def head(self, max_bytes: int) -> bytes:
        """The first bytes received."""
        return b"" if self._memory is None else self._memory[: min(self.filled, max_bytes)]

    def begin(self, body_start: int, body_bytes: int) -> None:
        """The head of the request has been read. Raises OSError if the system refuses that much memory; then no request has begun."""
        self._stop_keeping()
        self._reserve(body_start + body_bytes)
        self._body_start, self._end = body_start, body_start + body_bytes

    def append(self, data: bytes) -> None:
        """Add bytes that were received elsewhere. Raises OSError like `begin`."""
        memory = self._reserve(self.filled + len(data))
        memory[self.filled : self.filled + len(data)] = data
        self.filled += len(data)

    def body(self) -> memoryview:
        """The body of the complete request. The memory is not used again while any part of this view exists."""
        assert self._memory is not None
        return memoryview(self._memory)[self._body_start : self._end].toreadonly()

    def take_rest(self) -> bytes:
        """Forget the request, and return the bytes behind it: all of them if none has begun."""
        rest = b"" if self._memory is None else self._memory[self._end : self.filled]
        self.filled = self._body_start = self._end = 0
        self._keep()
        return rest

    def release(self) -> None:
        """Give the memory back, at the latest when the last view of it is gone."""
        self._stop_keeping()
        self._memory = None

    def _reserve(self, byte_count: int = 0) -> mmap.mmap:
        """The memory, grown to what is needed, and replaced if something still reads an earlier request there."""
        memory, needed = self._memory, max(byte_count, self._end) + _SPARE_BYTES
        if memory is not None:
            if self.filled and needed <= len(memory):
                return memory
            needed = max(needed, len(memory))
            with contextlib.suppress(BufferError):
                memory.resize(needed)  # also if nothing changes, because it fails as long as there are views
                return memory
        self._memory = mmap.mmap(-1, needed, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if memory is not None and self.filled:
            self._memory[: self.filled] = memory[: self.filled]
        return self._memory

    def _keep(self) -> None:
        self._stop_keeping()
        if self._memory is None:
            return
        if self._kept.kept_bytes + len(self._memory) > self._kept.max_bytes:
            self._memory = None
            return
        self._kept_bytes = len(self._memory)
        self._kept.kept_bytes += self._kept_bytes
        self._release_timer = asyncio.get_running_loop().call_later(self._kept.kept_s, self._release_unused)

    def _stop_keeping(self) -> None:
        self._kept.kept_bytes -= self._kept_bytes
        self._kept_bytes = 0
        if self._release_timer is not None:
            self._release_timer.cancel()
            self._release_timer = None

    def _release_unused(self) -> None:
        if not self.filled:
            self.release()
