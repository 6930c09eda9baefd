"""CPU use of processes besides perfkit and the target on the generator's machine, for each load point."""

import os
from collections.abc import Callable, Mapping

from perfkit.figures.resources import BusyProcess, OtherProcesses
from perfkit.machine.readings import ProcessTimes, read_process_times
from perfkit.telemetry.host.target_processes import TargetProcesses
from perfkit.units import NS_PER_S

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
