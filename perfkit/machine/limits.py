"""The limits of this process: CPU quota, memory and what a run may take of it, open files, ports."""

import contextlib
import errno
import pathlib
import resource
from collections.abc import Sequence

from perfkit.digits import whole_number
from perfkit.errors import ScenarioError, UsageError
from perfkit.machine.cpus import ROOT, read_system_file
from perfkit.units import format_bytes

_UNLIMITED_FILES = 1 << 20
_LEAST_ADDRESS_SPACE_BYTES = 192 * 2**20
# the rest is for the encoded copies, for those of the worker processes, and for everyone else
_SHARE = 4


def cpu_cgroups(root: pathlib.Path = ROOT) -> Sequence[pathlib.Path]:
    """The folders of the control groups whose CPU quotas apply to this process, of either version, parents included."""
    return _cgroups("cpu", root)


def available_memory_bytes(root: pathlib.Path = ROOT) -> int | None:
    """The memory that this process may still use: the machine's, or less if its control groups have limits; None if unknown."""
    available = [kib * 1024 for kib in _numbers(root / "proc/meminfo", "MemAvailable:")]
    for folder in _cgroups("memory", root):
        limits = [_number(folder / name) for name in ("memory.max", "memory.limit_in_bytes")]
        used = [_number(folder / name) for name in ("memory.current", "memory.usage_in_bytes")]
        limit, current = (next((number for number in numbers if number is not None), None) for numbers in (limits, used))
        if limit is not None and current is not None:
            cached = sum(_numbers(folder / "memory.stat", "inactive_file"))  # the kernel gives it back
            available.append(max(limit - current + cached, 0))
    return min(available, default=None)


def _cgroups(controller: str, root: pathlib.Path) -> Sequence[pathlib.Path]:
    folders: list[pathlib.Path] = []
    with contextlib.suppress(ValueError):
        for line in (read_system_file(root / "proc/self/cgroup") or "").splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers and controller not in controllers.split(","):
                continue
            hierarchy = root / (f"sys/fs/cgroup/{controller}" if controllers else "sys/fs/cgroup")
            own = hierarchy / group.lstrip("/")
            folders += [folder for folder in (own, *own.parents) if folder.is_relative_to(hierarchy)]
    return folders


def _number(file: pathlib.Path) -> int | None:
    """The number in a file; None for `max`, which is no limit."""
    return whole_number((read_system_file(file) or "").strip())


def _numbers(file: pathlib.Path, key: str) -> Sequence[int]:
    """The number after a key that begins a line; empty without one."""
    lines = (line.split() for line in (read_system_file(file) or "").splitlines())
    numbers = [whole_number(fields[1]) for fields in lines if len(fields) > 1 and fields[0] == key]
    return [number for number in numbers if number is not None]


