"""Regions of shared memory, the system's and a GPU's, that clients register, and what of a request lies in them.

The system's are read and written as files: a mapping would take the process along when its client shortens the file.
"""

import dataclasses
import os
import pathlib
import stat
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol.message import InferResponse
from perfkit.protocol.tensor import Tensor
from server_stub.cuda_driver import CudaDriver, CudaError
from server_stub.cuda_memory import open_cuda_memory

_Answer = TypeVar("_Answer")
FOLDER = pathlib.Path("/dev/shm")  # noqa: S108 - where shm_open has its files
_MOST_REGIONS = 512  # each is an open file
_LARGEST_BYTES = 2**62


class _File:
    """An open file that is closed when nobody has it any more: a request may still be writing when its region is let go."""

    def __init__(self, path: pathlib.Path) -> None:
        # not through a link, which could lead out of the folder, and not waiting for the other end of a pipe
        self.number = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)

    def __del__(self) -> None:
        if hasattr(self, "number"):
            os.close(self.number)

    def read(self, offset: int, byte_size: int) -> bytes:
        return os.pread(self.number, byte_size, offset)

    def write(self, offset: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self.number, view, offset)
            view, offset = view[written:], offset + written


class _Memory(Protocol):
    """What a region's bytes are read from and written to."""

    def read(self, offset: int, byte_size: int) -> bytes: ...

    def write(self, offset: int, data: bytes) -> None: ...


@dataclasses.dataclass(frozen=True, slots=True)
class _Region:
    key: str
    offset: int
    byte_size: int
    memory: _Memory
    device_id: int | None = None
    """The GPU's number; None for the system's memory."""


@dataclasses.dataclass(frozen=True, slots=True)
class Slot:
    """A part of a region, within its bounds when it was made."""

    region: str
    memory: _Memory
    offset: int
    byte_size: int

    def read(self) -> bytes:
        """What is in it now; raises ProtocolError where its file has become shorter."""
        raw = self._tried(lambda: self.memory.read(self.offset, self.byte_size))
        if len(raw) < self.byte_size:
            raise ProtocolError(f"Invalid shared memory region: '{self.region}'", ErrorKind.INTERNAL)
        return raw

    def write(self, tensor: Tensor) -> None:
        """Puts a tensor's bytes at its beginning; raises ProtocolError where they do not fit."""
        if len(tensor.raw) > self.byte_size:
            raise ProtocolError(
                f"shared memory size specified with the request for output '{tensor.name}' ({self.byte_size} bytes) should be at least "
                f"{len(tensor.raw)} bytes to hold the results",
                ErrorKind.INTERNAL,
            )
        self._tried(lambda: self.memory.write(self.offset, bytes(tensor.raw)))

    def _tried(self, access: Callable[[], _Answer]) -> _Answer:
        try:
            return access()
        except (CudaError, OSError) as error:  # such as no space left where its file has holes
            raise ProtocolError(f"shared memory region '{self.region}' cannot be used: {error}", ErrorKind.INTERNAL) from None


