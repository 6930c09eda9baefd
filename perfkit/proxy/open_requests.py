"""The bodies of requests that have begun, in bounded memory, until somebody has written what is recorded of them."""

import collections
import dataclasses
import threading
from typing import Literal, TypeAlias

Call: TypeAlias = Literal["infer", "stream", "generate", "generate_stream"]
MAX_BODY_BYTES = 2**26
"""A larger body, also when it is decompressed, is recorded without its shapes and payload; so large are the messages that the bundled server decompresses."""
_MOST_BYTES = 3 * 2**25
_REQUEST_BYTES = 512


@dataclasses.dataclass(eq=False, slots=True)
class OpenRequest:
    """An inference request, without its headers, as far as it has come."""

    arrival_ns: int
    """When the proxy read its first byte, by the monotonic clock."""
    call: Call
    is_grpc: bool = False
    model: str = ""
    """The model of a request over HTTP, whose path names it."""
    version: str = ""
    header_length: int | None = None
    """The length of the JSON document of a request over HTTP; None if the request is all JSON."""
    encoding: str = ""
    """The compression of the body: gzip, deflate, or none."""
    body: bytearray | None = dataclasses.field(default_factory=bytearray)
    """None for one that is too large, of which bytes are missing, or that has made room for others."""


class BodyMemory:
    """Has a limit for all bodies together. Those on which nothing has come for longest make room for new bytes.

    The thread that reads adds, completes and forgets requests; any thread releases completed ones.
    """

    def __init__(self, most_bytes: int = _MOST_BYTES) -> None:
        self._most_bytes, self._bytes = most_bytes, 0
        self._open: collections.OrderedDict[OpenRequest, None] = collections.OrderedDict()
        self._lock = threading.Lock()

    @property
    def used_bytes(self) -> int:
        """The memory of all bodies."""
        return self._bytes

    def add(self, request: OpenRequest, data: bytes | memoryview) -> None:
        """Adds bytes to a request's body."""
        if request.body is None:
            return
        self._open[request] = None
        self._open.move_to_end(request)
        request.body += data
        self._count(len(data))
        if len(request.body) > MAX_BODY_BYTES:
            self.drop(request)
        while self._bytes > self._most_bytes and self._open:
            self.drop(next(iter(self._open)))

    def drop(self, request: OpenRequest) -> None:
        """Frees the body of a request that goes on without one."""
        self._open.pop(request, None)
        if request.body is not None:
            self._count(-len(request.body))
            request.body = None

    def complete(self, request: OpenRequest) -> None:
        """No more comes; what it has is kept until it is released."""
        self._open.pop(request, None)
        self._count(_REQUEST_BYTES)

    def release(self, request: OpenRequest) -> None:
        """A completed request has been written."""
        self._count(-_REQUEST_BYTES)
        self.drop(request)

    def _count(self, size_bytes: int) -> None:
        with self._lock:
            self._bytes += size_bytes
