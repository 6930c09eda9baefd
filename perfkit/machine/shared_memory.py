"""Memory shared with a server on this machine: objects in /dev/shm, and what a killed process leaves there.

Each object is locked by the process that made it. The kernel releases the lock with the process, however it ends, also where a
container has other process ids, so that an object of perfkit that nobody locks can be removed.
"""

import contextlib
import fcntl
import os
import pathlib
import re
import secrets
from typing import Protocol

from perfkit.errors import ScenarioError
from perfkit.override import override
from perfkit.units import format_bytes

FOLDER = pathlib.Path("/dev/shm")  # noqa: S108 - shm_open's folder
_NAME = re.compile(r"perfkit-[0-9]+-[0-9a-f]{16}")


class RegionReader(Protocol):
    """Reads a region's memory in any process; plain data."""

    def read(self, offset: int, byte_size: int) -> bytes:
        """Copies bytes; raises OSError if the memory is gone."""


class RegionMemory(Protocol):
    """Memory of this process that a server can open."""

    byte_size: int
    handle: bytes
    """The handle of a GPU's memory; empty for system memory."""

    @property
    def name(self) -> str:
        """The name of its object in /dev/shm, which no other region has."""

    @property
    def reader(self) -> RegionReader:
        """Reads it, also from a worker's process."""

    def write(self, offset: int, data: bytes) -> None:
        """Copies bytes into it."""

    def close(self) -> None:
        """Frees it and removes its object."""


class SharedObject:
    """A new, locked file in /dev/shm; raises ScenarioError if it cannot be made."""

    def __init__(self, folder: pathlib.Path = FOLDER) -> None:
        while True:
            self.path = folder / f"perfkit-{os.getpid()}-{secrets.token_hex(8)}"
            try:
                # for this user alone, as Triton's and perf_analyzer's clients have it
                self.descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise ScenarioError(f"shared_memory: {folder} cannot be used: {error.strerror}") from None
            fcntl.flock(self.descriptor, fcntl.LOCK_EX)
            if os.fstat(self.descriptor).st_nlink:
                return
            os.close(self.descriptor)  # another perfkit found it before it was locked, and removed it as abandoned

    def close(self) -> None:
        """Removes the file."""
        self.path.unlink(missing_ok=True)
        os.close(self.descriptor)


class SystemReader(RegionReader):
    """Reads an object by its path."""

    def __init__(self, path: pathlib.Path) -> None:
        self._path = path

    @override
    def read(self, offset: int, byte_size: int) -> bytes:
        with self._path.open("rb") as file:
            return os.pread(file.fileno(), byte_size, offset)


class SystemMemory(RegionMemory):
    """A POSIX shared memory object; raises ScenarioError if /dev/shm has too little space, as in many containers."""

    handle = b""

    def __init__(self, byte_size: int, folder: pathlib.Path = FOLDER) -> None:
        self.byte_size = byte_size
        self._object = SharedObject(folder)
        try:
            # all pages now: where they are missing later, the server is killed by SIGBUS
            os.posix_fallocate(self._object.descriptor, 0, byte_size)
        except OSError as error:
            self._object.close()
            free = os.statvfs(folder)
            raise ScenarioError(
                f"shared_memory: {format_bytes(byte_size)} in {folder}, where {format_bytes(free.f_bavail * free.f_frsize)} are free: "
                f"{error.strerror}; reduce workload.variants or shared_memory.output_bytes, or enlarge {folder} (docker run --shm-size)"
            ) from None

    @property
    @override
    def name(self) -> str:
        return self._object.path.name

    @property
    @override
    def reader(self) -> SystemReader:
        return SystemReader(self._object.path)

    @override
    def write(self, offset: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self._object.descriptor, view, offset)
            view, offset = view[written:], offset + written

    @override
    def close(self) -> None:
        self._object.close()


def remove_abandoned(folder: pathlib.Path = FOLDER) -> tuple[str, ...]:
    """Removes the objects of perfkit processes that have ended, for instance killed ones, and returns their names; those of other users stay."""
    removed = []
    for path in sorted(folder.glob("perfkit-*")):
        if _NAME.fullmatch(path.name) is None:
            continue
        with contextlib.suppress(OSError):  # another user's, locked, or removed meanwhile
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
                removed.append(path.name)
            finally:
                os.close(descriptor)
    return tuple(removed)
