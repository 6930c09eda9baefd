"""CUDA shared memory over both protocols through tritonclient, with a fake GPU driver."""

import asyncio
import base64

import numpy as np
import onnx
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol.tensor import Datatype
from server_stub.devices.cuda_driver import CudaDriver
from server_stub.grpc.front_end import GrpcFrontEnd
from server_stub.http.front_end import HttpFrontEnd
from server_stub.inference.definition import ModelDefinition, TensorDefinition
from server_stub.inference.executed_model import ExecutedModel
from server_stub.log import Log
from server_stub.options import Options
from server_stub.repository.repository import Repository
from server_stub.repository.sources import BuiltinModels, open_repository
from server_stub.service import Service
from server_stub.settings import Settings
from server_stub.shared_memory.regions import SharedMemoryRegions
from tests.server_stub.devices.fake_cuda import FakeCuda
from tests.server_stub.executors.fake_gpu import HANDLE, FakeGpu

FIRST, SECOND = np.arange(16, dtype=np.int32), np.arange(16, 32, dtype=np.int32)


@pytest.fixture
def memory():
    return bytearray(FIRST.tobytes() + SECOND.tobytes() + bytes(128))


@pytest.fixture
def library(memory):
    return FakeCuda(shared={HANDLE: memory})


@pytest.fixture
def regions(library):
    return SharedMemoryRegions(is_allowed=True, driver=CudaDriver(lambda _: library))


def ask_fronts(regions, ask, models=None):
    """Call `ask` with each of tritonclient's clients, in a thread, while the front ends serve `simple`, or the given models."""

    async def main():
        repository = open_repository(Options(models=("simple",)), 1) if models is None else Repository(BuiltinModels(models), tuple(models))
        repository.load()
        http, grpc = (front(Service(repository, regions, Log(Settings()))) for front in (HttpFrontEnd, GrpcFrontEnd))
        ports = await http.start("127.0.0.1", 0), await grpc.start("127.0.0.1", 0)
        for client_library, port in zip((tritonclient.http, tritonclient.grpc), ports, strict=True):
            await asyncio.to_thread(ask, client_library, f"127.0.0.1:{port}")
        await asyncio.gather(http.stop(), grpc.stop())
        repository.close()

    asyncio.run(main())


