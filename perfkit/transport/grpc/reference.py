"""The reference engine for gRPC: grpcio's asyncio API with serialized messages."""

import asyncio
import dataclasses
import ssl
from collections.abc import Awaitable, Callable

import grpc
import grpc.aio

from perfkit.errors import TargetError
from perfkit.override import override
from perfkit.target.address import Address, Tls
from perfkit.transport.base import ConnectionCounts, Outcome, Prepared, Reply
from perfkit.transport.connect import CERTIFICATE_HINT, client_context, describe_tls_error
from perfkit.transport.future_replies import TaskSender
from perfkit.transport.grpc.calls import GrpcTransport, RpcCall, refusal
from perfkit.transport.grpc.messages import OWN_DEADLINE_SHARE
from perfkit.transport.options import AnswerLimit, TransportOptions

_OPTIONS = (
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),  # otherwise channels to one address share a connection
    ("grpc.enable_http_proxy", 0),  # a proxy would be measured along with the server
    ("grpc.enable_retries", 0),  # a retry would be measured as a slow answer
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
_COMPRESSIONS = {"none": None, "gzip": grpc.Compression.Gzip, "deflate": grpc.Compression.Deflate}
# grpcio gives its own findings a status code, too: only the text tells them from a server's status
_CONNECT_FAILED_TEXTS = ("failed to connect", "connections to all backends failing", "name resolution", "dns resolution")
_OWN_LIMIT = "client: received message larger than max"
_BROKEN_STARTS = ("stream removed", "received rst_stream")
_BROKEN_TEXTS = ("socket closed", "connection reset", "broken pipe", "goaway", "transport closed", "recvmsg", "sendmsg")


@dataclasses.dataclass(slots=True, eq=False)
class ReferenceChannel:
    """A channel with its connection, its methods by their paths, and the requests in flight."""

    channel: grpc.aio.Channel
    methods: dict[bytes, Callable[..., Awaitable[bytes]]] = dataclasses.field(default_factory=dict)
    in_flight: int = 0


