"""Limits on connections, calls, queues, bodies and times, tested with raw sockets."""

import contextlib
import json
import pathlib
import queue
import socket
import zlib
from typing import Any

import grpc
import psutil
import pytest
from tritonclient.grpc import service_pb2 as triton

from server_stub.http.inference import MAX_JSON_BYTES
from tests.server_stub.grpc.h2_caller import SERVICE, Caller, framed

INFER = b"POST /v2/models/simple/infer HTTP/1.1\r\nHost: x\r\n"
BODY = json.dumps(
    {"inputs": [{"name": name, "datatype": "INT32", "shape": [1, 16], "data": [1] * 16} for name in ("INPUT0", "INPUT1")]}
).encode()
WHOLE = INFER + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
LIVE = b"GET /v2/health/live HTTP/1.1\r\nHost: x\r\n\r\n"
INVALID_ARGUMENT, RESOURCE_EXHAUSTED, INTERNAL = 3, 8, 13


@pytest.fixture(scope="module")
def hasty(start_server):
    """A server with short timeouts. No test measures them."""
    timeouts = ("--head-timeout=0.5", "--body-timeout=0.5", "--write-timeout=0.5")
    with start_server("--model", "simple", "identity_fp32", *timeouts) as started:
        yield started


@pytest.fixture(scope="module")
def narrow(start_server):
    """A server with low limits."""
    limits = ("--max-connections=4", "--max-calls=2", "--max-queue=1", "--max-body=65536")
    with start_server("--model", "simple", "repeat_int32", *limits) as started:
        yield started


def connect(port):
    return socket.create_connection(("127.0.0.1", port), timeout=60)


def read_all(connection):
    """All bytes until the server closes the connection."""
    came = b""
    with contextlib.suppress(ConnectionResetError):
        while data := connection.recv(1 << 16):
            came += data
    return came


def ask(connection, request=WHOLE):
    """The status and body of one response. Status 0 if there is none."""
    with connection.makefile("rb") as reader:
        try:
            connection.sendall(request)
            line = reader.readline()
        except ConnectionError:
            line = b""
        if not line:
            return 0, b""
        headers = dict(line.rstrip().lower().split(b": ", 1) for line in iter(reader.readline, b"\r\n"))
        return int(line.split()[1]), reader.read(int(headers[b"content-length"]))


@pytest.mark.parametrize("port", ["http_port", "metrics_port"])
@pytest.mark.parametrize("head", [b"", b"GET", INFER, INFER + b"X: y\r\nContent-"], ids=["nothing", "a word", "a line", "two lines"])
def test_an_endless_head_closes_its_connection(hasty, port, head):
    with connect(getattr(hasty, port)) as connection:
        with contextlib.suppress(ConnectionError):  # on a busy machine the timeout may have passed already
            connection.sendall(head)
        assert read_all(connection) == b""


@pytest.mark.parametrize("first", [WHOLE, LIVE], ids=["infer", "another"])
def test_an_endless_later_head_closes_its_connection(hasty, first):
    status = 0
    while not status:  # see above
        with connect(hasty.http_port) as connection:
            status, _ = ask(connection, first)
            if status:
                connection.sendall(LIVE[:-4])
                assert read_all(connection) == b""
    assert status == 200


@pytest.mark.parametrize(
    "begun", [b"Content-Length: 1000\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n4\r\n{   \r\n"], ids=["length", "chunked"]
)
def test_an_endless_body_is_answered_and_closes_its_connection(hasty, begun):
    came = b""
    while not came:  # see above
        with connect(hasty.http_port) as connection, contextlib.suppress(ConnectionError):
            connection.sendall(INFER + begun)
            came = read_all(connection)
    head, _, body = came.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body) == {"error": "the body of the request did not arrive within 0.5 s"}


RAW = b"POST /v2/models/identity_fp32/infer HTTP/1.1\r\nHost: x\r\nInference-Header-Content-Length: 0\r\n"
LENGTH = RAW + b"Content-Length: 60000\r\n\r\n" + bytes(60_000)
CHUNKED = RAW + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (60_000, bytes(60_000))


