"""Executions prepared for each batch size: ONNX Runtime's CPU provider bound to the buffers of a fake driver.

The fake executes a stream only when it is synchronized, so the session, which reads its inputs in the order of its stream, sees
them only if their copies are ordered before it.
"""

import asyncio
import itertools
from typing import Any

import numpy as np
import onnx
import pytest

from perfkit.errors import ProtocolError, UsageError
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype, tensor_from_array, tensor_to_array
from server_stub.devices.cuda_driver import CudaError
from server_stub.devices.host_memory import HostMemory
from server_stub.executors.array import GpuArray, SharedArray
from server_stub.executors.onnx import OnnxExecutor
from server_stub.executors.onnx_gpu import PREPARING_S, SPARE_BYTES, VariableSizesError
from server_stub.inference.definition import ModelDefinition, TensorDefinition
from server_stub.inference.executed_model import ExecutedModel
from server_stub.scheduling.batching import BatchingPolicy
from tests.server_stub.executors.fake_gpu import HANDLE, FakeGpu


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """y = 2x + w·1, where w has one value for each row, so that rows can be told apart; x has 3 values."""
    made = tmp_path_factory.mktemp("onnx") / "model.onnx"
    value = onnx.helper.make_tensor_value_info
    tensors = [value("x", onnx.TensorProto.FLOAT, ["n", 3]), value("w", onnx.TensorProto.FLOAT, ["n", 1])]
    nodes = [onnx.helper.make_node("Add", ["x", "x"], ["d"]), onnx.helper.make_node("Add", ["d", "w"], ["y"])]
    graph = onnx.helper.make_graph(nodes, "g", tensors, [value("y", onnx.TensorProto.FLOAT, ["n", 3])])
    made.write_bytes(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 7)], ir_version=4).SerializeToString())
    return made


def part(rows, start=0.0):
    return {"x": np.arange(rows * 3, dtype=np.float32).reshape(rows, 3) + start, "w": np.full((rows, 1), start, np.float32)}


def expected(*parts):
    return np.concatenate([2 * given["x"] + given["w"] for given in parts])


