"""A connection on the fast path without a network, whose responses are released by the test."""

import asyncio
from typing import Any, cast

from perfkit.protocol.tensor import Buffer
from server_stub.devices.host_memory import HostMemory
from server_stub.http.fast_path import FastPathConnection, HeadCache, encode_response
from server_stub.http.inference import HttpResponse
from server_stub.options import Limits

START = b"POST /v2/models/simple/infer HTTP/1.1\r\nHost: x\r\n"


class FakeTransport(asyncio.Transport):
    """A fake transport that records what is sent, and whether reading is paused."""

    def __init__(self):
        super().__init__()
        self.written, self.is_open, self.reads = b"", True, True

    def write(self, data):
        self.written += data

    def close(self):
        self.is_open = False

    abort = close

    def is_closing(self):
        return not self.is_open

    def pause_reading(self):
        self.reads = False

    def resume_reading(self):
        self.reads = True


class Harness:
    """The connection, its fake transport and its handler."""

    def __init__(self, *, memory=None, max_body_bytes=2**30, prompt=(b"prompt",), **limits):
        """Bodies that are in `prompt` are answered at once, by themselves."""
        self._prompt = prompt
        self.transport, self.released = FakeTransport(), asyncio.Semaphore(0)
        self.handed_over: list[bytes] = []
        self.asked: list[Buffer] = []
        self.traced: list[Any] = []
        self.memory = memory or HostMemory()
        self.connection = FastPathConnection(
            HeadCache(max_body_bytes),
            cast(Any, self),
            Limits(**limits),
            self.memory.take,
            self.transport,
            self.handed_over.append,
        )

    def accepts(self, head):
        return head.model == "simple"

    def answer_at_once(self, head, body):
        """The body, if it is one of `prompt`."""
        return HttpResponse(200, {}, [bytes(body)]) if body in self._prompt else None

    async def respond_to(self, head, body):
        self.asked.append(body)
        await self.released.acquire()
        return HttpResponse(200, {}, [bytes(body)])

    def end_trace(self, trace, send_started_ns):
        self.traced.append((trace, send_started_ns))

    def receive(self, data):
        """Give bytes to the connection as a transport does, with at most 50,000 for each read."""
        while data and self.transport.reads:
            if self.connection.is_buffered:
                space = self.connection.get_buffer()
                size = min(len(space), 50_000, len(data))
                space[:size] = data[:size]
                del space
                self.connection.buffer_updated(size)
            else:
                size = min(50_000, len(data))
                self.connection.receive(data[:size])
            data = data[size:]
        return data


def written(*bodies):
    return b"".join(piece for body in bodies for piece in encode_response(HttpResponse(200, {}, [body])))


def asked(body):
    return START + b"Content-Length: %d\r\n\r\n" % len(body) + body
