"""The sampler process, run within the test: its pipes are byte streams."""

import concurrent.futures
import contextlib
import io
import os
import subprocess
import sys
import threading

import pytest

from perfkit.process.messages import load_message, message_bytes
from perfkit.target.address import Address
from perfkit.telemetry import sampler_process
from perfkit.telemetry.messages import (
    GpuConfig,
    PointBegins,
    RunEnded,
    ScreenLines,
    ServerCpuConfig,
    Started,
    TelemetryConfig,
    Waiting,
    WindowReport,
    WindowRequest,
)

REQUESTS = message_bytes(TelemetryConfig()) + message_bytes(WindowRequest(0, 1))


class BrokenPipe(io.BytesIO):
    """A pipe whose other end is closed."""

    def flush(self):
        raise BrokenPipeError


def serve(requests):
    answers = io.BytesIO()
    sampler_process.serve(io.BytesIO(requests), answers)
    answers.seek(0)
    return answers


def next_answer(answers):
    """The next one that is asked for: on a busy machine the process may say before that it waits."""
    while isinstance(answer := load_message(answers), Waiting):
        pass
    return answer


def test_a_process_that_waits_for_a_sampler_says_every_second_that_it_is_alive():
    slow: concurrent.futures.Future[None] = concurrent.futures.Future()
    said = []

    def on_second():
        said.append("waiting")
        slow.set_result(None)

    sampler_process.wait_for_samplers([slow], 600, on_second)
    assert said == ["waiting"]


@pytest.mark.parametrize("length", [0, 5])
def test_it_ends_when_its_requests_end_or_break_off(length):
    answers = serve(REQUESTS + message_bytes(WindowRequest(1, 2))[:length])
    received = [next_answer(answers) for _ in range(2)]
    assert [type(answer) for answer in received] == [Started, WindowReport]
    assert answers.read() == b""


def test_it_samples_one_run_after_another():
    answers = serve(REQUESTS + message_bytes(RunEnded()) + REQUESTS)
    assert [type(next_answer(answers)) for _ in range(4)] == [Started, WindowReport] * 2
    assert answers.read() == b""


@pytest.mark.parametrize("requests", [b"", REQUESTS[:9]])
def test_it_ends_if_it_receives_no_configuration(requests):
    assert serve(requests).read() == b""


def test_it_ends_if_nobody_reads_its_answers():
    sampler_process.serve(io.BytesIO(REQUESTS), BrokenPipe())


class FailingView:
    def __init__(self, clock, latest):
        assert all(len(series.values) == 1 for series in latest())

    def show(self, message):
        raise ZeroDivisionError("division by zero")

    def close(self):
        raise OSError


def test_a_failing_live_view_is_reported_once_and_its_lines_and_the_sampling_go_on(capsys):
    begins = PointBegins(1, 1, "http, concurrency 1", "service time", None, None)
    messages = (
        TelemetryConfig(screen=FailingView),
        begins,
        ScreenLines(("server: ready",)),
        ScreenLines(("server: more",)),
        WindowRequest(0, 1),
    )
    answers = serve(b"".join(map(message_bytes, messages)))
    assert [type(next_answer(answers)) for _ in range(2)] == [Started, WindowReport]
    assert capsys.readouterr().err.splitlines() == [
        "warning: the live view failed and has ended (ZeroDivisionError: division by zero); measuring and sampling go on",
        "server: ready",
        "server: more",
    ]


def test_a_sampler_that_hangs_at_its_start_is_noted(monkeypatch):
    ended = threading.Event()

    class HangingSampler:
        """A GPU sampler whose driver does not answer."""

        def __init__(self, *_, **__):
            self.notes = []

        def start(self):
            return not ended.wait()

        def close(self):
            pass

    monkeypatch.setattr("perfkit.telemetry.gpu.sampler.GpuSampler", HangingSampler)
    for timeout in ("_START_TIMEOUT_S", "_CLOSE_TIMEOUT_S"):
        monkeypatch.setattr(sampler_process, timeout, 0.1)
    started = next_answer(serve(message_bytes(TelemetryConfig(gpus=GpuConfig(1.0, 0)))))
    ended.set()
    assert "Sampling of gpu had not started after 0.1 s." in started.notes  # on a busy machine others may not have started either


LISTEN = "import socket, sys; one = socket.create_server(('127.0.0.1', 0)); print(one.getsockname()[1], flush=True); sys.stdin.read()"


def test_the_cpu_time_of_a_server_is_sampled_if_it_listens_at_the_targets_address():
    with contextlib.ExitStack() as ending:
        children = []
        for program in (LISTEN, "import sys; sys.stdin.read()"):
            child = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            children.append(ending.enter_context(child))
        assert children[0].stdout
        address = Address.parse(f"http://127.0.0.1:{int(children[0].stdout.readline())}")
        configs = [
            TelemetryConfig(addresses=(address,), server_cpu=ServerCpuConfig(pid))
            for pid in (children[0].pid, os.getpid(), children[1].pid)
        ]
        notes = [next_answer(serve(message_bytes(config))).notes for config in configs]
    is_left_out = [any(note.startswith("The server's CPU time is not measured") for note in some) for some in notes]
    assert is_left_out == [False, False, True], "the one that listens, its parent, and one that does not listen"
