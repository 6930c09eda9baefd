"""A fake of NVIDIA's driver library: the functions that the server calls, with ctypes' arguments."""

import ctypes
from collections.abc import Mapping
from typing import Any

_NAMES = {1: b"CUDA_ERROR_INVALID_VALUE", 100: b"CUDA_ERROR_NO_DEVICE"}
_INVALID = 1
_SPACE = 2**20  # between two allocations


class FakeCuda:
    """A library with GPUs. `shared` is their shared memory by handle; `failing` functions return an error."""

    def __init__(
        self, *, devices: int = 2, shared: Mapping[bytes, bytearray] | None = None, failing: Mapping[str, int] | None = None
    ) -> None:
        self._devices, self._failing = devices, dict(failing or {})
        self._places = {number * _SPACE: (handle, memory) for number, (handle, memory) in enumerate((shared or {}).items(), 1)}
        self.open = 0
        self.entered: set[int] = set()

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("cu") and (code := object.__getattribute__(self, "_failing").get(name)):
            return lambda *_: code
        return object.__getattribute__(self, name)

    def fail(self, function: str, code: int) -> None:
        """Let a function return an error from now on."""
        self._failing[function] = code

    def cuInit(self, flags: int) -> int:
        return 0 if flags == 0 else _INVALID

    def cuDeviceGetCount(self, count: Any) -> int:
        count._obj.value = self._devices
        return 0

    def cuDriverGetVersion(self, version: Any) -> int:
        version._obj.value = 12040
        return 0

    def cuDeviceGet(self, device: Any, number: int) -> int:
        device._obj.value = number
        return 0

    def cuDeviceGetName(self, name: Any, size: int, device: ctypes.c_int) -> int:
        name.value = b"Fake GPU %d" % device.value
        return 0 if size >= len(name.value) else _INVALID

    def cuDevicePrimaryCtxRetain(self, context: Any, device: ctypes.c_int) -> int:
        context._obj.value = device.value + 1
        return 0

    def cuCtxSetCurrent(self, context: ctypes.c_void_p) -> int:
        assert context.value is not None
        self.entered.add(context.value - 1)
        return 0

    def cuIpcOpenMemHandle_v2(self, address: Any, handle: Any, flags: ctypes.c_uint) -> int:
        for place, (known, _) in self._places.items():
            if bytes(handle) == known and flags.value == 1:
                address._obj.value = place
                self.open += 1
                return 0
        return _INVALID

    def cuIpcCloseMemHandle(self, address: ctypes.c_uint64) -> int:
        self.open -= 1
        return 0 if address.value in self._places else _INVALID

    def cuMemGetAddressRange_v2(self, base: Any, size: Any, address: ctypes.c_uint64) -> int:
        place = address.value // _SPACE * _SPACE
        base._obj.value, size._obj.value = place, len(self._places[place][1])
        return 0

    def cuMemcpyDtoH_v2(self, buffer: Any, address: ctypes.c_uint64, size: ctypes.c_size_t) -> int:
        offset = address.value % _SPACE
        part = bytes(self._places[address.value - offset][1][offset : offset + size.value])
        ctypes.memmove(buffer, part, len(part))
        return 0 if len(part) == size.value else _INVALID

    def cuMemcpyHtoD_v2(self, address: ctypes.c_uint64, data: bytes, size: ctypes.c_size_t) -> int:
        offset = address.value % _SPACE
        memory = self._places[address.value - offset][1]
        if offset + size.value > len(memory):
            return _INVALID
        memory[offset : offset + size.value] = data
        return 0

    def cuGetErrorName(self, code: int, name: Any) -> int:
        if code not in _NAMES:
            return _INVALID
        name._obj.value = _NAMES[code]
        return 0
