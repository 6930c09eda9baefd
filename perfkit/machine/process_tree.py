"""The processes that belong to a process, with everything that it started: their CPU time in nanoseconds, and the ports on which they listen."""

import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence

import psutil

from perfkit.clock import process_cpu_ns
from perfkit.machine.cpus import ROOT, read_system_file
from perfkit.machine.readings import ProcessTimes, read_process_times, read_times_of
from perfkit.units import NS_PER_S

_ATTEMPTS = 5


@dataclasses.dataclass(frozen=True, slots=True)
class TreeCpuTime:
    """The CPU time of a tree of processes since they were started; all fields never fall."""

    cpu_ns: int
    ended_ns: int
    """The part of it by processes that have ended and were waited for, which is known in the kernel's ticks only."""
    lost_ns: int
    """The part of it by processes that ended without being waited for: what they used since the reading before is missing."""
    step_ns: int
    """How far the growth of `ended_ns` may be wrong: a tick each of user and system time for every parent of ended processes."""


class ProcessTree:
    """A process and its descendants, also those whose parents have ended since they were found."""

    def __init__(self, pid: int, root: pathlib.Path = ROOT, cpu_ns: Callable[[int], int] = process_cpu_ns) -> None:
        self._pid, self._root, self._cpu_ns = pid, root, cpu_ns
        self._tick_ns = NS_PER_S // os.sysconf("SC_CLK_TCK")
        self._known: dict[int, ProcessTimes] = {}
        self._own_ns: dict[int, int] = {}
        self._lost_ns = 0

    @property
    def pids(self) -> Sequence[int]:
        """The processes that the last `find` found and that still exist."""
        return tuple(self._known)

    def find(self) -> TreeCpuTime | None:
        """Finds processes started since the last call, and reads all; None once the first process has ended, or may not be read."""
        for attempt in range(_ATTEMPTS):
            found = self._statuses()
            if self._pid not in found:
                return None
            with contextlib.suppress(OSError):  # one has ended in between, and is in another's figures by now
                # own times after those of ended children: the other order could count a process twice
                own_ns = {pid: self._cpu_ns(pid) for pid in found}
                lost_ns = self._missing_ns(found)
                if lost_ns and not attempt:  # its parent may have been read just before it ended
                    continue
                self._known, self._own_ns, self._lost_ns = found, own_ns, self._lost_ns + lost_ns
                return self._total()
        return None

    def read(self) -> TreeCpuTime | None:
        """Reads the processes that were found, at some microseconds each; `find` for the rest once a process has ended."""
        try:
            self._own_ns = {pid: self._cpu_ns(pid) for pid in self._known}
        except OSError:
            return self.find()
        return self._total() if self._known else self.find()

    def _total(self) -> TreeCpuTime:
        ended_ns = sum(map(_ended_ns, self._known.values()))
        parents = sum(one.ended_children_s > 0 for one in self._known.values())
        return TreeCpuTime(
            sum(self._own_ns.values()) + ended_ns + self._lost_ns, ended_ns, self._lost_ns, 2 * self._tick_ns * max(parents, 1)
        )

    def _missing_ns(self, found: Mapping[int, ProcessTimes]) -> int:
        """What ended processes had used, as far as no other process has it in the times of its children."""
        gone = [pid for pid, one in self._known.items() if pid not in found or found[pid].started != one.started]
        used_ns = sum(self._own_ns[pid] + _ended_ns(self._known[pid]) for pid in gone)
        inherited_ns = sum(_ended_ns(found[pid]) - _ended_ns(one) for pid, one in self._known.items() if pid not in gone)
        return used_ns - inherited_ns if used_ns > inherited_ns + 2 * self._tick_ns * len(gone) else 0

    def _statuses(self) -> dict[int, ProcessTimes]:
        """The known processes and all their descendants that exist."""
        found: dict[int, ProcessTimes] = {}
        new: Iterable[int] = dict.fromkeys((self._pid, *self._known))
        listed = None if (self._root / f"proc/{self._pid}/task/{self._pid}/children").exists() else self._listed_children()
        while new := [pid for pid in new if pid not in found]:
            for pid in new:
                if (status := read_times_of(pid, self._root)) is not None:
                    found[pid] = status
            new = [child for pid in new if pid in found for child in (self._children(pid) if listed is None else listed.get(pid, ()))]
        return found

    def _children(self, pid: int) -> list[int]:
        threads = (self._root / f"proc/{pid}/task").glob("*/children")
        return [int(child) for file in threads for child in (read_system_file(file) or "").split()]

    def _listed_children(self) -> dict[int, list[int]]:
        """For kernels without CONFIG_PROC_CHILDREN: children by their parent, from all processes of the machine."""
        children: dict[int, list[int]] = {}
        for pid, one in read_process_times(self._root).items():
            children.setdefault(one.parent, []).append(pid)
        return children


def _ended_ns(one: ProcessTimes) -> int:
    return round(one.ended_children_s * NS_PER_S)


def listening_ports(pid: int) -> frozenset[int] | None:
    """The ports of a process and its descendants; None if the system does not say."""
    try:
        root = psutil.Process(pid)
        processes = [root, *root.children(recursive=True)]
    except psutil.Error:
        return None
    ports: set[int] = set()
    is_known = False
    for process in processes:
        try:
            ports.update(one.laddr.port for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN)
            is_known = True
        except psutil.Error:  # it has ended, or is another user's
            continue
    return frozenset(ports) if is_known else None
