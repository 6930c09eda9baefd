"""A run on a real terminal: the live view is drawn while load is sent, and nothing of it is left."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios

from tests import forked

STYLE = re.compile(r"\x1b\[[0-9;]*m")


def test_a_run_on_a_terminal_is_shown_live_and_leaves_the_terminal_as_it_was(server, write_scenario, tmp_path):
    target = {"url": server.http, "model": "simple"}
    scenario = write_scenario(target=target, measure={"warmup": "100ms", "duration": "60s", "repetitions": 1})
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 80, 0, 0))
    before = termios.tcgetattr(theirs)
    command = [sys.executable, "-m", "perfkit", "run", scenario, "--no-report", "--out", tmp_path / "out"]
    environment = {**os.environ, "TERM": "xterm-256color", "NO_COLOR": "1", "COLUMNS": ""}
    text, is_interrupted = "", False
    with forked.start(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as run:
        while run.poll() is None or select_readable(ours):
            if select_readable(ours):
                text += os.read(ours, 65536).decode(errors="replace").replace("\r\r\n", "\n").replace("\r\n", "\n")
            if not is_interrupted and re.search(r"throughput +[\d,.]+/s +█", STYLE.sub("", text)):
                is_interrupted = True
                run.send_signal(signal.SIGINT)
    assert termios.tcgetattr(theirs) == before
    os.close(theirs)
    os.close(ours)
    assert run.returncode == 130, text
    assert "\x1b[?25l" not in text, "the cursor is never hidden"
    assert not re.search(r"\x1b\[[0-9;]*3[1-6]m", text), "NO_COLOR"
    plain = STYLE.sub("", text)
    view, _, rest = plain.rpartition("\x1b[J")
    assert "load point 1 of 2  http, concurrency 1" in view
    assert "whole run" in view
    assert "stopping: waiting for outstanding responses" in view
    assert "whole run" not in rest, "it is erased before the summary"
    assert max(len(line) for line in rest.splitlines() if str(tmp_path) not in line) <= 80
    assert " ".join(rest.split()).endswith("exit code 130)"), "the status comes last"


def select_readable(file):
    """Whether there is something to read within a twentieth of a second."""
    return bool(select.select([file], [], [], 0.05)[0])
