"""Memory shared with a server on this machine: objects in /dev/shm, and GPU memory, through NVIDIA's driver library.

Each object in /dev/shm is locked by the process that made it. The kernel releases the lock with the process, however it ends, also where a
container has other process ids, so that an object of perfkit that nobody locks can be removed.
"""

import contextlib
import ctypes
import fcntl
import functools
import os
import pathlib
import re
import secrets
from collections.abc import Callable
from typing import Any, Protocol

from perfkit.errors import ScenarioError, UsageError
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


LIBRARY = "libcuda.so.1"
HANDLE_BYTES = 64
"""The size of a cudaIpcMemHandle_t."""
_PAGE_BYTES = 2 * 2**20  # what a handle shares: smaller allocations would share their neighbours, too
_LAZY_PEER_ACCESS = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS


class _Handle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * HANDLE_BYTES)]


class CudaDriver:
    """The driver library, for one GPU; raises UsageError without the driver or that GPU, and where a call fails."""

    def __init__(self, device_id: int, load: Callable[[str], Any] = ctypes.CDLL) -> None:
        try:
            self._library = load(LIBRARY)
        except OSError:
            raise UsageError("shared_memory: cuda needs an NVIDIA GPU on this machine, but the driver is not installed") from None
        self.device_id = device_id
        count, device, self._context = ctypes.c_int(), ctypes.c_int(), ctypes.c_void_p()
        self._call("cuInit", 0)
        self._call("cuDeviceGetCount", ctypes.byref(count))
        if not 0 <= device_id < count.value:
            raise UsageError(f"shared_memory.device: there is no GPU {device_id}: the driver lists {count.value}, counted from 0")
        self._call("cuDeviceGet", ctypes.byref(device), device_id)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)

    def allocate(self, byte_size: int) -> int:
        """Allocates at least so many bytes, filled with zeros, and returns their address."""
        address, byte_size = ctypes.c_uint64(), -(-byte_size // _PAGE_BYTES) * _PAGE_BYTES
        self._enter("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(byte_size))
        self._enter("cuMemsetD8_v2", address, ctypes.c_ubyte(0), ctypes.c_size_t(byte_size))
        return address.value

    def free(self, address: int) -> None:
        """Frees memory of `allocate`."""
        self._enter("cuMemFree_v2", ctypes.c_uint64(address))

    def share(self, address: int) -> bytes:
        """The handle by which another process opens memory of `allocate`."""
        handle = ctypes.create_string_buffer(HANDLE_BYTES)
        self._enter("cuIpcGetMemHandle", handle, ctypes.c_uint64(address))
        return handle.raw

    def open(self, handle: bytes) -> int:
        """Maps memory that another process shares, and returns its address."""
        shared, address = _Handle(), ctypes.c_uint64()
        ctypes.memmove(ctypes.byref(shared), handle, HANDLE_BYTES)
        self._enter("cuIpcOpenMemHandle_v2", ctypes.byref(address), shared, ctypes.c_uint(_LAZY_PEER_ACCESS))
        return address.value

    def read(self, address: int, byte_size: int) -> bytes:
        """Copies bytes from the GPU."""
        buffer = ctypes.create_string_buffer(byte_size)
        self._enter("cuMemcpyDtoH_v2", buffer, ctypes.c_uint64(address), ctypes.c_size_t(byte_size))
        return buffer.raw

    def write(self, address: int, data: bytes) -> None:
        """Copies bytes to the GPU, and waits until they are there: the driver itself waits only until `data` may be changed."""
        self._enter("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)))
        self._call("cuCtxSynchronize")

    def _enter(self, function: str, *arguments: Any) -> None:
        """Calls a function in the GPU's primary context, which CUDA's runtime uses, too."""
        self._call("cuCtxSetCurrent", self._context)
        self._call(function, *arguments)

    def _call(self, function: str, *arguments: Any) -> None:
        result = getattr(self._library, function)(*arguments)
        if result:
            name = ctypes.c_char_p()
            known = getattr(self._library, "cuGetErrorName")(result, ctypes.byref(name)) == 0  # noqa: B009 - the library is untyped, as above
            words = name.value.decode() if known and name.value else f"error {result}"
            raise UsageError(f"shared_memory: cuda: the driver's {function} failed: {words}")


@functools.cache
def cuda_driver(device_id: int) -> CudaDriver:
    """This process's driver for a GPU."""
    return CudaDriver(device_id)


# the driver refuses to open a handle in the process that made it
_own_addresses: dict[bytes, tuple[CudaDriver, int]] = {}


@functools.cache
def _opened(handle: bytes, device_id: int) -> tuple[CudaDriver, int]:
    """The memory behind another process's handle; it stays mapped until this process ends."""
    driver = cuda_driver(device_id)
    return driver, driver.open(handle)


class CudaReader(RegionReader):
    """Reads a region of a GPU by its handle."""

    def __init__(self, handle: bytes, device_id: int) -> None:
        self._handle, self._device_id = handle, device_id

    @override
    def read(self, offset: int, byte_size: int) -> bytes:
        try:
            driver, address = _own_addresses.get(self._handle) or _opened(self._handle, self._device_id)
            return driver.read(address + offset, byte_size)
        except UsageError as error:
            raise OSError(str(error)) from None


class CudaMemory(RegionMemory):
    """Memory of a GPU with a handle. Its empty object in /dev/shm shows other processes that this one has not ended."""

    def __init__(self, byte_size: int, driver: CudaDriver, folder: pathlib.Path = FOLDER) -> None:
        self.byte_size, self._driver = byte_size, driver
        self._object = SharedObject(folder)
        self._address = 0
        try:
            self._address = driver.allocate(byte_size)
            self.handle = driver.share(self._address)
        except UsageError:
            self.close()
            raise
        _own_addresses[self.handle] = driver, self._address

    @property
    @override
    def name(self) -> str:
        return self._object.path.name

    @property
    def device_id(self) -> int:
        """The GPU's number."""
        return self._driver.device_id

    @property
    @override
    def reader(self) -> CudaReader:
        return CudaReader(self.handle, self.device_id)

    @override
    def write(self, offset: int, data: bytes) -> None:
        self._driver.write(self._address + offset, data)

    @override
    def close(self) -> None:
        self._object.close()
        if self._address:
            _own_addresses.pop(getattr(self, "handle", b""), None)
            self._driver.free(self._address)
