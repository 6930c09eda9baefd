"""Hostile clients of `perfkit record`, each beside a good neighbour that must be answered right meanwhile."""

import contextlib
import gzip
import http.client
import json
import os
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from perfkit.calibration.canned_server import OUTPUT_VALUES
from perfkit.protocol import http2
from tests.server_stub.grpc.h2_caller import Caller, framed

_MIB = 2**20
_STARTS_WITHIN_S, _ANSWERED_WITHIN_S = 30, 10
_BODY = json.dumps({"inputs": [{"name": f"INPUT{key}", "datatype": "INT32", "shape": [1, 16], "data": [key + 1] * 16} for key in range(2)]})
_RIGHT = {"simple": b'"data":[%b]' % b",".join([b"3"] * 16), "canned": struct.pack("<32f", *OUTPUT_VALUES)}
"""What is in each right answer of a model."""


class NeighbourError(Exception):
    """The neighbour's request was not answered right, or not in time."""


@contextlib.contextmanager
def neighbour(ready: Mapping[str, Any]) -> Iterator[None]:
    """Sends a request every 50 ms for the length of the block; raises NeighbourError at its end if one fails."""
    must_end, failures, times_s = threading.Event(), list[str](), list[float]()

    def send() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", ready["http_port"], timeout=_ANSWERED_WITHIN_S)
        while not must_end.wait(0.05):
            started_s = time.monotonic()
            try:
                connection.request("POST", _path(ready), _BODY)
                answer = connection.getresponse().read()
                if _RIGHT[ready["model"]] not in answer:
                    failures.append(f"wrong answer: {answer!r:.200}")
            except (OSError, http.client.HTTPException) as error:
                failures.append(repr(error))
                connection.close()
            times_s.append(time.monotonic() - started_s)

    end_s = time.monotonic() + _STARTS_WITHIN_S
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", ready["http_port"])):
            break
        if time.monotonic() > end_s:
            raise NeighbourError("the proxy does not listen")
        time.sleep(0.05)
    thread = threading.Thread(target=send)
    thread.start()
    try:
        time.sleep(1)
        yield
        time.sleep(1)
    finally:
        must_end.set()
        thread.join()
    print(f"neighbour: {len(times_s)} requests, the slowest in {max(times_s):.3f} s", flush=True)
    if failures:
        raise NeighbourError(failures[0])


def _connect(ready: Mapping[str, Any], protocol: str = "http") -> socket.socket:
    return socket.create_connection(("127.0.0.1", ready[f"{protocol}_port"]), timeout=60)


def _path(ready: Mapping[str, Any]) -> str:
    return f"/v2/models/{ready['model']}/infer"


def _head(ready: Mapping[str, Any], *fields: str) -> bytes:
    lines = [f"POST {_path(ready)} HTTP/1.1", "Host: h", *fields, "", ""]
    return "\r\n".join(lines).encode()


def _send(ready: Mapping[str, Any], *parts: bytes, protocol: str = "http", waits_s: float = 5) -> None:
    """Sends bytes on a connection, and waits for an answer or the end; the server may close it at any time."""
    with contextlib.suppress(OSError), _connect(ready, protocol) as connection:
        for part in parts:
            connection.sendall(part)
        connection.settimeout(waits_s)
        connection.recv(65536)


def send_json_bombs(ready: Mapping[str, Any]) -> None:
    """245 kB that unpack to 84 million empty lists, four times."""
    body = gzip.compress(b'{"inputs":[' + b"[]," * 84_000_000 + b"[]]}")
    for _ in range(4):
        _send(ready, _head(ready, f"Content-Length: {len(body)}", "Content-Encoding: gzip"), body)


def send_nested(ready: Mapping[str, Any]) -> None:
    """Lists nested ten million levels deep, and documents of two million objects."""
    for body in (b"[" * 10_000_000, b'{"inputs":[' + b'{"a":{}},' * 1_900_000 + b"{}]}", b'{"id":' + b"9" * 20_000_000 + b"}"):
        _send(ready, _head(ready, f"Content-Length: {len(body)}"), body)


