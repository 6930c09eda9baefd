"""Which transport serves an address and an engine."""

import os
from typing import Literal

from perfkit.clock import Clock
from perfkit.target.address import Address
from perfkit.transport.base import Compression, Transport


def make_transport(
    address: Address,
    engine: Literal["wire", "reference"],
    *,
    max_connections: int,
    timeout_ns: int,
    clock: Clock,
    compression: Compression = "none",
    streams_per_connection: int = 1,
) -> Transport:
    """A transport that is not connected yet; `streams_per_connection` is the wire engine's over gRPC alone."""
    if address.protocol == "grpc":
        if engine == "wire":
            from perfkit.transport.grpc.transport import WireGrpcTransport

            return WireGrpcTransport(address, max_connections, timeout_ns, clock.now_ns, compression, streams_per_connection)
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what it logs as an error is told in a sentence
        from perfkit.transport.grpc.reference import ReferenceGrpcTransport

        return ReferenceGrpcTransport(address, max_connections, timeout_ns, clock.now_ns, compression)
    if engine == "wire":
        from perfkit.transport.http.transport import WireHttpTransport

        return WireHttpTransport(address, max_connections, timeout_ns, clock.now_ns, compression)
    from perfkit.transport.http.reference import ReferenceHttpTransport

    return ReferenceHttpTransport(address, max_connections, timeout_ns, clock.now_ns, compression)
