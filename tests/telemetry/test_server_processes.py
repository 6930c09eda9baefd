import subprocess
import sys

import pytest

from perfkit.target.address import Address
from perfkit.telemetry.server.processes import ServerProcesses

SERVER = """
import socket, subprocess, sys
listener = socket.socket(socket.AF_UNIX if sys.argv[1] == "unix" else socket.AF_INET)
listener.bind(sys.argv[2] if sys.argv[1] == "unix" else ("127.0.0.1", 0))
listener.listen()
child = subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
print(child.pid, listener.getsockname() if sys.argv[1] == "unix" else listener.getsockname()[1], flush=True)
sys.stdin.read()
child.stdin.close()
child.wait()
"""


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_who_listens_is_found_with_its_descendants(tmp_path, kind):
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", SERVER, kind, str(tmp_path / "s")], stdin=pipe, stdout=pipe, text=True) as server:
        child, where = server.stdout.readline().split()
        address = Address.parse(f"unix:{where}" if kind == "unix" else f"http://127.0.0.1:{where}")
        processes = ServerProcesses([address])
        assert processes() == {server.pid, int(child)}
        server.stdin.close()
        server.wait()
        assert processes() == set()


def test_a_server_that_is_elsewhere_has_no_processes_here(tmp_path):
    assert ServerProcesses([Address.parse(f"http+unix:{tmp_path}/nobody")])() == set()
