"""Starting and stopping the server."""

import contextlib
import http.client
import json
import os
import queue
import signal
import socket
import subprocess
import sys
from typing import Any

import grpc
import pytest
from tritonclient.grpc import service_pb2 as triton

from server_stub.options import Limits
from tests import forked

COMMAND = [sys.executable, "-m", "server_stub"]


def run(*arguments):
    return forked.run([*COMMAND, *arguments], capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.usefixtures("starts_python")
def test_stdout_has_only_the_ready_line(start_server):
    cpu = min(os.sched_getaffinity(0))
    started = start_server("--model", "simple", "--threads", "3", "--cpus", str(cpu))
    code, stdout, stderr = started.end()
    assert started.ready == {
        "event": "ready",
        "http_port": started.http_port,
        "grpc_port": started.grpc_port,
        "metrics_port": started.metrics_port,
        "pid": started.process.pid,
        "device": "cpu",
        "threads": 3,
        "cpus": [cpu],
        "onnx": {"provider": "cpu", "instances": 1, "max_batch": 8},
    }
    assert (code, stdout) == (0, "")
    ports = f"HTTP {started.http_port}, gRPC {started.grpc_port}, metrics {started.metrics_port}"
    assert stderr.count("\n") == 1
    assert stderr.startswith(f"serving simple on 127.0.0.1: {ports}; models run on ")


def test_the_threads_leave_a_cpu_free(server):
    assert server.ready["cpus"] == sorted(os.sched_getaffinity(0))
    assert server.ready["threads"] == max(1, len(server.ready["cpus"]) - 1)


def await_refusal(port):
    """Wait until the server refuses connections."""
    with contextlib.suppress(ConnectionError):
        while True:
            socket.create_connection(("127.0.0.1", port), timeout=30).close()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_it_after_the_requests_in_flight(start_server, number):
    started = start_server("--model", "simple", "--stop-timeout=300")
    document = {"inputs": [{"name": name, "datatype": "INT32", "shape": [1, 16], "data": [1] * 16} for name in ("INPUT0", "INPUT1")]}
    body = json.dumps(document).encode()
    head = b"POST /v2/models/simple/infer HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body)
    with socket.create_connection(("127.0.0.1", started.http_port), timeout=30) as connection, connection.makefile("rb") as reader:
        connection.sendall(head)
        assert reader.readline() == b"HTTP/1.1 100 Continue\r\n"  # the request is in flight from here on
        reader.readline()
        started.process.send_signal(number)
        await_refusal(started.http_port)  # the server is stopping; the body arrives only now
        connection.sendall(body)
        assert reader.readline() == b"HTTP/1.1 200 OK\r\n"
        length = next(int(line.split(b":")[1]) for line in reader if line.lower().startswith(b"content-length"))
        while reader.readline() != b"\r\n":
            pass
        assert len(json.loads(reader.read(length))["outputs"]) == 2
    code, stdout, stderr = started.end()
    assert (code, stdout) == (0, "")
    assert "Traceback" not in stderr


def test_a_signal_stops_it_after_the_grpc_calls_in_flight(start_server):
    started = start_server("--model", "simple", "--stop-timeout=300")
    asked: queue.Queue[bytes | None] = queue.Queue()
    message = triton.ModelInferRequest(model_name="simple", raw_input_contents=[bytes(64), bytes(64)])
    for name in ("INPUT0", "INPUT1"):
        message.inputs.add(name=name, datatype="INT32", shape=[1, 16])
    with grpc.insecure_channel(f"127.0.0.1:{started.grpc_port}") as opened:
        channel: Any = opened
        answers = channel.stream_stream("/inference.GRPCInferenceService/ModelStreamInfer")(iter(asked.get, None))
        asked.put(message.SerializeToString())
        next(answers)  # the call is in flight from here on
        started.process.send_signal(signal.SIGTERM)
        await_refusal(started.grpc_port)
        asked.put(message.SerializeToString())
        asked.put(None)
        (last,) = [triton.ModelStreamInferResponse.FromString(one) for one in answers]
    assert (last.error_message, len(last.infer_response.raw_output_contents)) == ("", 2)
    code, _, stderr = started.end()
    assert (code, "Traceback" in stderr) == (0, False)


def test_endless_requests_do_not_prevent_stopping(start_server):
    started = start_server("--model", "simple", "repeat_int32", "--stop-timeout=0.5")
    post = b"POST /v2/models/%s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s"
    weeks = b'{"IN":[1,2],"DELAY":[0,2147483647],"WAIT":0}'
    with contextlib.ExitStack() as opened:
        streaming, arriving, calling = (
            opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=60))
            for port in (started.http_port, started.http_port, started.grpc_port)
        )
        streaming.sendall(post % (b"repeat_int32/generate_stream", len(weeks), weeks))
        assert streaming.recv(1 << 16)  # its second event would come in weeks
        arriving.sendall(post % (b"simple/infer", 1000, b"{"))
        calling.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
        code, _, stderr = started.end()
    assert (code, "Traceback" in stderr) == (0, False)


def test_idle_connections_do_not_prevent_stopping(start_server):
    started = start_server("--model", "simple")
    connection = http.client.HTTPConnection("127.0.0.1", started.http_port, timeout=30)
    connection.request("GET", "/v2/health/live")
    assert connection.getresponse().read() == b""
    assert started.end()[0] == 0
    connection.close()


@pytest.mark.parametrize("option", ["--http-port", "--grpc-port", "--metrics-port"])
def test_a_port_in_use_is_named(option):
    others = [word for other in ("--http-port", "--grpc-port", "--metrics-port") if other != option for word in (other, "0")]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ended = run("--model", "simple", option, str(port), *others)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert f"server_stub: Port {port} on 127.0.0.1 cannot be opened" in ended.stderr
    assert ended.stderr.count("\n") == 1


def test_a_closed_stdin_stops_it():
    command = ["/bin/sh", "-c", 'exec "$@" <&-', "sh", *COMMAND, "--model=simple", "--http-port=0", "--grpc-port=0", "--exit-with-stdin"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "" or json.loads(ended.stdout)["event"] == "ready", "it may have been stopped before it was ready"


def test_an_unusable_option_is_one_line_and_exit_code_2():
    ended = run("--http-port", "99999")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "server_stub: --http-port 99999: a port must be between 0, which selects a free one, and 65535.\n"


def test_help_names_every_option():
    ended = run("--help")
    assert ended.returncode == 0
    limits = [name.removesuffix("_bytes").removesuffix("_s") for name in Limits.__slots__]
    for option in ("allow_client_shm", "exit_with_stdin", "model", "synthetic", "tls_cert", *limits):
        assert f"--{option.replace('_', '-')}" in ended.stdout
