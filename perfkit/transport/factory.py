"""Chooses the transport for an address and an engine."""

import os

from perfkit.clock import Clock
from perfkit.target.address import Address
from perfkit.transport.base import Transport
from perfkit.transport.options import TransportOptions


def make_transport(address: Address, options: TransportOptions, clock: Clock) -> Transport:
    """A transport that has not connected yet; call it on the event loop that will use it."""
    # imported here: each engine loads libraries that the others do without
    if address.protocol == "grpc":
        if options.engine == "wire":
            from perfkit.transport.grpc.transport import WireGrpcTransport

            return WireGrpcTransport(address, options, clock.now_ns)
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # perfkit reports grpcio's errors itself
        from perfkit.transport.grpc.reference import ReferenceGrpcTransport

        return ReferenceGrpcTransport(address, options, clock.now_ns)
    if options.engine == "wire":
        from perfkit.transport.http.transport import WireHttpTransport

        return WireHttpTransport(address, options, clock.now_ns)
    from perfkit.transport.http.reference import ReferenceHttpTransport

    return ReferenceHttpTransport(address, options, clock.now_ns)
