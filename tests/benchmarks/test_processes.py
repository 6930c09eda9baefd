"""The bundled server as a child process of a benchmark."""

import signal
import subprocess

import pytest

from benchmarks import processes


def test_a_server_that_hangs_at_its_end_is_killed(monkeypatch):
    monkeypatch.setattr(processes, "_STOPS_WITHIN_S", 0.1)
    with pytest.raises(subprocess.TimeoutExpired), processes.running_server("--device", "cpu", "--model", "simple") as server:
        server.process.send_signal(signal.SIGSTOP)
    assert server.process.wait(30) == -signal.SIGKILL
