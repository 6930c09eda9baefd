"""Shared memory regions, of the system and of GPUs, that clients register for tensors.

System regions are read and written as files: with a mapping, a client that truncates the file would crash the server.
"""

import dataclasses
import os
import pathlib
import stat
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import numpy as np

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol.tensor import Buffer, Tensor
from server_stub.devices.cuda_driver import HANDLE_BYTES, CudaDriver, CudaError, CudaMemory

_Result = TypeVar("_Result")
FOLDER = pathlib.Path("/dev/shm")  # noqa: S108 - shm_open's folder
_MAX_REGIONS = 512  # each is an open file
_MAX_BYTES = 2**62


class _File:
    """An open file. It stays open while referenced: a request may outlive the region's registration."""

    def __init__(self, path: pathlib.Path) -> None:
        # no symbolic links, which could lead out of the folder, and no waiting for the other end of a pipe
        self.number = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)

    def __del__(self) -> None:
        if hasattr(self, "number"):
            os.close(self.number)

    def read(self, offset: int, byte_size: int) -> memoryview:
        data = np.empty(byte_size, np.uint8).data
        return data[: self.read_into(data, offset)]

    def read_into(self, target: memoryview, offset: int) -> int:
        """Fill `target`, and return how many bytes the file has for it."""
        done = 0
        while done < len(target) and (count := os.preadv(self.number, [target[done:]], offset + done)):
            done += count
        return done

    def write(self, offset: int, data: Buffer) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self.number, view, offset)
            view, offset = view[written:], offset + written


class _Memory(Protocol):
    """The memory behind a region."""

    def read(self, offset: int, byte_size: int) -> Buffer: ...

    def write(self, offset: int, data: Buffer) -> None: ...


@dataclasses.dataclass(frozen=True, slots=True)
class _Region:
    key: str
    offset: int
    byte_size: int
    memory: _Memory
    device_id: int | None = None
    """The GPU's number, or None for system memory."""


@dataclasses.dataclass(frozen=True, slots=True)
class RegionSlice:
    """The part of a region that holds one tensor. It was within the region's bounds when it was made."""

    region: str
    memory: _Memory
    offset: int
    byte_size: int

    def __len__(self) -> int:
        return self.byte_size

    def read(self) -> Buffer:
        """The current bytes. Raises ProtocolError if the region's file has been truncated."""
        raw = self._access(lambda: self.memory.read(self.offset, self.byte_size))
        if len(raw) < self.byte_size:
            raise self._truncated()
        return raw

    def write(self, tensor: Tensor) -> None:
        """Write a tensor's bytes from the beginning of the slice. Raises ProtocolError if they do not fit."""
        if len(tensor.raw) > self.byte_size:
            raise ProtocolError(
                f"shared memory size specified with the request for output '{tensor.name}' ({self.byte_size} bytes) should be at least "
                f"{len(tensor.raw)} bytes to hold the results",
                ErrorKind.INTERNAL,
            )
        self._access(lambda: self.memory.write(self.offset, tensor.raw))

    def _access(self, access: Callable[[], _Result]) -> _Result:
        try:
            return access()
        except (CudaError, OSError) as error:  # such as no space left to fill the holes of a sparse file
            raise ProtocolError(f"shared memory region '{self.region}' cannot be used: {error}", ErrorKind.INTERNAL) from None

    def _truncated(self) -> ProtocolError:
        return ProtocolError(f"Invalid shared memory region: '{self.region}'", ErrorKind.INTERNAL)


@dataclasses.dataclass(frozen=True, slots=True)
class SystemSlice(RegionSlice):
    """A part of a region in system memory. As a tensor's `raw` it is read when the model is executed."""

    failures: list[ProtocolError] = dataclasses.field(default_factory=list)
    """Why `read_into` could not read it: kept here, because raising would fail the other requests of the batch too."""

    def read_into(self, target: memoryview) -> None:
        """Fill `target` with the current bytes, or with zeros and an entry in `failures`."""
        memory = self.memory
        assert isinstance(memory, _File)
        count = 0
        try:
            count = self._access(lambda: memory.read_into(target, self.offset))
            if count < len(target):
                raise self._truncated()
        except ProtocolError as error:
            self.failures.append(error)
            np.asarray(target)[count:] = 0


class GpuSlice(RegionSlice):
    """A part of a region in a GPU's memory. As a tensor's `raw` it is copied to the host only for models that need it there."""

    __slots__ = ()

    @property
    def address(self) -> int | None:
        """Its address for GPU 0; None in the memory of another GPU."""
        assert isinstance(self.memory, CudaMemory)
        return self.memory.address(self.offset)


