"""Loopback gRPC servers: grpcio's, and a scripted one on the h2 package."""

import asyncio
import contextlib
import dataclasses
from typing import Any

import grpc
import grpc.aio
import h2.config
import h2.connection
import h2.events

from perfkit.target.address import Address
from tests.transport import servers

HEAD = [(":status", "200"), ("content-type", "application/grpc")]


@contextlib.asynccontextmanager
async def grpcio_server(infer=None, stream=None):
    """A gRPC server with `ModelInfer`, a coroutine function of (message as bytes, context), or `ModelStreamInfer`, of (messages, context)."""
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
    handlers: dict[str, Any] = {}
    if infer is not None:
        handlers["ModelInfer"] = grpc.unary_unary_rpc_method_handler(infer)
    if stream is not None:
        handlers["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(stream)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("inference.GRPCInferenceService", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        yield Address("grpc", "127.0.0.1", port, headers={"X-Tenant": "a"})
    finally:
        await server.stop(None)


@dataclasses.dataclass
class Call:
    """A call whose request is complete, and the ways to answer it; without one it hangs."""

    connection: h2.connection.H2Connection
    stream: int
    writer: asyncio.StreamWriter

    def send_head(self):
        self.connection.send_headers(self.stream, HEAD)

    def send_bytes(self, data, *, ends=False):
        self.connection.send_data(self.stream, data, end_stream=ends)

    def answer(self, message):
        self.send_head()
        self.send_bytes(b"\0" + len(message).to_bytes(4, "big") + message)
        self.end_well()

    def end_well(self):
        self.connection.send_headers(self.stream, [("grpc-status", "0")], end_stream=True)

    def end(self, status, text):
        """Sends a status instead of an answer."""
        self.connection.send_headers(self.stream, [*HEAD, ("grpc-status", str(status)), ("grpc-message", text)], end_stream=True)

    def refuse(self, status):
        """Sends an HTTP error status without a gRPC status, as proxies do."""
        self.connection.send_headers(self.stream, [(":status", str(status)), ("content-type", "text/plain")])
        self.send_bytes(b"oops", ends=True)

    def reset(self, code):
        self.connection.reset_stream(self.stream, code)

    def go_away(self):
        self.connection.close_connection(0, last_stream_id=self.stream)
        self.close()

    def close(self):
        self.writer.write(self.connection.data_to_send())
        self.writer.close()

    def send_raw(self, data):
        """Sends bytes that are not a frame."""
        self.writer.write(self.connection.data_to_send() + data)


def scripted_grpc_server(script):
    """A server that calls `script` with each `Call`."""

    async def serve(reader, writer):
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        connection.initiate_connection()
        writer.write(connection.data_to_send())
        while data := await reader.read(1 << 16):
            for event in connection.receive_data(data):
                if isinstance(event, h2.events.StreamEnded):
                    script(Call(connection, event.stream_id, writer))
            if writer.is_closing():
                return
            writer.write(connection.data_to_send())

    return servers.scripted_server(serve)
