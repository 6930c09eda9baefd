"""What is wrong with a target's URL, found by asking the port itself once the first call has failed: its protocol, TLS, or its path."""

import asyncio
import contextlib
import dataclasses
import re
import ssl
from collections.abc import AsyncIterator

from perfkit.clock import MonotonicClock
from perfkit.errors import TargetError
from perfkit.target.address import Address, Tls, WireProtocol
from perfkit.target_client import make_client
from perfkit.transport.connect import CERTIFICATE_HINT
from perfkit.transport.options import TransportOptions
from perfkit.units import NS_PER_S

_WITHIN_S = 2.0
_GET = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
_NAMES: dict[WireProtocol, str] = {"http": "HTTP", "grpc": "gRPC"}
_ALPN: dict[WireProtocol, str] = {"http": "http/1.1", "grpc": "h2"}
_OF_THE_API = re.compile(r"(.*?)/v2(?:/.*)?")


@contextlib.asynccontextmanager
async def wrong_url_named(address: Address) -> AsyncIterator[None]:
    """Replaces the TargetError of a first call by one that says what is wrong with the URL, or what may be, if the port shows it."""
    try:
        yield
    except TargetError as error:
        if hint := await _what_is_wrong(address):
            raise TargetError(f"{address}: {hint}") from None
        if (within := _OF_THE_API.fullmatch(address.base_path)) and await _is_v2(
            plain := dataclasses.replace(address, base_path=within[1])
        ):
            path = address.base_path
            raise TargetError(f"{address}: {path} is a path of the API, which perfkit adds itself: use {plain}") from None
        if address.tls is not None and not address.tls.cert:
            wants_certificate = await _wants_certificate(address)
            if wants_certificate:
                raise TargetError(
                    f"{address}: the server closes connections without a client's certificate: give target.tls.cert"
                ) from None
            if wants_certificate is None and CERTIFICATE_HINT not in str(error):
                joint = " Or " if str(error).endswith("?") else "; "
                raise TargetError(f"{error}{joint}{CERTIFICATE_HINT}", may_pass=error.may_pass) from None
        raise


async def _what_is_wrong(address: Address) -> str:
    """The protocol that the port speaks in place of the URL's, and the URL to use; empty if it speaks that one, or none."""
    other: WireProtocol = "grpc" if address.protocol == "http" else "http"
    if not await _accepts(address) or await _speaks(address.protocol, address):
        return ""
    changed = dataclasses.replace(address, protocol=other)
    if await _speaks(other, changed):
        is_agreed = address.tls is None or address.protocol == "http"
        why = "" if is_agreed else " (in the TLS handshake it does not agree on HTTP/2, by ALPN)"
        return f"this looks like {_NAMES[other]}{why}: use {changed}"
    for one in (address, changed) if address.tls is None and not address.socket_path else ():
        encrypted = dataclasses.replace(one, tls=Tls())
        if await _speaks(one.protocol, encrypted):
            return f"the port speaks TLS: use {encrypted}"
    return ""


async def _accepts(address: Address) -> bool:
    """Whether something listens there."""
    with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
        await _first_bytes(address.protocol, dataclasses.replace(address, tls=None), b"", 0)
        return True
    return False


async def _speaks(protocol: WireProtocol, address: Address) -> bool:
    """Whether the server's first bytes are those of the protocol."""
    from perfkit.protocol import http2  # which HTTP alone does without

    request = _GET if protocol == "http" else http2.PREFACE + http2.settings({})
    with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
        head = await _first_bytes(protocol, address, request, http2.HEAD_BYTES)
        return head.startswith(b"HTTP/1.") if protocol == "http" else head[3] == http2.SETTINGS and head[5:] == bytes(4)
    return False


async def _wants_certificate(address: Address) -> bool | None:
    """Whether the server ends a handshake, or with TLS 1.3 what follows, for want of a client's certificate; None if it closes without saying why."""
    for request in (_GET, b""):  # where a request is not read, the server's system may reset the connection before its alert is read
        try:
            await _first_bytes(address.protocol, address, request, 1)
        except ssl.SSLError as error:
            return "CERTIFICATE_REQUIRED" in (error.reason or "") or error.reason == "SSLV3_ALERT_HANDSHAKE_FAILURE"
        except (ConnectionResetError, BrokenPipeError, asyncio.IncompleteReadError):
            continue
        except (OSError, TimeoutError):
            return False if request else None
        return False
    return None


async def _first_bytes(protocol: WireProtocol, address: Address, request: bytes, size_bytes: int) -> bytes:
    """The first bytes of the answer to a request without credentials; raises OSError, TimeoutError and IncompleteReadError."""
    context = _context(address.tls, protocol) if address.tls else None
    writer = None
    try:
        async with asyncio.timeout(_WITHIN_S):
            if address.socket_path:
                reader, writer = await asyncio.open_unix_connection(address.socket_path)
            else:
                reader, writer = await asyncio.open_connection(
                    address.ip or address.host, address.port, ssl=context, server_hostname=address.host if context else None
                )
            writer.write(request)
            return await reader.readexactly(size_bytes)
    finally:
        if writer is not None:
            writer.transport.abort()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


def _context(tls: Tls, protocol: WireProtocol) -> ssl.SSLContext:
    """A context that only finds out what is spoken: it checks no certificate, and sends no secret."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols([_ALPN[protocol]])
    if tls.cert is not None:
        context.load_cert_chain(tls.cert, tls.key, password="")
    return context


async def _is_v2(address: Address) -> bool:
    """Whether a v2 server answers there."""
    options = TransportOptions(timeout_ns=int(_WITHIN_S * NS_PER_S))
    with contextlib.suppress(TargetError):
        async with contextlib.aclosing(make_client(address, options, MonotonicClock())) as client:
            await client.server_metadata()
            return True
    return False