@pytest.mark.parametrize("request_bytes", [LENGTH, CHUNKED], ids=["length", "chunked"])
def test_a_client_that_does_not_read_is_disconnected(hasty, request_bytes):
    def send():
        while True:  # until all buffers are full and the server's timeout has passed
            connection.sendall(request_bytes)

    with connect(hasty.http_port) as connection, pytest.raises(ConnectionError):
        send()


def test_a_surplus_connection_gets_503_at_its_first_request(narrow):
    with contextlib.ExitStack() as opened:
        statuses = [0]
        while statuses != [200] * 4 + [503]:  # connections of other tests may not be closed yet
            opened.close()
            connections = [opened.enter_context(connect(narrow.http_port)) for _ in range(5)]
            answers = [ask(connection) for connection in connections]
            statuses = [status for status, _ in answers]
        assert json.loads(answers[4][1]) == {"error": "the server has reached its limit of 4 connections"}
        assert read_all(connections[4]) == b""
        assert ask(connections[0])[0] == 200
    await_answer(narrow)


def await_answer(server):
    """Wait until a new connection is answered."""
    status = 0
    while status != 200:
        with connect(server.http_port) as connection:
            status, _ = ask(connection)


def await_call(server):
    """Wait until a call on a new connection is answered."""
    status = None
    while status != 0:
        with contextlib.suppress(ConnectionError), Caller(server.grpc_port) as caller:
            stream = caller.open("ServerLive")
            caller.send(stream, framed(b""), end=True)
            status, _, _ = caller.finish(stream)


def test_a_surplus_grpc_connection_is_closed(narrow):
    settings = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
    with contextlib.ExitStack() as opened:
        taken = 0
        while taken < 4:
            connection = opened.enter_context(connect(narrow.grpc_port))
            with contextlib.suppress(ConnectionError):
                connection.sendall(settings)
                taken += bool(connection.recv(1))
        connection = opened.enter_context(connect(narrow.grpc_port))
        with contextlib.suppress(ConnectionError):
            connection.sendall(settings)
        assert read_all(connection) == b""
    await_call(narrow)


def test_a_surplus_call_is_rejected_and_the_others_continue(narrow):
    await_call(narrow)
    with Caller(narrow.grpc_port) as caller:
        streams = [caller.open("ModelStreamInfer") for _ in range(2)]  # they count although they have sent nothing
        stream = caller.open("ServerLive")
        caller.send(stream, framed(b""), end=True)
        assert caller.finish(stream)[:2] == (RESOURCE_EXHAUSTED, "the server has reached its limit of 2 calls")
        for stream in streams:
            caller.send(stream, framed(simple_request()), end=True)
            assert caller.finish(stream)[0] == 0
    await_call(narrow)


def simple_request(**members):
    message = triton.ModelInferRequest(model_name="simple", raw_input_contents=[bytes(64), bytes(64)], **members)
    for name in ("INPUT0", "INPUT1"):
        message.inputs.add(name=name, datatype="INT32", shape=[1, 16])
    return message.SerializeToString()


def infer_simple(caller):
    stream = caller.open("ModelInfer")
    caller.send(stream, framed(simple_request()), end=True)
    assert caller.finish(stream)[0] == 0


def test_a_surplus_request_to_a_model_is_rejected(narrow):
    body = json.dumps({"IN": [1, 2], "DELAY": [0, 2**31], "WAIT": 0}).encode()  # the second response takes weeks
    head = b"POST /v2/models/repeat_int32/generate_stream HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
    await_answer(narrow)
    with connect(narrow.http_port) as first, connect(narrow.http_port) as second:
        first.sendall(head + body)
        assert first.recv(1 << 16).startswith(b"HTTP/1.1 200 ")
        status, answer = ask(second, head + body)
        assert (status, json.loads(answer)) == (503, {"error": "Exceeds maximum queue size"})
        assert ask(second)[0] == 200, "another model has its own limit"


@pytest.mark.parametrize("path", ["models/simple/infer", "repository/index", "logging", "models/simple/generate"])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_too_large_body_is_rejected(narrow, path, is_chunked):
    head = f"POST /v2/{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n".encode()
    body = b" " * 65_537
    if is_chunked:
        sent = head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    else:
        sent = head + b"Content-Length: %d\r\n\r\n" % len(body) + body
    status = 503
    while status == 503:
        with connect(narrow.http_port) as connection:
            status, answer = ask(connection, sent)
    assert (status, json.loads(answer)) == (400, {"error": "request size exceeds the maximum allowed input size of 65536 bytes"})


