"""Hosts made of network namespaces: they reach each other, have their own clocks and names, can be cut off, and leave nothing behind."""

import contextlib
import pathlib
import socket
import subprocess
import sys
import time

import pytest

from benchmarks.fleet.namespaces import Laboratory, NamespacesUnavailableError

_ECHO = """
import socket
server = socket.create_server(("", 7000))
print("listening", flush=True)
while True:
    with server.accept()[0] as connection:
        connection.sendall(connection.recv(1))
"""
_ASK = """
import socket, sys, time
with socket.create_connection((sys.argv[1], 7000), float(sys.argv[2])) as connection:
    began_ns = time.monotonic_ns()
    connection.sendall(b"?")
    connection.recv(1)
    print(time.monotonic_ns() - began_ns)
"""


@pytest.fixture
def laboratory():
    with contextlib.ExitStack() as stack:
        try:
            yield stack.enter_context(Laboratory())
        except NamespacesUnavailableError as error:
            pytest.skip(str(error))


def test_a_link_with_delay_delays_both_ways_and_a_cut_host_is_silent(laboratory):
    near, far = laboratory.add_host("near"), laboratory.add_host("far", delays_ns=(4_000_000, 6_000_000))
    server = far.start([sys.executable, "-c", _ECHO], stdout=subprocess.PIPE)
    assert server.stdout is not None
    assert server.stdout.readline() == "listening\n"
    assert int(near.run([sys.executable, "-c", _ASK, far.ip, "60"])) >= 10_000_000
    far.cut()
    with pytest.raises(subprocess.CalledProcessError) as failed:
        near.run([sys.executable, "-c", _ASK, far.ip, "0.2"])
    assert "TimeoutError" in failed.value.stderr
    far.mend()
    assert int(near.run([sys.executable, "-c", _ASK, far.ip, "60"])) >= 10_000_000
    assert far.processes() == {server.pid: f"{sys.executable} -c {_ECHO}".strip()}
    server.kill()
    server.communicate()


def test_a_host_has_its_own_clock_and_names(laboratory):
    shifted = laboratory.add_host("shifted", clock_shift_ns=-1_500_000_000, names={"pods.test": ("127.0.0.1", "127.0.0.2")})
    script = "import socket, time; print(time.monotonic_ns(), socket.gethostname(), *(e[4][0] for e in socket.getaddrinfo('pods.test', 1, type=1)))"
    before_ns = time.monotonic_ns()
    clock_ns, *names = shifted.run([sys.executable, "-c", script]).split()
    assert before_ns - 1_500_000_000 <= int(clock_ns) <= time.monotonic_ns() - 1_500_000_000
    assert names == ["shifted", "127.0.0.1", "127.0.0.2"]
    assert socket.gethostname() != "shifted"


@pytest.mark.usefixtures("laboratory")  # which says why hosts cannot be made
def test_processes_and_hosts_are_gone_after_an_error():
    with contextlib.suppress(ZeroDivisionError), Laboratory() as other:
        host = other.add_host("one")
        left = host.start(["sh", "-c", "echo started; exec sleep 1000"], stdout=subprocess.PIPE)
        left.stdout.readline()
        raise ZeroDivisionError
    with left.stdout:
        assert left.wait(30) == -9
    assert not pathlib.Path(f"/proc/{host.holder}").exists()
    assert host.processes() == {}
