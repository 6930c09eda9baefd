"""CPU use of processes besides perfkit and the target on the generator's machine, for each load point."""

import contextlib
import ipaddress
import os
import pathlib
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence

import psutil

from perfkit.figures.resources import BusyProcess, OtherProcesses
from perfkit.machine.cpus import ROOT, read_system_file
from perfkit.machine.listeners import read_listeners
from perfkit.machine.readings import ProcessTimes, read_process_times
from perfkit.target.address import Address
from perfkit.units import NS_PER_S

# programs that listen in place of a container's processes
_CONTAINER_PROXIES = frozenset({"docker-proxy", "rootlessport", "rootlesskit", "slirp4netns", "pasta", "pasta.avx2", "conmon"})

Listeners = Callable[[], Iterable[tuple[int | str, int | None]]]
"""Reads all listening sockets: the port or path of each, and its process if that is known."""


class TargetProcesses:
    """The processes that listen at the target's addresses, and their descendants; samplers ask for them from several threads.

    Not visible: processes of other users without permission, and those in other containers; see `may_be_hidden`.
    """

    def __init__(self, addresses: Sequence[Address], listeners: Listeners = read_listeners, root: pathlib.Path = ROOT) -> None:
        self._addresses, self._read, self._root = addresses, listeners, root
        self._listeners: set[int] = set()
        self._is_complete = False
        self._here: set[int | str] | None = None
        self._may_be_in_container = False
        self._searching = threading.Lock()

    def __call__(self) -> set[int]:
        """Their PIDs. Listeners are searched until found, descendants at every call."""
        with self._searching:
            if not self._listeners or not all(psutil.pid_exists(pid) for pid in self._listeners):
                self._find()
            listeners = self._listeners
        pids = set(listeners)
        for pid in listeners:
            with contextlib.suppress(psutil.Error):
                pids |= {child.pid for child in psutil.Process(pid).children(recursive=True)}
        return pids

    @property
    def may_be_hidden(self) -> bool:
        """Whether the target may run on this machine in processes that the last call did not return."""
        return self._may_be_in_container or (bool(self._here) and not self._is_complete)

    def _find(self) -> None:
        if self._here is None:
            places = [(address, place_of(address, self._root)) for address in self._addresses]
            self._here = {address.socket_path or address.port for address, place in places if place == "here"}
            self._may_be_in_container = any(place == "perhaps here" for _, place in places)
        found = [(where, pid) for where, pid in self._read() if where in self._here] if self._here else []
        self._listeners = {pid for _, pid in found if pid}
        proxies = {pid for pid in self._listeners if _name(pid) in _CONTAINER_PROXIES}
        self._is_complete = not proxies and all(pid for _, pid in found) and {where for where, _ in found} == self._here


def place_of(address: Address, root: pathlib.Path = ROOT) -> str:
    """`here`, `elsewhere`, or `perhaps here`: at an address of this machine's containers, or unknown from within a container."""
    if address.is_local:
        return "here"
    hosts = set[str]()
    with contextlib.suppress(OSError, UnicodeError):
        hosts = {str(info[4][0]).partition("%")[0] for info in socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)}
    for interface, settings in psutil.net_if_addrs().items():
        for one in settings:
            if one.family == socket.AF_INET and one.netmask and (root / "sys/class/net" / interface / "bridge").exists():
                network = ipaddress.ip_network(f"{one.address}/{one.netmask}", strict=False)
                if any(ipaddress.ip_address(host) in network for host in hosts):
                    return "perhaps here"
    # PID 2 is the kernel's thread kthreadd, except in a container, where other containers' processes cannot be seen
    is_in_container = (read_system_file(root / "proc/2/comm") or "").strip() != "kthreadd"
    return "perhaps here" if is_in_container else "elsewhere"


def _name(pid: int) -> str:
    with contextlib.suppress(psutil.Error):
        return psutil.Process(pid).name()
    return ""


_LEAST_CPUS, _MOST_PROCESSES = 0.05, 5


class OtherProcessesMeter:
    """Measures other processes' CPU use by two readings per load point, which take some milliseconds each."""

    def __init__(
        self,
        read: Callable[[], Mapping[int, ProcessTimes]] = read_process_times,
        target: TargetProcesses | None = None,
        own_pid: int | None = None,
    ) -> None:
        self._read, self._target = read, TargetProcesses(()) if target is None else target
        self._own_pid = os.getppid() if own_pid is None else own_pid  # the run, whose child the sampler process is
        self._start: tuple[int, float, Mapping[int, ProcessTimes]] | None = None

    def find_target(self) -> None:
        """Searches the target's processes, before any load: with many sockets on the machine that takes a tenth of a second."""
        self._target()

    def begin(self, now_ns: int, machine_cpu_s: float) -> None:
        """Takes the first reading, when the load begins; `machine_cpu_s` is the CPU time of the whole machine."""
        self._start = now_ns, machine_cpu_s, self._read()

    def end(self, now_ns: int, machine_cpu_s: float) -> OtherProcesses | None:
        """The CPU use of other processes since `begin`; None without `begin`, or if the system lists no processes.

        Other processes that both began and ended since then, or that a container hides, count only in the total.
        """
        if self._start is None or not self._start[2]:
            return None
        start_ns, before_s, before = self._start
        after, elapsed_s = self._read(), max(now_ns - start_ns, 1) / NS_PER_S
        cpus = {pid: _increase(before.get(pid), times) / elapsed_s for pid, times in after.items()}
        expected = self._target() | _descendants(after, self._own_pid)
        others = sorted((pid for pid in cpus if pid not in expected), key=lambda pid: -cpus[pid])
        busy = tuple(BusyProcess(after[pid].name, pid, cpus[pid]) for pid in others[:_MOST_PROCESSES] if cpus[pid] >= _LEAST_CPUS)
        own_s = sum(cpus[pid] for pid in expected if pid in cpus) * elapsed_s + self._ended_s(before, after)
        total = (machine_cpu_s - before_s - own_s) / elapsed_s
        return OtherProcesses(max(total, sum(process.cpus for process in busy)), busy, self._target.may_be_hidden)

    def _ended_s(self, before: Mapping[int, ProcessTimes], after: Mapping[int, ProcessTimes]) -> float:
        """The CPU time in between of processes that the run started and that have ended, such as its workers."""
        if self._own_pid not in before or self._own_pid not in after:
            return 0.0
        known_s = sum(before[pid].cpu_s for pid in _descendants(before, self._own_pid) if pid in before and pid not in after)
        return max(after[self._own_pid].ended_children_s - before[self._own_pid].ended_children_s - known_s, 0.0)


def _increase(before: ProcessTimes | None, after: ProcessTimes) -> float:
    """CPU time in seconds since the first reading, or since its start for a process that began later."""
    is_same = before is not None and before.started == after.started
    return after.cpu_s - before.cpu_s if is_same and before is not None else after.cpu_s


def _descendants(processes: Mapping[int, ProcessTimes], pid: int) -> set[int]:
    """A process and all its descendants, by number."""
    children: dict[int, list[int]] = {}
    for child, times in processes.items():
        children.setdefault(times.parent, []).append(child)
    found, new = {pid}, [pid]
    while new:
        new = [child for parent in new for child in children.get(parent, ()) if child not in found]
        found.update(new)
    return found