def send_headers(ready: Mapping[str, Any]) -> None:
    """HEADERS frames of 16 MiB of indexed fields, and a block that CONTINUATION frames never end."""
    opening = http2.PREFACE + http2.settings({})
    block = b"\xbe" * http2.LARGEST_FRAME_BYTES
    for _ in range(2):
        _send(ready, opening, http2.frame(http2.HEADERS, http2.END_HEADERS, 1, block), protocol="grpc")
    pieces = [http2.frame(http2.CONTINUATION, 0, 1, b"\xbe" * 16384)] * 2000
    _send(ready, opening, http2.frame(http2.HEADERS, 0, 1, b"\xbe"), *pieces, protocol="grpc")


def send_tables(ready: Mapping[str, Any]) -> None:
    """Header blocks that fill a dynamic table of 4 GiB."""
    opening = http2.PREFACE + http2.settings({})
    size = b"\x3f\xe0\xff\xff\xff\x0f"
    entries = b"".join(b"\x40\x04%04x\x7f\xe1\x3e" % key + b"v" * 8160 for key in range(2))
    blocks = [http2.frame(http2.HEADERS, http2.END_HEADERS, 2 * key + 1, (b"" if key else size) + entries) for key in range(10_000)]
    _send(ready, opening, *blocks, protocol="grpc")


def hold_bodies(ready: Mapping[str, Any]) -> None:
    """Eight open bodies of 250 MiB each."""
    connections = [_connect(ready) for _ in range(8)]
    for connection in connections:
        connection.sendall(_head(ready, f"Content-Length: {300 * _MIB}"))
    for _ in range(250):
        for connection in connections:
            connection.sendall(bytes(_MIB))
    for connection in connections:
        connection.close()


def hold_messages(ready: Mapping[str, Any]) -> None:
    """Forty gRPC messages of 64 MiB that are never whole, of padded frames."""
    opening = http2.PREFACE + http2.settings({})
    with Caller(ready["grpc_port"]) as caller:  # type: ignore[no-untyped-call]  # the tests' functions are not typed
        caller.open("ServerLive")  # whose header block is not needed below, but the server's patience is
    path = b"/inference.GRPCInferenceService/ModelInfer"
    block = b"\x83\x86\x44%c%b\x41\x01h\x40\x02te\x08trailers" % (len(path), path)
    frame = http2.frame(http2.DATA, http2.PADDED, 1, b"\xff" + bytes(16383))
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            connection = stack.enter_context(_connect(ready, "grpc"))
            with contextlib.suppress(OSError):
                connection.sendall(opening + http2.frame(http2.HEADERS, http2.END_HEADERS, 1, block))
                connection.sendall(http2.frame(http2.DATA, 0, 1, b"\0" + (64 * _MIB).to_bytes(4)))
                connection.settimeout(0.2)
                for _ in range(250):
                    connection.sendall(frame)


def open_streams(ready: Mapping[str, Any]) -> None:
    """20,000 calls on each of five connections, none of which ends."""
    opening = http2.PREFACE + http2.settings({})
    path = b"/inference.GRPCInferenceService/ModelInfer"
    block = b"\x83\x86\x44%c%b\x41\x01h" % (len(path), path)
    frames = b"".join(
        http2.frame(http2.HEADERS, http2.END_HEADERS, 2 * key + 1, block) + http2.frame(http2.DATA, 0, 2 * key + 1, b"\0\0\0\1")
        for key in range(20_000)
    )
    for _ in range(5):
        _send(ready, opening, frames, protocol="grpc", waits_s=1)