class SharedMemoryRegions:
    """The registered regions by name. None can be registered unless `is_allowed`."""

    def __init__(self, folder: pathlib.Path = FOLDER, *, is_allowed: bool, driver: CudaDriver | None = None) -> None:
        """`driver` is needed for GPU regions."""
        self._folder, self._driver = folder, driver
        self.is_allowed = is_allowed
        self._regions: dict[str, _Region] = {}

    def __len__(self) -> int:
        return len(self._regions)

    def register(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Open the region with this key, as shm_open does. Raises ProtocolError with Triton's messages."""
        self._check_allowed()
        self._check_new(name)
        filename = key.lstrip("/")
        if not filename or "/" in filename or "\0" in filename or filename in (".", ".."):
            raise ProtocolError(f"Unable to open shared memory region: '{key}'", ErrorKind.INTERNAL)
        try:
            file = _File(self._folder / filename)
        except (OSError, ValueError):
            raise ProtocolError(f"Unable to open shared memory region: '{key}'", ErrorKind.INTERNAL) from None
        status = os.fstat(file.number)
        if not stat.S_ISREG(status.st_mode) or byte_size <= 0 or offset < 0 or offset + byte_size > min(status.st_size, _MAX_BYTES):
            raise ProtocolError(f"Invalid shared memory region: '{key}'", ErrorKind.INTERNAL)
        self._regions[name] = _Region(key, offset, byte_size, file)

    def register_cuda(self, name: str, handle: bytes, device_id: int, byte_size: int) -> None:
        """Open GPU memory by its `cudaIpcMemHandle_t`. Raises ProtocolError with Triton's messages, also if there is no GPU."""
        if self._driver is not None:
            self._check_allowed()
            self._check_new(name)
        memory = _open_cuda_memory(self._driver, name, handle, device_id, byte_size)
        self._regions[name] = _Region("", 0, byte_size, memory, device_id)

    def unregister(self, name: str = "", *, is_cuda: bool = False) -> None:
        """Unregister a system region, or one of a GPU, or all of these if no name is given. Unknown names are ignored."""
        if not is_cuda:
            self._check_allowed()
        for key in self._named(name, is_cuda=is_cuda):
            del self._regions[key]

    def status(self, name: str = "", *, is_cuda: bool = False) -> list[dict[str, Any]]:
        """The protocol's entries of all system regions, or of all of GPUs, or of the named one. Raises ProtocolError if that is unknown."""
        regions = self._named(name, is_cuda=is_cuda)
        if name and not regions:
            raise ProtocolError(f"Unable to find {'cuda' if is_cuda else 'system'} shared memory region: '{name}'", ErrorKind.NOT_FOUND)
        fields = ("device_id", "byte_size") if is_cuda else ("key", "offset", "byte_size")
        return [{"name": key, **{field: getattr(region, field) for field in fields}} for key, region in regions.items()]

    def slice(self, name: str, offset: int, byte_size: int) -> RegionSlice:
        """A part of a region. Raises ProtocolError if the region is unknown or too small."""
        region = self._regions.get(name)
        if region is None:
            raise ProtocolError(f"Unable to find shared memory region: '{name}'", ErrorKind.NOT_FOUND)
        if not 0 <= offset < region.byte_size:
            raise ProtocolError(f"Invalid offset for shared memory region: '{name}'")
        if byte_size <= 0 or offset + byte_size > region.byte_size:
            raise ProtocolError(f"Invalid offset + byte size for shared memory region: '{name}'")
        kind = SystemSlice if region.device_id is None else GpuSlice
        return kind(name, region.memory, region.offset + offset, byte_size)

    def close(self) -> None:
        """Unregister all regions."""
        self._regions.clear()

    def _named(self, name: str, *, is_cuda: bool) -> dict[str, _Region]:
        return {key: region for key, region in self._regions.items() if name in ("", key) and is_cuda is (region.device_id is not None)}

    def _check_new(self, name: str) -> None:
        if name in self._regions:
            raise ProtocolError(f"shared memory region '{name}' already in manager", ErrorKind.ALREADY_EXISTS)
        if len(self._regions) >= _MAX_REGIONS:
            raise ProtocolError(f"no more than {_MAX_REGIONS} shared memory regions can be registered", ErrorKind.UNAVAILABLE)

    def _check_allowed(self) -> None:
        if not self.is_allowed:
            raise ProtocolError(
                "shared memory of clients is not allowed: start the server with --allow-client-shm to allow it", ErrorKind.UNSUPPORTED
            )


def _open_cuda_memory(driver: CudaDriver | None, name: str, handle: bytes, device_id: int, byte_size: int) -> CudaMemory:
    """Open GPU memory by its handle. Raises ProtocolError with Triton's messages."""
    failed = f"failed to register CUDA shared memory region: '{name}'"
    if driver is None:
        raise ProtocolError(f"{failed}, GPUs not supported")
    if len(handle) != HANDLE_BYTES:
        raise ProtocolError(f"{failed}, the handle has {len(handle)} bytes, expected {HANDLE_BYTES}")
    if not 0 <= device_id < driver.device_count:
        raise ProtocolError(f"{failed}, there is no device {device_id}")
    try:
        memory = CudaMemory(driver, handle, device_id)
    except CudaError as error:
        raise ProtocolError(f"{failed}: {error}") from None
    if not 0 < byte_size <= memory.byte_size:
        memory.close()
        raise ProtocolError(f"{failed}, byte_size {byte_size} is not between 1 and the {memory.byte_size} shared bytes")
    return memory
