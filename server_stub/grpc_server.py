"""grpcio's server on one port, with limits; where a client's bytes end it, another one takes its place.

grpcio's asynchronous server ends, all of it, with a call whose method name is no UTF-8. What it was answering goes on; new
connections are refused for as long as it takes to listen again.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from typing import Any

import grpc
import grpc.aio

from server_stub.limits import Limits
from server_stub.log import TOLD, Log
from server_stub.tls import Identity

_INT32_MAX = 2**31 - 1
_LEAST_STREAMS = 100
_RETRY_S = 0.01  # until the port of the one before is free

logging.getLogger("grpc._cython.cygrpc").setLevel(logging.CRITICAL)  # it tells of its end with a traceback; it is told here


class GrpcServer:
    """Serves handlers until it is stopped."""

    def __init__(self, handlers: Sequence[grpc.GenericRpcHandler], limits: Limits, log: Log) -> None:
        self._handlers, self._limits, self._log = handlers, limits, log
        self._server: grpc.aio.Server | None = None
        self._stopping: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None

    async def start(self, host: str, port: int, tls: Identity | None = None) -> int:
        """Listens, and gives the port; raises OSError where it cannot."""
        address = f"[{host}]" if ":" in host else host
        self._server, port, serving = await self._open(address, port, tls)
        self._watching = asyncio.ensure_future(self._watch(address, port, tls, serving))
        return port

    async def stop(self) -> None:
        """Stops listening and returns when the calls in flight are answered, or the time for it has passed."""
        if self._watching is not None:
            self._watching.cancel()
        ending = [asyncio.ensure_future(self._server.stop(self._limits.stop_timeout_s))] if self._server is not None else []
        if self._stopping:  # what was asked of those before is in flight as well
            await asyncio.wait(self._stopping, timeout=self._limits.stop_timeout_s)
        await asyncio.gather(*ending, return_exceptions=True)  # one that a client ended a moment ago raises that again
        for task in self._stopping:
            task.cancel()

    async def _open(self, address: str, port: int, tls: Identity | None) -> "tuple[grpc.aio.Server, int, asyncio.Task[Any]]":
        server = grpc.aio.server(options=_options(self._limits))
        server.add_generic_rpc_handlers(self._handlers)
        try:
            if tls is None:
                port = server.add_insecure_port(f"{address}:{port}")
            else:
                port = server.add_secure_port(f"{address}:{port}", grpc.ssl_server_credentials([(tls.key, tls.certificate)]))
        except RuntimeError as error:
            raise OSError(str(error).partition(";")[0]) from None
        async with _recorded_tasks() as tasks:
            await server.start()
        tasks[0].add_done_callback(_mark)
        return server, port, tasks[0]

    async def _watch(self, address: str, port: int, tls: Identity | None, serving: "asyncio.Task[Any]") -> None:
        """Puts another server in the place of one whose serving has ended with an error."""
        while True:
            await asyncio.wait((serving,))
            if serving.cancelled() or (error := serving.exception()) is None:
                return
            self._log.warning("grpc_restarted", f"gRPC was ended by what a client sent, and is started again: {error}", error=str(error))
            assert self._server is not None
            stopping = asyncio.ensure_future(_stop(self._server))
            self._stopping.add(stopping)
            stopping.add_done_callback(self._stopping.discard)
            serving = await self._open_again(address, port, tls)

    async def _open_again(self, address: str, port: int, tls: Identity | None) -> "asyncio.Task[Any]":
        while True:
            try:
                self._server, _, serving = await self._open(address, port, tls)
            except OSError:
                await asyncio.sleep(_RETRY_S)
            else:
                return serving


def _mark(serving: "asyncio.Task[Any]") -> None:
    """Says of the error, which grpcio raises again where nobody looks, that it is told here."""
    if not serving.cancelled() and (error := serving.exception()) is not None:
        error.add_note(TOLD)


async def _stop(server: grpc.aio.Server) -> None:
    """Lets go a server that has ended, when the last of its calls has."""
    await asyncio.sleep(0)  # its own way of ending goes first, and ends in the same error
    with contextlib.suppress(Exception):
        await server.stop(_INT32_MAX)


@contextlib.asynccontextmanager
async def _recorded_tasks() -> "AsyncIterator[list[asyncio.Task[Any]]]":
    """The tasks that are made in the block, in their order: a server's own, in which it serves, is told by nothing else."""
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
    """The core's settings: our limits, and Triton's own for pings."""
    return (
        ("grpc.max_receive_message_length", min(limits.max_body_bytes, _INT32_MAX)),
        ("grpc.max_send_message_length", -1),
        ("grpc.so_reuseport", 0),  # with it a second server would share the port instead of being refused
        # of one connection; near to it some are refused by chance, so it is not what the front counts all calls by
        ("grpc.max_concurrent_streams", max(_LEAST_STREAMS, limits.max_calls)),
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
