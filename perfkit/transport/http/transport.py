"""The wire engine's HTTP transport: calls as prepared bytes over HTTP/1.1 connections."""

import urllib.parse
from collections.abc import Callable, Mapping

from perfkit.errors import ProtocolError, TargetError
from perfkit.protocol.tensor import Buffer
from perfkit.target.address import Address, Tls, host_name, redacted_url
from perfkit.transport.base import SEEN_BYTES, Prepared, Reply
from perfkit.transport.connect import client_context
from perfkit.transport.http.calls import COMPARED_BYTES, HttpApi, HttpCall, HttpResponse, HttpTransport, streamed_response
from perfkit.transport.http.connection import HttpConnection, parse_response
from perfkit.transport.options import AnswerLimit, TransportOptions
from perfkit.transport.pooled_transport import PooledTransport
from perfkit.transport.resolution import make_pool
from perfkit.transport.streamed_answer import StreamedAnswer

# of an answer: its head may come alone
_FIRST_READS = 3
# below this size joining buffers is cheaper than writing several; above it, tensors are not copied
_MAX_JOINED_BYTES = 1 << 16


class WireHttpTransport(PooledTransport[HttpConnection], HttpTransport):
    """HTTP/1.1 keep-alive connections with one request at a time; with streamed answers, all other calls have connections of their own."""

    def __init__(self, address: Address, options: TransportOptions, now_ns: Callable[[], int], api: HttpApi | None = None) -> None:
        """`api` is needed for streamed answers."""
        super().__init__(address)
        context = client_context(address.tls) if address.tls else None
        self._pool = make_pool(address, options, now_ns, context, HttpConnection)
        if options.stream is not None:
            from perfkit.transport.http.event_stream import EventStreamConnection

            assert api is not None
            self._streams = make_pool(address, options, now_ns, context, EventStreamConnection, api.new_answer)

    def prepare(self, call: HttpCall) -> Prepared:
        """The bytes of a call, in one buffer if they are few."""
        length = sum(len(buffer) for buffer in call.body)
        headers = {**call.headers, "Content-Length": str(length)} if call.body else call.headers
        head = self._head(call.method, self.address.base_path + call.path, headers)
        if length < _MAX_JOINED_BYTES:
            return Prepared((head + b"".join(call.body),))
        first, *blobs = call.body
        return Prepared((head + bytes(first), *(_as_bytes(blob) for blob in blobs)))

    def with_traceparent(self, prepared: Prepared, traceparent: str) -> Prepared:
        """The header comes first, since the end of the head differs between requests."""
        start, *others = prepared.buffers
        at = start.index(b"\r\n") + 2
        return Prepared((b"%btraceparent: %b\r\n%b" % (start[:at], traceparent.encode(), start[at:]), *others))

    def answer(self, reply: Reply) -> HttpResponse:
        if reply.payload is None:
            raise ProtocolError(reply.error)
        if isinstance(reply.payload, StreamedAnswer):
            return streamed_response(reply.payload)
        return parse_response(reply.payload)

    def received(self, reply: Reply) -> bytes:
        payload: StreamedAnswer | list[bytes] = reply.payload
        if isinstance(payload, list):
            if len(payload) == 1 or len(payload[0]) >= SEEN_BYTES:
                return payload[0]
            return b"".join([read[:SEEN_BYTES] for read in payload[:_FIRST_READS]])
        return bytes(payload.first)

    def raw_failure(self, reply: Reply) -> str | bytes:
        """The start of the body: heads hold dates and request ids."""
        if reply.error or not reply.payload:
            return reply.error
        answer = b"".join(reply.payload[:2])
        begin = answer.find(b"\r\n\r\n")
        return answer[begin : begin + COMPARED_BYTES]

    async def _exchange(self, prepared: Prepared) -> Reply:
        return await self._pool.send(prepared)

    def _head(self, method: str, path: str, headers: Mapping[str, str]) -> bytes:
        names = {name.lower() for name in headers}  # no header is sent twice
        target_headers = {lower: value for name, value in self.address.headers.items() if (lower := name.lower()) not in names}
        lines = {"Host": target_headers.pop("host", self.address.authority), **headers, **target_headers}
        text = "\r\n".join((f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in lines.items()), "", ""))
        return text.encode("latin-1")


def _as_bytes(buffer: Buffer) -> bytes:
    return buffer if isinstance(buffer, bytes) else bytes(buffer)


async def read_page(url: str, headers: Mapping[str, str], now_ns: Callable[[], int], *, timeout_ns: int, limit: AnswerLimit) -> bytes:
    """The body of a page, such as a server's metrics, that was complete within `timeout_ns`.

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
        response = await transport.exchange(
            HttpCall("GET", urllib.parse.urlunsplit(("", "", parts.path or "/", parts.query, ""))), limit.max_bytes
        )
    finally:
        await transport.aclose()
    if response.status != 200:
        place = redacted_url(response.headers.get("location", "").partition("?")[0]) if 300 <= response.status < 400 else ""
        hint = f" to {address.sanitize(place)}: redirects are not followed, so give the final URL" if place else ""
        raise TargetError(f"HTTP {response.status}{hint}")
    return response.body
