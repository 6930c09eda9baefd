"""Memory that requests are received into: page-locked if a GPU copies from it, so that it does so without help of the CPU."""

import collections
import ctypes
import weakref

import numpy as np

from server_stub.devices.cuda_driver import CudaDriver, CudaError

MAX_PINNED_BYTES = 2**30
_MIN_PINNED_BYTES, _MAX_BLOCK_BYTES = 2**16, 2**27


class HostMemory:
    """Gives out memory for requests, and uses a block again once nothing refers to it.

    Without a `driver`, and beyond `max_pinned_bytes`, that is ordinary memory, whose pages are taken only as they are written. Page-locked
    memory is taken at once, so clients that announce large requests without sending them can take `max_pinned_bytes`, and no more.
    """

    def __init__(self, driver: CudaDriver | None = None, max_pinned_bytes: int = MAX_PINNED_BYTES) -> None:
        self._driver, self._max_pinned_bytes = driver, max_pinned_bytes
        self._free: dict[int, collections.deque[int]] = {}  # addresses by size
        self.pinned_bytes = 0
        """How much is page-locked, in use or not."""

    def take(self, byte_count: int) -> memoryview:
        """Writable bytes, which are not cleared. Call it in one thread. Raises MemoryError if the system refuses that much."""
        if self._driver is not None and _MIN_PINNED_BYTES <= byte_count <= _MAX_BLOCK_BYTES:
            size = block_size(byte_count)
            address = self._take_pinned(self._driver, size)
            if address is not None:
                block = np.frombuffer(memoryview((ctypes.c_char * size).from_address(address)), np.uint8)
                # views of it, and arrays made of these, keep it alive
                weakref.finalize(block, self._free[size].append, address).atexit = False
                return block[:byte_count].data
        return np.empty(byte_count, np.uint8).data

    def _take_pinned(self, driver: CudaDriver, size: int) -> int | None:
        """The address of a page-locked block; None if the limit is reached or the system refuses."""
        free: collections.deque[int] = self._free.setdefault(size, collections.deque())
        if free:
            return free.popleft()
        try:
            for other, addresses in self._free.items():
                while addresses and self.pinned_bytes + size > self._max_pinned_bytes:
                    self.pinned_bytes -= other
                    driver.free_host(addresses.popleft())
            if self.pinned_bytes + size > self._max_pinned_bytes:
                return None
            address = driver.allocate_host(size)
        except CudaError:  # the system may limit what is page-locked
            return None
        self.pinned_bytes += size
        return address


def block_size(byte_count: int) -> int:
    """The size of a block, rounded up by less than a quarter, so that there are few sizes and a block fits later requests."""
    step = 1 << max(0, byte_count.bit_length() - 3)
    return -(-byte_count // step) * step
