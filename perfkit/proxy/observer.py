"""What the observers of HTTP and gRPC connections share: they get the bytes that were passed on, and find requests and the proxy's delay in them."""

import abc
from array import array
from collections.abc import Callable

import numpy as np

from perfkit.proxy.captured import CapturedRequest
from perfkit.stats.buckets import BucketCounts

_BATCH = 4096


class AddedDelay:
    """The delay that the proxy itself adds to a request: from reading to passing on its last piece, plus the same of its answer's first piece."""

    def __init__(self) -> None:
        self._delays_ns = array("q")
        self._counts = BucketCounts.of([])

    def add(self, delay_ns: int) -> None:
        """Adds the delay of a request."""
        self._delays_ns.append(delay_ns)
        if len(self._delays_ns) >= _BATCH:
            self.counts()

    def counts(self) -> BucketCounts:
        """The delays of all requests so far."""
        if self._delays_ns:
            self._counts = BucketCounts.merged([self._counts, BucketCounts.of(np.array(self._delays_ns, dtype=np.int64))])
            del self._delays_ns[:]
        return self._counts


class Observer(abc.ABC):
    """Reads the bytes of one connection after they were passed on, so that its work does not delay them."""

    def __init__(self, on_request: Callable[[CapturedRequest], None], on_delay: Callable[[int], None]) -> None:
        self._on_request, self._on_delay = on_request, on_delay

    @property
    @abc.abstractmethod
    def unanswered(self) -> int:
        """Inference requests whose answers have not begun."""

    @abc.abstractmethod
    def client_sent(self, data: bytes, read_ns: int, passed_ns: int) -> None:
        """The client sent bytes, which were read and passed on at these instants; raises ProtocolError if they cannot be read."""

    @abc.abstractmethod
    def server_sent(self, data: bytes, read_ns: int, passed_ns: int) -> None:
        """The server sent bytes, like `client_sent`."""