def test_a_too_large_body_gets_no_100_continue(narrow):
    await_answer(narrow)
    status = 503
    while status == 503:
        with connect(narrow.http_port) as connection:
            status, _ = ask(connection, INFER + b"Expect: 100-continue\r\nContent-Length: 65537\r\n\r\n")
    assert status == 400


def test_the_fast_path_has_the_same_body_limit(start_server):
    with start_server("--model", "simple", f"--max-body={len(BODY) - 1}") as tight:
        with connect(tight.http_port) as connection:
            status, answer = ask(connection)
        assert (status, json.loads(answer)) == (
            400,
            {"error": f"request size exceeds the maximum allowed input size of {len(BODY) - 1} bytes"},
        )


def test_other_expectations_are_ignored(server):
    for expected in (b"fun", b"100-Continue, fun"):
        with connect(server.http_port) as connection:
            assert ask(connection, INFER + b"Expect: %s\r\nContent-Length: %d\r\n\r\n%s" % (expected, len(BODY), BODY))[0] == 200


@pytest.mark.parametrize("path", ["models/simple/generate", "models/simple/infer", "trace/setting", "repository/index"])
def test_json_is_limited_as_in_triton(server, path):
    size = MAX_JSON_BYTES + 1
    with connect(server.http_port) as connection:
        status, answer = ask(
            connection, b"POST /v2/%s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (path.encode(), size) + bytes(size)
        )
    text = f"request JSON size of {size} bytes exceeds the maximum allowed input size of {MAX_JSON_BYTES} bytes"
    assert (status, json.loads(answer)) == (400, {"error": text})


def test_a_too_large_message_is_rejected(narrow):
    await_call(narrow)
    with Caller(narrow.grpc_port) as caller:
        stream = caller.open("ModelInfer")
        caller.send(stream, framed(simple_request(id="x" * 65_536)), end=True)
        assert caller.finish(stream)[0] == RESOURCE_EXHAUSTED
        infer_simple(caller)


def test_a_message_too_large_after_decompression_is_rejected(narrow):
    packing = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    bomb = b"".join([*(packing.compress(bytes(1 << 20)) for _ in range(40)), packing.flush()])
    assert len(bomb) < 1 << 16
    await_call(narrow)
    with Caller(narrow.grpc_port) as caller:
        stream = caller.open("ModelInfer", (b"grpc-encoding", b"gzip"))
        caller.send(stream, framed(bomb, packed=True), end=True)
        assert caller.finish(stream)[0] == RESOURCE_EXHAUSTED
        infer_simple(caller)


@pytest.fixture(scope="module")
def bomb():
    """300 MiB of zeros, compressed to 300 KiB."""
    packing = zlib.compressobj(1, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    return b"".join([*(packing.compress(bytes(1 << 20)) for _ in range(300)), packing.flush()])


@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer", "ModelReady"])
def test_compression_bombs_are_refused_before_they_are_inflated_and_leave_no_memory_behind(start_server, bomb, method):
    with start_server("--model", "simple") as server, Caller(server.grpc_port) as caller:
        infer_simple(caller)
        before_bytes = psutil.Process(server.process.pid).memory_info().rss
        streams = [caller.open(method, (b"grpc-encoding", b"gzip")) for _ in range(4)]
        for stream in streams:
            caller.send(stream, framed(bomb, packed=True), end=True)
        for stream in streams:
            status, text, _ = caller.finish(stream)
            assert (status, text) == (
                RESOURCE_EXHAUSTED,
                "the gzip body exceeds the maximum allowed input size of 67108864 bytes when decompressed",
            )
        infer_simple(caller)
        assert peak_bytes(server.process.pid) - before_bytes < 200 * 2**20
        assert psutil.Process(server.process.pid).memory_info().rss - before_bytes < 50 * 2**20


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [(b"gzip", b"\x1f\x8b broken"), (b"deflate", b"\x78\x9c broken"), (b"gzip", zlib.compress(b"x" * 100, wbits=zlib.MAX_WBITS | 16)[:-9])],
)
def test_a_damaged_compressed_message_is_refused(server, encoding, packed):
    with Caller(server.grpc_port) as caller:
        for method in ("ModelInfer", "ModelStreamInfer"):
            stream = caller.open(method, (b"grpc-encoding", encoding))
            caller.send(stream, framed(packed, packed=True), end=True)
            status, text, _ = caller.finish(stream)
            assert status == INVALID_ARGUMENT
            assert "cannot be decompressed" in text or "ends too early" in text
        infer_simple(caller)


