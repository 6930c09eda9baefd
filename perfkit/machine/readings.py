"""Readings of how busy this machine and its processes are: CPU time, steal, throttling, context switches, TCP, timers."""

import collections
import contextlib
import dataclasses
import os
import pathlib
from collections.abc import Sequence

import psutil

from perfkit.clock import Clock, cpu_ns, suspended_ns
from perfkit.digits import whole_number
from perfkit.machine.cpus import ROOT, read_system_file
from perfkit.machine.limits import cpu_cgroups, throttled_ns
from perfkit.units import NS_PER_S

_SUSPENDED_NS = NS_PER_S // 10


@dataclasses.dataclass(frozen=True, slots=True)
class CpuTimes:
    """CPU time since the machine started, in seconds, all CPUs together."""

    idle_s: float
    """Idle or waiting for disks."""
    steal_s: float
    """Given to others by the machine's host."""
    total_s: float

    @property
    def cpu_s(self) -> float:
        """Used by processes."""
        return self.total_s - self.idle_s - self.steal_s


def read_cpu_times() -> CpuTimes:
    """Reads the machine's CPU times."""
    times = psutil.cpu_times()
    # user and nice time already include that of guests
    total_s = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
    return CpuTimes(times.idle + getattr(times, "iowait", 0.0), getattr(times, "steal", 0.0), total_s)


@dataclasses.dataclass(frozen=True, slots=True)
class BusyShares:
    """How busy this process was over a span, and what limited it."""

    cpu: float = 0.0
    """The share of one core that it used; above 1 if several threads were busy."""
    steal: float = 0.0
    """The share of the machine that its host gave to others."""
    throttled: float = 0.0
    """The share of time in which a CPU quota stopped it."""
    suspended_ns: int = 0
    """How long the machine was suspended."""


class BusyMeter:
    """Measures `BusyShares` from its creation on; `cgroups` are the folders of this process's control groups."""

    def __init__(self, clock: Clock, cgroups: Sequence[pathlib.Path] | None = None) -> None:
        self._clock = clock
        self._cgroups = cpu_cgroups() if cgroups is None else cgroups
        self._start = (clock.now_ns(), cpu_ns(), read_cpu_times(), throttled_ns(self._cgroups), suspended_ns())

    def read(self) -> BusyShares:
        """The shares since the meter was created."""
        start_ns, used_ns, before, throttled_before_ns, suspended_before_ns = self._start
        elapsed_ns, now = max(self._clock.now_ns() - start_ns, 1), before
        with contextlib.suppress(OSError):  # at the file limit, which has a warning of its own
            now = read_cpu_times()
        steal_share = (now.steal_s - before.steal_s) / (now.total_s - before.total_s) if now.total_s > before.total_s else 0.0
        throttled = zip(throttled_ns(self._cgroups), throttled_before_ns, strict=True)
        stopped_ns = max((after_ns - before_ns for after_ns, before_ns in throttled), default=0)
        # the two clocks are read one after the other
        slept_ns = suspended_ns() - suspended_before_ns
        return BusyShares(
            (cpu_ns() - used_ns) / elapsed_ns, steal_share, min(stopped_ns / elapsed_ns, 1.0), slept_ns if slept_ns > _SUSPENDED_NS else 0
        )


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessCounters:
    """What a process has used since it started."""

    cpu_s: float
    voluntary_switches: int
    """Context switches of its main thread because it waited."""
    involuntary_switches: int
    """Context switches of its main thread because another process took the CPU."""
    open_files: int


def read_process_counters(pid: int) -> ProcessCounters | None:
    """Reads a process's counters; None if it has ended, or may not be read."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            times, switches = process.cpu_times(), process.num_ctx_switches()
            return ProcessCounters(times.user + times.system, switches.voluntary, switches.involuntary, process.num_fds())
    except psutil.Error:
        return None


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessTimes:
    """A process's CPU time since its start; its number and `started` together identify it."""

    name: str
    parent: int
    cpu_s: float
    started: int
    """In the kernel's ticks since the machine started."""
    ended_children_s: float = 0.0
    """CPU time of its children that have ended, and of theirs."""


def read_process_times(root: pathlib.Path = ROOT) -> dict[int, ProcessTimes]:
    """All processes by number; empty where the system has no such files."""
    with contextlib.suppress(OSError):
        pids = [pid for folder in (root / "proc").iterdir() if (pid := whole_number(folder.name)) is not None]
        return {pid: times for pid in pids if (times := read_times_of(pid, root)) is not None}
    return {}


def read_times_of(pid: int, root: pathlib.Path = ROOT) -> ProcessTimes | None:
    """Reads /proc/PID/stat, see proc_pid_stat(5); None if the process has ended."""
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = (root / f"proc/{pid}/stat").read_text(errors="replace")
        opening, closing = text.index("("), text.rindex(")")  # a name may hold both
        fields = text[closing + 2 :].split()
        used_s, ended_s = ((int(fields[at]) + int(fields[at + 1])) / ticks_per_s for at in (11, 13))
        return ProcessTimes(text[opening + 1 : closing], int(fields[1]), used_s, int(fields[19]), ended_s)
    return None


@dataclasses.dataclass(frozen=True, slots=True)
class MachineCounters:
    """What the machine has used since it started, and its TCP sockets; None where the system does not report it."""

    cpu_s: float
    steal_s: float
    total_s: float
    tcp_segments_sent: int | None
    tcp_retransmits: int | None
    tcp_sockets: int | None
    """In use or in TIME_WAIT."""


def read_machine_counters(root: pathlib.Path = ROOT) -> MachineCounters:
    """Reads the machine's counters; the TCP ones are of this process's network namespace."""
    cpu, tcp, sockets = read_cpu_times(), _read_tcp_counters(root), read_tcp_sockets(root)
    return MachineCounters(
        cpu_s=cpu.cpu_s,
        steal_s=cpu.steal_s,
        total_s=cpu.total_s,
        tcp_segments_sent=tcp.get("OutSegs"),
        tcp_retransmits=tcp.get("RetransSegs"),
        tcp_sockets=sum(sockets.values()) if sockets else None,
    )


def _read_tcp_counters(root: pathlib.Path) -> dict[str, int]:
    """The two `Tcp:` lines of /proc/net/snmp, the first with names and the second with values."""
    lines = (read_system_file(root / "proc/net/snmp") or "").splitlines()
    with contextlib.suppress(ValueError):
        names, values = (line.split()[1:] for line in lines if line.startswith("Tcp:"))
        return dict(zip(names, map(int, values), strict=True))
    return {}


def read_tcp_sockets(root: pathlib.Path = ROOT) -> dict[str, int]:
    """TCP sockets of this process's network namespace: `inuse`, and in TIME_WAIT `tw`; without what the system does not report.

    Read from /proc/net/sockstat, with `TCP: inuse 5 orphan 0 tw 2 alloc 7 mem 1`, and sockstat6, with `TCP6: inuse 1`.
    """
    counts: collections.Counter[str] = collections.Counter()
    for name in ("sockstat", "sockstat6"):
        for line in (read_system_file(root / "proc/net" / name) or "").splitlines():
            kind, *fields = line.split()
            if kind in ("TCP:", "TCP6:"):
                with contextlib.suppress(ValueError):
                    counts.update(dict(zip(fields[::2], map(int, fields[1::2]), strict=True)))
    return {key: counts[key] for key in ("inuse", "tw") if key in counts}