OPTIONS = [{}, {"graphs": False}, {"instances": 2}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_batches_of_any_size_equal_plain_execution(file, options):
    gpu = FakeGpu()
    executor, plain = gpu.executor(file, 12, **options), OnnxExecutor(file, 1)
    for sizes in ((1,), (12,), (3, 2), (1, 1, 1, 1), (5,), (2,), (7, 1), (4, 5)):
        parts = [part(size, float(10 * index)) for index, size in enumerate(sizes)]
        outputs = executor.execute(executor.join(parts))
        np.testing.assert_array_equal(outputs["y"], plain.execute(plain.join(parts))["y"])
        np.testing.assert_array_equal(outputs["y"], expected(*parts))
    executor.close()
    assert gpu.is_clean


def test_outputs_stay_what_they_were_when_the_buffers_are_used_again(file):
    executor = FakeGpu().executor(file, 4)
    first = executor.execute(executor.join([part(2, 1.0)]))
    executor.execute(executor.join([part(2, 100.0)]))
    np.testing.assert_array_equal(first["y"], expected(part(2, 1.0)))
    executor.close()


def test_each_size_of_each_instance_is_captured_before_the_first_request(file):
    gpu = FakeGpu()
    executor = gpu.executor(file, 12, instances=2)
    assert gpu.library.captures == 2 * 10, "the sizes 1 to 8, 10 and 12 of two instances"
    assert [sorted(set(executed)) for executed in gpu.executed] == [[1, 2, 3, 4, 5, 6, 7, 8, 10, 12]] * 2
    assert executor.document() == {
        "instances": 2, "graphs": True, "layout": "nhwc", "batch_sizes": [1, 2, 3, 4, 5, 6, 7, 8, 10, 12], "load_s": 0.0, "gpu_memory_bytes": 0,
    }  # fmt: skip
    gpu.library.launched.clear()
    for executed in gpu.executed:
        executed.clear()
    batches = [executor.join([part(rows)]) for rows in (9, 3)]
    assert batches[0].instance is not batches[1].instance
    for batch in batches:
        executor.start(batch)
    for batch, rows in zip(batches, (9, 3), strict=True):
        np.testing.assert_array_equal(executor.finish(batch)["y"], expected(part(rows)))
    assert (len(gpu.library.launched), gpu.executed) == (2, [[10], [3]])
    executor.close()
    assert gpu.is_clean


def test_without_graphs_each_size_has_a_session_that_never_sees_another(file):
    """ONNX Runtime prepares convolutions anew whenever the size changes."""
    gpu = FakeGpu()
    executor = gpu.executor(file, 12, graphs=False)
    for rows in (5, 12, 1, 3, 5):
        executor.execute(executor.join([part(rows)]))
    assert gpu.library.captures == 0
    assert [set(executed) for executed in gpu.executed] == [{12}, {1}, {2}, {4}, {8}]
    executor.close()
    assert gpu.is_clean


@pytest.mark.parametrize(("function", "code"), [("cuStreamBeginCapture_v2", 900), ("cuGraphInstantiateWithFlags", 801)])
def test_what_cannot_be_captured_is_executed_without_and_says_why(file, function, code):
    gpu = FakeGpu()
    gpu.library.fail(function, code)
    executor = gpu.executor(file, 4)
    assert executor.fallback == (
        f"{file}: its executions, for batches up to 4, cannot be captured as CUDA graphs: {function} failed: error {code}"
    )
    assert (executor.document()["graphs"], executor.document()["layout"], executor.begins_in_loop) == (False, "nhwc", False)
    np.testing.assert_array_equal(executor.execute(executor.join([part(3)]))["y"], expected(part(3)))
    executor.close()
    assert gpu.is_clean


def test_what_fails_in_every_way_is_a_sentence_and_leaves_nothing_allocated(file):
    gpu = FakeGpu()
    gpu.library.fail("cuStreamSynchronize", 700)
    with pytest.raises(UsageError, match=r"model\.onnx: its executions, for batches up to 8, cannot be prepared on the GPU: .*error 700"):
        gpu.executor(file, 8, instances=2)
    assert gpu.is_clean


def test_missing_gpu_memory_is_named_and_nothing_stays_allocated(file):
    gpu = FakeGpu()
    calls = itertools.count()
    allocate = gpu.library.cuMemAlloc_v2
    gpu.library.cuMemAlloc_v2 = lambda *arguments: 2 if next(calls) % 3 == 2 else allocate(*arguments)
    with pytest.raises(UsageError, match="for batches up to 8, cannot be prepared on the GPU: cuMemAlloc_v2 failed"):
        gpu.executor(file, 8)
    assert gpu.is_clean


def test_after_its_time_only_the_largest_batch_and_powers_of_two_are_prepared(file):
    clock = itertools.chain([0.0], itertools.repeat(PREPARING_S + 1))
    executor = FakeGpu().executor(file, 12, now_s=lambda: next(clock))
    assert executor.document()["batch_sizes"] == [1, 2, 4, 8, 12]
    np.testing.assert_array_equal(executor.execute(executor.join([part(9)]))["y"], expected(part(9)))
    executor.close()


def test_where_the_gpu_is_full_fewer_sizes_and_instances_are_made(file):
    gpu = FakeGpu()
    # each look finds a third of 1 GiB less; the first instance is what is between the second and the third
    left = itertools.count(4 * SPARE_BYTES, -SPARE_BYTES // 3)
    gpu.library.free_bytes = lambda: max(0, next(left))
    executor = gpu.executor(file, 12, instances=None)
    assert executor.instances == 3
    full = FakeGpu()
    few = iter([2**30, 2**30, 2**28])
    full.library.free_bytes = lambda: next(few, 2**28)
    crowded = full.executor(file, 12, instances=None)
    assert (crowded.instances, crowded.document()["batch_sizes"]) == (1, [1, 2, 4, 8, 12])
    for one in (executor, crowded):
        one.close()


def test_page_locked_inputs_are_copied_from_where_they_are(file):
    gpu = FakeGpu()
    executor = gpu.executor(file, 4)
    memory = HostMemory(gpu.driver).take(2**17)
    x = np.frombuffer(memory[4:28], np.float32).reshape(2, 3)
    x[:] = part(2, 3.0)["x"]
    given = {"x": x, "w": part(2, 3.0)["w"]}
    before = dict(gpu.library.copied)
    assert executor.begins_at_once([given])
    np.testing.assert_array_equal(executor.execute(executor.join([given]))["y"], expected(part(2, 3.0)))
    assert gpu.library.copied["in"] - before.get("in", 0) == 24 + 8
    executor.close()


def test_only_a_batch_that_the_gpu_copies_itself_begins_in_the_event_loop(file):
    gpu = FakeGpu()
    executor = gpu.executor(file, 2**13)
    large = {"x": np.zeros((2**13, 3), np.float32), "w": np.zeros((2**13, 1), np.float32)}
    pinned = HostMemory(gpu.driver).take(2**18)
    locked = {"x": np.frombuffer(pinned[: 12 * 2**13], np.float32).reshape(2**13, 3), "w": large["w"]}
    assert executor.begins_in_loop
    assert not executor.begins_at_once([large])
    assert executor.begins_at_once([locked]), "32 KiB are copied"
    assert not executor.begins_at_once([locked, locked, locked])
    unread: Any = None
    shared = SharedArray((2**13, 3), np.dtype(np.float32), unread)
    assert not executor.begins_at_once([{**locked, "x": shared}])
    executor.close()


def test_inputs_in_gpu_memory_are_copied_within_the_gpu(file):
    given = part(2, 3.0)
    gpu = FakeGpu({HANDLE: bytearray(given["x"].tobytes())})
    executor = gpu.executor(file, 4)
    address = gpu.driver.open_memory(HANDLE, 0)
    shared = GpuArray((6,), np.dtype(np.float32), address, gpu).reshape(-1, 3)
    assert (shared.shape, shared.nbytes) == ((2, 3), 24)
    outputs = executor.execute(executor.join([part(1), {"x": shared, "w": given["w"]}]))
    np.testing.assert_array_equal(outputs["y"], expected(part(1), given))
    assert (gpu.library.copied["within"], gpu.library.copied["in"]) == (24, 12 + 4 + 8)
    executor.close()


def test_inputs_in_system_shared_memory_are_read_once(file):
    given, reads = part(2, 3.0), []

    class Region:
        def read_into(self, target):
            reads.append(len(target))
            target[:] = given["x"].tobytes()

    executor = FakeGpu().executor(file, 4)
    shared = SharedArray((6,), np.dtype(np.float32), Region()).reshape(-1, 3)
    outputs = executor.execute(executor.join([part(1), {"x": shared, "w": given["w"]}]))
    np.testing.assert_array_equal(outputs["y"], expected(part(1), given))
    assert reads == [24]
    executor.close()


def test_a_batch_that_fails_gives_its_instance_back(file):
    gpu = FakeGpu()
    executor = gpu.executor(file, 4)
    with pytest.raises(KeyError):
        executor.join([{"x": part(1)["x"]}])
    gpu.library.fail("cuGraphLaunch", 700)
    with pytest.raises(CudaError, match="cuGraphLaunch failed: error 700"):
        executor.execute(executor.join([part(1)]))
    gpu.library.fail("cuGraphLaunch", 0)
    gpu.library.fail("cuStreamSynchronize", 700)
    batch = executor.join([part(1)])
    executor.start(batch)
    with pytest.raises(CudaError, match="cuStreamSynchronize"):
        executor.finish(batch)
    gpu.library.fail("cuStreamSynchronize", 0)
    np.testing.assert_array_equal(executor.execute(executor.join([part(2)]))["y"], expected(part(2)))
    executor.close()


def test_a_model_without_a_batch_dimension_has_one_size(tmp_path):
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [value("x", onnx.TensorProto.FLOAT, [1, 4])], [value("y", onnx.TensorProto.FLOAT, [1, 4])]
    )  # fmt: skip
    file = tmp_path / "relu.onnx"
    file.write_bytes(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 7)], ir_version=4).SerializeToString())
    gpu = FakeGpu()
    executor = gpu.executor(file, 0)
    outputs = executor.execute(executor.join([{"x": np.array([[-1, 2, -3, 4]], np.float32)}]))
    assert outputs["y"].tolist() == [[0, 2, 0, 4]]
    assert (gpu.library.captures, executor.document()["batch_sizes"], executor.batch_rows) == (1, [1], ())
    executor.close()


