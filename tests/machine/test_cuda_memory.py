"""GPU memory by handle, with a fake driver library that has the functions and arguments of the real one."""

import ctypes
import os

import pytest

from perfkit.errors import UsageError
from perfkit.machine import shared_memory
from perfkit.machine.shared_memory import FOLDER, HANDLE_BYTES, CudaDriver, CudaMemory, remove_abandoned
from tests.server_stub.devices.fake_cuda import FakeCuda

HANDLE = bytes(range(HANDLE_BYTES))


class SharingCuda(FakeCuda):
    """A fake driver that also shares its memory by handle, and copies to and from it; a handle is not opened where it was made."""

    def cuIpcGetMemHandle(self, handle, address):
        assert address.value in self.allocated
        handle.raw = HANDLE
        return 0

    def cuMemcpyHtoD_v2(self, address, data, size):
        ctypes.memmove(address.value, data, size.value)
        return 0

    def cuMemcpyDtoH_v2(self, buffer, address, size):
        ctypes.memmove(buffer, address.value, size.value)
        return 0


def test_memory_is_shared_by_handle_and_read_where_it_was_made():
    library = SharingCuda()
    memory = CudaMemory(100, CudaDriver(1, lambda _: library))
    assert (memory.handle, memory.device_id, memory.byte_size, library.entered) == (HANDLE, 1, 100, {1})
    memory.write(90, b"0123456789")
    assert memory.reader.read(88, 12) == b"\0\x000123456789"
    assert library.open == 0
    assert (FOLDER / memory.name).stat().st_size == 0
    assert memory.name not in remove_abandoned()
    memory.close()
    assert library.allocated == {}
    assert not (FOLDER / memory.name).exists()


def test_another_process_opens_the_memory_once(monkeypatch):
    shared = bytearray(b"0123456789")
    library = FakeCuda(shared={HANDLE: shared})
    monkeypatch.setattr(shared_memory, "cuda_driver", lambda device: CudaDriver(device, lambda _: library))
    reader = shared_memory.CudaReader(HANDLE, 0)
    try:
        assert (reader.read(2, 3), reader.read(8, 2)) == (b"234", b"89")
        assert library.open == 1
    finally:
        shared_memory._opened.cache_clear()


def test_a_missing_driver_a_missing_gpu_and_a_failing_call_are_named():
    def missing(name):
        raise OSError(name)

    with pytest.raises(UsageError, match="needs an NVIDIA GPU on this machine, but the driver is not installed"):
        CudaDriver(0, missing)
    with pytest.raises(UsageError, match=r"shared_memory\.device: there is no GPU 2: the driver lists 2"):
        CudaDriver(2, lambda _: FakeCuda(devices=2))
    library = SharingCuda(failing={"cuIpcGetMemHandle": 1})
    with pytest.raises(UsageError, match="cuIpcGetMemHandle failed: CUDA_ERROR_INVALID_VALUE"):
        CudaMemory(1, CudaDriver(0, lambda _: library))
    assert library.allocated == {}
    assert not list(FOLDER.glob(f"perfkit-{os.getpid()}-*"))
