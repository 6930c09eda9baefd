"""Clients for tests, whose transport's methods are their own, so that a test calls both in one way."""

import time

from perfkit.api_v2.client import Client, make_client
from perfkit.api_v2.grpc import RpcCalls
from perfkit.api_v2.http import HttpCalls
from perfkit.transport.grpc.calls import GrpcTransport
from perfkit.transport.grpc.reference import ReferenceGrpcTransport


class OpenClient(Client):
    """A client that has its transport's methods, too."""

    def __getattr__(self, name):
        return getattr(self.transport, name)


def client_of(kind, address, options, now_ns=time.monotonic_ns):
    """A client on a transport of this class."""
    calls = RpcCalls(options) if issubclass(kind, GrpcTransport) else HttpCalls(options)
    arguments = () if issubclass(kind, ReferenceGrpcTransport) else (calls.API,)
    return OpenClient(kind(address, options, now_ns, *arguments), calls)


def make_open_client(address, options, clock, resolve=None):
    """Like `make_client`; a stream of the reference engine is one of the oracles'."""
    if options.engine == "reference" and options.stream is not None:
        from tests.oracles.aiohttp_events import EventStreamOracle
        from tests.oracles.grpcio_streams import MessageStreamOracle

        return client_of(MessageStreamOracle if address.protocol == "grpc" else EventStreamOracle, address, options, clock.now_ns)
    made = make_client(address, options, clock, resolve)
    return OpenClient(made.transport, made._calls)
