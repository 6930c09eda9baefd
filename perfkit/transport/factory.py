"""Chooses the transport for an address and an engine."""

import os
from typing import TYPE_CHECKING, Any

from perfkit.clock import Clock
from perfkit.target.address import Address
from perfkit.transport.base import Transport
from perfkit.transport.options import TransportOptions

if TYPE_CHECKING:
    from perfkit.transport.http.calls import HttpApi
    from perfkit.transport.resolution import Resolve
    from perfkit.transport.streamed_answer import StreamedMessages


def make_transport(
    address: Address, options: TransportOptions, clock: Clock, api: "HttpApi | StreamedMessages", resolve: "Resolve | None" = None
) -> Transport:
    """A transport that has not connected yet; call it on the event loop that will use it.

    `api` is what the address's protocol needs to know of the API. `resolve` resolves names for `resolve: all`, by default as the
    system does.
    """
    if address.replicas or (options.resolve == "all" and address.has_name):
        from perfkit.transport.replicas import ReplicaTransport
        from perfkit.transport.resolution import resolve_name

        def make(one: Address, its_options: TransportOptions) -> Transport:
            return _make_single(one, its_options, clock, api)

        return ReplicaTransport(address, options, make, clock.now_ns, resolve or resolve_name)
    return _make_single(address, options, clock, api)


def _make_single(address: Address, options: TransportOptions, clock: Clock, api: Any) -> Transport:
    """A transport to one address."""
    assert options.engine == "wire" or (options.stream is None and options.rotation is None), "which only the wire engine has"
    # imported here: each engine loads libraries that the others do without
    if address.protocol == "grpc":
        if options.engine == "wire":
            from perfkit.transport.grpc.transport import WireGrpcTransport

            return WireGrpcTransport(address, options, clock.now_ns, api)
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # perfkit reports grpcio's errors itself
        os.environ.setdefault("GRPC_DNS_RESOLVER", "native")  # its own knows one address of a name in /etc/hosts
        from perfkit.transport.grpc.reference import ReferenceGrpcTransport

        return ReferenceGrpcTransport(address, options, clock.now_ns)
    if options.engine == "wire":
        from perfkit.transport.http.transport import WireHttpTransport

        return WireHttpTransport(address, options, clock.now_ns, api)
    from perfkit.transport.http.reference import ReferenceHttpTransport

    return ReferenceHttpTransport(address, options, clock.now_ns, api)
