"""NVIDIA's driver library through ctypes: the GPUs, and GPU memory that other processes share by handle."""

import ctypes
import threading
from collections.abc import Callable
from typing import Any

LIBRARY = "libcuda.so.1"
HANDLE_BYTES = 64
"""The size of a cudaIpcMemHandle_t."""
_LAZY_PEER_ACCESS = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, which cudaIpcOpenMemHandle wants too


class CudaError(Exception):
    """The driver is missing, or a call failed."""


class _Handle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * HANDLE_BYTES)]


class CudaDriver:
    """The loaded library, usable from any thread. Raises CudaError if it is not installed or has no GPU."""

    def __init__(self, load: Callable[[str], Any] = ctypes.CDLL) -> None:
        try:
            self._library = load(LIBRARY)
        except OSError as error:
            raise CudaError(f"the NVIDIA driver is not installed ({error})") from None
        self._contexts: dict[int, ctypes.c_void_p] = {}
        self._opening = threading.Lock()
        self._call("cuInit", 0)
        count, version = ctypes.c_int(), ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        self._call("cuDriverGetVersion", ctypes.byref(version))
        self.device_count = count.value
        self.version = f"{version.value // 1000}.{version.value % 1000 // 10}"
        """The newest CUDA version that the driver supports, such as 12.4."""
        if not self.device_count:
            raise CudaError(f"the NVIDIA driver (CUDA {self.version}) reports no GPU")

    def device_name(self, device_id: int) -> str:
        """The GPU's product name."""
        name = ctypes.create_string_buffer(256)
        self._call("cuDeviceGetName", name, len(name), self._device(device_id))
        return name.value.decode(errors="replace")

    def open_memory(self, handle: bytes, device_id: int) -> int:
        """Map memory that another process shares, and return its address. Raises CudaError if the handle is not of this GPU."""
        self._enter(device_id)
        shared, address = _Handle(), ctypes.c_uint64()
        ctypes.memmove(ctypes.byref(shared), handle, HANDLE_BYTES)
        self._call("cuIpcOpenMemHandle_v2", ctypes.byref(address), shared, ctypes.c_uint(_LAZY_PEER_ACCESS))
        return address.value

    def close_memory(self, address: int, device_id: int) -> None:
        """Unmap memory that `open_memory` mapped."""
        self._enter(device_id)
        self._call("cuIpcCloseMemHandle", ctypes.c_uint64(address))

    def memory_bytes(self, address: int, device_id: int) -> int:
        """The number of bytes from an address to the end of its allocation."""
        self._enter(device_id)
        base, size = ctypes.c_uint64(), ctypes.c_size_t()
        self._call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(address))
        return base.value + size.value - address

    def read(self, address: int, byte_size: int, device_id: int) -> bytes:
        """Copy bytes from the GPU."""
        self._enter(device_id)
        buffer = ctypes.create_string_buffer(byte_size)
        self._call("cuMemcpyDtoH_v2", buffer, ctypes.c_uint64(address), ctypes.c_size_t(byte_size))
        return buffer.raw

    def write(self, address: int, data: bytes, device_id: int) -> None:
        """Copy bytes to the GPU."""
        self._enter(device_id)
        self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)))

    def _device(self, device_id: int) -> ctypes.c_int:
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), device_id)
        return device

    def _enter(self, device_id: int) -> None:
        """Make the GPU's primary context, which CUDA's runtime uses too, current in this thread."""
        with self._opening:
            context = self._contexts.get(device_id)
            if context is None:
                context = ctypes.c_void_p()
                self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device(device_id))
                self._contexts[device_id] = context
        self._call("cuCtxSetCurrent", context)

    def _call(self, function: str, *arguments: Any) -> None:
        result = getattr(self._library, function)(*arguments)
        if result:
            name = ctypes.c_char_p()
            known = getattr(self._library, "cuGetErrorName")(result, ctypes.byref(name)) == 0  # noqa: B009 - the library is untyped, and getattr is used for all its functions
            raise CudaError(f"{function} failed: {name.value.decode() if known and name.value else f'error {result}'}")


class CudaMemory:
    """GPU memory of another process. It stays mapped while referenced: a request may outlive the region's registration."""

    def __init__(self, driver: CudaDriver, handle: bytes, device_id: int) -> None:
        self._is_closed = False
        self._driver, self._device_id, self._address = driver, device_id, driver.open_memory(handle, device_id)
        self.byte_size = driver.memory_bytes(self._address, device_id)

    def __del__(self) -> None:
        if hasattr(self, "_address"):
            self.close()

    def close(self) -> None:
        """Unmap the memory. Calling it again does nothing."""
        if not self._is_closed:
            self._is_closed = True
            self._driver.close_memory(self._address, self._device_id)

    def read(self, offset: int, byte_size: int) -> bytes:
        """Copy bytes from this memory."""
        return self._driver.read(self._address + offset, byte_size, self._device_id)

    def write(self, offset: int, data: bytes) -> None:
        """Copy bytes to this memory."""
        self._driver.write(self._address + offset, data, self._device_id)
