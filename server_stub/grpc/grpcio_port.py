"""A gRPC port on grpcio's server, for comparison with perfkit's own: the same methods, behind `--grpc-engine grpcio`.

It is restarted whenever a client's bytes make it fail: grpcio's asynchronous server stops accepting calls altogether after one whose
method name is not UTF-8. Calls in flight are still answered; new connections are refused until the new server listens.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

import grpc
import grpc.aio

from perfkit.errors import ProtocolError
from perfkit.protocol.compression import decompress
from perfkit.protocol.tensor import Buffer
from server_stub.grpc.calls import (
    MAX_INFLATED_BYTES,
    Methods,
    StatusError,
    StreamMethod,
    UnaryMethod,
    max_streams,
    status_error,
    too_many_calls,
)
from server_stub.log import REPORTED_NOTE, Log
from server_stub.options import Limits, TlsIdentity

_INT32_MAX = 2**31 - 1
_RETRY_S = 0.01  # between attempts to reopen the port

logging.getLogger("grpc._cython.cygrpc").setLevel(logging.CRITICAL)  # the log below reports failures, without a traceback


_Context: TypeAlias = "grpc.aio.ServicerContext[bytes, bytes]"
# grpcio hands over compressed messages as they came, but not the encoding of the call. The first bytes tell it: no protobuf message
# can begin like gzip, whose first byte would be a field of a wire type that does not exist, and no request begins like zlib, with field 15.
_ENCODINGS = {b"\x1f\x8b": "gzip", b"\x78\x01": "deflate", b"\x78\x5e": "deflate", b"\x78\x9c": "deflate", b"\x78\xda": "deflate"}


class GrpcioCall:
    """A call by grpcio; see `Call`."""

    def __init__(self, context: _Context) -> None:
        self._context = context

    @property
    def metadata(self) -> Mapping[str, str]:
        """See `Call.metadata`."""
        metadata: Any = self._context.invocation_metadata() or ()
        return dict(metadata)

    def on_sent(self, callback: Callable[[], None]) -> None:
        """See `Call.on_sent`."""
        self._context.add_done_callback(lambda _: callback())  # type: ignore[arg-type]  # the stubs want a subclass

    async def write(self, message: Sequence[Buffer]) -> None:
        """See `Call.write`."""
        await self._context.write(b"".join(message))


class GrpcioPort:
    """Serves methods on a port until it is stopped."""

    def __init__(self, methods: Methods, limits: Limits, log: Log) -> None:
        self._limits, self._log = limits, log
        self._call_count, self._too_many_calls = 0, too_many_calls(limits.max_calls)
        self._handlers = [_Handlers(self._rpc_handlers(methods))]
        self._server: grpc.aio.Server | None = None
        self._stopping: set[asyncio.Task[None]] = set()
        self._supervisor: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int, tls: TlsIdentity | None = None) -> int:
        """Listen, and return the port. Raises OSError if that fails."""
        address = f"[{host}]" if ":" in host else host
        self._server, port, serving = await self._open(address, port, tls)
        self._supervisor = asyncio.ensure_future(self._supervise(address, port, tls, serving))
        return port

    async def stop(self) -> None:
        """Stop listening, and wait until the calls in flight are answered or `stop_timeout_s` has passed."""
        if self._supervisor is not None:
            self._supervisor.cancel()
        ending = [asyncio.ensure_future(self._server.stop(self._limits.stop_timeout_s))] if self._server is not None else []
        if self._stopping:  # calls to failed servers are in flight too
            await asyncio.wait(self._stopping, timeout=self._limits.stop_timeout_s)
        await asyncio.gather(*ending, return_exceptions=True)  # a server that has just failed raises its error again
        for task in self._stopping:
            task.cancel()

    def _rpc_handlers(self, methods: Methods) -> "Mapping[str, grpc.RpcMethodHandler[bytes, bytes]]":
        return {path: grpc.unary_unary_rpc_method_handler(self._unary(method)) for path, method in methods.unary.items()} | {
            path: grpc.stream_stream_rpc_method_handler(self._streaming(method)) for path, method in methods.streaming.items()
        }

    def _unary(self, method: UnaryMethod) -> Callable[[bytes, _Context], Awaitable[bytes]]:
        async def respond(encoded: bytes, context: _Context) -> bytes:
            async with self._counted(context):
                return b"".join(await method(self._inflate(encoded), GrpcioCall(context)))

        return respond

    def _streaming(self, method: StreamMethod) -> Callable[[AsyncIterator[bytes], _Context], Awaitable[None]]:
        async def serve(requests: AsyncIterator[bytes], context: _Context) -> None:
            async with self._counted(context):
                await method((self._inflate(encoded) async for encoded in requests), GrpcioCall(context))

        return serve

    @contextlib.asynccontextmanager
    async def _counted(self, context: _Context) -> AsyncIterator[None]:
        """Counts a call, and turns its exceptions into its status."""
        if self._call_count >= self._limits.max_calls:
            await _abort(context, self._too_many_calls)
        self._call_count += 1
        try:
            yield
        except StatusError as error:
            await _abort(context, error)
        except ProtocolError as error:
            await _abort(context, status_error(error))
        finally:
            self._call_count -= 1

    def _inflate(self, message: bytes) -> bytes:
        """The message, inflated if it is compressed; grpcio would inflate each one up to `--max-body`, and keep that memory."""
        encoding = _ENCODINGS.get(message[:2])
        return message if encoding is None else decompress(message, encoding, min(self._limits.max_body_bytes, MAX_INFLATED_BYTES))

    async def _open(self, address: str, port: int, tls: TlsIdentity | None) -> "tuple[grpc.aio.Server, int, asyncio.Task[Any]]":
        server = grpc.aio.server(options=_options(self._limits))
        server.add_generic_rpc_handlers(self._handlers)
        try:
            if tls is None:
                port = server.add_insecure_port(f"{address}:{port}")
            else:
                port = server.add_secure_port(f"{address}:{port}", grpc.ssl_server_credentials([(tls.key, tls.certificate)]))
        except RuntimeError as error:
            raise OSError(str(error).partition(";")[0]) from None
        async with _record_new_tasks() as tasks:
            await server.start()
        tasks[0].add_done_callback(_mark_as_reported)
        return server, port, tasks[0]

    async def _supervise(self, address: str, port: int, tls: TlsIdentity | None, serving: "asyncio.Task[Any]") -> None:
        """Replace the server whenever its serving task fails."""
        while True:
            await asyncio.wait((serving,))
            if serving.cancelled() or (error := serving.exception()) is None:
                return
            self._log.warning("grpc_restarted", f"grpcio failed on a client's bytes and is restarted: {error}", error=str(error))
            assert self._server is not None
            stopping = asyncio.ensure_future(_drain(self._server))
            self._stopping.add(stopping)
            stopping.add_done_callback(self._stopping.discard)
            serving = await self._reopen(address, port, tls)

    async def _reopen(self, address: str, port: int, tls: TlsIdentity | None) -> "asyncio.Task[Any]":
        while True:
            try:
                self._server, _, serving = await self._open(address, port, tls)
            except OSError:
                await asyncio.sleep(_RETRY_S)
            else:
                return serving


class _Handlers(grpc.GenericRpcHandler):
    """Finds the handler of a path."""

    def __init__(self, handlers: "Mapping[str, grpc.RpcMethodHandler[bytes, bytes]]") -> None:
        self._handlers = handlers

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[bytes, bytes] | None":
        """See `grpc.GenericRpcHandler.service`."""
        return self._handlers.get(handler_call_details.method)


async def _abort(context: _Context, error: StatusError) -> None:
    await context.abort(grpc.StatusCode[error.status.name], str(error))


def _mark_as_reported(serving: "asyncio.Task[Any]") -> None:
    """Mark the task's error, which grpcio also raises in tasks that nobody awaits, as already logged."""
    if not serving.cancelled() and (error := serving.exception()) is not None:
        error.add_note(REPORTED_NOTE)


