"""The client of a target, by the API that the target speaks: the one place that knows which packages speak one."""

from typing import TYPE_CHECKING, TypeAlias

from perfkit.api_v2 import client as v2
from perfkit.clock import Clock
from perfkit.target.address import Address
from perfkit.transport.options import TransportOptions

if TYPE_CHECKING:
    from perfkit.transport.resolution import Resolve

Client: TypeAlias = v2.Client
"""What a target is asked, whatever its API."""


def make_client(address: Address, options: TransportOptions, clock: Clock, resolve: "Resolve | None" = None) -> Client:
    """A client that has not connected yet; call it on the event loop that will use it. `resolve` is that of `make_transport`."""
    return v2.make_client(address, options, clock, resolve)