@pytest.mark.parametrize(("encoding", "wbits"), [(b"gzip", zlib.MAX_WBITS | 16), (b"deflate", zlib.MAX_WBITS)])
def test_compressed_messages_of_a_stream_are_answered(server, encoding, wbits):
    packed = zlib.compress(simple_request(id="compressed"), wbits=wbits)
    with Caller(server.grpc_port) as caller:
        stream = caller.open("ModelStreamInfer", (b"grpc-encoding", encoding))
        caller.send(stream, framed(packed, packed=True) + framed(simple_request(id="plain")), end=True)
        status, _, data = caller.finish(stream)
    assert status == 0
    assert data.index(b"compressed") < data.index(b"plain")


def peak_bytes(pid):
    """The kernel's VmHWM."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def test_endless_messages_do_not_delay_others(server):
    with contextlib.ExitStack() as opened:
        for _ in range(20):
            slow = opened.enter_context(Caller(server.grpc_port))
            slow.send(slow.open("ModelInfer"), framed(simple_request())[:-10])
        caller = opened.enter_context(Caller(server.grpc_port))
        for _ in range(20):
            infer_simple(caller)


def test_a_message_shorter_than_its_length_fails_its_call(server):
    with Caller(server.grpc_port) as caller:
        stream = caller.open("ModelInfer")
        caller.send(stream, framed(simple_request())[:-10], end=True)
        assert caller.finish(stream) == (INTERNAL, "the request ends before its message does", b"")
        infer_simple(caller)


def test_after_a_method_name_that_is_not_utf_8_calls_in_flight_are_answered(start_server):
    started = start_server("--model", "simple")
    asked: queue.Queue[bytes | None] = queue.Queue()
    with grpc.insecure_channel(f"127.0.0.1:{started.grpc_port}") as opened:
        channel: Any = opened
        answers = channel.stream_stream(f"{SERVICE}/ModelStreamInfer")(iter(asked.get, None))
        asked.put(simple_request(id="1"))
        assert triton.ModelStreamInferResponse.FromString(next(answers)).infer_response.id == "1"
        for _ in range(2):
            with Caller(started.grpc_port) as breaking, contextlib.suppress(ConnectionError):
                stream = breaking.open(b"/inference.GRPCInferenceService/\xff\xfe")
                breaking.send(stream, framed(b""), end=True)
                assert breaking.finish(stream)[0] != 0
            await_call(started)
        asked.put(simple_request(id="2"))
        asked.put(None)
        assert [triton.ModelStreamInferResponse.FromString(one).infer_response.id for one in answers] == ["2"]
    code, _, stderr = started.end()
    assert (code, "Traceback" in stderr) == (0, False)


def test_by_default_it_listens_on_the_loopback_only(server):
    for port in (server.http_port, server.grpc_port, server.metrics_port):
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), timeout=60)  # it is this machine's too, and another address


def test_it_listens_on_the_given_host(start_server):
    started = start_server("--model", "simple", "--host", "127.0.0.2")
    for port in (started.http_port, started.grpc_port, started.metrics_port):
        socket.create_connection(("127.0.0.2", port), timeout=60).close()
    # another program may listen at the same port of 127.0.0.1, so that a refused connection would not tell
    listening = [one.laddr for one in psutil.Process(started.process.pid).net_connections("inet") if one.status == psutil.CONN_LISTEN]
    assert {place.ip.removeprefix("::ffff:") for place in listening} == {"127.0.0.2"}
    assert started.end()[0] == 0