def cpu_quota(cgroups: Sequence[pathlib.Path]) -> float | None:
    """The smallest quota of some control groups, in CPUs; None without a quota."""
    quotas = []
    for folder in cgroups:
        fields = (read_system_file(folder / "cpu.max") or "").split()
        fields = fields or [read_system_file(folder / name) or "" for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us")]
        with contextlib.suppress(ValueError, ZeroDivisionError):  # "max" is not a number: no quota
            quota_us, period_us = map(int, fields)
            quotas += [quota_us / period_us] if quota_us > 0 else []  # -1 means no quota
    return min(quotas, default=None)


def throttled_ns(cgroups: Sequence[pathlib.Path]) -> list[int]:
    """How long quotas have stopped each control group, summed over its CPUs; 0 if unknown."""
    times = []
    for folder in cgroups:
        counts: dict[str, str] = {}
        with contextlib.suppress(ValueError):
            counts = dict(line.split() for line in (read_system_file(folder / "cpu.stat") or "").splitlines())
        times.append(int(counts.get("throttled_time", 0)) or int(counts.get("throttled_usec", 0)) * 1000)
    return times


def raise_open_file_limit() -> int:
    """Raises the number of files and sockets that this process may open as far as allowed, and returns it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    return _UNLIMITED_FILES if soft == resource.RLIM_INFINITY else soft


def hard_open_file_limit() -> int:
    """The most files and sockets that this process may open after raising its limit."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return _UNLIMITED_FILES if hard == resource.RLIM_INFINITY else hard


def count_open_files() -> int:
    """The number of files and sockets that this process has open; 0 if unknown."""
    with contextlib.suppress(OSError):
        return len(list(pathlib.Path("/proc/self/fd").iterdir())) - 1  # the listing itself is one
    return 0


def check_address_space() -> None:
    """Raises UsageError if this process may use so little address space (`ulimit -v`) that libraries in C would end it with a code of theirs."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < _LEAST_ADDRESS_SPACE_BYTES:
        raise UsageError(
            f"this process may use {format_bytes(limit)} of address space (ulimit -v), and a command that measures or reads results needs at least "
            f"{format_bytes(_LEAST_ADDRESS_SPACE_BYTES)}: raise the limit"
        )


def is_file_limit(error: BaseException | None) -> bool:
    """Whether an operation failed because this process, or the machine, may open no more files and sockets."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def count_ephemeral_ports(root: pathlib.Path = ROOT) -> int | None:
    """The number of local ports for outgoing connections to one address; None if unknown."""
    ports = (read_system_file(root / "proc/sys/net/ipv4/ip_local_port_range") or "").split()
    return int(ports[1]) - int(ports[0]) + 1 if len(ports) == 2 else None


class MemoryBudget:
    """Adds up what is about to be made; its limit is a quarter of the available memory, here that of the machine by default."""

    def __init__(self, available_bytes: int | None = None) -> None:
        self._available_bytes = available_memory_bytes() if available_bytes is None else available_bytes
        self._reserved_bytes = 0

    def reserve(self, key: str, needed_bytes: int, arithmetic: str, keys: str) -> None:
        """Takes a part of the budget.

        `arithmetic` says how the size came about, `keys` which keys of the scenario reduce it. Raises ScenarioError if it is too much.
        """
        before_bytes, self._reserved_bytes = self._reserved_bytes, self._reserved_bytes + needed_bytes
        if self._available_bytes is None or self._reserved_bytes * _SHARE <= self._available_bytes:
            return
        others = f", besides {format_bytes(before_bytes)} for others" if before_bytes >= 2**20 else ""
        raise ScenarioError(
            f"{key}: {arithmetic} = {format_bytes(needed_bytes)} of memory{others}; a run may take "
            f"{format_bytes(self._available_bytes / _SHARE)}, a quarter of the {format_bytes(self._available_bytes)} that are available: "
            f"reduce {keys}"
        )


_LACKING = (errno.ENOMEM, errno.EAGAIN)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_OWN_FOLDER = pathlib.Path(__file__).parents[1]
_NO_MEMORY = ("failed to map segment", "cannot allocate memory", "can't start new thread", "can't allocate")
_SYSTEM_FOLDERS = ("/proc", "/sys")


def environment_fault(error: BaseException) -> str:
    """What the environment lacks, in a sentence, if that is why a command failed; otherwise empty."""
    causes = [error]
    # what only happened before an error, its __context__, does not explain it
    while (cause := causes[-1].__cause__) is not None and cause not in causes:
        causes.append(cause)
    for one in causes:
        if isinstance(one, MemoryError) or any(text in str(one).lower() for text in _NO_MEMORY):
            return f"there is not enough memory, or this process may not use it (ulimit -v, ulimit -u, the container's limits): {one}"
        if isinstance(one, OSError) and str(one.filename or "").startswith(_SYSTEM_FOLDERS):
            return f"this environment does not show {one.filename}, which perfkit reads: mount /proc and /sys as Linux has them ({one.strerror})"
        if isinstance(one, OSError) and (one.errno in _LACKING or (one.errno in _FORBIDDEN and _is_foreign(one.filename))):
            return f"the environment does not allow what perfkit needs: {one}"
    return ""


def _is_foreign(file: object) -> bool:
    """Whether an error names a file that is not perfkit's own code."""
    return isinstance(file, str) and not pathlib.Path(file).is_relative_to(_OWN_FOLDER)
