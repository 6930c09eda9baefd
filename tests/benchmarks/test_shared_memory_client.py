"""The small client for shared memory, against the bundled server's front ends with a fake GPU driver."""

import asyncio
import contextlib
import ctypes

import numpy as np
import pytest

from benchmarks.gpu.prove_memory import call_for
from benchmarks.gpu.shared_memory_client import CALLERS, registered
from perfkit.machine import shared_memory
from perfkit.machine.shared_memory import SystemMemory
from perfkit.protocol.tensor import Datatype
from server_stub.devices.cuda_driver import CudaDriver
from server_stub.executors.array import ArrayExecutor
from server_stub.grpc.front_end import GrpcFrontEnd
from server_stub.http.front_end import HttpFrontEnd
from server_stub.inference.definition import ModelDefinition, TensorDefinition
from server_stub.inference.executed_model import ExecutedModel
from server_stub.log import Log
from server_stub.repository.repository import Repository
from server_stub.repository.sources import BuiltinModels
from server_stub.service import Service
from server_stub.settings import Settings
from server_stub.shared_memory.regions import SharedMemoryRegions
from tests.server_stub.devices.fake_cuda import FakeCuda
from tests.server_stub.executors.fake_gpu import HANDLE


class SharingCuda(FakeCuda):
    """A fake driver that also shares its own memory by handle, as the driver of a client does."""

    def cuIpcGetMemHandle(self, handle, address):
        handle.raw = HANDLE
        self._places = {2**20: (HANDLE, self.allocated[address.value])}
        return 0

    def cuMemcpyHtoD_v2(self, address, data, size):
        ctypes.memmove(address.value, data, size.value)
        return 0


@pytest.mark.parametrize("protocol", CALLERS)
def test_the_client_hands_over_an_image_in_each_way(protocol):
    array = np.arange(8, dtype=np.float32).reshape(2, 4)
    library = SharingCuda()
    regions = SharedMemoryRegions(is_allowed=True, driver=CudaDriver(lambda _: library))

    async def main():
        given, doubled = ((TensorDefinition(name, Datatype.FP32, (4,)),) for name in ("x", "y"))
        double = ExecutedModel(ModelDefinition("m", "", "array", 4, given, doubled), ArrayExecutor(lambda inputs: {"y": 2 * inputs["x"]}))
        repository = Repository(BuiltinModels({"m": lambda: double}), ("m",))
        repository.load()
        http, grpc = (front(Service(repository, regions, Log(Settings()))) for front in (HttpFrontEnd, GrpcFrontEnd))
        ports = {"http": await http.start("127.0.0.1", 0), "grpc": await grpc.start("127.0.0.1", 0)}
        await asyncio.to_thread(call, ports)
        await asyncio.gather(http.stop(), grpc.stop())
        repository.close()

    def call(ports):
        memories = SystemMemory(array.nbytes), shared_memory.CudaMemory(array.nbytes, shared_memory.CudaDriver(0, lambda _: library))
        for memory in (None, *memories):
            block = contextlib.nullcontext() if memory is None else registered(ports["http"], array, memory)
            with block as region, contextlib.closing(CALLERS[protocol](ports[protocol], "m", "x", array, region)) as caller:
                assert len(regions) == (region is not None)
                np.testing.assert_array_equal(caller.call(), 2 * array.ravel())
                times_ns, calls = call_for([caller], 0.01)
                assert len(times_ns) == calls >= 1
        assert len(regions) == 0
        assert library.allocated == {}
        with (
            contextlib.closing(CALLERS[protocol](ports[protocol], "m", "unknown", array, None)) as caller,
            pytest.raises(Exception, match="unknown"),
        ):
            call_for([caller], 0.01)

    asyncio.run(main())