class ReferenceGrpcTransport(TaskSender, GrpcTransport):
    """Channels of one connection each; a request gets an idle one as long as there is one."""

    def __init__(self, address: Address, options: TransportOptions, now_ns: Callable[[], int]) -> None:
        TaskSender.__init__(self)
        GrpcTransport.__init__(self, address)
        self.counts = ConnectionCounts()
        self._limit = options.max_connections
        self._max_answer_bytes = options.answer_limit.max_bytes
        self._timeout_s = options.timeout_ns / 1e9
        self._now_ns = now_ns
        self._compression = _COMPRESSIONS[options.compression]
        self._credentials = _credentials(address.tls) if address.tls else None
        self._metadata = _metadata(address)
        self._channels: list[ReferenceChannel] = []
        self._idle: list[ReferenceChannel] = []
        self._reconnect_counters: dict[ReferenceChannel, asyncio.Task[None]] = {}

    async def open(self, connections: int) -> None:
        try:
            missing = min(connections, self._limit) - len(self._channels)
            self._idle += await asyncio.gather(*(self._add_channel() for _ in range(missing)))
        except (TimeoutError, ConnectionError):
            reason = await self._describe_tls_fault() if self.address.tls else ""
            hint = f": {reason}." if reason else ". Is the server running, and is this its gRPC address?"
            raise TargetError(f"{self.address} cannot be reached{hint}", may_pass=not reason) from None

    def prepare(self, call: RpcCall) -> Prepared:
        """The buffers are the path and the message."""
        return Prepared((call.path.encode(), call.message))

    def answer(self, reply: Reply) -> bytes:
        if not isinstance(reply.payload, bytes):
            raise refusal(reply.error)
        return reply.payload

    def received(self, reply: Reply) -> bytes:
        return bytes(reply.payload)

    @override
    def renew(self, address: Address) -> None:
        super().renew(address)
        self._metadata = _metadata(address)

    async def aclose(self) -> None:
        counters = tuple(self._reconnect_counters.values())
        for task in counters:
            task.cancel()
        await asyncio.gather(*counters, return_exceptions=True)
        await asyncio.gather(*(one.channel.close() for one in self._channels))

    async def _add_channel(self) -> ReferenceChannel:
        """Opens a channel, which is not idle yet; raises ConnectionError or TimeoutError."""
        began_ns = self._now_ns()
        channel = self._make_channel()
        added = ReferenceChannel(channel)
        self._channels.append(added)
        try:
            await asyncio.wait_for(self._connected(channel), self._timeout_s)
        except BaseException:
            self._channels.remove(added)
            await channel.close()
            raise
        self.counts.opened += 1
        self.counts.connect_times.add(self._now_ns() - began_ns)
        self._reconnect_counters[added] = asyncio.ensure_future(self._count_reconnects(channel))
        return added

    def _make_channel(self) -> grpc.aio.Channel:
        address = self.address
        options: list[tuple[str, str | int]] = [*_OPTIONS, ("grpc.max_receive_message_length", self._max_answer_bytes)]
        host = next((value for name, value in address.headers.items() if name.lower() == "host"), "")
        if host or address.ip or (address.tls and address.tls.server_name):
            options.append(("grpc.default_authority", host or address.authority))
        if address.tls and (address.tls.server_name or address.ip):
            options.append(("grpc.ssl_target_name_override", address.tls.server_name or address.host))
        target = f"unix:{address.socket_path}" if address.socket_path else address.authority
        if address.ip:
            target = f"ipv6:[{address.ip}]:{address.port}" if ":" in address.ip else f"ipv4:{address.ip}:{address.port}"
        if self._credentials is None:
            return grpc.aio.insecure_channel(target, options=options)
        return grpc.aio.secure_channel(target, self._credentials, options=options)

    async def _describe_tls_fault(self) -> str:
        """The reason why Python's own TLS cannot connect, since grpcio gives none; empty if unknown."""
        address = self.address
        assert address.tls is not None
        context = client_context(address.tls)
        context.set_alpn_protocols(["h2"])
        opened = asyncio.open_connection(address.host, address.port, ssl=context, server_hostname=address.tls.server_name or address.host)
        try:
            _, writer = await asyncio.wait_for(opened, self._timeout_s)
        except ssl.SSLError as error:
            return describe_tls_error(error)
        except OSError:
            return ""
        is_agreed = writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
        writer.close()
        if not is_agreed:
            return (
                "the server does not agree on HTTP/2 in the TLS handshake (ALPN), without which grpcio does not connect: use engine: wire"
            )
        hint = "" if address.tls.cert else f"; {CERTIFICATE_HINT}"
        return f"the server closes the connection after the TLS handshake{hint}"

    @staticmethod
    async def _connected(channel: grpc.aio.Channel) -> None:
        state = channel.get_state(try_to_connect=True)
        while state is not grpc.ChannelConnectivity.READY:
            if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                raise ConnectionError
            await channel.wait_for_state_change(state)
            state = channel.get_state(try_to_connect=True)

    async def _count_reconnects(self, channel: grpc.aio.Channel) -> None:
        state = grpc.ChannelConnectivity.READY
        while state is not grpc.ChannelConnectivity.SHUTDOWN:
            await channel.wait_for_state_change(state)
            state = channel.get_state()
            if state is grpc.ChannelConnectivity.READY:
                self.counts.opened += 1
                self.counts.reconnects += 1

    async def _send(self, prepared: Prepared) -> Reply:
        return await self._call(prepared, self._compression)

    async def _call(self, prepared: Prepared, compression: grpc.Compression | None) -> Reply:
        submitted_ns = self._now_ns()
        try:
            channel = self._idle.pop() if self._idle else await self._busy_channel()
        except (TimeoutError, ConnectionError):
            error = f"{self.address} cannot be reached. Is the server running, and is this its gRPC address?"
            return Reply(Outcome.CONNECT_FAILED, submitted_ns, self._now_ns(), None, error)
        except asyncio.CancelledError:
            return Reply(Outcome.UNFINISHED, submitted_ns, self._now_ns())
        channel.in_flight += 1
        started_ns = self._now_ns()
        try:
            path, message = prepared.buffers
            method = channel.methods.get(path) or self._method(channel, path)
            metadata = (*self._metadata, *prepared.headers.items())
            answer = await method(message, timeout=self._timeout_s, metadata=metadata, compression=compression)
            if answer is None:  # which its type does not mention
                return Reply(Outcome.BROKEN, started_ns, self._now_ns(), None, "the call ended without a complete message")
            return Reply(Outcome.OK, started_ns, self._now_ns(), answer)
        except asyncio.CancelledError:
            return Reply(Outcome.UNFINISHED, started_ns, self._now_ns())
        except grpc.aio.AioRpcError as error:
            finished_ns = self._now_ns()
            if is_own_limit(error):
                text = AnswerLimit(self._max_answer_bytes).too_long()
                return Reply(Outcome.BROKEN, started_ns, finished_ns, None, text, is_own_limit=True)
            outcome, text, status = self._failure(error, finished_ns - started_ns)
            return Reply(outcome, started_ns, finished_ns, None, text, status)
        finally:
            channel.in_flight -= 1
            if not channel.in_flight:
                self._idle.append(channel)

    def _failure(self, error: grpc.aio.AioRpcError, age_ns: int) -> tuple[Outcome, str, str]:
        """The outcome, message and status of a request that failed at this age."""
        outcome = _outcome(error, is_deadline_ours=age_ns >= OWN_DEADLINE_SHARE * self._timeout_s * 1e9)
        return outcome, _describe(error), error.code().name if outcome is Outcome.REJECTED else ""

    async def _busy_channel(self) -> ReferenceChannel:
        """A new channel if there is none, or one that is in use, whose requests are joined as HTTP/2 streams.

        Raises ConnectionError or TimeoutError.
        """
        return self._channels[len(self._in_flight) % len(self._channels)] if self._channels else await self._add_channel()

    def _method(self, channel: ReferenceChannel, path: bytes) -> Callable[..., Awaitable[bytes]]:
        method: Callable[..., Awaitable[bytes]] = channel.channel.unary_unary(self.address.base_path + path.decode())
        channel.methods[path] = method
        return method

    async def _exchange(self, call: RpcCall) -> Reply:
        if not self._channels:
            await self.open(1)
        return await self._call(self.prepare(call), None)


