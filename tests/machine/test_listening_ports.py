"""The ports of a process and of what it started, against sockets that the test's own child says it has opened."""

import subprocess
import sys

from perfkit.machine.process_tree import listening_ports

# listens, has a child that listens too, and is connected to itself, which is no listening
LISTENERS = """
import socket, subprocess, sys
one = socket.create_server(("127.0.0.1", 0))
connected = socket.create_connection(one.getsockname())
source = "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()"
child = subprocess.Popen([sys.executable, "-c", source], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
print(one.getsockname()[1], child.stdout.readline(), end="", flush=True)
input()
child.communicate("\\n")
"""


def test_the_ports_of_a_process_and_its_children_are_found():
    with subprocess.Popen([sys.executable, "-c", LISTENERS], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        ports = frozenset(map(int, process.stdout.readline().split()))
        assert len(ports) == 2
        assert listening_ports(process.pid) == ports
        process.communicate("\n")
    assert listening_ports(process.pid) is None, "it has ended"


def test_a_process_that_listens_nowhere_has_no_ports():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True) as process:
        assert listening_ports(process.pid) == frozenset()
        process.communicate("\n")
