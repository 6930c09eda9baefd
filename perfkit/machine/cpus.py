"""The CPUs of this machine: which may be used, how they are arranged, and how their clocks are governed."""

import contextlib
import ctypes
import os
import pathlib
import platform
import struct
from collections.abc import Iterator, Sequence

ROOT = pathlib.Path("/")
"""The folder that holds `proc` and `sys`; tests pass another one."""
_DEVICES = "sys/devices/system"


def read_system_file(path: pathlib.Path, errors: str = "strict") -> str | None:
    """The stripped text of a file in /proc or /sys; None if it does not exist, may not be read, or is not UTF-8, unless `errors` says how to read that."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        return path.read_text(encoding="utf-8", errors=errors).strip()
    return None


def usable_cpus() -> list[int]:
    """The CPUs that this process may run on, ascending."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


# struct sched_attr of sched_setattr(2): size, policy, flags, nice, priority, runtime, deadline, period
_SCHED_ATTR, _SHARES_TIME = struct.Struct("=IIQiIQQQ"), (0, 3)
_SET_AND_GET_NUMBERS = {"x86_64": (314, 315), "aarch64": (274, 275)}
_SHORT_SLICE_NS = 100_000


def take_short_slices() -> None:
    """Has the kernel run this thread soon after it wakes up, for 0.1 ms, instead of ending the longer slice of another thread first.

    Its share of the CPU stays the same. No effect before Linux 6.12, on other systems, and at real-time priority.
    """
    numbers = _SET_AND_GET_NUMBERS.get(platform.machine()) if platform.system() == "Linux" else None
    if numbers is None:
        return
    call, attributes = ctypes.CDLL(None).syscall, ctypes.create_string_buffer(_SCHED_ATTR.size)
    if call(numbers[1], 0, attributes, _SCHED_ATTR.size, 0):
        return
    size, policy, flags, nice, priority, _, *times = _SCHED_ATTR.unpack(attributes)
    if policy in _SHARES_TIME:
        call(numbers[0], 0, _SCHED_ATTR.pack(size, policy, flags, nice, priority, _SHORT_SLICE_NS, *times), 0)


@contextlib.contextmanager
def pinned(cpus: tuple[int, ...]) -> Iterator[None]:
    """Restricts this process, and the threads it starts, to some CPUs; no effect without CPUs or on systems without affinity."""
    if not cpus or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def cpu_model(root: pathlib.Path = ROOT) -> str:
    """The CPU's model name."""
    lines = (read_system_file(root / "proc/cpuinfo") or "").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor())


def count_cores(cpus: Sequence[int], root: pathlib.Path = ROOT) -> int:
    """The number of physical cores behind logical CPUs."""
    return len({read_system_file(root / _DEVICES / f"cpu/cpu{cpu}/topology/thread_siblings_list") or str(cpu) for cpu in cpus})


def count_numa_nodes(root: pathlib.Path = ROOT) -> int | None:
    """The number of NUMA nodes; None if unknown."""
    return len(list((root / _DEVICES / "node").glob("node[0-9]*"))) or None


def frequency_governors(cpus: Sequence[int], root: pathlib.Path = ROOT) -> frozenset[str]:
    """The governors that set the clock frequency of some CPUs; empty if unknown."""
    governors = {read_system_file(root / _DEVICES / f"cpu/cpu{cpu}/cpufreq/scaling_governor") for cpu in cpus}
    return frozenset(governor for governor in governors if governor)


def can_boost(root: pathlib.Path = ROOT) -> bool | None:
    """Whether CPUs may exceed their base frequency; None if unknown."""
    if (boost := read_system_file(root / _DEVICES / "cpu/cpufreq/boost")) is not None:
        return boost == "1"
    no_turbo = read_system_file(root / _DEVICES / "cpu/intel_pstate/no_turbo")
    return None if no_turbo is None else no_turbo == "0"
