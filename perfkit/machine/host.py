"""This machine: what it is, which CPUs we may use, and how busy the generator and its neighbours were."""

import contextlib
import dataclasses
import hashlib
import importlib.metadata
import os
import pathlib
import platform
import resource
from collections.abc import Iterator, Sequence
from typing import Any

import psutil

from perfkit.clock import Clock, cpu_ns

_LIBRARIES = ("aiohttp", "grpcio", "hdrhistogram", "hpack", "httptools", "numpy", "uvloop")


def describe_host() -> dict[str, Any]:
    """The machine and the software that generated the load, for the result."""
    return {
        "perfkit": importlib.metadata.version("perfkit"),
        "python": platform.python_version(),
        "libraries": {name: importlib.metadata.version(name) for name in _LIBRARIES},
        "system": platform.system(),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cpu_model": _cpu_model(),
        "cpus": os.cpu_count(),
        "usable_cpus": usable_cpus(),
        "memory_bytes": psutil.virtual_memory().total,
        "cpu_quota": cpu_quota(cpu_cgroups()),
        "numa_nodes": _numa_nodes(),
        "host_id": _host_id(),
    }


def usable_cpus() -> list[int]:
    """The CPUs this process may run on, ascending."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


@contextlib.contextmanager
def pinned(cpus: tuple[int, ...]) -> Iterator[None]:
    """Keeps this process, and the threads it starts, on those CPUs; nothing where the system cannot, or none are named."""
    if not cpus or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def cpu_quota(cgroups: Sequence[pathlib.Path]) -> float | None:
    """To how many CPUs' time the tightest of the control groups limits this process; None without a limit."""
    limits = []
    for folder in cgroups:
        with contextlib.suppress(OSError, ValueError):
            quota, period = (folder / "cpu.max").read_text(encoding="ascii").split()
            limits.append(int(quota) / int(period))  # "max" is no number: there is no limit
        with contextlib.suppress(OSError, ValueError):
            quota_us = int((folder / "cpu.cfs_quota_us").read_text(encoding="ascii"))
            if quota_us > 0:
                limits.append(quota_us / int((folder / "cpu.cfs_period_us").read_text(encoding="ascii")))
    return min(limits, default=None)


def _numa_nodes() -> int | None:
    """How many memory nodes there are; None where the system does not say."""
    return len(list(pathlib.Path("/sys/devices/system/node").glob("node[0-9]*"))) or None


def _host_id() -> str:
    """Tells this machine from others, and is nothing else: PERFKIT_HOST_ID, or a digest of the machine's id, name and parts.

    Machines made from one image may share an id, so their names count as well: a container, named anew each time, is
    a host of its own unless PERFKIT_HOST_ID says which it is on.
    """
    if given := os.environ.get("PERFKIT_HOST_ID"):
        return given
    machine_id = ""
    with contextlib.suppress(OSError):
        machine_id = pathlib.Path("/etc/machine-id").read_text(encoding="ascii").strip()
    parts = (machine_id, platform.node(), platform.machine(), _cpu_model(), str(os.cpu_count()), str(psutil.virtual_memory().total))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def open_file_limit() -> int:
    """How many files and sockets this process may open, after raising the limit as far as it goes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    return 1 << 20 if soft == resource.RLIM_INFINITY else soft


@dataclasses.dataclass(frozen=True, slots=True)
class BusyShares:
    """How busy this process was, and what kept it from being busier."""

    cpu: float = 0.0
    """The share of one core that it used; above 1 where several threads were busy."""
    steal: float = 0.0
    """The share of the machine that its host gave to others."""
    throttled: float = 0.0
    """The share of the time in which a CPU quota stopped it."""


class BusyMeter:
    """Measures `BusyShares` between two instants; `cgroups` are the folders of this process's control groups."""

    def __init__(self, clock: Clock, cgroups: Sequence[pathlib.Path] | None = None) -> None:
        self._clock = clock
        self._cgroups = cpu_cgroups() if cgroups is None else cgroups
        self._start = (clock.now_ns(), cpu_ns(), _steal_and_total_s(), _throttled_ns(self._cgroups))

    def read(self) -> BusyShares:
        """The shares since the meter was made."""
        began_ns, used_ns, (steal_s, total_s), throttled_ns = self._start
        elapsed_ns = max(self._clock.now_ns() - began_ns, 1)
        steal_now_s, total_now_s = _steal_and_total_s()
        stolen = (steal_now_s - steal_s) / (total_now_s - total_s) if total_now_s > total_s else 0.0
        stopped_ns = max((now - before for now, before in zip(_throttled_ns(self._cgroups), throttled_ns, strict=True)), default=0)
        return BusyShares((cpu_ns() - used_ns) / elapsed_ns, stolen, min(stopped_ns / elapsed_ns, 1.0))