class Regions:
    """The registered regions by name; where they are not allowed, none can be registered."""

    def __init__(self, folder: pathlib.Path = FOLDER, *, is_allowed: bool, driver: CudaDriver | None = None) -> None:
        """`driver` is that of the GPUs, where there are any."""
        self._folder, self._driver = folder, driver
        self.is_allowed = is_allowed
        self._regions: dict[str, _Region] = {}

    def __len__(self) -> int:
        return len(self._regions)

    def register(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Opens the region of that key, as shm_open does; raises ProtocolError with Triton's texts."""
        self._check_allowed()
        self._check_room(name)
        filename = key.lstrip("/")
        if not filename or "/" in filename or "\0" in filename or filename in (".", ".."):
            raise ProtocolError(f"Unable to open shared memory region: '{key}'", ErrorKind.INTERNAL)
        try:
            file = _File(self._folder / filename)
        except (OSError, ValueError):
            raise ProtocolError(f"Unable to open shared memory region: '{key}'", ErrorKind.INTERNAL) from None
        found = os.fstat(file.number)
        if not stat.S_ISREG(found.st_mode) or byte_size <= 0 or offset < 0 or offset + byte_size > min(found.st_size, _LARGEST_BYTES):
            raise ProtocolError(f"Invalid shared memory region: '{key}'", ErrorKind.INTERNAL)
        self._regions[name] = _Region(key, offset, byte_size, file)

    def register_cuda(self, name: str, handle: bytes, device_id: int, byte_size: int) -> None:
        """Opens a GPU's memory by a `cudaIpcMemHandle_t`; raises ProtocolError with Triton's texts, without a GPU that there is none."""
        if self._driver is not None:
            self._check_allowed()
            self._check_room(name)
        memory = open_cuda_memory(self._driver, name, handle, device_id, byte_size)
        self._regions[name] = _Region("", 0, byte_size, memory, device_id)

    def unregister(self, name: str = "") -> None:
        """Lets go a region of the system's memory, or all of them where no name is given; one that is unknown is none."""
        self._check_allowed()
        self._let_go(self._named(name, is_cuda=False))

    def unregister_cuda(self, name: str = "") -> None:
        """The same for those of GPUs; without a GPU there are none."""
        self._let_go(self._named(name, is_cuda=True))

    def status(self, name: str = "") -> list[dict[str, Any]]:
        """The system's regions as the protocol tells them, or the one of that name; raises ProtocolError where it is unknown."""
        found = self._named(name, is_cuda=False)
        if name and not found:
            raise ProtocolError(f"Unable to find system shared memory region: '{name}'", ErrorKind.NOT_FOUND)
        return [{"name": one, "key": region.key, "offset": region.offset, "byte_size": region.byte_size} for one, region in found.items()]

    def cuda_status(self, name: str = "") -> list[dict[str, Any]]:
        """The same for those of GPUs."""
        found = self._named(name, is_cuda=True)
        if name and not found:
            raise ProtocolError(f"Unable to find cuda shared memory region: '{name}'", ErrorKind.NOT_FOUND)
        return [{"name": one, "device_id": region.device_id, "byte_size": region.byte_size} for one, region in found.items()]

    def slot(self, name: str, offset: int, byte_size: int) -> Slot:
        """A part of a region; raises ProtocolError where that is unknown, or does not hold it."""
        region = self._regions.get(name)
        if region is None:
            raise ProtocolError(f"Unable to find shared memory region: '{name}'", ErrorKind.NOT_FOUND)
        if not 0 <= offset < region.byte_size:
            raise ProtocolError(f"Invalid offset for shared memory region: '{name}'")
        if byte_size <= 0 or offset + byte_size > region.byte_size:
            raise ProtocolError(f"Invalid offset + byte size for shared memory region: '{name}'")
        return Slot(name, region.memory, region.offset + offset, byte_size)

    def close(self) -> None:
        """Lets go all regions."""
        self._regions.clear()

    def _named(self, name: str, *, is_cuda: bool) -> dict[str, _Region]:
        return {one: region for one, region in self._regions.items() if name in ("", one) and is_cuda is (region.device_id is not None)}

    def _let_go(self, regions: Mapping[str, _Region]) -> None:
        for name in regions:
            del self._regions[name]

    def _check_room(self, name: str) -> None:
        if name in self._regions:
            raise ProtocolError(f"shared memory region '{name}' already in manager", ErrorKind.ALREADY_EXISTS)
        if len(self._regions) >= _MOST_REGIONS:
            raise ProtocolError(f"no more than {_MOST_REGIONS} shared memory regions can be registered", ErrorKind.UNAVAILABLE)

    def _check_allowed(self) -> None:
        if not self.is_allowed:
            raise ProtocolError(
                "shared memory of clients is not allowed: start the server with --allow-client-shm to allow it", ErrorKind.UNSUPPORTED
            )


def without_slots(response: InferResponse, slots: Mapping[str, Slot]) -> InferResponse:
    """Writes the outputs that have a slot there, and gives the response with nothing in their place."""
    if not slots:
        return response
    outputs = []
    for tensor in response.outputs:
        slot = slots.get(tensor.name)
        if slot is not None:
            slot.write(tensor)
        outputs.append(tensor if slot is None else Tensor(tensor.name, tensor.datatype, tensor.shape, b""))
    return dataclasses.replace(response, outputs=tuple(outputs))
