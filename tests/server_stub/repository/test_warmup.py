"""`model_warmup`: what it makes every instance execute before a model is ready, as Triton's configuration describes it.

What is said of Triton was observed on a Triton 2.51 with the same configurations and a model of the Python backend.
"""

import base64
import collections
import json
import pathlib
import shutil
import struct
import threading

import numpy as np
import onnx
import pytest
from google.protobuf import json_format, text_format
from tritonclient.grpc import model_config_pb2

from perfkit.errors import UsageError
from perfkit.protocol import v2_pb2
from perfkit.protocol.tensor import Datatype, tensor_to_array
from server_stub.executors import onnx as onnx_executor
from server_stub.executors.array import Executor
from server_stub.executors.onnx import OnnxExecutor, OnnxRuntime
from server_stub.inference.definition import ModelDefinition, TensorDefinition
from server_stub.inference.executed_model import ExecutedModel
from server_stub.repository import folder
from server_stub.repository.warmup import read_samples
from server_stub.scheduling.sequences import Control, ControlKind, SequencePolicy

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


def test_every_instance_executes_each_sample_as_often_as_it_says(load):
    """The statistics are Triton's: two instances execute 3 rows twice and one row once."""
    data = np.array([1, -2, 3], np.float32).tobytes()
    lines = f'model_warmup {{ name: "a" batch_size: 3 count: 2 {FROM_FILE} }} model_warmup {{ name: "b" batch_size: 1 {ZEROS} }}'
    definition, version, executor, samples = load(lines, data)
    executor.close()
    recorder = Recorder()
    model = ExecutedModel(definition, recorder, version, samples)
    assert len(recorder.executed) == 2
    for batches in recorder.executed.values():
        assert [batch.tolist() for batch in batches] == [[[1, -2, 3]] * 3, [[1, -2, 3]] * 3, [[0, 0, 0]]]
    statistics = model.statistics()
    assert (statistics["execution_count"], statistics["inference_count"], statistics["inference_stats"]["success"]["count"]) == (6, 14, 14)
    assert [(batch["batch_size"], batch["compute_infer"]["count"]) for batch in statistics["batch_stats"]] == [(1, 2), (3, 4)]
    assert statistics["inference_stats"]["fail"]["count"] == 0
    model.close()


