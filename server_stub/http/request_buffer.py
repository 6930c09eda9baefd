"""The memory that a connection receives its large requests into, one at a time."""

from collections.abc import Callable

_SPARE_BYTES = 2**16  # behind a request, so that a read is rarely cut short, for the beginning of a pipelined one


class RequestBuffer:
    """A request from its first byte, and what follows it.

    The memory is as large as the request announced itself to be: see `HostMemory`, whose `take` gives it. Each request gets its own, which
    is used again once nothing reads the request any more.
    """

    def __init__(self, take: Callable[[int], memoryview]) -> None:
        self._take = take
        self._memory: memoryview | None = None
        self._body_start = self._end = 0  # of the request; unknown while 0
        self._expected_bytes = 0  # of the next request: the size of the last one
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
        except MemoryError:  # between requests, and only because as much is reserved as the last one needed
            self.release()
            memory = self._reserve()
        return memory[self.filled : (self._end or len(memory) - _SPARE_BYTES) + _SPARE_BYTES]

    def head(self, max_bytes: int) -> bytes:
        """The first bytes received."""
        return b"" if self._memory is None else bytes(self._memory[: min(self.filled, max_bytes)])

    def begin(self, body_start: int, body_bytes: int) -> None:
        """The head of the request has been read. Raises MemoryError if the system refuses that much; then no request has begun."""
        self._reserve(body_start + body_bytes)
        self._body_start, self._end = body_start, body_start + body_bytes

    def append(self, data: bytes) -> None:
        """Add bytes that were received elsewhere. Raises MemoryError like `begin`."""
        memory = self._reserve(self.filled + len(data))
        memory[self.filled : self.filled + len(data)] = data
        self.filled += len(data)

    def body(self) -> memoryview:
        """The body of the complete request. The memory is not used again while any part of this view exists."""
        assert self._memory is not None
        return self._memory[self._body_start : self._end].toreadonly()

    def take_rest(self) -> bytes:
        """Forget the request, and return the bytes behind it: all of them if none has begun."""
        rest = b"" if self._memory is None else bytes(self._memory[self._end : self.filled])
        self._expected_bytes = self._end
        self.filled = self._body_start = self._end = 0
        self._memory = None
        return rest

    def release(self) -> None:
        """Expect no further request."""
        self._memory, self._expected_bytes = None, 0

    def _reserve(self, byte_count: int = 0) -> memoryview:
        """The memory of the request, grown to what is needed."""
        memory, needed = self._memory, max(byte_count, self._end, self._expected_bytes) + _SPARE_BYTES
        if memory is not None and needed <= len(memory):
            return memory
        self._memory = self._take(needed)
        if memory is not None:
            self._memory[: self.filled] = memory[: self.filled]
        return self._memory
