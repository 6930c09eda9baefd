"""Execution with buffers at fixed addresses: ONNX Runtime's CPU provider bound to the buffers of a fake driver.

The fake executes a stream only when it is synchronized, so the session, which reads its inputs in the order of its stream, sees
them only if their copies are ordered before it.
"""

import asyncio
import itertools
import threading
from typing import Any

import numpy as np
import onnx
import pytest

from perfkit.errors import UsageError
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype, tensor_from_array, tensor_to_array
from server_stub.executors.array import GpuArray, SharedArray
from server_stub.executors.onnx import OnnxExecutor
from server_stub.executors.onnx_buffers import padded_sizes
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


OPTIONS = [
    {"pinned": True},
    {"graphs": True},
    {"pinned": True, "graphs": True},
    {"pinned": True, "streams": 2},
    {"pinned": True, "streams": 2, "graphs": True},
    {"instances": 2},
]


@pytest.mark.parametrize("options", OPTIONS, ids=" ".join)
def test_batches_of_any_size_equal_plain_execution(file, options):
    gpu = FakeGpu()
    executor, plain = gpu.executor(file, 8, **options), OnnxExecutor(file, 1)
    executor.prepare()
    for sizes in ((1,), (8,), (3, 2), (1, 1, 1, 1), (5,), (2,), (7, 1)):
        parts = [part(size, float(10 * index)) for index, size in enumerate(sizes)]
        outputs = executor.execute(executor.join(parts))
        np.testing.assert_array_equal(outputs["y"], plain.execute(plain.join(parts))["y"])
        np.testing.assert_array_equal(outputs["y"], expected(*parts))
    executor.close()
    assert (gpu.library.allocated, gpu.library.streams, gpu.library.events) == ({}, {}, {})


def test_outputs_stay_what_they_were_when_the_buffers_are_used_again(file):
    gpu = FakeGpu()
    executor = gpu.executor(file, 4, pinned=True)
    executor.prepare()
    first = executor.execute(executor.join([part(2, 1.0)]))
    executor.execute(executor.join([part(2, 100.0)]))
    np.testing.assert_array_equal(first["y"], expected(part(2, 1.0)))
    executor.close()


def test_padded_sizes_are_powers_of_two_up_to_the_largest_batch():
    assert padded_sizes(64) == (1, 2, 4, 8, 16, 32, 64)
    assert padded_sizes(12) == (1, 2, 4, 8, 12)
    assert padded_sizes(1) == (1,)


