"""One sender for the requests of several transports: each request goes to its own."""

import dataclasses
from collections.abc import Awaitable, Sequence

from perfkit.override import override
from perfkit.transport.base import Prepared, Reply, Sender


@dataclasses.dataclass(frozen=True, slots=True)
class RoutedRequest(Prepared):
    """A request prepared by one of several transports, and that transport."""

    transport: Sender | None = None
    request: Prepared | None = None

    @classmethod
    def of(cls, transport: Sender, request: Prepared) -> "RoutedRequest":
        """The request of a transport."""
        return cls(request.buffers, request.headers, transport, request)


class MixedSender(Sender):
    """Sends each request over the transport that prepared it."""

    def __init__(self, transports: Sequence[Sender]) -> None:
        self._transports = transports

    @override
    def send(self, prepared: Prepared) -> Awaitable[Reply]:
        return prepared.transport.send(prepared.request)  # type: ignore[attr-defined, no-any-return] # a RoutedRequest; a check would cost time in each request

    @override
    def with_traceparent(self, prepared: Prepared, traceparent: str) -> Prepared:
        assert isinstance(prepared, RoutedRequest)
        assert prepared.transport is not None
        assert prepared.request is not None
        return RoutedRequest.of(prepared.transport, prepared.transport.with_traceparent(prepared.request, traceparent))

    @override
    def abandon(self) -> None:
        for transport in self._transports:
            transport.abandon()
