"""The processes that use a generator's machine besides perfkit and the target, from known CPU times."""

import os
import socket
import subprocess
import sys
from types import SimpleNamespace

import psutil
import pytest

from perfkit.figures.resources import BusyProcess
from perfkit.machine.readings import ProcessTimes
from perfkit.target.address import Address
from perfkit.telemetry.host.other_processes import OtherProcessesMeter, TargetProcesses, place_of

S = 1_000_000_000
RUN, WORKER, SERVER, COMPILER, OLD, NEW = 10, 11, 12, 20, 30, 31


class KnownTarget(TargetProcesses):
    """A target whose processes are known, but for those that `may_be_hidden`."""

    may_be_hidden = False

    def __init__(self, *pids, may_be_hidden=False):
        self.pids, self.may_be_hidden = set(pids), may_be_hidden

    def __call__(self):
        return self.pids


def measured(before, after, **options):
    """What others used over ten seconds, in which the machine used 15 s of CPU time."""
    readings = iter((before, after))
    meter = OtherProcessesMeter(lambda: next(readings), own_pid=RUN, **options)
    meter.begin(5 * S, 100.0)
    return meter.end(15 * S, 115.0)


def times(name, parent, cpu_s, started=1):
    return ProcessTimes(name, parent, cpu_s, started)


def test_the_busiest_others_are_named_and_perfkit_and_the_target_are_not():
    before = {
        RUN: times("perfkit", 1, 1.0),
        WORKER: times("perfkit", RUN, 0.0),
        SERVER: times("tritonserver", 1, 50.0),
        COMPILER: times("cc1plus", 1, 7.0),
    }
    after = {
        RUN: times("perfkit", 1, 2.0),
        WORKER: times("perfkit", RUN, 3.0),
        SERVER: times("tritonserver", 1, 52.0),
        COMPILER: times("cc1plus", 1, 14.0),
    }
    others = measured(before, after, target=KnownTarget(SERVER))
    assert others.busiest == (BusyProcess("cc1plus", COMPILER, 0.7),)
    assert others.cpus == pytest.approx((15 - 1 - 3 - 2) / 10), "what ended meanwhile is in the total"
    assert not others.may_include_target
    assert measured(before, after, target=KnownTarget(may_be_hidden=True)).may_include_target


def test_workers_that_have_ended_are_not_others():
    before = {RUN: ProcessTimes("perfkit", 1, 1.0, 1, ended_children_s=4.0), SERVER: times("server", RUN, 2.0)}
    after = {RUN: ProcessTimes("perfkit", 1, 2.0, 1, ended_children_s=19.0)}  # two workers used 10 s, and the server 3 s more
    others = measured(before, after)
    assert others.busiest == ()
    assert others.cpus == pytest.approx((15 - 1 - 13) / 10)


def test_a_number_given_to_a_new_process_counts_from_its_start_and_idle_ones_are_left_out():
    before = {RUN: times("perfkit", 1, 0.0), OLD: times("old", 1, 500.0), NEW: times("idle", 1, 3.0)}
    after = {RUN: times("perfkit", 1, 0.0), OLD: times("new", 1, 4.0, started=9), NEW: times("idle", 1, 3.1)}
    assert measured(before, after).busiest == (BusyProcess("new", OLD, 0.4),)


def test_five_are_named_at_most():
    names = range(100, 108)
    after = {pid: times(f"p{pid}", 1, float(pid - 99)) for pid in names}
    assert [one.pid for one in measured({1: times("init", 0, 0.0)}, after).busiest] == [107, 106, 105, 104, 103]


def test_without_a_list_of_processes_nothing_is_known():
    assert measured({}, {}) is None
    assert OtherProcessesMeter(dict).end(1, 1.0) is None


LOOPBACK = Address.parse("http://127.0.0.1:8000")
SERVER_of_target_processes = """
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
    with subprocess.Popen(
        [sys.executable, "-c", SERVER_of_target_processes, kind, str(tmp_path / "s")], stdin=pipe, stdout=pipe, text=True
    ) as server:
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
    """A machine whose containers have addresses in 172.17.0.0/16."""
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
        ("http://0.0.0.0:8000", "here"),
        ("unix:/run/server", "here"),
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
