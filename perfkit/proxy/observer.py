"""What the two observers of a connection share: they read along, and note requests and the delay that the proxy adds to them."""

import abc
from array import array
from collections.abc import Callable

import numpy as np

from perfkit.proxy.captured import CapturedRequest
from perfkit.stats.buckets import BucketCounts

_BATCH = 4096


class AddedDelay:
    """The time that the proxy itself added to each request: from reading to passing on, of the request's last piece and of its answer's first."""

    def __init__(self) -> None:
        self._delays_ns = array("q")
        self._counts = BucketCounts.of([])

    def add(self, delay_ns: int) -> None:
        """Adds the delay of one request."""
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
    """Reads along on one connection. What it is given has been passed on already, so that its time delays nothing of it."""

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
