"""The bundled server with its gRPC methods on grpcio's server, which its own HTTP/2 is compared with.

python -m tests.oracles.grpcio_server OPTIONS
"""

import contextlib
import sys
from typing import Any

import grpc
import grpc.aio

from perfkit.errors import ProtocolError
from perfkit.protocol.compression import decompress
from server_stub import __main__ as program
from server_stub.grpc import front_end
from server_stub.grpc.calls import MAX_INFLATED_BYTES, StatusError, status_error

# grpcio hands over compressed messages as they came, but not the encoding of the call. The first bytes tell it: no protobuf message
# can begin like gzip, whose first byte would be a field of a wire type that does not exist, and no request begins like zlib, with field 15.
_ENCODINGS = {b"\x1f\x8b": "gzip", b"\x78\x01": "deflate", b"\x78\x5e": "deflate", b"\x78\x9c": "deflate", b"\x78\xda": "deflate"}


class GrpcioCall:
    """A call by grpcio; see `Call`."""

    def __init__(self, context):
        self._context = context

    @property
    def metadata(self):
        return dict(self._context.invocation_metadata() or ())

    def on_sent(self, callback):
        self._context.add_done_callback(lambda _: callback())

    async def write(self, message):
        await self._context.write(b"".join(message))


class GrpcioPort:
    """Serves methods on a port until it is stopped; see `GrpcPort`."""

    def __init__(self, methods, limits, _memory, _threads):
        self._limits = limits
        options = (("grpc.max_receive_message_length", limits.max_body_bytes), ("grpc.max_send_message_length", -1))
        # grpcio would inflate each message up to `--max-body`, and keep that memory
        self._server = grpc.aio.server(options=(*options, ("grpc.per_message_decompression", 0)))
        handlers: dict[str, Any] = {
            path: grpc.unary_unary_rpc_method_handler(self._unary(method)) for path, method in methods.unary.items()
        }
        handlers |= {path: grpc.stream_stream_rpc_method_handler(self._streaming(method)) for path, method in methods.streaming.items()}
        self._server.add_generic_rpc_handlers([_Handlers(handlers)])

    async def start(self, host, port, _tls=None):
        port = self._server.add_insecure_port(f"{host}:{port}")
        await self._server.start()
        return port

    async def stop(self):
        await self._server.stop(self._limits.stop_timeout_s)

    def _unary(self, method):
        async def respond(encoded, context):
            async with _statuses(context):
                return b"".join(await method(self._inflate(encoded), GrpcioCall(context)))

        return respond

    def _streaming(self, method):
        async def serve(requests, context):
            async with _statuses(context):
                await method((self._inflate(encoded) async for encoded in requests), GrpcioCall(context))

        return serve

    def _inflate(self, message):
        encoding = _ENCODINGS.get(message[:2])
        return message if encoding is None else decompress(message, encoding, min(self._limits.max_body_bytes, MAX_INFLATED_BYTES))


class _Handlers(grpc.GenericRpcHandler):
    """Finds the handler of a path."""

    def __init__(self, handlers):
        self._handlers = handlers

    def service(self, handler_call_details):
        return self._handlers.get(handler_call_details.method)


@contextlib.asynccontextmanager
async def _statuses(context):
    """Turns the exceptions of a method into the status of its call."""
    try:
        yield
    except StatusError as error:
        await context.abort(grpc.StatusCode[error.status.name], str(error))
    except ProtocolError as error:
        await context.abort(grpc.StatusCode[status_error(error).status.name], str(status_error(error)))


if __name__ == "__main__":
    vars(front_end)["GrpcPort"] = GrpcioPort
    sys.exit(program.main())
