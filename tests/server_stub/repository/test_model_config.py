"""Reading model configurations, and the errors for unsupported ones."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfkit.errors import UsageError
from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Datatype, tensor_from_array
from server_stub.inference.conversion import input_arrays
from server_stub.inference.definition import ModelDefinition, TensorDefinition, VersionPolicy
from server_stub.repository import model_config
from server_stub.scheduling.batching import BatchingPolicy, QueuePolicy
from server_stub.scheduling.sequences import Control, ControlKind, SequencePolicy
from tests.server_stub.repository import configs


def read(tmp_path, text, name="relu"):
    (tmp_path / name).mkdir(exist_ok=True)
    (tmp_path / name / "config.pbtxt").write_text(text)
    return model_config.read_pbtxt(tmp_path / name / "config.pbtxt", name)


def test_every_supported_setting_is_read(tmp_path):
    (tmp_path / "relu").mkdir()
    (tmp_path / "relu" / "labels.txt").write_text("a\nb\nc\n")
    written = read(tmp_path, configs.RELU)
    assert written.scheduling == BatchingPolicy(
        (2, 4), 100_000, 2, 1, QueuePolicy(9, 7000, allow_timeout_override=True, delays=True), {2: QueuePolicy(1)}
    )
    assert (written.max_batch_size, written.instances, written.versions) == (4, 2, VersionPolicy(specific=(1, 3)))
    assert written.outputs == (TensorDefinition("y", Datatype.FP32, (3,), labels=("a", "b", "c"), label_filename="labels.txt"),)


SEQUENCE = """
max_batch_size: 2
sequence_batching {
  max_sequence_idle_microseconds: 5
  oldest { max_candidate_sequences: 3 preferred_batch_size: [ 2 ] max_queue_delay_microseconds: 9 }
  control_input [ { name: "s" control [ { kind: CONTROL_SEQUENCE_START fp32_false_true: [ 0, 1 ] } ] } ]
  control_input [ { name: "i" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_STRING } ] } ]
}
"""


def test_sequence_batching_is_read(tmp_path):
    controls = (Control("s", ControlKind.START, Datatype.FP32, (0.0, 1.0)), Control("i", ControlKind.CORRID, Datatype.BYTES))
    assert read(tmp_path, SEQUENCE).scheduling == SequencePolicy(controls, 5000, BatchingPolicy((2,), 9000), 3)
    direct = read(tmp_path, "sequence_batching { }").scheduling
    assert direct == SequencePolicy((), 1_000_000_000)


FACTORS = st.lists(st.sampled_from([1, 2, 3]), max_size=2)
PARTS = st.lists(FACTORS, min_size=1, max_size=3)
"""The sizes before, between and after variable ones."""


@given(PARTS, st.data())
def test_a_reshape_is_accepted_if_it_keeps_what_is_between_variable_sizes_and_is_executed_then(tmp_path_factory, parts, data):
    """Both shapes are built of the same parts; the truth of the executed one is the order of the elements in memory."""
    dims, shape, request = list[int](), list[int](), list[int]()
    for number, factors in enumerate(parts):
        if number:
            dims, shape, request = [*dims, -1], [*shape, -1], [*request, number + 4]
        dims += factors
        request += factors
        shape += [math.prod(factors)] if data.draw(st.booleans()) else [1, *reversed(factors)]
    config = 'input {{ name: "x" data_type: TYPE_FP32 dims: {} reshape {{ shape: {} }} }}'
    folder = tmp_path_factory.mktemp("reshape")
    (tensor,) = read(folder, config.format(dims, shape)).inputs
    model = ModelDefinition("m", "", "", 0, (tensor,), ())
    values = np.arange(math.prod(request), dtype=np.float32).reshape(request)
    asked = InferRequest("m", (tensor_from_array("x", Datatype.FP32, values),))
    executed = input_arrays(model, asked)["x"]
    assert [size for size, expected in zip(executed.shape, shape, strict=True) if expected == -1] == [
        number + 4 for number in range(1, len(parts))
    ]
    assert executed.ravel().tolist() == values.ravel().tolist()
    with pytest.raises(UsageError, match="does not have the elements of its dims"):
        read(folder, config.format(dims, [*shape, 7]))
    with pytest.raises(UsageError, match="does not have the elements of its dims"):
        read(folder, config.format(dims, [*shape, -1]))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("max_batch_size: x", "config.pbtxt cannot be read: 1:17 : "),
        ("ensemble_scheduling { }", "ensemble_scheduling is not supported"),
        ('name: "other"', "name is 'other', but the model's folder is named 'relu'."),
        ('backend: "python"', "platform '' with backend 'python' is not supported; only onnxruntime is."),
        ("max_batch_size: -1", "max_batch_size is -1"),
        ("dynamic_batching { }", "dynamic_batching needs a max_batch_size above 0."),
        ("max_batch_size: 4 dynamic_batching { preferred_batch_size: 5 }", "preferred_batch_size 5 is not between 1 and max_batch_size 4."),
        (
            "max_batch_size: 4 dynamic_batching { priority_levels: 2 }",
            "default_priority_level is 0; it must be between 1 and priority_levels 2.",
        ),
        (
            "max_batch_size: 4 dynamic_batching { preserve_ordering: true } instance_group { count: 2 }",
            "dynamic_batching.preserve_ordering",
        ),
        ("instance_group { kind: KIND_GPU }", "instance_group requires a GPU"),
        ("instance_group { count: 65 }", "instance_group.count is 65; it must be between 1 and 64."),
        ("model_transaction_policy { decoupled: true }", "model_transaction_policy.decoupled is not supported"),
        ('default_model_filename: "../x.onnx"', "default_model_filename '../x.onnx' must be a name without folders."),
        ('input { name: "x" }', "data_type of 'x' is missing."),
        ("input { data_type: TYPE_FP32 }", "an input or output has no name."),
        ('input { name: "x" data_type: TYPE_FP32 dims: 0 }', "dims of 'x' are [0]"),
        (
            'input { name: "x" data_type: TYPE_FP32 dims: [ 1, 2, 2 ] format: FORMAT_NCHW } input { name: "x" data_type: TYPE_FP32 }',
            "'x' is configured twice.",
        ),
        (
            'input { name: "x" data_type: TYPE_FP32 dims: [ 1, 2 ] format: FORMAT_NHWC }',
            "format of 'x' is FORMAT_NHWC, which needs 3 dims, found [1, 2].",
        ),
        (
            'input { name: "x" data_type: TYPE_FP32 dims: 4 reshape { shape: [ 2, 3 ] } }',
            "reshape of 'x' is [2, 3], which does not have the elements of its dims [4]",
        ),
        ('input { name: "x" data_type: TYPE_FP32 dims: 4 reshape { shape: [ 0 ] } }', "reshape of 'x' is [0]"),
        ('output { name: "x" data_type: TYPE_FP32 dims: 4 reshape { shape: [ -2, -2 ] } }', "reshape of 'x' is [-2, -2]"),
        ('output { name: "x" data_type: TYPE_FP32 dims: [ -1, 4 ] reshape { shape: [ 4, -1 ] } }', "not between the same variable sizes"),
        ('input { name: "x" data_type: TYPE_FP32 optional: true }', "optional of 'x' is not supported"),
        ('output { name: "y" data_type: TYPE_FP32 label_filename: "../a" }', "label_filename '../a' must be a name without folders."),
        ('output { name: "y" data_type: TYPE_FP32 label_filename: "none" }', "label_filename of 'y' cannot be read"),
        ("version_policy { specific { } }", "version_policy.specific names no versions."),
        (
            "sequence_batching { direct { minimum_slot_utilization: 0.5 } }",
            "minimum_slot_utilization of sequence_batching.direct are not supported",
        ),
        ('sequence_batching { control_input { name: "s" } }', "the control_input 's' has 0 controls, expected 1."),
        (
            'sequence_batching { control_input { name: "s" control { int32_false_true: 1 } } }',
            "needs two values of one type, for false and for true",
        ),
        (
            'sequence_batching { control_input { name: "s" control { kind: CONTROL_SEQUENCE_CORRID } } }',
            "TYPE_INVALID, which is not supported for ids.",
        ),
    ],
)
def test_unsupported_settings_are_named(tmp_path, text, sentence):
    with pytest.raises(UsageError) as error:
        read(tmp_path, text)
    assert sentence in str(error.value)
    assert str(tmp_path / "relu" / "config.pbtxt") in str(error.value)
