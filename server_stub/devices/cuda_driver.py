"""NVIDIA's driver library through ctypes: GPUs, memory shared by handle, buffers, streams for copies, and captured graphs."""

import bisect
import ctypes
import threading
from collections.abc import Callable
from typing import Any

LIBRARY = "libcuda.so.1"
HANDLE_BYTES = 64
"""The size of a cudaIpcMemHandle_t."""
_LAZY_PEER_ACCESS = 1  # CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, which cudaIpcOpenMemHandle wants too
_NON_BLOCKING_STREAM = 1  # CU_STREAM_NON_BLOCKING: it does not wait for the default stream
_RELAXED = 2  # CU_STREAM_CAPTURE_MODE_RELAXED: what other threads call meanwhile does not end a capture
_COMPUTE_CAPABILITY = (75, 76)  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR


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
        # a call that returns at once keeps the GIL: to get it back can take milliseconds beside a busy event loop
        self._without_release = ctypes.PyDLL(LIBRARY) if load is ctypes.CDLL else self._library
        self._contexts: dict[int, ctypes.c_void_p] = {}
        self._opening = threading.Lock()
        self._pinned: list[tuple[int, int]] = []  # first and last address of page-locked memory, ascending
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
        self.enter(device_id)
        shared, address = _Handle(), ctypes.c_uint64()
        ctypes.memmove(ctypes.byref(shared), handle, HANDLE_BYTES)
        self._call("cuIpcOpenMemHandle_v2", ctypes.byref(address), shared, ctypes.c_uint(_LAZY_PEER_ACCESS))
        return address.value

    def close_memory(self, address: int, device_id: int) -> None:
        """Unmap memory that `open_memory` mapped."""
        self.enter(device_id)
        self._call("cuIpcCloseMemHandle", ctypes.c_uint64(address))

    def memory_bytes(self, address: int, device_id: int) -> int:
        """The number of bytes from an address to the end of its allocation."""
        self.enter(device_id)
        base, size = ctypes.c_uint64(), ctypes.c_size_t()
        self._call("cuMemGetAddressRange_v2", ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(address))
        return base.value + size.value - address

    def read(self, address: int, byte_size: int, device_id: int) -> bytes:
        """Copy bytes from the GPU."""
        self.enter(device_id)
        buffer = ctypes.create_string_buffer(byte_size)
        self._call("cuMemcpyDtoH_v2", buffer, ctypes.c_uint64(address), ctypes.c_size_t(byte_size))
        return buffer.raw

    def write(self, address: int, data: bytes, device_id: int) -> None:
        """Copy bytes to the GPU."""
        self.enter(device_id)
        self._call("cuMemcpyHtoD_v2", ctypes.c_uint64(address), data, ctypes.c_size_t(len(data)))

    def compute_capability(self) -> tuple[int, int]:
        """The compute capability of GPU 0, such as (9, 0) for an H100."""
        device, values = self._device(0), (ctypes.c_int(), ctypes.c_int())
        for value, attribute in zip(values, _COMPUTE_CAPABILITY, strict=True):
            self._call("cuDeviceGetAttribute", ctypes.byref(value), attribute, device)
        return values[0].value, values[1].value

    def free_bytes(self) -> int:
        """The memory of GPU 0 that nothing uses."""
        self.enter()
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def allocate(self, byte_size: int) -> int:
        """Allocate memory on GPU 0, filled with zeros, and return its address."""
        self.enter()
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(byte_size))
        self._call("cuMemsetD8_v2", address, ctypes.c_ubyte(0), ctypes.c_size_t(byte_size))
        return address.value

    def free(self, address: int) -> None:
        """Free memory of `allocate`. Waits for what the GPU executes."""
        self.enter()
        self._call("cuMemFree_v2", ctypes.c_uint64(address))

    def allocate_host(self, byte_size: int) -> int:
        """Allocate page-locked host memory, which the GPU copies without help of the CPU, and return its address."""
        self.enter()
        address = ctypes.c_void_p()
        self._call("cuMemHostAlloc", ctypes.byref(address), ctypes.c_size_t(byte_size), ctypes.c_uint(0))
        assert address.value is not None
        with self._opening:
            bisect.insort(self._pinned, (address.value, address.value + byte_size - 1))
        return address.value

    def free_host(self, address: int) -> None:
        """Free memory of `allocate_host`."""
        self.enter()
        with self._opening:
            del self._pinned[bisect.bisect_left(self._pinned, (address, 0))]
        self._call("cuMemFreeHost", ctypes.c_void_p(address))

    def is_pinned(self, address: int) -> bool:
        """Whether an address is in memory of `allocate_host`."""
        with self._opening:
            place = bisect.bisect_right(self._pinned, (address, 1 << 64))
            return place > 0 and address <= self._pinned[place - 1][1]

    def make_stream(self) -> int:
        """Create a stream, whose operations run in order, and return its handle."""
        self.enter()
        stream = ctypes.c_void_p()
        self._call("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(_NON_BLOCKING_STREAM))
        assert stream.value is not None
        return stream.value

    def close_stream(self, stream: int) -> None:
        """Destroy a stream once its operations have ended."""
        self.enter()
        self._call("cuStreamDestroy_v2", ctypes.c_void_p(stream))

    def capture(self, stream: int, work: Callable[[], None]) -> int:
        """What `work` adds to a stream, as a graph that `launch` repeats; nothing is executed. Returns the graph's handle."""
        self.enter()
        graph, executable = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuStreamBeginCapture_v2", ctypes.c_void_p(stream), ctypes.c_int(_RELAXED))
        try:
            work()
        except BaseException:  # the stream must not stay in its capture
            self._library.cuStreamEndCapture(ctypes.c_void_p(stream), ctypes.byref(graph))
            if graph.value is not None:
                self._call("cuGraphDestroy", graph)
            raise
        self._call("cuStreamEndCapture", ctypes.c_void_p(stream), ctypes.byref(graph))
        try:
            self._call("cuGraphInstantiateWithFlags", ctypes.byref(executable), graph, ctypes.c_ulonglong(0))
        finally:
            self._call("cuGraphDestroy", graph)
        assert executable.value is not None
        return executable.value

    def close_graph(self, graph: int) -> None:
        """Destroy a graph of `capture`."""
        self.enter()
        self._call("cuGraphExecDestroy", ctypes.c_void_p(graph))

    def enter(self, device_id: int = 0) -> None:
        """Make the GPU's primary context, which CUDA's runtime uses too, current in this thread.

        The methods below act on GPU 0 and need it; the others call it themselves. They return at once, except for `synchronize`.
        """
        context = self._contexts.get(device_id)
        if context is None:
            with self._opening:
                context = ctypes.c_void_p()
                self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), self._device(device_id))
                self._contexts[device_id] = context
        self._call_at_once("cuCtxSetCurrent", context)

    def launch(self, graph: int, stream: int) -> None:
        """Start a graph on a stream."""
        self._call_at_once("cuGraphLaunch", ctypes.c_void_p(graph), ctypes.c_void_p(stream))

    def synchronize(self, stream: int) -> None:
        """Wait until all operations of a stream have ended."""
        self._call("cuStreamSynchronize", ctypes.c_void_p(stream))

    def copy_in(self, address: int, host_address: int, byte_size: int, stream: int) -> None:
        """Start to copy from page-locked memory."""
        self._copy("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), ctypes.c_void_p(host_address), byte_size, stream)

    def copy_out(self, host_address: int, address: int, byte_size: int, stream: int) -> None:
        """Start to copy to page-locked memory."""
        self._copy("cuMemcpyDtoHAsync_v2", ctypes.c_void_p(host_address), ctypes.c_uint64(address), byte_size, stream)

    def copy_within(self, address: int, source: int, byte_size: int, stream: int) -> None:
        """Start to copy within the GPU."""
        self._copy("cuMemcpyDtoDAsync_v2", ctypes.c_uint64(address), ctypes.c_uint64(source), byte_size, stream)

    def _copy(self, function: str, target: Any, source: Any, byte_size: int, stream: int) -> None:
        self._call_at_once(function, target, source, ctypes.c_size_t(byte_size), ctypes.c_void_p(stream))

    def _device(self, device_id: int) -> ctypes.c_int:
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), device_id)
        return device

    def _call(self, function: str, *arguments: Any) -> None:
        self._check(function, getattr(self._library, function)(*arguments))

    def _call_at_once(self, function: str, *arguments: Any) -> None:
        """Call a function that does not wait for the GPU, without releasing the GIL."""
        self._check(function, getattr(self._without_release, function)(*arguments))

    def _check(self, function: str, result: int) -> None:
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

    def address(self, offset: int) -> int | None:
        """The address of a byte for GPU 0, which models run on; None for memory of another GPU."""
        return self._address + offset if self._device_id == 0 else None

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

    def write(self, offset: int, data: bytes | bytearray | memoryview) -> None:
        """Copy bytes to this memory."""
        self._driver.write(self._address + offset, bytes(data), self._device_id)
