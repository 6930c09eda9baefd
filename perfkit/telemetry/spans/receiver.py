"""Receives spans over OTLP/HTTP (opentelemetry.io/docs/specs/otlp, "OTLP/HTTP"): JSON or protobuf, compressed by gzip or not.

Whoever sends, the receiver holds at most 16 bodies of 4 MiB at a time, and reads the spans of one at a time.
"""

import contextlib
import json
import os
import threading
import zlib

from perfkit.clock import Clock
from perfkit.digits import whole_number
from perfkit.errors import ProtocolError
from perfkit.spans.formats import read_json, read_protobuf
from perfkit.telemetry.bounded_server import BoundedHandler, BoundedServer
from perfkit.telemetry.messages import SpansConfig
from perfkit.telemetry.spans.collected import CollectedSpans

PATH, JSON, PROTOBUF = "/v1/traces", "application/json", "application/x-protobuf"
LARGEST_BODY_BYTES = 4 * 2**20
"""The limit of one body, also after decompression."""
NICENESS = 10
_DRAINED_BYTES, _PIECE_BYTES = 64 * 2**20, 2**16
_INVALID_ARGUMENT = 3  # of google.rpc.Code


class _RefusedError(Exception):
    """A request that is answered with an error; the connection is closed unless its body was read."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status, self.message = status, message


class SpanReceiver:
    """Receives spans until it is closed; raises OSError if it cannot listen."""

    def __init__(self, config: SpansConfig, clock: Clock) -> None:
        import opentelemetry.proto.collector.trace.v1.trace_service_pb2  # noqa: F401 - now, and not while the first request waits

        self.collected = CollectedSpans(config.most_traces, clock)
        self._server = _Server((config.host, config.port), self.collected, config.run_prefix, clock)
        self.port: int = self._server.server_address[1]
        self.close = self._server.serve("spans")
        """Stops listening, and ends all connections."""


class _Server(BoundedServer):
    def __init__(self, address: tuple[str, int], collected: CollectedSpans, run_prefix: str, clock: Clock) -> None:
        self.collected, self.run_prefix = collected, run_prefix
        self.reading = threading.Lock()
        super().__init__(address, _Handler, clock)


class _Handler(BoundedHandler):
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        # spans come in bursts, which must not hold up the load generator on a machine with few CPUs
        thread = threading.get_native_id()
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, thread, max(NICENESS, os.getpriority(os.PRIO_PROCESS, thread)))
        super().setup()

    def do_POST(self) -> None:  # noqa: N802 - the library's name
        content_type = self.headers.get_content_type()
        try:
            body, is_compressed = self._received(content_type)
            with self.server.reading:  # one at a time: the memory of one, and the samplers' threads have their turns in between
                rejected = self._collect(decompressed(body) if is_compressed else body, content_type)
        except _RefusedError as refused:
            self.server.collected.refuse()
            self.close_connection = True
            self._answer(refused.status, content_type, _status_message(content_type, refused.message))
        else:
            self._answer(200, content_type, _response(content_type, rejected))

    def _received(self, content_type: str) -> tuple[bytes, bool]:
        """The body, and whether it is compressed."""
        if self.path.partition("?")[0] != PATH:
            raise _RefusedError(404, f"perfkit receives traces at {PATH}")
        if content_type not in (JSON, PROTOBUF):
            raise _RefusedError(415, f"perfkit receives {JSON} and {PROTOBUF}")
        encoding = self.headers.get("Content-Encoding", "identity").strip().lower()
        if encoding not in ("gzip", "identity"):
            raise _RefusedError(415, "perfkit receives bodies compressed by gzip, or not compressed")
        body = self._read_body()
        if not self.server.has_come(self.connection):
            raise _RefusedError(408, "the request took too long")
        return body, encoding == "gzip"

    def _collect(self, body: bytes, content_type: str) -> int:
        """Keeps the spans of a body; the number of those that were malformed."""
        read_body = read_json if content_type == JSON else read_protobuf
        try:
            read = read_body(body, self.server.run_prefix)
        except ProtocolError as error:
            raise _RefusedError(400, str(error)) from None
        self.server.collected.add(read)
        return read.malformed

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").strip().lower() == "chunked":
            return self._read_chunks()
        length = whole_number(self.headers.get("Content-Length", ""))
        if length is None:
            raise _RefusedError(411, "the request needs a Content-Length, or chunks")
        return self._read(length)

    def _read_chunks(self) -> bytes:
        body = bytearray()
        while True:
            size = self.rfile.readline(_PIECE_BYTES).partition(b";")[0].strip()
            try:
                length = int(size, 16)
            except ValueError:
                raise _RefusedError(400, "a chunk has no length") from None
            if length <= 0:
                break
            body += self._read(length, len(body))
            self.rfile.readline(_PIECE_BYTES)
        while self.rfile.readline(_PIECE_BYTES).strip():
            pass  # trailers
        return bytes(body)

    def _read(self, length: int, read_before: int = 0) -> bytes:
        """The next bytes of the body. If they are too many, some are read all the same: a client that still sends reads no answer."""
        if read_before + length > LARGEST_BODY_BYTES:
            left = min(length, _DRAINED_BYTES)
            while left > 0 and (piece := self.rfile.read(min(left, _PIECE_BYTES))):
                left -= len(piece)
            raise _too_large()
        data = self.rfile.read(length)
        if len(data) < length:
            raise _RefusedError(400, "the body broke off")
        return data

    def _answer(self, status: int, content_type: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type if content_type == PROTOBUF else JSON)
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)


_MOST_MEMBERS = 16


def decompressed(body: bytes) -> bytes:
    """A gzip body, of one or several members, without its compression; raises _RefusedError if it is none or too large."""
    data, members = bytearray(), 0
    while body:
        if (members := members + 1) > _MOST_MEMBERS:  # empty ones would take time without an end
            raise _RefusedError(400, f"the body has more than {_MOST_MEMBERS} gzip members")
        member = zlib.decompressobj(wbits=31)  # with a gzip header
        try:
            data += member.decompress(body, LARGEST_BODY_BYTES + 1 - len(data))
        except zlib.error:
            raise _RefusedError(400, "the body is not compressed by gzip") from None
        if len(data) > LARGEST_BODY_BYTES:
            raise _too_large()
        if not member.eof:
            raise _RefusedError(400, "the compressed body broke off")
        body = member.unused_data
    return bytes(data)


def _too_large() -> _RefusedError:
    return _RefusedError(413, f"a body has at most {LARGEST_BODY_BYTES} bytes, also without its compression; send smaller batches")


def _response(content_type: str, rejected: int) -> bytes:
    """An `ExportTraceServiceResponse`, empty if all spans were accepted."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

    if content_type == JSON:
        return json.dumps({"partialSuccess": {"rejectedSpans": str(rejected), "errorMessage": "malformed"}} if rejected else {}).encode()
    response = ExportTraceServiceResponse()
    if rejected:
        response.partial_success.rejected_spans, response.partial_success.error_message = rejected, "malformed"
    return response.SerializeToString()


def _status_message(content_type: str, message: str) -> bytes:
    """A `google.rpc.Status`, which answers refused requests."""
    if content_type != PROTOBUF:
        return json.dumps({"code": _INVALID_ARGUMENT, "message": message}).encode()
    text = message.encode()[:127]  # lengths up to this take one byte
    return bytes((1 << 3, _INVALID_ARGUMENT, 2 << 3 | 2, len(text))) + text
