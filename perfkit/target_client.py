"""The client of a target, by the API that the target speaks: the one place that knows which packages speak one."""

from typing import TYPE_CHECKING, TypeAlias, Union

from perfkit.api_v2 import client as v2
from perfkit.clock import Clock
from perfkit.target.address import Address
from perfkit.transport.factory import make_transport
from perfkit.transport.options import TransportOptions

if TYPE_CHECKING:
    from perfkit.api_openai import client as openai
    from perfkit.transport.resolution import Resolve

Client: TypeAlias = Union[v2.Client, "openai.Client"]
"""What a target is asked, whatever its API."""


def make_client(address: Address, options: TransportOptions, clock: Clock, resolve: "Resolve | None" = None) -> Client:
    """A client that has not connected yet; call it on the event loop that will use it. `resolve` is that of `make_transport`."""
    if address.api == "v2":
        return v2.make_client(address, options, clock, resolve)
    from perfkit.api_openai import client as openai  # imported here: most targets speak v2

    return openai.Client(make_transport(address, options, clock, openai.API, resolve), options, address.endpoint)