@dataclasses.dataclass(frozen=True, slots=True)
class ProcessCounters:
    """What one process has used until now."""

    cpu_s: float
    voluntary_switches: int
    """How often its main thread waited for something."""
    involuntary_switches: int
    """How often another took the CPU from it."""
    open_files: int


@dataclasses.dataclass(frozen=True, slots=True)
class MachineCounters:
    """What the whole machine has used until now, or holds; None where the system does not say."""

    cpu_s: float
    """Of all CPUs together, without waiting and without steal."""
    steal_s: float
    total_s: float
    tcp_segments_sent: int | None
    tcp_retransmits: int | None
    tcp_sockets: int | None
    """In use, or not yet given up after their end."""


def read_process_counters(pid: int) -> ProcessCounters | None:
    """None where there is no such process any more, or it may not be asked."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            times, switches = process.cpu_times(), process.num_ctx_switches()
            return ProcessCounters(times.user + times.system, switches.voluntary, switches.involuntary, process.num_fds())
    except psutil.Error:
        return None


def read_machine_counters(proc: pathlib.Path = pathlib.Path("/proc")) -> MachineCounters:
    """The machine's counters; the TCP ones are of this process's network namespace."""
    times = psutil.cpu_times()
    total_s, steal_s = sum(times), getattr(times, "steal", 0.0)
    # what guests took stands in user time already
    total_s -= getattr(times, "guest", 0.0) + getattr(times, "guest_nice", 0.0)
    idle_s = times.idle + getattr(times, "iowait", 0.0)
    tcp, sockets = _tcp_counters(proc / "net/snmp"), [_tcp_sockets(proc / "net" / name) for name in ("sockstat", "sockstat6")]
    known = [count for count in sockets if count is not None]
    return MachineCounters(
        cpu_s=total_s - idle_s - steal_s,
        steal_s=steal_s,
        total_s=total_s,
        tcp_segments_sent=tcp.get("OutSegs"),
        tcp_retransmits=tcp.get("RetransSegs"),
        tcp_sockets=sum(known) if known else None,
    )


def _tcp_counters(file: pathlib.Path) -> dict[str, int]:
    """The line of names and the line of values that begin with `Tcp:`."""
    with contextlib.suppress(OSError, ValueError):
        names, values = (line.split()[1:] for line in file.read_text(encoding="ascii").splitlines() if line.startswith("Tcp:"))
        return dict(zip(names, map(int, values), strict=True))
    return {}


def _tcp_sockets(file: pathlib.Path) -> int | None:
    """`TCP: inuse 5 orphan 0 tw 2 alloc 7 mem 1`, of which those in use and in TIME_WAIT; the second file has `TCP6: inuse 1`."""
    with contextlib.suppress(OSError, ValueError):
        for line in file.read_text(encoding="ascii").splitlines():
            kind, *rest = line.split()
            if kind in ("TCP:", "TCP6:"):
                counts = dict(zip(rest[::2], map(int, rest[1::2]), strict=True))
                return counts.get("inuse", 0) + counts.get("tw", 0)
    return None


def cpu_cgroups(base: pathlib.Path = pathlib.Path("/")) -> Sequence[pathlib.Path]:
    """The groups whose quotas hold for this process: its own in either version of the hierarchy, and those above; `base` is the system's root."""
    folders: list[pathlib.Path] = []
    with contextlib.suppress(OSError):
        for line in (base / "proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers and "cpu" not in controllers.split(","):
                continue
            root = base / ("sys/fs/cgroup/cpu" if controllers else "sys/fs/cgroup")
            own = root / group.lstrip("/")
            folders += [folder for folder in (own, *own.parents) if folder.is_relative_to(root)]
    return folders


def _throttled_ns(cgroups: Sequence[pathlib.Path]) -> list[int]:
    """For how long quotas have stopped each group, all its CPUs added; 0 where the system does not say."""
    found = []
    for folder in cgroups:
        counts: dict[str, str] = {}
        with contextlib.suppress(OSError, ValueError):
            counts = dict(line.split() for line in (folder / "cpu.stat").read_text(encoding="ascii").splitlines())
        found.append(int(counts.get("throttled_time", 0)) or int(counts.get("throttled_usec", 0)) * 1000)
    return found


def _steal_and_total_s() -> tuple[float, float]:
    times = psutil.cpu_times()
    return getattr(times, "steal", 0.0), sum(times)


def _cpu_model() -> str:
    with contextlib.suppress(OSError):
        for line in pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
