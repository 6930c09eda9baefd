"""Detection of swapped ports: an HTTP server behind a gRPC URL, or the reverse."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator

from perfkit.errors import TargetError
from perfkit.protocol import http2
from perfkit.target.address import Address, WireProtocol

_WITHIN_S = 2.0
_GET = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
_NAMES: dict[WireProtocol, str] = {"http": "HTTP", "grpc": "gRPC"}


@contextlib.asynccontextmanager
async def other_protocol_named(address: Address) -> AsyncIterator[None]:
    """Replaces the TargetError of a first call by one with the right URL, if the port speaks the other protocol."""
    try:
        yield
    except TargetError:
        other: WireProtocol = "grpc" if address.protocol == "http" else "http"
        if await _speaks(address.protocol, address) or not await _speaks(other, address):
            raise
        url = dataclasses.replace(address, protocol=other)
        raise TargetError(f"{address}: this looks like {_NAMES[other]}: use {url}") from None


async def _speaks(protocol: WireProtocol, address: Address) -> bool:
    """Whether the server's first bytes are those of the protocol; False with TLS, which would need a handshake first."""
    if address.tls is not None:
        return False
    request = _GET if protocol == "http" else http2.PREFACE + http2.settings({})
    writer = None
    try:
        async with asyncio.timeout(_WITHIN_S):
            connect = asyncio.open_unix_connection(address.socket_path) if address.socket_path else None
            reader, writer = await (connect or asyncio.open_connection(address.host, address.port))
            writer.write(request)
            head = await reader.readexactly(http2.HEAD_BYTES)
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        return False
    finally:
        if writer is not None:
            writer.close()
    return head.startswith(b"HTTP/1.") if protocol == "http" else head[3] == http2.SETTINGS and head[5:] == bytes(4)
