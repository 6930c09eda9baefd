"""`model_warmup`: what it makes every instance execute before a model is ready, as Triton's configuration describes it."""

import collections
import pathlib
import threading

import numpy as np
import onnx
import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2

from perfkit.errors import UsageError
from perfkit.protocol import v2_pb2
from perfkit.protocol.tensor import Datatype, tensor_to_array
from server_stub.executors.array import Executor
from server_stub.executors.onnx import OnnxRuntime
from server_stub.inference.definition import ModelDefinition, TensorDefinition
from server_stub.inference.executed_model import ExecutedModel
from server_stub.repository import folder
from server_stub.repository.warmup import read_samples

CONFIG = """
max_batch_size: 4
dynamic_batching {}
instance_group { count: 2 kind: KIND_CPU }
input { name: "x" data_type: TYPE_FP32 dims: 3 }
output { name: "y" data_type: TYPE_FP32 dims: 3 }
"""
X = 'inputs { key: "x" value { data_type: TYPE_FP32 dims: 3 %s } }'
ZEROS, FROM_FILE = X % "zero_data: true", X % 'input_data_file: "x.bin"'


@pytest.fixture
def load(tmp_path):
    """Loads the model y = max(x, 0) with further lines of its configuration; `data` is the file of a warm-up."""
    given, result = (onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n", 3]) for name in ("x", "y"))
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [given], [result])
    (tmp_path / "m" / "1").mkdir(parents=True)
    encoded = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8).SerializeToString()
    (tmp_path / "m" / "1" / "model.onnx").write_bytes(encoded)

    def load(lines, data=None):
        (tmp_path / "m" / "config.pbtxt").write_text(CONFIG + lines)
        if data is not None:
            (tmp_path / "m" / "warmup").mkdir(exist_ok=True)
            (tmp_path / "m" / "warmup" / "x.bin").write_bytes(data)
        return folder.load_versions(tmp_path, "m", OnnxRuntime(1))[0]

    return load


class Recorder(Executor):
    """Records the batches of each thread; with two threads, both take part in each execution."""

    def __init__(self, failure=None):
        self.executed = collections.defaultdict(list)
        self.is_closed, self._failure = False, failure
        self._both = threading.Barrier(2, timeout=30)

    def execute(self, inputs):
        self._both.wait()
        if self._failure is not None:
            raise self._failure
        self.executed[threading.get_ident()].append(inputs["x"])
        return {"y": np.maximum(inputs["x"], 0)}

    def close(self):
        self.is_closed = True


def test_every_instance_executes_each_sample_as_often_as_it_says_and_no_client_sees_it(load):
    data = np.array([1, -2, 3], np.float32).tobytes()
    lines = f'model_warmup {{ name: "a" batch_size: 3 count: 2 {FROM_FILE} }} model_warmup {{ name: "b" batch_size: 1 {ZEROS} }}'
    definition, version, executor, samples = load(lines, data)
    executor.close()
    recorder = Recorder()
    model = ExecutedModel(definition, recorder, version, samples)
    assert len(recorder.executed) == 2
    for batches in recorder.executed.values():
        assert [batch.tolist() for batch in batches] == [[[1, -2, 3]] * 3, [[1, -2, 3]] * 3, [[0, 0, 0]]]
    assert model.statistics()["execution_count"] == model.statistics()["inference_count"] == 0
    model.close()


def test_random_data_differs_from_zeros_and_batch_size_0_leaves_a_sample_out(load):
    random = X % "random_data: true"
    *_, samples = load(f'model_warmup {{ name: "none" {ZEROS} }} model_warmup {{ name: "r" batch_size: 1 {random} }}')
    assert [sample.name for sample in samples] == ["r"]
    (tensor,) = samples[0].requests[0].inputs
    assert (tensor.shape, len(tensor.raw), samples[0].count) == ((1, 3), 12, 1)
    assert bytes(tensor.raw) != bytes(12)