def test_random_data_differs_from_zeros_and_batch_size_0_leaves_a_sample_out(load):
    random = X % "random_data: true"
    *_, samples = load(f'model_warmup {{ name: "none" {ZEROS} }} model_warmup {{ name: "r" batch_size: 1 {random} }}')
    assert [sample.where.rpartition(" ")[2] for sample in samples] == ["'r'"]
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
    ours = json_format.ParseDict(definition.config(), model_config_pb2.ModelConfig())
    assert ours.model_warmup == theirs.model_warmup
    assert definition.config()["model_warmup"][0] == {
        "name": "a", "batch_size": 3, "count": 2,
        "inputs": {"x": {"data_type": "TYPE_FP32", "dims": [3], "input_data_file": "x.bin"}},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("sample", "sentence"),
    [
        (f"batch_size: 5 {ZEROS}", "batch_size is 5, and max_batch_size is 4; lower it, or raise max_batch_size."),
        (f"batch_size: 1 count: 10001 {ZEROS}", "count is 10001; it must be at most 10000."),
        ("batch_size: 1", "the input 'x' is missing in inputs; add it."),
        (f'batch_size: 1 {ZEROS} inputs {{ key: "z" }}', "the model has no input 'z'; remove it, or use a name of x."),
        ('batch_size: 1 inputs { key: "x" value { dims: 3 zero_data: true } }', "data_type is missing, and the model has TYPE_FP32; use that."),
        ('batch_size: 1 inputs { key: "x" value { data_type: TYPE_INT32 dims: 3 zero_data: true } }', "data_type is TYPE_INT32, and the model"),
        ('batch_size: 1 inputs { key: "x" value { data_type: TYPE_FP32 dims: -1 zero_data: true } }', "a warm-up needs every size, so replace"),
        ('batch_size: 1 inputs { key: "x" value { data_type: TYPE_FP32 dims: 4 zero_data: true } }', "dims are [4], and the model has [3]; use"),
        ('batch_size: 1 inputs { key: "x" value { data_type: TYPE_FP32 dims: [1, 3] zero_data: true } }', "dims are [1, 3], and the model"),
        ("batch_size: 1 " + X % "", "the data is missing; use zero_data: true, random_data: true or input_data_file."),
        (f"batch_size: 1 {FROM_FILE}", "m/warmup/x.bin has 11 bytes; dims [3] need 12."),
        ("batch_size: 1 " + X % 'input_data_file: "y.bin"', "input_data_file cannot be read: [Errno 2]"),
        *((f"batch_size: 1 {X % f'input_data_file: {name}'}", "must name a file in the model's folder warmup.")
          for name in ('"../x.bin"', '"/etc/passwd"', '"a/../../x.bin"', '""', '"a\\000b"')),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_model_is_named(load, sample, sentence):
    with pytest.raises(UsageError) as error:
        load(f'model_warmup {{ name: "w" {sample} }}', bytes(11))
    assert "m/config.pbtxt: model_warmup 'w'" in str(error.value)
    assert sentence in str(error.value)


def test_a_warm_up_that_fails_fails_the_load_and_closes_the_executor(load):
    definition, version, executor, samples = load(f'model_warmup {{ name: "w" batch_size: 1 {ZEROS} }}')
    executor.close()
    recorder = Recorder(ValueError("no kernel"))
    with pytest.raises(UsageError, match=r"m/config.pbtxt: model_warmup 'w' fails: model 'm' failed: no kernel"):
        ExecutedModel(definition, recorder, version, samples)
    assert recorder.is_closed


def sample_of(definition, data, folder=pathlib.Path(), name="x", count=1):
    """The sample that is read from a warm-up with one input and a batch size of `count`."""
    warmup = v2_pb2.ModelWarmup(name="w", batch_size=count)
    warmup.inputs[name].CopyFrom(data)
    (sample,) = read_samples([warmup], definition, folder, "here")
    return sample


def with_input(datatype, dims, max_batch_size=0, **settings):
    return ModelDefinition("m", "", "array", max_batch_size, (TensorDefinition("x", datatype, dims),), (), **settings)


def test_strings_are_empty_ones_or_those_of_a_file_with_their_lengths(tmp_path):
    """Triton gives four bytes of zeros, a length, for each string, of `random_data` too."""
    definition = with_input(Datatype.BYTES, (3,))
    for given in (
        v2_pb2.ModelWarmup.Input(data_type="TYPE_STRING", dims=[3], zero_data=True),
        v2_pb2.ModelWarmup.Input(data_type="TYPE_STRING", dims=[3], random_data=True),
    ):
        sample = sample_of(definition, given)
        assert tensor_to_array(sample.requests[0].inputs[0]).tolist() == [b"", b"", b""]
    (tmp_path / "warmup").mkdir()
    (tmp_path / "warmup" / "s").write_bytes(b"\2\0\0\0ab\0\0\0\0\1\0\0\0c")
    given = v2_pb2.ModelWarmup.Input(data_type="TYPE_STRING", dims=[3], input_data_file="s")
    assert tensor_to_array(sample_of(definition, given, tmp_path).requests[0].inputs[0]).tolist() == [b"ab", b"", b"c"]
    for content, sentence in ((b"\2\0\0\0ab", "expected 3 string elements, got 1"), (b"\2\0\0\0a", "ends inside an element")):
        (tmp_path / "warmup" / "s").write_bytes(content)
        with pytest.raises(UsageError, match=rf"^here: model_warmup 'w', input 'x': input_data_file .*warmup/s: .*{sentence}"):
            sample_of(definition, given, tmp_path)


def test_a_model_without_batches_gets_the_dims_alone_and_only_one_request(tmp_path):
    (tmp_path / "warmup" / "deep").mkdir(parents=True)
    (tmp_path / "warmup" / "deep" / "x").write_bytes(b"\5\6")
    given = v2_pb2.ModelWarmup.Input(data_type="TYPE_UINT8", dims=[2], input_data_file="deep/x")
    definition = with_input(Datatype.UINT8, (-1,))
    (tensor,) = sample_of(definition, given, tmp_path).requests[0].inputs
    assert (tensor.shape, bytes(tensor.raw)) == ((2,), b"\5\6")
    with pytest.raises(UsageError, match="batch_size is 2, and max_batch_size is 0; use 1, because the model has no batches"):
        sample_of(definition, given, tmp_path, count=2)


def test_random_booleans_are_false_and_true():
    given = v2_pb2.ModelWarmup.Input(data_type="TYPE_BOOL", dims=[999], random_data=True)
    assert set(sample_of(with_input(Datatype.BOOL, (999,)), given).requests[0].inputs[0].raw) == {0, 1}


def test_data_that_no_memory_holds_is_an_error():
    given = v2_pb2.ModelWarmup.Input(data_type="TYPE_FP32", dims=[2**62], zero_data=True)
    with pytest.raises(UsageError, match="are 18446744073709551616 bytes; at most 1073741824 are allowed"):
        sample_of(with_input(Datatype.FP32, (-1,)), given)


def test_a_control_input_of_a_sequence_is_given_like_others_with_one_row():
    """Triton gives START of dims [1] as [1, 1] to a model with batches."""
    start = Control("START", ControlKind.START, Datatype.INT32, (0, 1))
    definition = with_input(Datatype.FP32, (3,), 4, scheduling=SequencePolicy((start,), 1))
    warmup = v2_pb2.ModelWarmup(name="w", batch_size=2)
    warmup.inputs["x"].CopyFrom(v2_pb2.ModelWarmup.Input(data_type="TYPE_FP32", dims=[3], zero_data=True))
    warmup.inputs["START"].CopyFrom(v2_pb2.ModelWarmup.Input(data_type="TYPE_INT32", dims=[1], zero_data=True))
    (sample,) = read_samples([warmup], definition, pathlib.Path(), "here")
    assert [[tensor.shape for tensor in request.inputs] for request in sample.requests] == [[(1, 3)], [(1, 3)]]
    assert {name: array.tolist() for name, array in sample.controls.items()} == {"START": [[0]]}
    del warmup.inputs["START"]
    with pytest.raises(UsageError, match="the input 'START' is missing in inputs; add it"):
        read_samples([warmup], definition, pathlib.Path(), "here")


def test_the_executor_is_closed_if_a_sample_does_not_fit(load, monkeypatch):
    closed = []

    class Recording(OnnxExecutor):
        def close(self):
            closed.append(self)

    monkeypatch.setattr(onnx_executor, "OnnxExecutor", Recording)
    with pytest.raises(UsageError, match="batch_size is 5"):
        load(f'model_warmup {{ name: "w" batch_size: 5 {ZEROS} }}')
    assert len(closed) == 1


@pytest.mark.parametrize("failing", [0, 1])
def test_if_the_warm_up_of_a_version_fails_the_executors_of_all_are_closed(load, tmp_path, monkeypatch, failing):
    load(f'version_policy {{ all {{}} }} model_warmup {{ name: "w" batch_size: 1 {ZEROS} }}')
    shutil.copytree(tmp_path / "m" / "1", tmp_path / "m" / "2")
    opened: list[int] = []
    closed: list[int] = []

    class Failing(OnnxExecutor):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            self.number = len(opened)
            opened.append(self.number)

        def execute(self, inputs):
            if self.number == failing:
                raise ValueError("no kernel")
            return super().execute(inputs)

        def close(self):
            closed.append(self.number)

    monkeypatch.setattr(onnx_executor, "OnnxExecutor", Failing)
    with pytest.raises(UsageError, match="no kernel"):
        folder.FolderSource(tmp_path, OnnxRuntime(1)).load("m")
    assert (opened, sorted(closed)) == ([0, 1], [0, 1])


def test_clients_load_models_with_a_warm_up(load, start_server, tmp_path, wire_to):
    load("")
    inputs = {"x": {"data_type": "TYPE_FP32", "dims": [3], "input_data_file": "x.bin"}}
    warmup = {"name": "w", "batch_size": 2, "inputs": inputs, "count": 0}
    config = {"max_batch_size": 4, "instance_group": [{"count": 2}], "model_warmup": [warmup]}
    encoded = base64.b64encode((tmp_path / "m" / "1" / "model.onnx").read_bytes()).decode()
    data = base64.b64encode(struct.pack("<3f", 1, -2, 3)).decode()
    with start_server("--model-repository", str(tmp_path), "--model-control-mode", "explicit") as started:
        wire = wire_to(started)

        def send(**parameters):
            answer = wire.send("POST", "/v2/repository/models/m/load", json.dumps({"parameters": parameters}).encode())
            return answer.status, answer.json["error"] if answer.status != 200 else ""

        sent = {"file:1/model.onnx": encoded, "file:warmup/x.bin": data}
        assert send(config=json.dumps(config), **sent) == (200, "")
        assert wire.get("/v2/models/m/config").json["model_warmup"] == [warmup]
        (statistics,) = wire.get("/v2/models/m/stats").json["model_stats"]
        assert (statistics["execution_count"], statistics["inference_count"]) == (2, 4)
        status, error = send(config=json.dumps(config | {"model_warmup": [warmup | {"batch_size": 5}]}), **sent)
        assert status == 400
        assert error.startswith(
            "load failed for model 'm': the given configuration of 'm': model_warmup 'w': batch_size is 5, and max_batch"
        )
        status, error = send(config=json.dumps(config))
        assert (status, "input_data_file cannot be read" in error) == (400, True), "files that a client gave are not stored"
        assert wire.get("/v2/models/m/ready").status == 200, "a failed load leaves the loaded model in place"
