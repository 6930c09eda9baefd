"""The instructions that processes execute, counted by the CPU through the kernel's perf events, see perf_event_open(2)."""

import ctypes
import errno
import os
import pathlib
import platform
import struct
from collections.abc import Callable, Iterable
from typing import NamedTuple

from perfkit.machine.cpus import ROOT

_SYSTEM_CALLS = {"x86_64": 298, "aarch64": 241}
_ATTRIBUTES = struct.Struct("=IIQQQQQIIQ")  # the first published form of perf_event_attr, PERF_ATTR_SIZE_VER0
_TIMES = 1 | 2  # PERF_FORMAT_TOTAL_TIME_ENABLED and _RUNNING
_INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HYPERVISOR = 1 << 1, 1 << 5, 1 << 6
_CLOSE_ON_EXEC = 8
_COUNTS = struct.Struct("=QQQ")


class PerfEvent(NamedTuple):
    """What is counted: a type and a configuration of perf_event_attr."""

    kind: int
    config: int
    with_kernel: bool = False


INSTRUCTIONS = PerfEvent(0, 1)
"""PERF_TYPE_HARDWARE and PERF_COUNT_HW_INSTRUCTIONS, in user mode."""


class NotCountedError(Exception):
    """The kernel or the CPU does not count the event; the text says why, as the end of a sentence."""


def attributes(event: PerfEvent) -> bytes:
    """The perf_event_attr of an event that counts at once, in threads and processes that are started later, too."""
    flags = _INHERIT | (0 if event.with_kernel else _EXCLUDE_KERNEL | _EXCLUDE_HYPERVISOR)
    return _ATTRIBUTES.pack(event.kind, _ATTRIBUTES.size, event.config, 0, 0, _TIMES, flags, 0, 0, 0)


def open_perf_event(attribute_bytes: bytes, thread: int) -> int:
    """Opens an event for a thread on every CPU; the file descriptor. Raises OSError, with ENOSYS for an unknown kind of machine."""
    number = _SYSTEM_CALLS.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    library = ctypes.CDLL(None, use_errno=True)
    buffer = ctypes.create_string_buffer(attribute_bytes, len(attribute_bytes))
    # a system call takes whole registers
    file = library.syscall(
        ctypes.c_long(number), buffer, ctypes.c_long(thread), ctypes.c_long(-1), ctypes.c_long(-1), ctypes.c_long(_CLOSE_ON_EXEC)
    )
    if file < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(file)


class EventCounter:
    """Counts an event in all threads of some processes and in whatever they start from now on; raises NotCountedError."""

    def __init__(
        self,
        pids: Iterable[int],
        event: PerfEvent = INSTRUCTIONS,
        open_event: Callable[[bytes, int], int] = open_perf_event,
        root: pathlib.Path = ROOT,
    ) -> None:
        self._files: list[int] = []
        threads = [int(folder.name) for pid in pids for folder in (root / f"proc/{pid}/task").glob("*")]
        for thread in threads:
            try:
                self._files.append(open_event(attributes(event), thread))
            except OSError as error:
                if error.errno != errno.ESRCH:  # the thread has ended
                    self.close()
                    raise NotCountedError(_why(error)) from None
        if not self._files:
            raise NotCountedError("its processes have ended")

    def read(self) -> int:
        """The count so far; where the CPU had to share its counters among several users, scaled to the whole time."""
        total = 0.0
        for file in self._files:
            count, enabled_ns, running_ns = _COUNTS.unpack(os.read(file, _COUNTS.size))
            total += count * enabled_ns / running_ns if running_ns else 0
        return round(total)

    def close(self) -> None:
        """Ends the counting."""
        while self._files:
            os.close(self._files.pop())


def _why(error: OSError) -> str:
    if error.errno in (errno.EACCES, errno.EPERM):
        return "the system does not let perfkit count them: set the sysctl kernel.perf_event_paranoid to 2 or less, or grant CAP_PERFMON"
    if error.errno == errno.ENOSYS:
        return "the system has no perf events"
    if error.errno == errno.EMFILE:
        return "there are more threads than perfkit may open files: raise the limit (ulimit -n)"
    if error.errno in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP):
        return "this machine offers no hardware counters, as is usual for virtual machines"
    return f"perf_event_open failed: {error.strerror}"
