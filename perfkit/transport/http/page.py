"""Reading a page over HTTP, such as a server's metrics, within a total time and a maximum size."""

import urllib.parse
from collections.abc import Callable, Mapping

from perfkit.errors import TargetError
from perfkit.target.address import Address, Tls, host_name, redacted_url
from perfkit.transport.http.transport import WireHttpTransport
from perfkit.transport.limits import AnswerLimit
from perfkit.transport.options import TransportOptions


async def read_page(url: str, headers: Mapping[str, str], now_ns: Callable[[], int], *, timeout_ns: int, limit: AnswerLimit) -> bytes:
    """The body of a page that was complete within `timeout_ns`.

    Neither redirects nor proxies are followed. Raises TargetError if there is no page, UsageError or ValueError for an unusable URL.
    """
    parts = urllib.parse.urlsplit(url)
    is_encrypted = parts.scheme == "https"
    address = Address(
        "http",
        host_name(parts.hostname or ""),
        parts.port or (443 if is_encrypted else 80),
        headers={"Accept-Encoding": "identity", **headers},
        tls=Tls() if is_encrypted else None,
    )
    transport = WireHttpTransport(address, TransportOptions(timeout_ns=timeout_ns, answer_limit=limit), now_ns)
    try:
        response = await transport.get(urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, "")))
    finally:
        await transport.aclose()
    if response.status != 200:
        place = redacted_url(response.headers.get("location", "").partition("?")[0]) if 300 <= response.status < 400 else ""
        hint = f" to {address.sanitize(place)}: redirects are not followed, so give the final URL" if place else ""
        raise TargetError(f"HTTP {response.status}{hint}")
    return response.body
