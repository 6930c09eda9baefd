"""A gRPC port on perfkit's own HTTP/2: its connections and their calls, with limits on their number and on clients' time."""

import asyncio
import socket
import time
from typing import cast

from perfkit.override import override
from perfkit.protocol import http2
from perfkit.protocol.grpc_call import Status
from perfkit.protocol.http2 import HeaderBlockReader, Http2Error
from perfkit.protocol.tensor import Buffer
from server_stub.devices.host_memory import HostMemory
from server_stub.grpc.calls import Answer, CallConnection, Methods, StatusError, StreamingCall, UnaryCall, error_headers
from server_stub.grpc.http2_session import ServerSession
from server_stub.grpc.http2_stream import RequestHeaders, ServerStream, SessionListener, parse_request_headers
from server_stub.options import Limits, TlsIdentity
from server_stub.receiving import Receiver, ReceivingConnection, ReceivingThreads
from server_stub.write_timeout import WriteTimeout

_MIN_STREAMS = 100
_SCRATCH_BYTES = 2**16
_WRITE_HIGH_WATER_BYTES = 2**20
_LINGER_S = 1.0  # for a client to read why its connection ends
_METHOD_NOT_FOUND = StatusError(Status.UNIMPLEMENTED, "Method not found!")


class GrpcPort:
    """A listening port with its connections."""

    def __init__(self, methods: Methods, limits: Limits, memory: HostMemory, threads: ReceivingThreads) -> None:
        self.methods, self.limits, self.memory, self.threads = methods, limits, memory, threads
        self.too_many_calls = StatusError(Status.RESOURCE_EXHAUSTED, f"the server has reached its limit of {limits.max_calls} calls")
        self.call_count = 0
        self.header_cache: dict[bytes, RequestHeaders] = {}
        self.scratch = memoryview(bytearray(_SCRATCH_BYTES))
        """Where small requests are received. All connections use it, since each read is taken before the next one."""
        self._connections: set[GrpcConnection] = set()
        self._all_closed: asyncio.Event | None = None
        self._server: asyncio.Server | None = None

    async def start(self, host: str, port: int, tls: TlsIdentity | None = None) -> int:
        """Listen, and return the port. Raises OSError if that fails."""
        context, handshake_s = (None, None) if tls is None else (tls.http2_context, self.limits.head_timeout_s)
        self._server = await asyncio.get_running_loop().create_server(
            lambda: GrpcConnection(self), host, port, ssl=context, ssl_handshake_timeout=handshake_s
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening, and wait until the calls in flight are answered or `stop_timeout_s` has passed."""
        if self._server is not None:
            self._server.close()
        for connection in tuple(self._connections):
            connection.stop()
        if self._connections:
            self._all_closed = asyncio.Event()
            try:
                await asyncio.wait_for(self._all_closed.wait(), self.limits.stop_timeout_s)
            except TimeoutError:
                for connection in tuple(self._connections):
                    connection.abort()

    def add(self, connection: "GrpcConnection") -> bool:
        """Register a connection. Returns False if there are too many."""
        if len(self._connections) >= self.limits.max_connections:
            return False
        self._connections.add(connection)
        return True

    def remove(self, connection: "GrpcConnection") -> None:
        """Unregister a closed connection."""
        self._connections.discard(connection)
        if self._all_closed is not None and not self._connections:
            self._all_closed.set()


class GrpcConnection(asyncio.BufferedProtocol, CallConnection, SessionListener, ReceivingConnection):
    """One connection, and the calls on it."""

    def __init__(self, port: GrpcPort) -> None:
        self.loop = asyncio.get_running_loop()
        self.max_message_bytes = port.limits.max_body_bytes
        self.begun_calls = []
        self._port, self._limits = port, port.limits
        self._transport: asyncio.Transport
        self._write_timeout: WriteTimeout
        self._receiver: Receiver
        self._timer: asyncio.TimerHandle | None = None  # for the client's settings, and then of an idle connection
        self._writable: asyncio.Future[None] | None = None  # done when the client reads again
        self._used_s = self.loop.time()
        self._is_ready = self._is_stopping = self._is_over = False

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's transports are not of that class
        self.session = ServerSession(
            self._transport,
            self,
            HeaderBlockReader(parse_request_headers, self._port.header_cache),
            max_streams=max(_MIN_STREAMS, self._limits.max_calls),  # so that a call beyond the limit gets a status and is not reset
            max_message_bytes=self.max_message_bytes,
            take_memory=self._port.memory.take,
        )
        session = self.session
        self._receiver = Receiver(self._port.threads, self._transport, self)
        self._write_timeout = WriteTimeout(
            transport, self._limits.write_timeout_s, lambda: session.sent_bytes, lambda: session.unsent_bytes
        )
        if not self._port.add(self):
            self._is_over = True
            self._transport.close()
            return
        self._transport.set_write_buffer_limits(high=_WRITE_HIGH_WATER_BYTES)
        # a call may be open for any time, so that only this finds a client that has vanished
        self._transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._timer = self.loop.call_later(self._limits.head_timeout_s, self.abort)
        self.session.open()

    @override
    def get_buffer(self, sizehint: int) -> memoryview:
        session = self.session
        return (session.space() if session.data_bytes else None) or self._port.scratch

    @override
    def buffer_updated(self, nbytes: int) -> None:
        if self._is_over:
            return
        session = self.session
        try:
            if not session.data_bytes or not session.advance(nbytes):
                session.receive(self._port.scratch[:nbytes])
        except Http2Error as error:
            self._fail(error)
            return
        if self.begun_calls:
            for call in self.begun_calls:  # most are over already
                call.start_deadline()
            self.begun_calls.clear()
        if not self._is_ready and session.is_ready:
            self._is_ready = True
            assert self._timer is not None
            self._timer.cancel()
            self._timer = self.loop.call_later(self._limits.idle_timeout_s, self._check_idle)
        if session.data_bytes or self._receiver.is_expecting:
            self._receiver.expect(session.space())

    @override
    def continue_reading(self) -> None:
        if not self._transport.is_closing() and not self.session.is_writing_paused:
            self._transport.resume_reading()

    def pause_writing(self) -> None:
        """The client does not read."""
        self._writable = self.loop.create_future()
        self.session.is_writing_paused = True
        self._write_timeout.start()
        self._transport.pause_reading()  # limits the responses that a client which does not read makes us hold

    def resume_writing(self) -> None:
        """The client reads again."""
        self.session.is_writing_paused = False
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None
        if not self._receiver.is_active:
            self.continue_reading()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._is_over = True
        self._receiver.close()
        self._write_timeout.stop()
        if self._timer is not None:
            self._timer.cancel()
        self.session.close()
        if self._writable is not None:
            self._writable.cancel()
        self._port.remove(self)

    def stop(self) -> None:
        """Close the connection once its calls are over."""
        self._is_stopping = True
        self.session.go_away()
        if not self.session.streams:
            self._close()

    def abort(self) -> None:
        """Close the connection at once."""
        self._transport.abort()

    @override
    async def until_writable(self) -> None:
        if self._writable is not None:
            await asyncio.shield(self._writable)

    @override
    def admit(self, stream: ServerStream) -> bool:
        if self._port.call_count >= self._limits.max_calls:
            self.session.end(stream, error_headers(self._port.too_many_calls))
            return False
        self._port.call_count += 1
        stream.is_admitted = True
        return True

    @override
    def now_ns(self) -> int:
        return time.monotonic_ns()

    @override
    def on_headers(self, stream: ServerStream) -> None:
        headers = stream.headers
        if headers.http_status != 200:
            self.session.end(stream, [(":status", str(headers.http_status))])
        elif (method := self._port.methods.unary.get(headers.path)) is not None:
            stream.call = UnaryCall(self, stream, method)
        elif (stream_method := self._port.methods.streaming.get(headers.path)) is not None:
            if self.admit(stream):
                stream.call = StreamingCall(self, stream, stream_method)
        else:
            self.session.end(stream, error_headers(_METHOD_NOT_FOUND))

    @override
    def answer_at_once(self, headers: RequestHeaders, data: Buffer, first: int, stop: int) -> Answer | None:
        port = self._port
        # a time-out of 0 has passed already; others have not, by the clock of the event loop, which stands still while bytes are read
        if headers.http_status != 200 or headers.timeout_ns == 0 or port.call_count >= self._limits.max_calls:
            return None
        method = port.methods.at_once.get(headers.path)
        if method is None or (answer := method(bytes(data[first:stop]))) is None:
            return None
        self._used_s = self.loop.time()
        return answer

    @override
    def on_waiting(self) -> None:
        self._write_timeout.start()

    @override
    def on_message_too_large(self, stream: ServerStream, text: str) -> None:
        stream.call.fail(StatusError(Status.RESOURCE_EXHAUSTED, text))

    @override
    def on_closed(self, stream: ServerStream) -> None:
        if stream.is_admitted:
            self._port.call_count -= 1
        self._used_s = self.loop.time()
        if stream.call is not None:
            stream.call.close()
        if self._is_stopping and not self._is_over and not self.session.streams:
            self._close()

    def _fail(self, error: Http2Error) -> None:
        """Say GOAWAY and close the connection after the client violated HTTP/2 or a limit."""
        self._is_over = True
        self._transport.write(http2.goaway(error.code, self.session.last_id, str(error)))
        self.session.close()
        self._transport.close()
        self.loop.call_later(_LINGER_S, self.abort)  # it may not read

    def _close(self) -> None:
        """Close the connection once everything is written."""
        self._write_timeout.start()  # the client may not read
        self._transport.close()

    def _check_idle(self) -> None:
        left_s = self._used_s + self._limits.idle_timeout_s - self.loop.time()
        if not self.session.streams and left_s <= 0:
            self.stop()
        else:
            self._timer = self.loop.call_later(left_s if left_s > 0 else self._limits.idle_timeout_s, self._check_idle)
