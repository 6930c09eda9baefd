"""`perfkit record` in front of the bundled server: Triton's own clients pass through it, and the trace is replayed."""

import asyncio
import contextlib
import json
import queue
import re
import signal
import socket
import subprocess
import sys
import threading

import numpy as np
import psutil
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http

from perfkit.cli.main import main
from perfkit.trace.reader import read_trace
from tests import forked
from tests.conditions import until
from tests.json_server import serving, v2_handler

WAIT_S = 60


class Recorder:
    """A running `perfkit record` between the clients and the bundled server."""

    def __init__(self, server, out, *options):
        self.out = out
        arguments = ["--listen", "http://127.0.0.1:0", "--target", server.http, "--listen", "grpc://127.0.0.1:0", "--target", server.grpc]
        self.process = forked.start(
            [sys.executable, "-m", "perfkit", "record", *arguments, "--out", str(out), "--format", "json", *options],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        lines = list[str]()
        while "Ctrl-C" not in (line := self.process.stderr.readline()):
            assert line, "".join(lines)
            lines.append(line)
        self.http, self.grpc = (re.findall(rf"listening on {scheme}://(\S+)", "".join(lines))[0] for scheme in ("http", "grpc"))

    def end(self, number=signal.SIGINT):
        self.process.send_signal(number)
        stdout, stderr = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, json.loads(stdout) if stdout else None, stderr


@pytest.fixture
def record(server, tmp_path):
    running = []

    def start(name="t.jsonl", *options):
        running.append(Recorder(server, tmp_path / name, *options))
        return running[-1]

    yield start
    for one in running:
        if one.process.poll() is None:
            one.process.kill()
            one.process.communicate()


def inputs(module, value, batch=1):
    tensors = [module.InferInput(name, [batch, 16], "INT32") for name in ("INPUT0", "INPUT1")]
    for tensor in tensors:
        tensor.set_data_from_numpy(np.full((batch, 16), value, dtype=np.int32))
    return tensors


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_every_v2_call_passes_and_inferences_are_recorded(record):
    recorder = record("t.jsonl", "--payloads", "full")
    with contextlib.closing(triton_http.InferenceServerClient(recorder.http)) as client:
        assert client.is_server_live()
        assert client.is_model_ready("simple")
        assert client.get_server_metadata()["name"]
        assert client.get_model_config("simple")["name"] == "simple"
        assert client.get_model_repository_index()
        for value in (1, 2, 1):
            answer = client.infer("simple", inputs(triton_http, value), request_id="secret", headers={"Authorization": "Bearer 0123456789"})
            assert answer.as_numpy("OUTPUT0").tolist() == [[2 * value] * 16]
        assert client.get_inference_statistics("simple")["model_stats"]
    with contextlib.closing(triton_grpc.InferenceServerClient(recorder.grpc)) as client:
        assert client.is_server_ready()
        assert client.get_model_metadata("simple").name == "simple"
        answer = client.infer("simple", inputs(triton_grpc, 5, batch=2), client_timeout=WAIT_S)
        assert answer.as_numpy("OUTPUT0").tolist() == [[10] * 16] * 2
        answers: queue.SimpleQueue[tuple[triton_grpc.InferResult, Exception | None]] = queue.SimpleQueue()
        client.start_stream(lambda result, error: answers.put((result, error)))
        for value in (7, 8):
            client.async_stream_infer("simple", inputs(triton_grpc, value))
        sums = [answers.get(timeout=WAIT_S)[0].as_numpy("OUTPUT0")[0, 0] for _ in range(2)]
        assert sums == [14, 16]
        client.stop_stream()
    code, summary, stderr = recorder.end()
    assert (code, "Traceback" in stderr) == (0, False)
    assert summary["calls"] == [{"model": "simple", "call": "infer", "requests": 4}, {"model": "simple", "call": "stream", "requests": 2}]
    assert 0 < summary["added_delay_ns"]["p50"] <= summary["added_delay_ns"]["p99"] <= summary["added_delay_ns"]["max"]
    assert not any(summary["not_recorded"].values())
    written = rows(recorder.out)
    assert [row["call"] for row in written] == ["infer"] * 4 + ["stream"] * 2
    assert [row["shapes"]["INPUT0"] for row in written] == [[1, 16]] * 3 + [[2, 16]] + [[1, 16]] * 2
    assert [row["payload"] for row in written].index(written[2]["payload"]) == 0  # the third request is the first one again
    everything = recorder.out.read_bytes() + b"".join(path.read_bytes() for path in recorder.out.with_suffix(".payloads").iterdir())
    assert b"0123456789" not in everything
    assert b"secret" not in everything
    assert summary["payloads"]["distinct"] == len({row["payload"] for row in written}) == 5


@pytest.mark.parametrize(("name", "payloads"), [("t.csv", "hash"), ("t.parquet", "full"), ("t.jsonl", "none")])
def test_a_recorded_trace_is_read_and_replayed_over_the_other_protocol(perfkit, record, server, write_scenario, name, payloads):
    pytest.importorskip("pyarrow")
    recorder = record(name, "--payloads", payloads)
    with contextlib.closing(triton_http.InferenceServerClient(recorder.http)) as client:
        for value in (1, 2, 1):
            client.infer("simple", inputs(triton_http, value, batch=value))
    assert recorder.end()[0] == 0
    trace = read_trace(recorder.out)
    assert trace.instants_ns.size == 3
    assert bool(trace.contents[0].payload) == (payloads != "none")
    assert recorder.out.with_suffix(".payloads").exists() == (payloads == "full")
    scenario = write_scenario(
        target={"url": server.grpc, "model": "simple"},
        load={"replay": {"trace": str(recorder.out), "speed": 0.5}},
        measure={"repetitions": 1},
        telemetry=False,
    )
    (point,) = perfkit.measure(scenario).result["points"]
    assert (point["requests"]["scheduled"], point["requests"]["ok"]) == (3, 3)
    assert point["inferences_per_s"] == pytest.approx(point["throughput_per_s"] * 4 / 3)


def test_a_killed_recorder_leaves_a_trace_of_what_it_passed_on(record):
    recorder = record("t.csv", "--payloads", "full")
    with contextlib.closing(triton_http.InferenceServerClient(recorder.http)) as client:
        for value in range(5):
            client.infer("simple", inputs(triton_http, value))
        while recorder.out.read_text().count("\n") < 6:  # the thread that writes is not waited for by the answers
            threading.Event().wait(0.01)
        recorder.end(signal.SIGKILL)
    assert read_trace(recorder.out).instants_ns.size == 5


def test_a_connection_of_another_protocol_is_passed_on_and_reported(record):
    recorder = record()
    host, port = recorder.grpc.split(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as connection:
        connection.sendall(b"GET /v2 HTTP/1.1\r\nHost: h\r\n\r\n" + bytes(100))
        with contextlib.suppress(ConnectionError):
            while connection.recv(4096):
                pass
    code, summary, stderr = recorder.end()
    assert code == 0
    assert summary["not_recorded"]["unreadable_connections"] == 1
    assert summary["not_recorded"]["bytes"] == summary["client_bytes"] > 0
    assert "a connection is passed on, but not recorded: the client does not send HTTP/2" in stderr


def test_a_server_that_goes_away_is_named_and_clients_are_disconnected(tmp_path):
    gone = socket.create_server(("127.0.0.1", 0))
    url = f"http://127.0.0.1:{gone.getsockname()[1]}"
    command = ["record", "--listen", "http://127.0.0.1:0", "--target", url, "--out", str(tmp_path / "t.jsonl")]
    process = forked.start([sys.executable, "-m", "perfkit", *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        listening = process.stderr.readline()
        gone.close()  # the trial connection was only queued
        port = int(re.findall(r"listening on http://127\.0\.0\.1:(\d+)", listening)[0])
        with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as connection, contextlib.suppress(ConnectionError):
            assert connection.recv(1) == b""
        process.send_signal(signal.SIGTERM)
        _, stderr = process.communicate(timeout=WAIT_S)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode == 0
    assert f"{url} cannot be reached" in stderr


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--listen", "http://127.0.0.1:0"], 2, "required: --target"),
        (["--listen", "http://127.0.0.1:0", "--listen", "grpc://127.0.0.1:0", "--target", "http://127.0.0.1:9"], 2, "found 2 and 1"),
        (["--listen", "grpc://127.0.0.1:0", "--target", "http://127.0.0.1:9"], 2, "speak different protocols"),
        (["--listen", "https://127.0.0.1:0", "--target", "http://127.0.0.1:9"], 2, "does not speak TLS to clients"),
        (["--listen", "http://127.0.0.1:0", "--target", "http://me:pass0123@127.0.0.1:9"], 2, "http://<redacted>@127.0.0.1:9"),
        (["--listen", "http://127.0.0.1:0", "--target", "http://127.0.0.1:9/team"], 2, "a prefix belongs into the clients' URLs"),
        (["--listen", "http://127.0.0.1:0", "--target", "http://127.0.0.1:9", "--duration", "x"], 2, "--duration"),
        (["--listen", "http://127.0.0.1:0", "--target", "http://127.0.0.1:9"], 6, "http://127.0.0.1:9 cannot be reached"),
    ],
)
def test_what_cannot_be_recorded_is_reported(perfkit, tmp_path, options, code, message):
    finished = perfkit.run("record", *options, "--out", tmp_path / "t.jsonl")
    assert (finished.code, message in finished.stderr) == (code, True), finished.stderr
    assert "pass0123" not in finished.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_trace_is_not_overwritten_and_its_name_says_its_format(perfkit, server, tmp_path):
    (tmp_path / "t.jsonl").write_text("kept")
    for name, message in (("t.jsonl", "exists already"), ("t.txt", "ends in .jsonl, .csv, .parquet")):
        finished = perfkit.run("record", "--listen", "http://127.0.0.1:0", "--target", server.http, "--out", tmp_path / name)
        assert (finished.code, message in finished.stderr) == (2, True), finished.stderr
    assert (tmp_path / "t.jsonl").read_text() == "kept"


def test_a_port_in_use_is_named_and_leaves_no_file(perfkit, server, tmp_path):
    finished = perfkit.run("record", "--listen", server.http, "--target", server.http, "--out", tmp_path / "t.jsonl")
    assert (finished.code, "cannot listen there" in finished.stderr) == (2, True), finished.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_recorder_that_dies_leaves_a_whole_trace_and_what_is_known(monkeypatch, capsys, tmp_path):
    """In this process; the one that records is killed once a request is in its file."""
    pytest.importorskip("pyarrow")
    tasks, rows_file, requested = [], tmp_path / "t.jsonl", b"POST /v2/models/m/infer HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}"

    async def exchange(listen):
        reader, writer = await asyncio.open_connection("127.0.0.1", listen.port)
        writer.write(requested)
        await reader.readuntil(b"\r\n\r\n")
        await until(rows_file.read_bytes)
        (recorder,) = (one for one in psutil.Process().children() if "perfkit.proxy.observer_process" in " ".join(one.cmdline()))
        recorder.kill()
        signal.raise_signal(signal.SIGINT)
        writer.close()

    monkeypatch.setattr("perfkit.cli.record._say_routes", lambda routes: tasks.append(asyncio.ensure_future(exchange(routes[0].listen))))
    with serving(v2_handler(lambda _: None)) as port:
        arguments = ["--listen", "http://127.0.0.1:0", "--target", f"http://127.0.0.1:{port}", "--out", str(tmp_path / "t.parquet")]
        assert main(["record", *arguments, "--format", "json"]) == 5
    shown = capsys.readouterr()
    summary = json.loads(shown.out)
    assert (summary["requests"], summary["calls"], summary["client_bytes"]) == (None, [], len(requested))
    assert shown.err.count("the trace ends with the last row that was written") == 1
    assert read_trace(tmp_path / "t.parquet").instants_ns.size == 1
    assert not rows_file.exists()
