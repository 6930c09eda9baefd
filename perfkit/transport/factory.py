"""Chooses the transport for an address and an engine."""

import functools
import os
from typing import TYPE_CHECKING

from perfkit.clock import Clock
from perfkit.target.address import Address
from perfkit.transport.base import Transport
from perfkit.transport.options import TransportOptions

if TYPE_CHECKING:
    from perfkit.transport.resolution import Resolve


def make_transport(address: Address, options: TransportOptions, clock: Clock, resolve: "Resolve | None" = None) -> Transport:
    """A transport that has not connected yet; call it on the event loop that will use it.

    `resolve` resolves names for `resolve: all`, by default as the system does.
    """
    if address.replicas or (options.resolve == "all" and address.has_name):
        from perfkit.transport.replicas import ReplicaTransport
        from perfkit.transport.resolution import resolve_name

        make = functools.partial(_make_single, clock=clock)
        return ReplicaTransport(address, options, make, clock.now_ns, resolve or resolve_name)
    return _make_single(address, options, clock)


def _make_single(address: Address, options: TransportOptions, clock: Clock) -> Transport:
    """A transport to one address."""
    # imported here: each engine loads libraries that the others do without
    if address.protocol == "grpc":
        if options.engine == "wire" and options.stream is not None:
            from perfkit.transport.grpc.streaming_transport import StreamingWireGrpcTransport

            return StreamingWireGrpcTransport(address, options, clock.now_ns)
        if options.engine == "wire":
            from perfkit.transport.grpc.transport import WireGrpcTransport

            return WireGrpcTransport(address, options, clock.now_ns)
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # perfkit reports grpcio's errors itself
        if options.stream is not None:
            from perfkit.transport.grpc.streaming_reference import StreamingReferenceGrpcTransport

            return StreamingReferenceGrpcTransport(address, options, clock.now_ns)
        from perfkit.transport.grpc.reference import ReferenceGrpcTransport

        return ReferenceGrpcTransport(address, options, clock.now_ns)
    if options.stream is not None:
        if options.engine == "wire":
            from perfkit.transport.http.event_stream import EventStreamHttpTransport

            return EventStreamHttpTransport(address, options, clock.now_ns)
        from perfkit.transport.http.event_stream_reference import ReferenceEventStreamTransport

        return ReferenceEventStreamTransport(address, options, clock.now_ns)
    if options.engine == "wire":
        from perfkit.transport.http.transport import WireHttpTransport

        return WireHttpTransport(address, options, clock.now_ns)
    from perfkit.transport.http.reference import ReferenceHttpTransport

    return ReferenceHttpTransport(address, options, clock.now_ns)
