"""The relay of the proxy reads no faster than the server takes it, also before the server is connected."""

import asyncio
import contextlib

from perfkit.proxy.relay import Relay
from perfkit.target.address import Address
from tests.conditions import until

MIB, EARLY_BYTES = 1 << 20, 1 << 16


class _Client(asyncio.Transport):
    """The relay's connection to a client, as far as the relay uses it."""

    def __init__(self):
        super().__init__()
        self.is_paused = False

    def pause_reading(self):
        self.is_paused = True

    def resume_reading(self):
        self.is_paused = False

    def is_closing(self):
        return False

    def abort(self):
        pass

    def set_write_buffer_limits(self, high=None, low=None):
        pass


class _Listener:
    """Notes what it is told."""

    def __init__(self):
        self.received, self.delays_ns = bytearray(), list[int]()

    def passed(self, relay, data, read_ns, *, is_first):
        self.received += data

    def exchanged(self, delay_ns):
        self.delays_ns.append(delay_ns)

    def moved(self, relay):
        pass

    def unreachable(self, target, error):
        raise error

    def ended(self, relay):
        pass


@contextlib.asynccontextmanager
async def relayed(on_connected):
    """A relay to a server that reads its connection by this function, and the client's side; the server is not connected yet."""
    has_ended = asyncio.Event()

    async def handle(reader, writer):
        with contextlib.suppress(ConnectionError):
            await on_connected(reader)
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        has_ended.set()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    address = Address("http", "127.0.0.1", server.sockets[0].getsockname()[1])
    relay = Relay(0, address, None, lambda: 0, lambda: 0, _Listener())
    client = _Client()
    relay.client.connection_made(client)
    try:
        yield relay, client
    finally:
        relay.close()
        await has_ended.wait()
        server.close()


def test_a_client_is_not_read_on_while_the_server_is_not_connected():
    received = bytearray()

    async def read(reader):
        while data := await reader.read(MIB):
            received.extend(data)

    async def main():
        async with relayed(read) as (relay, client):
            relay.client.receive(b"a" * (EARLY_BYTES - 1))
            assert not client.is_paused
            relay.client.receive(b"b")
            assert client.is_paused
            await until(lambda: len(received) == EARLY_BYTES)
            assert bytes(received) == b"a" * (EARLY_BYTES - 1) + b"b"
            await until(lambda: not client.is_paused)

    asyncio.run(main())


def test_a_server_that_does_not_read_the_first_bytes_keeps_the_client_waiting():
    """Passing on the first bytes fills the server's side: the client may not go on only because the server is connected."""
    connected, may_read = asyncio.Event(), asyncio.Event()
    received = 0

    async def read_later(reader):
        nonlocal received
        connected.set()
        await may_read.wait()
        while data := await reader.read(MIB):
            received += len(data)

    async def main():
        async with relayed(read_later) as (relay, client):
            relay.client.receive(bytes(64 * MIB))  # more than all buffers of a connection hold
            assert client.is_paused
            await connected.wait()
            await until(lambda: relay.client.other.transport is not None)
            assert client.is_paused
            may_read.set()
            await until(lambda: received == 64 * MIB)
            await until(lambda: not client.is_paused)

    asyncio.run(main())
