"""Loopback servers of literal bytes."""

import asyncio
import contextlib
import socket
import struct
from typing import Any

from perfkit.target.address import Address

NOWHERE = Address("http", "127.0.0.1", 1)


@contextlib.asynccontextmanager
async def scripted_server(*handlers, port=0):
    """A loopback server; handler n serves connection n, and the last handler all further connections.

    A handler is a coroutine function of (reader, writer).
    """
    served = iter(range(10**6))
    tasks: set[Any] = set()

    async def serve(reader, writer):
        tasks.add(asyncio.current_task())
        try:
            await handlers[min(next(served), len(handlers) - 1)](reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", port)
    try:
        yield Address("http", "127.0.0.1", server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def read_request(reader):
    """The head and body of one request as bytes."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0)
    return head, await reader.readexactly(length)


def answering(*answers, seen=None):
    """Answers request n of a connection with answer n, and then closes it; the parts of a list are sent one by one."""

    async def handle(reader, writer):
        for answer in answers:
            request = await read_request(reader)
            if seen is not None:
                seen.append(b"".join(request))
            for part in answer if isinstance(answer, list) else [answer]:
                writer.write(part)
                await writer.drain()

    return handle


def hanging(received=None):
    """Receives a request, sets `received`, and never answers."""

    async def handle(reader, _writer):
        await read_request(reader)
        if received is not None:
            received.set()
        await asyncio.get_running_loop().create_future()

    return handle


def sending(data):
    """Sends bytes as soon as a client connects, and closes."""

    async def handle(_reader, writer):
        writer.write(data)
        await writer.drain()

    return handle


def reset(writer):
    """Resets a connection instead of closing it."""
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