def is_own_limit(error: grpc.aio.AioRpcError) -> bool:
    """Whether grpcio refused the answer because of its size."""
    return error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and _OWN_LIMIT in (error.details() or "").lower()


def _metadata(address: Address) -> tuple[tuple[str, str | bytes], ...]:
    return tuple(
        (lower, value.encode() if lower.endswith("-bin") else value)
        for name, value in address.headers.items()
        if (lower := name.lower()) != "host"
    )


def _credentials(tls: Tls) -> grpc.ChannelCredentials:
    client_context(tls)  # for its errors: grpcio does not say what is wrong with a file
    ca, cert, key = (None if file is None else file.read_bytes() for file in (tls.ca, tls.cert, tls.key or tls.cert))
    return grpc.ssl_channel_credentials(ca, key, cert)


def _outcome(error: grpc.aio.AioRpcError, *, is_deadline_ours: bool) -> Outcome:
    text = (error.details() or "").lower()
    match error.code():
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return Outcome.TIMED_OUT if is_deadline_ours else Outcome.REJECTED
        case _ if text.startswith(_BROKEN_STARTS):
            return Outcome.BROKEN
        case grpc.StatusCode.UNAVAILABLE if any(part in text for part in _CONNECT_FAILED_TEXTS):
            return Outcome.CONNECT_FAILED
        case grpc.StatusCode.UNAVAILABLE if any(part in text for part in _BROKEN_TEXTS):
            return Outcome.BROKEN
        case _:
            return Outcome.REJECTED


def _describe(error: grpc.aio.AioRpcError) -> str:
    return f"{error.code().name}: {error.details()}"
