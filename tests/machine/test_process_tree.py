"""The CPU time of a tree of processes: real ones by their own count (getrusage), and made-up ones in a folder like /proc; and their listening ports."""

import subprocess
import sys

import pytest

from perfkit.clock import process_cpu_ns
from perfkit.machine.process_tree import ProcessTree, listening_ports

MS = 1_000_000
TICK_NS = 10 * MS  # of every Linux kernel's /proc: USER_HZ is 100
COUNT = """
import os, resource, signal, subprocess, sys, threading, time
def burn(seconds):
    while time.thread_time() < seconds: pass
def used_ns(who):
    one = resource.getrusage(who)
    return round((one.ru_utime + one.ru_stime) * 1e9)
def say():
    print(used_ns(resource.RUSAGE_SELF), used_ns(resource.RUSAGE_CHILDREN), flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def run():
    """Starts Python with some code; it goes on, from each `say`, with the next line that it is sent."""
    started = []

    def start(code):
        process = subprocess.Popen([sys.executable, "-c", COUNT + code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        end(process)
        process.stdout.close()


def end(process):
    process.stdin.close()  # whoever waits for a line goes on
    process.wait()


def said(process):
    return [int(word) for word in process.stdout.readline().split()]


def go_on(process):
    process.stdin.write("\n")
    process.stdin.flush()


def test_a_process_has_the_time_of_all_its_threads_also_of_those_that_have_ended(run):
    process = run(
        "threads = [threading.Thread(target=burn, args=(0.1,)) for _ in range(2)]\n"
        "for one in threads: one.start()\n"
        "for one in threads: one.join()\n"
        "say()"
    )
    own_ns, _ = said(process)
    assert own_ns > 200 * MS
    assert process_cpu_ns(process.pid) == pytest.approx(own_ns, abs=20 * MS)


def test_the_time_of_a_child_stays_when_it_ends(run):
    process = run(
        "child = subprocess.Popen([sys.executable, '-c', 'import time\\nwhile time.process_time() < 0.2: pass\\nprint(flush=True)\\ninput()'],"
        " stdin=-1, stdout=-1)\n"
        "child.stdout.readline()\n"
        "say()\n"
        "child.communicate(b'x\\n')\n"
        "say()"
    )
    said(process)
    tree = ProcessTree(process.pid)
    before = tree.find()
    assert len(tree.pids) == 2
    assert before.cpu_ns > 200 * MS
    assert (before.ended_ns, before.lost_ns) == (0, 0)
    go_on(process)
    own_ns, children_ns = said(process)
    after = tree.read()
    assert tree.pids == (process.pid,)
    assert after.lost_ns == 0
    assert after.step_ns == 2 * TICK_NS
    assert after.ended_ns == pytest.approx(children_ns, abs=2 * TICK_NS)
    assert after.cpu_ns == pytest.approx(own_ns + children_ns, abs=2 * TICK_NS + 20 * MS)


def test_the_time_of_a_child_that_nobody_waits_for_is_known_to_be_lost(run):
    process = run(
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "reader, writer = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    burn(0.2)\n"
        "    os.write(writer, b'x')\n"
        "    os.close(writer)\n"
        "    sys.stdin.readline()\n"
        "    os._exit(0)\n"
        "os.close(writer)\n"
        "os.read(reader, 1)\n"
        "print(0, 0, flush=True)\n"
        "try: os.wait()\n"
        "except ChildProcessError: pass\n"
        "say()"
    )
    said(process)
    tree = ProcessTree(process.pid)
    before = tree.find()
    assert len(tree.pids) == 2
    go_on(process)
    said(process)
    after = tree.read()
    assert after.lost_ns > 200 * MS
    assert after.cpu_ns >= before.cpu_ns, "it never falls"


def test_a_process_that_is_gone_has_no_time(run):
    process = run("")
    end(process)
    tree = ProcessTree(process.pid)
    assert tree.find() is None
    assert tree.read() is None


@pytest.fixture
def made_up(write):
    """A machine of made-up processes: `own_ns` by number, and the function that writes a process's files."""

    class Machine:
        def __init__(self):
            self.root, self.own_ns, self.on_read = write({"proc/x": ""}), {}, lambda _: None

        def set(self, pid, *, parent=1, children="", ended_ticks=(0, 0), started=7, own_ns=0):
            fields = ["S", parent, *["0"] * 9, 50, 60, *ended_ticks, *["0"] * 4, started]
            stat = f"{pid} (a name) with ) {' '.join(map(str, fields))}"
            write({f"proc/{pid}/stat": stat, f"proc/{pid}/task/{pid}/children": children})
            self.own_ns[pid] = own_ns

        def end(self, pid):
            (self.root / f"proc/{pid}/stat").unlink()
            (self.root / f"proc/{pid}/task/{pid}/children").unlink()
            del self.own_ns[pid]

        def cpu_ns(self, pid):
            self.on_read(pid)
            if pid not in self.own_ns:
                raise OSError
            return self.own_ns[pid]

    return Machine()