def test_a_longer_file_is_used_from_its_beginning_as_in_triton(load):
    *_, samples = load(f'model_warmup {{ name: "a" batch_size: 1 {FROM_FILE} }}', bytes(range(20)))
    assert bytes(samples[0].requests[0].inputs[0].raw) == bytes(range(12))


def test_clients_read_it_in_the_configuration_that_tritons_own_messages_describe(load):
    lines = f'model_warmup {{ name: "a" batch_size: 3 count: 2 {FROM_FILE} }} model_warmup {{ name: "b" batch_size: 1 {ZEROS} }}'
    definition, *_ = load(lines, bytes(12))
    theirs = text_format.Parse(CONFIG + lines, model_config_pb2.ModelConfig())
    ours = model_config_pb2.ModelConfig.FromString(definition.config_message().SerializeToString())
    assert ours.model_warmup == theirs.model_warmup
    assert definition.config()["model_warmup"][0] == {
        "name": "a", "batch_size": 3, "count": 2,
        "inputs": {"x": {"data_type": "TYPE_FP32", "dims": [3], "input_data_file": "x.bin"}},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("sample", "sentence"),
    [
        (f"batch_size: 5 {ZEROS}", "batch_size is 5; the model accepts at most 4."),
        (f"batch_size: 1 count: 10001 {ZEROS}", "count is 10001; it must be at most 10000."),
        ("batch_size: 1", "expected 1 inputs but got 0 inputs for model 'm'."),
        ('batch_size: 1 inputs { key: "z" value { data_type: TYPE_FP32 dims: 3 zero_data: true } }', "unexpected inference input 'z'"),
        ('batch_size: 1 inputs { key: "x" value { dims: 3 zero_data: true } }', "input 'x': data_type is missing."),
        ('batch_size: 1 inputs { key: "x" value { data_type: TYPE_FP32 dims: -1 zero_data: true } }', "a warm-up needs every size."),
        ('batch_size: 1 inputs { key: "x" value { data_type: TYPE_FP32 dims: 4 zero_data: true } }', "Expected [-1,3], got [1,4]."),
        ('batch_size: 1 inputs { key: "x" value { data_type: TYPE_INT32 dims: 3 zero_data: true } }', "data-type is 'INT32'"),
        ("batch_size: 1 " + X % "", "input 'x': the data is missing; use zero_data: true"),
        (f"batch_size: 1 {FROM_FILE}", "input 'x': x.bin has 11 bytes, and 12 are needed."),
        ("batch_size: 1 " + X % 'input_data_file: "../x.bin"', "must be a name without folders."),
        ("batch_size: 1 " + X % 'input_data_file: "y.bin"', "input_data_file cannot be read: [Errno 2]"),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_model_is_named(load, sample, sentence):
    with pytest.raises(UsageError) as error:
        load(f'model_warmup {{ name: "w" {sample} }}', bytes(11))
    assert "model_warmup 'w'" in str(error.value)
    assert sentence in str(error.value)


def test_a_warm_up_that_fails_fails_the_load_and_closes_the_executor(load):
    definition, version, executor, samples = load(f'model_warmup {{ name: "w" batch_size: 1 {ZEROS} }}')
    executor.close()
    recorder = Recorder(ValueError("no kernel"))
    with pytest.raises(UsageError, match=r"m: model_warmup 'w' fails: model 'm' failed: no kernel"):
        ExecutedModel(definition, recorder, version, samples)
    assert recorder.is_closed


def test_strings_of_zeros_are_empty_ones():
    """Triton gives four bytes of zeros, a length, for each string."""
    definition = ModelDefinition("m", "", "array", 0, (TensorDefinition("s", Datatype.BYTES, (2,)),), ())
    warmup = v2_pb2.ModelWarmup(name="w", batch_size=1)
    warmup.inputs["s"].CopyFrom(v2_pb2.ModelWarmup.Input(data_type="TYPE_STRING", dims=[2], random_data=True))
    (sample,) = read_samples([warmup], definition, pathlib.Path(), "here")
    assert tensor_to_array(sample.requests[0].inputs[0]).tolist() == [b"", b""]
