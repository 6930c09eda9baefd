"""Regions of the system's shared memory that clients register, and what of a request lies in them.

Regions are read and written as files: a mapping would take the process along when its client shortens the file.
"""

import dataclasses
import os
import pathlib
import stat
from collections.abc import Mapping
from typing import Any

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol.message import InferResponse
from perfkit.protocol.tensor import Tensor

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


@dataclasses.dataclass(frozen=True, slots=True)
class _Region:
    key: str
    offset: int
    byte_size: int
    file: _File


@dataclasses.dataclass(frozen=True, slots=True)
class Slot:
    """A part of a region, within its bounds when it was made."""

    region: str
    file: _File
    offset: int
    byte_size: int

    def read(self) -> bytes:
        """What is in it now; raises ProtocolError where its file has become shorter."""
        raw = os.pread(self.file.number, self.byte_size, self.offset)
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
        view, offset = memoryview(tensor.raw), self.offset
        while view:
            written = os.pwrite(self.file.number, view, offset)
            view, offset = view[written:], offset + written


class Regions:
    """The registered regions by name; where they are not allowed, none can be registered."""

    def __init__(self, folder: pathlib.Path = FOLDER, *, is_allowed: bool) -> None:
        self._folder = folder
        self.is_allowed = is_allowed
        self._regions: dict[str, _Region] = {}

    def __len__(self) -> int:
        return len(self._regions)

    def register(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Opens the region of that key, as shm_open does; raises ProtocolError with Triton's texts."""
        self._check_allowed()
        if name in self._regions:
            raise ProtocolError(f"shared memory region '{name}' already in manager", ErrorKind.ALREADY_EXISTS)
        if len(self._regions) >= _MOST_REGIONS:
            raise ProtocolError(f"no more than {_MOST_REGIONS} shared memory regions can be registered", ErrorKind.UNAVAILABLE)
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

    def unregister(self, name: str = "") -> None:
        """Lets go a region, or all of them where no name is given; one that is unknown is none."""
        self._check_allowed()
        if name:
            self._regions.pop(name, None)
        else:
            self._regions.clear()

    def status(self, name: str = "") -> list[dict[str, Any]]:
        """The regions as the protocol tells them, or the one of that name; raises ProtocolError where it is unknown."""
        if name and name not in self._regions:
            raise ProtocolError(f"Unable to find system shared memory region: '{name}'", ErrorKind.NOT_FOUND)
        return [
            {"name": one, "key": region.key, "offset": region.offset, "byte_size": region.byte_size}
            for one, region in self._regions.items()
            if name in ("", one)
        ]

    def slot(self, name: str, offset: int, byte_size: int) -> Slot:
        """A part of a region; raises ProtocolError where that is unknown, or does not hold it."""
        region = self._regions.get(name)
        if region is None:
            raise ProtocolError(f"Unable to find shared memory region: '{name}'", ErrorKind.NOT_FOUND)
        if not 0 <= offset < region.byte_size:
            raise ProtocolError(f"Invalid offset for shared memory region: '{name}'")
        if byte_size <= 0 or offset + byte_size > region.byte_size:
            raise ProtocolError(f"Invalid offset + byte size for shared memory region: '{name}'")
        return Slot(name, region.file, region.offset + offset, byte_size)

    def close(self) -> None:
        """Lets go all regions."""
        self._regions.clear()

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
