"""A fake of NVIDIA's driver library: the functions that the server calls, with ctypes' arguments.

Shared memory has invented addresses. Buffers of the server are host memory at its true address, so that ONNX Runtime's CPU
provider can be bound to them. Operations of streams take effect when the stream is synchronized, and those of a graph each time that it
is launched: a copy that nobody waited for comes late.
"""

import collections
import ctypes
import threading
from collections.abc import Callable, Mapping
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
        self.allocated: dict[int, Any] = {}
        self.streams: dict[int, collections.deque[Callable[[], None]]] = {}
        self.capturing: dict[int, list[Callable[[], None]]] = {}
        self.graphs: dict[int, list[Callable[[], None]]] = {}
        self.captures = 0
        self.launched: list[int] = []
        """The graphs in the order of their launches."""
        self.attributes = {75: 9, 76: 0}
        self.free_bytes: Callable[[], int] = lambda: 2**36
        self.copied = collections.Counter[str]()
        self._handles = 0
        self._executing = threading.Lock()

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

    def cuCtxSynchronize(self) -> int:
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

    def cuMemAlloc_v2(self, address: Any, size: ctypes.c_size_t) -> int:
        buffer = (ctypes.c_char * size.value)()
        address._obj.value = ctypes.addressof(buffer)
        ctypes.memset(buffer, 0xFF, size.value)
        self.allocated[address._obj.value] = buffer
        return 0

    def cuMemsetD8_v2(self, address: ctypes.c_uint64, value: ctypes.c_ubyte, size: ctypes.c_size_t) -> int:
        ctypes.memset(address.value, value.value, size.value)
        return 0

    def cuMemHostAlloc(self, address: Any, size: ctypes.c_size_t, flags: ctypes.c_uint) -> int:
        return self.cuMemAlloc_v2(address, size)

    def cuMemFree_v2(self, address: Any) -> int:
        return _INVALID if self.allocated.pop(address.value, None) is None else 0

    def cuMemFreeHost(self, address: Any) -> int:
        return self.cuMemFree_v2(address)

    def cuStreamCreate(self, stream: Any, flags: ctypes.c_uint) -> int:
        self._handles += 1
        stream._obj.value = self._handles
        self.streams[self._handles] = collections.deque()
        return 0 if flags.value == 1 else _INVALID

    def cuStreamDestroy_v2(self, stream: ctypes.c_void_p) -> int:
        return _INVALID if self.streams.pop(stream.value or 0, None) is None else 0

    def cuDeviceGetAttribute(self, value: Any, attribute: int, device: ctypes.c_int) -> int:
        value._obj.value = self.attributes[attribute]
        return 0

    def cuMemGetInfo_v2(self, free: Any, total: Any) -> int:
        free._obj.value, total._obj.value = self.free_bytes(), 2**40
        return 0

    def cuStreamBeginCapture_v2(self, stream: ctypes.c_void_p, mode: ctypes.c_int) -> int:
        self.capturing[stream.value or 0] = []
        return 0 if mode.value == 2 else _INVALID

    def cuStreamEndCapture(self, stream: ctypes.c_void_p, graph: Any) -> int:
        graph._obj.value = self._add_graph(self.capturing.pop(stream.value or 0))
        return 0

    def cuGraphInstantiateWithFlags(self, executable: Any, graph: ctypes.c_void_p, flags: ctypes.c_ulonglong) -> int:
        executable._obj.value = self._add_graph(self.graphs[graph.value or 0])
        self.captures += 1
        return 0 if flags.value == 0 else _INVALID

    def cuGraphDestroy(self, graph: ctypes.c_void_p) -> int:
        return _INVALID if self.graphs.pop(graph.value or 0, None) is None else 0

    def cuGraphExecDestroy(self, graph: ctypes.c_void_p) -> int:
        return self.cuGraphDestroy(graph)

    def cuGraphLaunch(self, graph: ctypes.c_void_p, stream: ctypes.c_void_p) -> int:
        self.launched.append(graph.value or 0)
        for operation in self.graphs[graph.value or 0]:
            self.add(stream.value or 0, operation)
        return 0

    def _add_graph(self, operations: list[Callable[[], None]]) -> int:
        with self._executing:
            self._handles += 1
            self.graphs[self._handles] = operations
            return self._handles

    def add(self, stream: int, operation: Callable[[], None]) -> None:
        """Add an operation to a stream, or to the graph that is being captured from it."""
        captured = self.capturing.get(stream)
        (self.streams[stream] if captured is None else captured).append(operation)

    def cuStreamSynchronize(self, stream: ctypes.c_void_p) -> int:
        """Execute the stream."""
        assert stream.value not in self.capturing, "a stream cannot be waited for while it is captured"
        operations = self.streams[stream.value or 0]
        while operations:
            operations.popleft()()
        return 0

    def cuMemcpyHtoDAsync_v2(self, address: ctypes.c_uint64, host: ctypes.c_void_p, size: ctypes.c_size_t, stream: ctypes.c_void_p) -> int:
        is_pinned = any(start <= (host.value or 0) < start + len(buffer) for start, buffer in self.allocated.items())
        assert is_pinned, "memory that is not page-locked was copied without waiting"
        return self._copy("in", address.value, host.value or 0, size.value, stream.value or 0)

    def cuMemcpyDtoHAsync_v2(self, host: ctypes.c_void_p, address: ctypes.c_uint64, size: ctypes.c_size_t, stream: ctypes.c_void_p) -> int:
        return self._copy("out", host.value or 0, address.value, size.value, stream.value or 0)

    def cuMemcpyDtoDAsync_v2(
        self, address: ctypes.c_uint64, source: ctypes.c_uint64, size: ctypes.c_size_t, stream: ctypes.c_void_p
    ) -> int:
        place = source.value // _SPACE * _SPACE
        if place in self._places:
            offset = source.value - place
            self._copied_within = (ctypes.c_char * size.value).from_buffer_copy(self._places[place][1], offset)
            return self._copy("within", address.value, ctypes.addressof(self._copied_within), size.value, stream.value or 0, is_late=False)
        return self._copy("within", address.value, source.value, size.value, stream.value or 0)

    def _copy(self, kind: str, target: int, source: int, size: int, stream: int, *, is_late: bool = True) -> int:
        self.copied[kind] += size

        def copy() -> None:
            ctypes.memmove(target, source, size)

        if is_late:
            self.add(stream, copy)
        else:
            copy()
        return 0

    def cuGetErrorName(self, code: int, name: Any) -> int:
        if code not in _NAMES:
            return _INVALID
        name._obj.value = _NAMES[code]
        return 0
