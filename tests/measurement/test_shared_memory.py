"""The shared memory of a run: every region is removed, also where one cannot be."""

import asyncio
import contextlib
from typing import Any

import pytest

from perfkit.errors import UsageError
from perfkit.machine.limits import MemoryBudget
from perfkit.machine.shared_memory import FOLDER, HANDLE_BYTES, CudaDriver
from perfkit.measurement.shared_memory import RunRegions
from perfkit.protocol.message import InferRequest, ModelMetadata, TensorMetadata
from perfkit.protocol.tensor import Datatype, Tensor
from perfkit.scenario.load import closed_loop
from perfkit.scenario.workload import SharedMemory
from perfkit.target.address import Address
from tests.server_stub.devices.fake_cuda import FakeCuda


class StubbornCuda(FakeCuda):
    """A fake driver that shares each allocation by a handle of its own, and does not free the one that it is asked to free first."""

    refused = 0

    def cuIpcGetMemHandle(self, handle, address):
        handle.raw = address.value.to_bytes(HANDLE_BYTES, "little")
        return 0

    def cuMemcpyHtoD_v2(self, *_):
        return 0

    def cuMemFree_v2(self, address):
        self.refused = self.refused or address.value
        return 1 if address.value == self.refused else super().cuMemFree_v2(address)


class Regions:
    """A transport to a server that registers regions, of which it remembers the names."""

    def __init__(self):
        self.names = []

    async def register_region(self, region):
        self.names.append(region.name)

    async def unregister_region(self, kind, name):
        self.names.remove(name)


def test_a_region_that_cannot_be_freed_does_not_keep_the_others():
    library, server = StubbornCuda(), Regions()
    driver = CudaDriver(0, lambda _: library)
    regions: Any = RunRegions(SharedMemory(kind="cuda"), closed_loop(1), lambda _: driver)
    tensor = TensorMetadata("x", "FP32", (4,))

    @contextlib.asynccontextmanager
    async def connect(_):
        yield server

    async def go():
        request = InferRequest("m", (Tensor("x", Datatype.FP32, (4,), bytes(16)),))
        metadata = ModelMetadata("m", ("1",), "x", (tensor,), (tensor,))
        await regions.share(server, Address("http", "127.0.0.1", 1), (request,), metadata, None, MemoryBudget(), None)
        inputs, outputs = server.names
        assert (FOLDER / inputs).exists()
        assert (FOLDER / outputs).exists()
        assert len(library.allocated) == 2
        with pytest.raises(UsageError, match="cuMemFree_v2 failed"):
            await regions.close(connect)
        assert server.names == []
        assert not (FOLDER / outputs).exists()
        assert not (FOLDER / inputs).exists()
        assert [*library.allocated] == [library.refused]

    asyncio.run(go())
