"""Memory for requests: page-locked within a limit, and used again once nothing reads it."""

import numpy as np
import pytest

from server_stub.devices.cuda_driver import CudaDriver
from server_stub.devices.host_memory import HostMemory, block_size
from tests.server_stub.devices.fake_cuda import FakeCuda


@pytest.fixture
def driver():
    return CudaDriver(lambda _: FakeCuda())


def address(memory):
    return np.frombuffer(memory, np.uint8).ctypes.data


def test_without_a_gpu_nothing_is_page_locked():
    memory = HostMemory()
    taken = memory.take(700_000)
    taken[:3] = b"abc"
    assert (len(taken), bytes(taken[:3]), taken.readonly, memory.pinned_bytes) == (700_000, b"abc", False, 0)


def test_memory_is_page_locked_and_used_again_once_nothing_refers_to_it(driver):
    memory = HostMemory(driver)
    taken = memory.take(700_000)
    first = address(taken)
    assert driver.is_pinned(first)
    assert driver.is_pinned(first + 699_999)
    rows = np.frombuffer(taken[4:404].toreadonly(), np.float32)[1:].reshape(3, 33)
    del taken
    second = memory.take(700_000)
    assert address(second) != first, "an array still reads the first"
    del rows
    third = memory.take(720_000)
    assert (address(third), memory.pinned_bytes) == (first, 2 * block_size(700_000))


def test_beyond_its_limit_memory_is_ordinary_unless_unused_blocks_make_room(driver):
    memory = HostMemory(driver, max_pinned_bytes=2**21)
    small = [memory.take(2**20), memory.take(2**20)]
    assert not driver.is_pinned(address(memory.take(2**20)))
    del small[0]
    large = memory.take(2**19)
    assert (driver.is_pinned(address(large)), memory.pinned_bytes) == (True, 2**20 + 2**19)


def test_small_and_very_large_memory_is_ordinary(driver):
    memory = HostMemory(driver)
    assert not any(driver.is_pinned(address(memory.take(size))) for size in (1, 2**16 - 1, 2**27 + 1))
    assert memory.pinned_bytes == 0


def test_where_the_system_refuses_page_locked_memory_it_is_ordinary():
    library = FakeCuda()
    library.fail("cuMemHostAlloc", 2)
    memory = HostMemory(CudaDriver(lambda _: library))
    assert (len(memory.take(2**20)), memory.pinned_bytes) == (2**20, 0)


def test_blocks_have_a_few_sizes():
    assert [block_size(size) for size in (65536, 65537, 667_136, 2**20)] == [65536, 81920, 786_432, 2**20]
    assert all(size <= block_size(size) <= 1.25 * size for size in range(2**16, 2**17, 333))


def test_what_is_page_locked_is_known_by_its_addresses(driver):
    blocks = [(driver.allocate_host(size), size) for size in (100, 1, 5000)]
    for start, size in blocks:
        assert [driver.is_pinned(start + offset) for offset in (0, size - 1)] == [True, True]
    for start, _ in blocks:
        driver.free_host(start)
        assert not driver.is_pinned(start)