def test_each_size_of_each_thread_has_a_graph_of_its_own_captured_before_the_first_request(file):
    gpu = FakeGpu()
    executor = gpu.executor(file, 8, pinned=True, streams=2, graphs=True, instances=2)
    assert executor.concurrency == 4
    results: dict[int, tuple[Any, Any]] = {}

    def serve(number):
        executor.prepare()
        ready.wait()
        captured[number] = len(gpu.runs)
        ready.wait()
        given = part(5, float(number))
        results[number] = executor.execute(executor.join([given]))["y"], expected(given)

    ready = threading.Barrier(4)
    captured: dict[int, int] = {}
    threads = [threading.Thread(target=serve, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(captured.values()) == {4 * 4}, "the sizes 1, 2, 4 and 8 of four buffer sets"
    captures, served = gpu.runs[:16], gpu.runs[16:]
    assert len({graph for _, _, graph in captures}) == 16
    by_thread = {thread: [graph for one, _, graph in captures if one == thread] for thread, _, _ in captures}
    assert [by_thread[thread][3] for thread, _, _ in served] == [graph for _, _, graph in served], "5 rows run in the graph for 8"
    for actual, wanted in results.values():
        np.testing.assert_array_equal(actual, wanted)
    with pytest.raises(RuntimeError, match="more than 4 threads"):
        executor.prepare()
    executor.close()


def test_a_capture_that_fails_is_a_sentence_and_leaves_nothing_allocated(file):
    gpu = FakeGpu()
    executor = gpu.executor(file, 8, graphs=True, instances=2)
    gpu.library.fail("cuMemcpyDtoHAsync_v2", 900)
    tensors = [TensorDefinition(name, Datatype.FP32, (size,)) for name, size in (("x", 3), ("w", 1), ("y", 3))]
    definition = ModelDefinition("m", "", "onnxruntime", 8, tuple(tensors[:2]), tuple(tensors[2:]), instances=2)
    with pytest.raises(UsageError, match=r"model\.onnx: its CUDA graphs cannot be captured: .*error 900; remove graphs=on from --onnx\."):
        ExecutedModel(definition, executor)
    assert (gpu.library.allocated, gpu.library.streams, gpu.library.events) == ({}, {}, {})


def test_without_graphs_nothing_is_padded_and_no_run_has_a_graph(file):
    gpu = FakeGpu()
    executor = gpu.executor(file, 8, pinned=True)
    executor.prepare()
    executor.execute(executor.join([part(5)]))
    ((_, binding, graph),) = gpu.runs
    assert (graph, binding.get_outputs()[0].shape()) == (None, [5, 3])
    executor.close()


def test_inputs_in_gpu_memory_are_copied_within_the_gpu(file):
    given = part(2, 3.0)
    gpu = FakeGpu({HANDLE: bytearray(given["x"].tobytes())})
    executor = gpu.executor(file, 4, pinned=True, streams=2)
    executor.prepare()
    address = gpu.driver.open_memory(HANDLE, 0)
    shared = GpuArray((6,), np.dtype(np.float32), address, gpu).reshape(-1, 3)
    assert (shared.shape, shared.nbytes) == ((2, 3), 24)
    outputs = executor.execute(executor.join([part(1), {"x": shared, "w": given["w"]}]))
    np.testing.assert_array_equal(outputs["y"], expected(part(1), given))
    assert (gpu.library.copied["within"], gpu.library.copied["in"]) == (24, 12 + 4 + 8)
    executor.close()


@pytest.mark.parametrize("options", [{"pinned": True}, {"streams": 2}])
def test_inputs_in_system_shared_memory_are_read_once(file, options):
    given, reads = part(2, 3.0), []

    class Region:
        def read_into(self, target):
            reads.append(len(target))
            target[:] = given["x"].tobytes()

    executor = FakeGpu().executor(file, 4, **options)
    executor.prepare()
    shared = SharedArray((6,), np.dtype(np.float32), Region()).reshape(-1, 3)
    outputs = executor.execute(executor.join([part(1), {"x": shared, "w": given["w"]}]))
    np.testing.assert_array_equal(outputs["y"], expected(part(1), given))
    assert reads == [24]
    executor.close()


def test_a_model_without_a_batch_dimension_has_one_size(tmp_path):
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [value("x", onnx.TensorProto.FLOAT, [1, 4])], [value("y", onnx.TensorProto.FLOAT, [1, 4])]
    )  # fmt: skip
    file = tmp_path / "relu.onnx"
    file.write_bytes(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 7)], ir_version=4).SerializeToString())
    gpu = FakeGpu()
    executor = gpu.executor(file, 0, pinned=True, graphs=True)
    executor.prepare()
    outputs = executor.execute(executor.join([{"x": np.array([[-1, 2, -3, 4]], np.float32)}]))
    assert outputs["y"].tolist() == [[0, 2, 0, 4]]
    assert len(gpu.runs) == 2
    executor.close()


def test_variable_sizes_besides_the_batch_are_refused(file):
    with pytest.raises(UsageError, match=r"has 'x' of shape \[-1, 3\]: buffers at fixed addresses need fixed sizes"):
        FakeGpu().executor(file, 0, graphs=True)


def test_missing_gpu_memory_is_named_and_nothing_stays_allocated(file):
    gpu = FakeGpu()
    calls = itertools.count()
    allocate = gpu.library.cuMemAlloc_v2
    gpu.library.cuMemAlloc_v2 = lambda *arguments: 2 if next(calls) == 2 else allocate(*arguments)
    with pytest.raises(UsageError, match=r"buffers for batches up to 8 cannot be made on the GPU: cuMemAlloc_v2 failed"):
        gpu.executor(file, 8, graphs=True)
    assert (gpu.library.allocated, gpu.library.streams) == ({}, {})


def test_concurrent_requests_are_batched_for_two_instances_with_two_buffer_sets_each(file):
    gpu = FakeGpu()
    executor = gpu.executor(file, 8, pinned=True, streams=2, graphs=True, instances=2)
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
    model.close()
    assert (gpu.library.allocated, gpu.library.streams, gpu.library.events) == ({}, {}, {})
