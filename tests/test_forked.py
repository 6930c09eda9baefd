"""A process that is forked in place of a Python is like one to those who look at it."""

import os
import signal
import subprocess
import sys

import psutil

from tests import forked


def test_a_fork_is_a_child_with_the_command_line_pipes_and_exit_code_of_its_command():
    command = [sys.executable, "-m", "perfkit", "no-such-command"]
    with forked.start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert isinstance(process, forked._Forked)
        assert psutil.Process(process.pid).ppid() == os.getpid()
        said = process.communicate()
    assert said[0] == ""
    assert "no-such-command" in said[1]
    assert process.returncode == 2


def test_a_fork_that_is_killed_ends_with_its_signal_and_shows_what_it_runs():
    with forked.start([sys.executable, "-m", "server_stub", "--http-port=0", "--grpc-port=0"], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline().startswith(b"{")
        assert "server_stub" in psutil.Process(process.pid).cmdline()
        process.kill()
    assert process.returncode == -signal.SIGKILL


def test_what_the_start_of_python_depends_on_starts_one():
    environ = {**os.environ, "PYTHONVERBOSE": "", "PYTHONPATH": "/nowhere"}
    with forked.start([sys.executable, "-m", "perfkit", "--version"], stdout=subprocess.DEVNULL, env=environ) as process:
        assert not isinstance(process, forked._Forked)
    assert process.returncode == 0
