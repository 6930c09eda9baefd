"""A server started by a command: its readiness, its end, and the errors."""

import asyncio
import re
import shlex
import subprocess
import sys

import psutil
import pytest

from perfkit.clock import MonotonicClock
from perfkit.errors import ServerFailedError, TargetError
from perfkit.target.started_server import command_server, free_ports
from perfkit.units import NS_PER_S
from tests.conditions import until, until_ended

# ready at the second check; starts a child that ignores SIGTERM, and prints both process ids
SERVER = """
import http.server, subprocess, sys, os
child = subprocess.Popen([sys.executable, "-c", "import signal; signal.signal(15, signal.SIG_IGN); signal.alarm(600); print('set', flush=True); signal.pause()"], stdout=subprocess.PIPE)
child.stdout.readline()
print(os.getpid(), child.pid, flush=True)
asked = []
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        asked.append(self.path)
        self.send_response(200 if len(asked) > 1 else 503)
        body = b'{"name": "m", "ready": true}'
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def readiness_of(port):
    async def why_not_ready():
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError as error:
            return str(error)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        status = (await reader.readline()).split()[1]
        writer.close()
        return "" if status == b"200" else f"status {status.decode()}"

    return why_not_ready


def command_of(tmp_path, source):
    """The command that runs a program as a server, and its port."""
    (tmp_path / "server.py").write_text(source)
    port = free_ports(1)[0]
    return shlex.join([sys.executable, str(tmp_path / "server.py"), str(port)]), port


def serve(tmp_path, command_and_port, body=None):
    """Starts a server, and gives what `body` makes of it."""
    command, port = command_and_port

    async def run():
        async with command_server(command, readiness_of(port), cpus=(), log=tmp_path / "server.log", clock=MonotonicClock()):
            return body() if body else None

    return asyncio.run(run())


def processes(tmp_path):
    """The processes whose ids the server printed."""
    return [psutil.Process(int(pid)) for pid in (tmp_path / "server.log").read_text().split()[:2]]


def test_a_server_runs_during_the_block_and_ends_with_everything_it_started(tmp_path):
    server, child = serve(tmp_path, command_of(tmp_path, SERVER), lambda: processes(tmp_path))
    assert child.pid != server.pid
    until_ended([server, child])


def test_a_server_is_stopped_if_the_block_fails(tmp_path):
    seen: list[psutil.Process] = []

    def fail():
        seen.extend(processes(tmp_path))
        raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        serve(tmp_path, command_of(tmp_path, SERVER), fail)
    until_ended(seen)


# stands for perfkit: runs a server and prints its process id
HOLDER = """
import asyncio, pathlib, sys
from perfkit.clock import MonotonicClock
from perfkit.target import started_server as module
from tests.target.test_command_server import readiness_of
async def run():
    log = pathlib.Path(sys.argv[3])
    async with module.command_server(sys.argv[1], readiness_of(int(sys.argv[2])), cpus=(), log=log, clock=MonotonicClock(), stop_within_s=1):
        print(log.read_text().split()[0], flush=True)
        await asyncio.Event().wait()
asyncio.run(run())
"""


def test_a_server_that_ignores_its_stdin_is_stopped_if_perfkit_is_killed(tmp_path):
    command, port = command_of(tmp_path, SERVER)
    arguments = [sys.executable, "-c", HOLDER, command, str(port), str(tmp_path / "server.log")]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as holder:
        try:
            server = psutil.Process(int(holder.stdout.readline()))
            group = [*server.children(), server]
            assert len(group) == 2
        finally:
            holder.kill()
    until_ended(group)  # the child ignores SIGTERM, so it is killed


def test_a_server_that_ends_before_it_is_ready_is_an_error_with_its_last_output(tmp_path):
    with pytest.raises(ServerFailedError, match=r"ended with exit code 3 before it was ready; it said: no GPU$") as caught:
        serve(tmp_path, command_of(tmp_path, "import sys\nprint('no GPU', file=sys.stderr)\nsys.exit(3)"))
    assert (caught.value.status, caught.value.last_lines) == (3, ("no GPU",))


def test_a_server_that_a_signal_ends_is_named_with_it_and_keeps_twenty_lines(tmp_path):
    source = "import os\nfor line in range(30): print('line', line, flush=True)\nos.kill(os.getpid(), 9)"
    with pytest.raises(ServerFailedError, match=r"ended with signal 9 \(SIGKILL\) before .*; it said: line 25 / .* / line 29$") as caught:
        serve(tmp_path, command_of(tmp_path, source))
    assert (caught.value.status, caught.value.last_lines) == (-9, tuple(f"line {number}" for number in range(10, 30)))


class SteppingClock:
    """Time that passes only while something sleeps."""

    def __init__(self):
        self.now = 0

    def now_ns(self):
        return self.now

    async def sleep_until_ns(self, instant_ns):
        await asyncio.sleep(0)
        self.now = instant_ns


LISTENS_ELSEWHERE = """
import socket
server = socket.create_server(("127.0.0.1", 0))
print("serving at", server.getsockname()[1], flush=True)
while True: server.accept()
"""


@pytest.mark.parametrize(
    ("source", "ports", "where"),
    [
        (LISTENS_ELSEWHERE, {1}, r"; its processes listen on port (\d+): the server must take the port that {port} in its command becomes"),
        ("print('loading', flush=True); input()", {1}, "; its processes listen on no TCP port"),
        (LISTENS_ELSEWHERE, set(), ""),  # a socket's path has no port
    ],
)
def test_a_server_that_is_never_ready_is_told_with_the_ports_where_it_listens(tmp_path, source, ports, where):
    command, _ = command_of(tmp_path, source)
    said, log = list[str](), tmp_path / "server.log"

    async def refused():
        if log.exists():  # it is asked once before the server is started
            await until(lambda: log.read_text().endswith("\n"))
        return "refused"

    async def run():
        async with command_server(
            command,
            refused,
            cpus=(),
            log=log,
            clock=SteppingClock(),
            ready_within_ns=60 * NS_PER_S,
            limit_key="--wait",
            ports=ports,
            on_line=said.append,
        ):
            pytest.fail("it was ready")

    with pytest.raises(ServerFailedError) as caught:
        asyncio.run(run())
    found = re.search(rf"was not ready within 1m \(--wait\): refused{where}", caught.value.what)
    assert found
    if found.groups():
        assert caught.value.last_lines == (f"serving at {found[1]}",)
    assert caught.value.status is None
    reports = [re.fullmatch(rf"not ready after (\d\d)\.0 s of 60\.0 s: refused{where}.*", line) for line in said]
    assert [report and report[1] for report in reports] == ["10", "20", "30", "40", "50"]


def test_a_missing_program_is_an_error(tmp_path):
    with pytest.raises(TargetError, match="`/no/such/server` cannot be started: No such file or directory"):
        serve(tmp_path, ("/no/such/server", 1))