def test_tensors_are_read_from_gpu_memory_and_written_to_it(regions, library, memory):
    def ask(client_library, url):
        memory[128:] = bytes(128)
        with client_library.InferenceServerClient(url) as client:
            # tritonclient's own handles are base64
            client.register_cuda_shared_memory("c", base64.b64encode(HANDLE), 1, 256)
            inputs = [client_library.InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1")]
            output = client_library.InferRequestedOutput("OUTPUT0")
            for one, offset in ((inputs[0], 0), (inputs[1], 64), (output, 128)):
                one.set_shared_memory("c", 64, offset)
            client.infer("simple", inputs, outputs=[output])
            assert memory[128:192] == (FIRST + SECOND).tobytes()
            status = client.get_cuda_shared_memory_status(**({} if client_library is tritonclient.http else {"as_json": True}))
            (region,) = status if isinstance(status, list) else status["regions"].values()
            assert (region["name"], int(region["device_id"]), int(region["byte_size"])) == ("c", 1, 256)
            assert not client.get_system_shared_memory_status(**({} if client_library is tritonclient.http else {"as_json": True}))
            with pytest.raises(InferenceServerException, match="already in manager"):
                client.register_cuda_shared_memory("c", base64.b64encode(HANDLE), 1, 256)
            client.unregister_system_shared_memory()
            assert library.open == 1
            client.unregister_cuda_shared_memory()
            assert library.open == 0
            with pytest.raises(InferenceServerException, match="Unable to find shared memory region: 'c'"):
                client.infer("simple", inputs, outputs=[output])

    ask_fronts(regions, ask)


def test_inputs_in_gpu_memory_reach_an_onnx_model_without_a_copy_to_the_host(tmp_path):
    value = onnx.helper.make_tensor_value_info
    tensors = [value(name, onnx.TensorProto.INT32, ["n", 16]) for name in ("a", "b", "sum")]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Add", ["a", "b"], ["sum"])], "g", tensors[:2], tensors[2:])
    file = tmp_path / "model.onnx"
    file.write_bytes(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 7)], ir_version=4).SerializeToString())
    memory = bytearray(FIRST.tobytes() + bytes(64))
    gpu = FakeGpu({HANDLE: memory})
    gpu.library.fail("cuMemcpyDtoH_v2", 719)  # the copy to the host
    definitions = [TensorDefinition(name, Datatype.INT32, (16,)) for name in ("a", "b", "sum")]
    definition = ModelDefinition("m", "", "onnxruntime", 4, tuple(definitions[:2]), tuple(definitions[2:]))
    regions = SharedMemoryRegions(is_allowed=True, driver=gpu.driver)

    def ask(client_library, url):
        with client_library.InferenceServerClient(url) as client:
            client.register_cuda_shared_memory("c", base64.b64encode(HANDLE), 0, 128)
            shared, given = (client_library.InferInput(name, [1, 16], "INT32") for name in ("a", "b"))
            shared.set_shared_memory("c", 64, 0)
            given.set_data_from_numpy(SECOND.reshape(1, 16))
            answer = client.infer("m", [shared, given])
            np.testing.assert_array_equal(answer.as_numpy("sum"), (FIRST + SECOND).reshape(1, 16))
            output = client_library.InferRequestedOutput("sum")
            output.set_shared_memory("c", 64, 64)
            client.infer("m", [shared, given], outputs=[output])
            assert memory[64:] == (FIRST + SECOND).tobytes()
            memory[64:] = bytes(64)
            shared.set_shared_memory("c", 32, 0)
            with pytest.raises(InferenceServerException, match=r"input byte size mismatch for input 'a' .* Expected 64, got 32"):
                client.infer("m", [shared, given])
            client.unregister_cuda_shared_memory()
        assert gpu.library.copied["within"] == 2 * 64
        gpu.library.copied.clear()

    ask_fronts(regions, ask, {"m": lambda: ExecutedModel(definition, gpu.executor(file, 4))})


@pytest.mark.parametrize(
    ("handle", "device_id", "byte_size", "sentence"),
    [
        (HANDLE[:-1], 0, 4, "the handle has 63 bytes, expected 64"),
        (bytes(64), 0, 4, "cuIpcOpenMemHandle_v2 failed: CUDA_ERROR_INVALID_VALUE"),
        (HANDLE, 2, 4, "there is no device 2"),
        (HANDLE, -1, 4, "there is no device -1"),
        (HANDLE, 0, 257, "byte_size 257 is not between 1 and the 256 shared bytes"),
        (HANDLE, 0, 0, "byte_size 0 is not between 1 and the 256 shared bytes"),
    ],
    ids=["short", "unknown", "no such GPU", "negative GPU", "too much", "nothing"],
)
def test_invalid_gpu_memory_is_rejected(regions, library, handle, device_id, byte_size, sentence):
    with pytest.raises(ProtocolError, match=r"^failed to register CUDA shared memory region: 'c'") as error:
        regions.register_cuda("c", handle, device_id, byte_size)
    assert sentence in str(error.value)
    assert (regions.status(is_cuda=True), library.open) == ([], 0)


def test_a_gpu_error_fails_one_request(library):
    regions = SharedMemoryRegions(is_allowed=True, driver=CudaDriver(lambda _: library))
    regions.register_cuda("c", HANDLE, 0, 256)
    slot = regions.slice("c", 0, 64)
    library.fail("cuMemcpyDtoH_v2", 719)
    with pytest.raises(ProtocolError, match="shared memory region 'c' cannot be used: cuMemcpyDtoH_v2 failed: error 719") as error:
        slot.read()
    assert error.value.kind is ErrorKind.INTERNAL


def test_without_permission_no_memory_is_opened(library):
    regions = SharedMemoryRegions(is_allowed=False, driver=CudaDriver(lambda _: library))
    with pytest.raises(ProtocolError, match="--allow-client-shm") as error:
        regions.register_cuda("c", HANDLE, 0, 256)
    assert (error.value.kind, library.open) == (ErrorKind.UNSUPPORTED, 0)