def test_variable_sizes_besides_the_batch_have_no_fixed_buffers(file):
    gpu = FakeGpu()
    with pytest.raises(VariableSizesError, match=r"has 'x' of shape \[-1, 3\], so its sizes differ from request to request"):
        gpu.executor(file, 0)
    assert gpu.is_clean


def test_concurrent_requests_are_batched_for_two_instances(file):
    gpu = FakeGpu()
    executor = gpu.executor(file, 8, instances=2)
    inputs = tuple(TensorDefinition(name, Datatype.FP32, (size,)) for name, size in (("x", 3), ("w", 1)))
    definition = ModelDefinition(
        "m", "", "onnxruntime", 8, inputs, (TensorDefinition("y", Datatype.FP32, (3,)),), scheduling=BatchingPolicy(), instances=2
    )
    model = ExecutedModel(definition, executor)

    def request(number):
        tensors = tuple(tensor_from_array(name, Datatype.FP32, array) for name, array in part(1 + number % 3, float(number)).items())
        return InferRequest("m", tensors)

    async def infer_all():
        return await asyncio.gather(*(model.infer(request(number), 0, lambda response: response) for number in range(60)))

    for number, response in enumerate(asyncio.run(infer_all())):
        np.testing.assert_array_equal(tensor_to_array(response.outputs[0]), expected(part(1 + number % 3, float(number))))
    assert model.statistics()["execution_count"] < 60
    assert model.execution is not None
    assert model.execution["instances"] == 2
    model.close()
    assert gpu.is_clean


def test_an_input_of_another_size_than_the_file_has_is_refused(file):
    """A configuration may say -1 where the file has a fixed size."""
    executor = FakeGpu().executor(file, 4)
    given = part(2)
    with pytest.raises(ProtocolError, match="an input of 16 bytes was given where the model takes 24"):
        executor.execute(executor.join([{**given, "x": given["x"][:, :2]}]))
    np.testing.assert_array_equal(executor.execute(executor.join([given]))["y"], expected(given))
    executor.close()
