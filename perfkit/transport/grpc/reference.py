"""The reference engine for gRPC: grpcio's asyncio API with serialized messages."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable

import grpc
import grpc.aio

from perfkit.errors import TargetError
from perfkit.protocol import protobuf
from perfkit.protocol.decoded_size import check_protobuf_fields
from perfkit.protocol.message import InferRequest, InferResponse
from perfkit.target.address import Address, Tls
from perfkit.transport.base import ConnectionCounts, Outcome, Prepared, Reply
from perfkit.transport.connect import client_context, describe_tls_error
from perfkit.transport.grpc.calls import RefusedError, RpcTransport, refusal
from perfkit.transport.grpc.messages import OWN_DEADLINE_SHARE
from perfkit.transport.options import TransportOptions

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


class ReferenceGrpcTransport(RpcTransport):
    """Channels of one connection each; a request gets an idle one as long as there is one."""

    def __init__(self, address: Address, options: TransportOptions, now_ns: Callable[[], int]) -> None:
        super().__init__(address)
        self.counts = ConnectionCounts()
        self._limit = options.max_connections
        self._max_answer_bytes = options.answer_limit.max_bytes
        self._timeout_s = options.timeout_ns / 1e9
        self._now_ns = now_ns
        self._compression = _COMPRESSIONS[options.compression]
        self._credentials = _credentials(address.tls) if address.tls else None
        self._metadata = tuple(
            (lower, value.encode() if lower.endswith("-bin") else value)
            for name, value in address.headers.items()
            if (lower := name.lower()) != "host"
        )
        self._channels: list[grpc.aio.Channel] = []
        self._idle: list[Callable[..., Awaitable[bytes]]] = []
        self._in_flight: set[asyncio.Task[Reply]] = set()
        self._reconnect_counters: list[asyncio.Task[None]] = []

    async def open(self, connections: int) -> None:
        try:
            await asyncio.gather(*(self._add_channel() for _ in range(min(connections, self._limit) - len(self._channels))))
        except (TimeoutError, ConnectionError):
            reason = await self._describe_tls_fault() if self._address.tls else ""
            hint = f": {reason}." if reason else ". Is the server running, and is this its gRPC address?"
            raise TargetError(f"{self._address} cannot be reached{hint}", may_pass=not reason) from None

    def prepare(self, request: InferRequest) -> Prepared:
        return Prepared((protobuf.encode_infer_request(request),))

    def send(self, prepared: Prepared) -> Awaitable[Reply]:
        task = asyncio.ensure_future(self._send(prepared.buffers[0]))
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)
        return task

    def decode(self, reply: Reply) -> InferResponse:
        if not isinstance(reply.payload, bytes):
            raise refusal(reply.error)
        check_protobuf_fields(reply.payload, self._max_answer_bytes)
        return protobuf.decode_infer_response(reply.payload)

    def answer_bytes(self, reply: Reply) -> int:
        return len(reply.payload)

    def abandon(self) -> None:
        for task in tuple(self._in_flight):
            task.cancel()

    async def aclose(self) -> None:
        for task in self._reconnect_counters:
            task.cancel()
        await asyncio.gather(*self._reconnect_counters, return_exceptions=True)
        await asyncio.gather(*(channel.close() for channel in self._channels))

    async def _add_channel(self) -> None:
        address = self._address
        options: list[tuple[str, str | int]] = [*_OPTIONS, ("grpc.max_receive_message_length", self._max_answer_bytes)]
        host = next((value for name, value in address.headers.items() if name.lower() == "host"), "")
        if host or (address.tls and address.tls.server_name):
            options.append(("grpc.default_authority", host or address.authority))
        if address.tls and address.tls.server_name:
            options.append(("grpc.ssl_target_name_override", address.tls.server_name))
        target = f"unix:{address.socket_path}" if address.socket_path else address.authority
        if self._credentials is None:
            channel = grpc.aio.insecure_channel(target, options=options)
        else:
            channel = grpc.aio.secure_channel(target, self._credentials, options=options)
        self._channels.append(channel)
        await asyncio.wait_for(self._connected(channel), self._timeout_s)
        self.counts.opened += 1
        self._reconnect_counters.append(asyncio.ensure_future(self._count_reconnects(channel)))
        self._idle.append(self._method(channel, "ModelInfer"))

    async def _describe_tls_fault(self) -> str:
        """The reason why Python's own TLS cannot connect, since grpcio gives none; empty if unknown."""
        address = self._address
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
        writer.close()
        hint = "" if address.tls.cert else "; it may require a client certificate (target.tls.cert)"
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

    async def _send(self, message: bytes) -> Reply:
        is_exclusive = bool(self._idle)  # otherwise requests share channels as HTTP/2 streams
        shared = self._channels[len(self._in_flight) % len(self._channels)]
        call = self._idle.pop() if is_exclusive else self._method(shared, "ModelInfer")
        started_ns = self._now_ns()
        try:
            answer = await call(message, timeout=self._timeout_s, metadata=self._metadata, compression=self._compression)
            if answer is None:  # which its type does not mention
                return Reply(Outcome.BROKEN, started_ns, self._now_ns(), None, "the call ended without a complete message")
            return Reply(Outcome.OK, started_ns, self._now_ns(), answer)
        except asyncio.CancelledError:
            return Reply(Outcome.UNFINISHED, started_ns, self._now_ns())
        except grpc.aio.AioRpcError as error:
            finished_ns = self._now_ns()
            is_deadline_ours = finished_ns - started_ns >= OWN_DEADLINE_SHARE * self._timeout_s * 1e9
            outcome = _outcome(error, is_deadline_ours=is_deadline_ours)
            status = error.code().name if outcome is Outcome.REJECTED else ""
            return Reply(outcome, started_ns, finished_ns, None, _describe(error), status)
        finally:
            if is_exclusive:
                self._idle.append(call)

    def _method(self, channel: grpc.aio.Channel, rpc: str) -> Callable[..., Awaitable[bytes]]:
        call: Callable[..., Awaitable[bytes]] = channel.unary_unary(self._address.base_path + protobuf.method_path(rpc))
        return call

    async def _exchange(self, rpc: str, message: bytes) -> bytes:
        if not self._channels:
            await self.open(1)
        call = self._method(self._channels[0], rpc)
        try:
            return await call(message, timeout=self._timeout_s, metadata=self._metadata)
        except grpc.aio.AioRpcError as error:
            outcome = _outcome(error, is_deadline_ours=True)
            if outcome is Outcome.REJECTED:
                raise RefusedError(self._address, rpc, _describe(error)) from None
            raise TargetError(f"{self._address}: {_describe(error)}", may_pass=outcome is not Outcome.TIMED_OUT) from None


def _credentials(tls: Tls) -> grpc.ChannelCredentials:
    client_context(tls)  # for its errors: grpcio does not say what is wrong with a file
    ca, cert, key = (None if file is None else file.read_bytes() for file in (tls.ca, tls.cert, tls.key or tls.cert))
    return grpc.ssl_channel_credentials(ca, key, cert)


def _outcome(error: grpc.aio.AioRpcError, *, is_deadline_ours: bool) -> Outcome:
    text = (error.details() or "").lower()
    match error.code():
        case grpc.StatusCode.DEADLINE_EXCEEDED:
            return Outcome.TIMED_OUT if is_deadline_ours else Outcome.REJECTED
        case _ if text.startswith(_BROKEN_STARTS) or (error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and _OWN_LIMIT in text):
            return Outcome.BROKEN
        case grpc.StatusCode.UNAVAILABLE if any(part in text for part in _CONNECT_FAILED_TEXTS):
            return Outcome.CONNECT_FAILED
        case grpc.StatusCode.UNAVAILABLE if any(part in text for part in _BROKEN_TEXTS):
            return Outcome.BROKEN
        case _:
            return Outcome.REJECTED


def _describe(error: grpc.aio.AioRpcError) -> str:
    return f"{error.code().name}: {error.details()}"
