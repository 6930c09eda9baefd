"""Loopback servers over HTTP and gRPC that count the connections they accept, and the requests on each."""

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable

import h2.config
import h2.connection
import h2.events

from perfkit.protocol.message import InferRequest
from perfkit.target.address import Address, WireProtocol
from tests.transport import servers
from tests.transport.grpc_servers import Call

_OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
REQUEST = InferRequest("m", ())


@dataclasses.dataclass
class CountingServer:
    """What a server saw: the requests on each accepted connection, in the order of acceptance."""

    address: Address
    requests: list[int] = dataclasses.field(default_factory=list)
    open_now: int = 0
    most_open: int = 0

    @property
    def connections(self):
        return len(self.requests)


Gate = Callable[[], Awaitable[object]]


async def _answer_at_once():
    pass


@contextlib.asynccontextmanager
async def counting_server(protocol: WireProtocol, host: str = "127.0.0.1", port: int = 0, before_answer: Gate = _answer_at_once):
    """Answers every infer request after `before_answer`."""
    tasks: set[asyncio.Future[None]] = set()

    async def handle(reader, writer):
        number = len(counted.requests)
        counted.requests.append(0)
        counted.open_now += 1
        counted.most_open = max(counted.most_open, counted.open_now)
        try:
            await (_serve_http if protocol == "http" else serve_grpc)(reader, writer, number)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            counted.open_now -= 1
            writer.close()

    async def _serve_http(reader, writer, number):
        while True:
            head, _ = await servers.read_request(reader)
            counted.requests[number] += head.startswith(b"POST")  # not those by which aiohttp opens connections
            await before_answer()
            writer.write(_OK)

    async def serve_grpc(reader, writer, number):
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        connection.initiate_connection()
        writer.write(connection.data_to_send())

        async def answer(stream):
            await before_answer()
            Call(connection, stream, writer).answer(b"")
            writer.write(connection.data_to_send())

        while data := await reader.read(1 << 16):
            for event in connection.receive_data(data):
                if isinstance(event, h2.events.StreamEnded):
                    counted.requests[number] += 1
                    task = asyncio.ensure_future(answer(event.stream_id))
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
            writer.write(connection.data_to_send())

    server = await asyncio.start_server(handle, host, port)
    counted = CountingServer(Address(protocol, host, server.sockets[0].getsockname()[1]))
    try:
        yield counted
    finally:
        server.close()
        for task in tasks:
            task.cancel()
