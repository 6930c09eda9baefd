"""Memory of a GPU that a client shares, as a source of tensors' bytes."""

from perfkit.errors import ProtocolError
from server_stub.cuda_driver import HANDLE_BYTES, CudaDriver, CudaError


class CudaMemory:
    """What a handle stands for, until nobody has it any more: a request may still be writing when its region is let go."""

    def __init__(self, driver: CudaDriver, handle: bytes, device_id: int) -> None:
        self._is_closed = False
        self._driver, self._device_id, self._address = driver, device_id, driver.open_memory(handle, device_id)
        self.byte_size = driver.memory_bytes(self._address, device_id)

    def __del__(self) -> None:
        if hasattr(self, "_address"):
            self.close()

    def close(self) -> None:
        """Lets it go; once is enough."""
        if not self._is_closed:
            self._is_closed = True
            self._driver.close_memory(self._address, self._device_id)

    def read(self, offset: int, byte_size: int) -> bytes:
        """Copies bytes from there."""
        return self._driver.read(self._address + offset, byte_size, self._device_id)

    def write(self, offset: int, data: bytes) -> None:
        """Copies bytes there."""
        self._driver.write(self._address + offset, data, self._device_id)


def open_cuda_memory(driver: CudaDriver | None, name: str, handle: bytes, device_id: int, byte_size: int) -> CudaMemory:
    """The memory of a handle; raises ProtocolError with Triton's texts."""
    failed = f"failed to register CUDA shared memory region: '{name}'"
    if driver is None:
        raise ProtocolError(f"{failed}, GPUs not supported")
    if len(handle) != HANDLE_BYTES:
        raise ProtocolError(f"{failed}, the handle has {len(handle)} bytes, where {HANDLE_BYTES} are expected")
    if not 0 <= device_id < driver.device_count:
        raise ProtocolError(f"{failed}, there is no device {device_id}")
    try:
        memory = CudaMemory(driver, handle, device_id)
    except CudaError as error:
        raise ProtocolError(f"{failed}: {error}") from None
    if not 0 < byte_size <= memory.byte_size:
        memory.close()
        raise ProtocolError(f"{failed}, its {byte_size} bytes lie outside of the {memory.byte_size} that are shared")
    return memory