def idle(ready: Mapping[str, Any]) -> None:
    """3,000 clients that say nothing."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with contextlib.ExitStack() as stack:
        for _ in range(3000):
            stack.enter_context(_connect(ready))
        time.sleep(3)


def come_and_go(ready: Mapping[str, Any]) -> None:
    """5,000 connections that are reset at once, or speak something else."""
    for key in range(5000):
        connection = _connect(ready, "grpc" if key % 2 else "http")
        with contextlib.suppress(OSError):
            connection.sendall(os.urandom(100) if key % 3 else b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()


def send_tiny_chunks(ready: Mapping[str, Any]) -> None:
    """A body of 1.6 million chunks of a byte."""
    _send(ready, _head(ready, "Transfer-Encoding: chunked"), *[b"1\r\nx\r\n" * 160_000] * 10)


def send_endless_heads(ready: Mapping[str, Any]) -> None:
    """A header, a target and a trailer that do not end, of 100 MiB each."""
    for start in (f"POST {_path(ready)} HTTP/1.1\r\nx: ".encode(), b"POST /", _head(ready, "Transfer-Encoding: chunked") + b"0\r\nx: "):
        _send(ready, start, *[b"x" * _MIB] * 100)


def name_models(ready: Mapping[str, Any]) -> None:
    """20,000 requests for models of different names, of 3 kB each."""
    connection = _connect(ready)
    for key in range(20_000):
        connection.sendall(f"POST /v2/models/{key}{'x' * 3000}/infer HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{{}}".encode())
        connection.recv(65536)


def read_nothing(ready: Mapping[str, Any]) -> None:
    """300 clients that ask for answers of 2 MiB and read none of them."""
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1, _MIB // 2], "parameters": {"binary_data_size": 2 * _MIB}}
    document = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    head = (
        f"POST /v2/models/identity_fp32/infer HTTP/1.1\r\nHost: h\r\nInference-Header-Content-Length: {len(document)}\r\n"
        f"Content-Length: {len(document) + 2 * _MIB}\r\n\r\n"
    ).encode()
    with contextlib.ExitStack() as stack:
        for _ in range(300):
            stack.enter_context(_connect(ready)).sendall(head + document + bytes(2 * _MIB))
        time.sleep(3)


def send_gzip_members(ready: Mapping[str, Any]) -> None:
    """Bodies of 64 MB of empty gzip members."""
    body = gzip.compress(b"") * 3_200_000
    for _ in range(4):
        _send(ready, _head(ready, f"Content-Length: {len(body)}", "Content-Encoding: gzip"), body)


def compress_messages(ready: Mapping[str, Any]) -> None:
    """Messages over gRPC that inflate to 1,000 MiB."""
    bomb = gzip.compress(bytes(1000 * _MIB))
    with Caller(ready["grpc_port"]) as caller:  # type: ignore[no-untyped-call]  # as above
        for _ in range(4):
            stream = caller.open("ModelInfer", (b"grpc-encoding", b"gzip"))
            caller.send(stream, framed(bomb, packed=True), end=True)  # type: ignore[no-untyped-call]  # as above
            caller.finish(stream)


def send_tensors(ready: Mapping[str, Any], end_s: float = 10) -> None:
    """Honest requests of 10.8 MB, whose tensors are JSON, from two clients, for so many seconds."""
    body = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1350000],"data":[' + b"0.12345," * 1_349_999 + b"0.12345]}]}"
    end_s += time.monotonic()

    def send() -> None:
        connection = http.client.HTTPConnection("127.0.0.1", ready["http_port"])
        while time.monotonic() < end_s:
            connection.request("POST", _path(ready), body)
            connection.getresponse().read()
            time.sleep(0.1)

    threads = [threading.Thread(target=send) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


HOSTILE: Mapping[str, Callable[[Mapping[str, Any]], None]] = {
    "84 million lists in 245 kB of gzip": send_json_bombs, "nested and numerous JSON": send_nested, "headers of 16 MiB": send_headers,
    "a header table of 4 GiB": send_tables, "eight open bodies of 250 MiB": hold_bodies, "forty open messages, padded": hold_messages,
    "100,000 open calls": open_streams, "3,000 idle clients": idle, "5,000 connections of other protocols": come_and_go,
    "chunks of a byte": send_tiny_chunks, "heads without an end": send_endless_heads, "20,000 models": name_models,
    "300 clients that do not read": read_nothing, "empty gzip members": send_gzip_members, "gRPC compression bombs": compress_messages,
    "JSON tensors of 10.8 MB": send_tensors,
}  # fmt: skip


READ = frozenset({"chunks of a byte", "300 clients that do not read", "heads without an end"})
"""The clients for the bundled server's model `simple`; the others are for the canned server, which does not read what it gets."""


def beside_neighbour(name: str) -> Callable[[Mapping[str, Any]], None]:
    """The hostile client of that name, with a neighbour."""

    def run(ready: Mapping[str, Any]) -> None:
        ready_for = {**ready, "model": "simple" if name in READ else "canned"}
        with neighbour(ready_for):
            HOSTILE[name](ready_for)

    return run