async def _drain(server: grpc.aio.Server) -> None:
    """Stop a failed server once its last call has ended."""
    await asyncio.sleep(0)  # let the server's own shutdown run into the same error first
    with contextlib.suppress(Exception):
        await server.stop(_INT32_MAX)


@contextlib.asynccontextmanager
async def _record_new_tasks() -> "AsyncIterator[list[asyncio.Task[Any]]]":
    """Record the tasks created in the block: grpcio does not expose the task in which it serves."""
    loop, tasks = asyncio.get_running_loop(), list[asyncio.Task[Any]]()
    before = loop.get_task_factory()

    def make(loop: asyncio.AbstractEventLoop, coroutine: Any, **keys: Any) -> "asyncio.Task[Any]":
        tasks.append(asyncio.Task(coroutine, loop=loop, **keys))
        return tasks[-1]

    loop.set_task_factory(make)
    try:
        yield tasks
    finally:
        loop.set_task_factory(before)


def _options(limits: Limits) -> Sequence[tuple[str, int]]:
    """GRPC core's options: our limits, and Triton's settings for pings."""
    return (
        ("grpc.max_receive_message_length", min(limits.max_body_bytes, _INT32_MAX)),
        ("grpc.max_send_message_length", -1),
        ("grpc.per_message_decompression", 0),  # see `_inflate`
        ("grpc.so_reuseport", 0),  # otherwise a second server could share the port
        # per connection, and inexact: the port enforces max_calls itself
        ("grpc.max_concurrent_streams", max_streams(limits.max_calls)),
        ("grpc.max_allowed_incoming_connections", limits.max_connections),
        ("grpc.server_handshake_timeout_ms", round(limits.head_timeout_s * 1000)),
        ("grpc.max_connection_idle_ms", min(round(limits.idle_timeout_s * 1000), _INT32_MAX)),
        ("grpc.keepalive_time_ms", 7_200_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.keepalive_permit_without_calls", 0),
        ("grpc.http2.max_pings_without_data", 2),
        ("grpc.http2.min_ping_interval_without_data_ms", 300_000),
        ("grpc.http2.max_ping_strikes", 2),
    )
