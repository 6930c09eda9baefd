"""The target's processes among those of this machine: real listeners, and lists of sockets as containers and other users leave them."""

import os
import socket
import subprocess
import sys
from types import SimpleNamespace

import psutil
import pytest

from perfkit.target.address import Address
from perfkit.telemetry.host.target_processes import TargetProcesses, place_of

LOOPBACK = Address.parse("http://127.0.0.1:8000")
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
def test_the_servers_processes_are_its_listener_and_descendants(tmp_path, kind):
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", SERVER, kind, str(tmp_path / "s")], stdin=pipe, stdout=pipe, text=True) as server:
        child, where = server.stdout.readline().split()
        processes = TargetProcesses([Address.parse(f"unix:{where}" if kind == "unix" else f"http://127.0.0.1:{where}")])
        assert (processes(), processes.may_be_hidden) == ({server.pid, int(child)}, False)
        server.stdin.close()
        server.wait()
        assert (processes(), processes.may_be_hidden) == (set(), True)


def found(listeners, *addresses, **options):
    processes = TargetProcesses(addresses, lambda: listeners, **options)
    return processes(), processes.may_be_hidden


def test_a_listener_of_another_user_leaves_open_which_processes_are_the_targets():
    assert found([(8000, None)], LOOPBACK) == (set(), True)
    assert found([(8001, os.getpid())], LOOPBACK) == (set(), True), "nobody listens: a container's port"
    assert found([(8000, os.getpid()), (8001, os.getpid())], LOOPBACK)[1] is False
    assert found([(8000, os.getpid())], LOOPBACK, Address.parse("grpc://127.0.0.1:8001"))[1] is True, "one of two ports is known"


def test_what_listens_for_a_container_is_not_the_whole_target(monkeypatch):
    monkeypatch.setattr(psutil.Process, "name", lambda _: "docker-proxy")
    assert found([(8000, os.getpid())], LOOPBACK)[1] is True


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine at 10.0.0.5 whose containers have addresses in 172.17.0.0/16."""
    (tmp_path / "proc/2").mkdir(parents=True)
    (tmp_path / "proc/2/comm").write_text("kthreadd\n")
    (tmp_path / "sys/class/net/docker0/bridge").mkdir(parents=True)
    interfaces = {
        "eth0": [SimpleNamespace(family=socket.AF_INET, address="10.0.0.5", netmask="255.255.255.0")],
        "docker0": [SimpleNamespace(family=socket.AF_INET, address="172.17.0.1", netmask="255.255.0.0")],
    }
    monkeypatch.setattr(psutil, "net_if_addrs", lambda: interfaces)
    return tmp_path


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("http://localhost:8000", "here"),
        ("unix:/run/server", "here"),
        ("http://10.0.0.5:8000", "here"),
        ("http://10.0.0.6:8000", "elsewhere"),
        ("http://172.17.0.2:8000", "perhaps here"),
    ],
)
def test_a_target_runs_here_by_this_machines_addresses_and_perhaps_in_its_containers(machine, url, place):
    assert place_of(Address.parse(url), machine) == place


def test_from_within_a_container_a_target_may_run_in_another_one_of_the_machine(machine):
    (machine / "proc/2/comm").write_text("perfkit\n")
    assert place_of(Address.parse("http://10.0.0.6:8000"), machine) == "perhaps here"
    assert found([], Address.parse("http://10.0.0.6:8000"), root=machine) == (set(), True)


def test_a_server_on_another_machine_has_no_processes_here(machine):
    assert found([(8000, os.getpid())], Address.parse("http://10.0.0.6:8000"), root=machine) == (set(), False)
    assert found([(8000, os.getpid())]) == (set(), False)