def test_a_process_whose_parent_has_ended_still_belongs_to_the_tree(made_up):
    made_up.set(10, children="11", own_ns=1000)
    made_up.set(11, parent=10, children="12", own_ns=5)
    made_up.set(12, parent=11, own_ns=300)
    tree = ProcessTree(10, made_up.root, made_up.cpu_ns)
    assert tree.find().cpu_ns == 1305
    made_up.set(10, own_ns=1000)
    made_up.end(11)
    made_up.set(12, parent=1, own_ns=400)
    assert tree.find().cpu_ns == 1400
    assert tree.pids == (10, 12)


def test_another_process_with_the_number_of_one_that_has_ended_is_not_taken_for_it(made_up):
    made_up.set(10, children="11", own_ns=1000)
    made_up.set(11, parent=10, own_ns=100 * MS)
    tree = ProcessTree(10, made_up.root, made_up.cpu_ns)
    assert tree.find().lost_ns == 0
    made_up.set(11, parent=10, started=8, own_ns=1)
    assert tree.find().lost_ns == 100 * MS


def test_a_process_that_ends_while_the_tree_is_read_is_counted_once(made_up):
    made_up.set(10, children="11", own_ns=1000)
    made_up.set(11, parent=10, own_ns=100 * MS)
    tree = ProcessTree(10, made_up.root, made_up.cpu_ns)
    tree.find()

    def end_before_it_is_read(pid):
        if pid == 11 and 11 in made_up.own_ns:
            made_up.end(11)
            made_up.set(10, ended_ticks=(7, 4), own_ns=1000)

    made_up.on_read = end_before_it_is_read
    after = tree.find()
    assert (after.cpu_ns, after.ended_ns, after.lost_ns) == (1000 + 11 * TICK_NS, 11 * TICK_NS, 0)


def test_a_process_that_ends_just_after_its_parent_was_read_is_not_taken_for_lost(made_up):
    made_up.set(10, children="11", own_ns=1000)
    made_up.set(11, parent=10, own_ns=100 * MS)
    tree = ProcessTree(10, made_up.root, made_up.cpu_ns)
    tree.find()
    made_up.end(11)  # and the parent has its time a moment later
    made_up.on_read = lambda _: made_up.set(10, ended_ticks=(7, 4), own_ns=1000)
    assert (tree.find().ended_ns, tree.find().lost_ns) == (11 * TICK_NS, 0)


def test_children_are_found_without_the_kernels_lists_of_them(made_up):
    made_up.set(10, own_ns=1000)
    made_up.set(11, parent=10, own_ns=30)
    made_up.set(12, parent=99, own_ns=500)
    for pid in (10, 11, 12):
        (made_up.root / f"proc/{pid}/task/{pid}/children").unlink()
    tree = ProcessTree(10, made_up.root, made_up.cpu_ns)
    assert tree.find().cpu_ns == 1030


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
