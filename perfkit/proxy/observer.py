"""What the observers of HTTP and gRPC connections share: they find the inference requests in the bytes that clients sent."""

import abc
from collections.abc import Callable

from perfkit.proxy.open_requests import BodyMemory, OpenRequest


class Observer(abc.ABC):
    """Reads what the client of one connection sent; `on_request` gets each inference request when it is complete."""

    def __init__(self, on_request: Callable[[OpenRequest], None], memory: BodyMemory) -> None:
        self._on_request, self._memory = on_request, memory
        self.incomplete = 0
        """Requests that were forgotten before they were complete."""
        self.unread_bytes = 0
        """Bytes between those that were not known and the next request."""

    @abc.abstractmethod
    def receive(self, data: bytes, read_ns: int, *, is_first: bool) -> None:
        """The client sent bytes, which were read at that instant, the first since the server's last ones or more.

        Raises ProtocolError if they cannot be read; then it gets no more.
        """

    @abc.abstractmethod
    def skip(self, size_bytes: int) -> None:
        """So many bytes are not known; raises ProtocolError if the next request will not be found."""

    @abc.abstractmethod
    def close(self) -> None:
        """Forgets the requests that are not complete: the connection has ended, or cannot be read."""

    def _complete(self, request: OpenRequest) -> None:
        self._memory.complete(request)
        self._on_request(request)

    def _forget(self, request: OpenRequest | None) -> None:
        if request is not None:
            self._memory.drop(request)
        self.incomplete += 1
