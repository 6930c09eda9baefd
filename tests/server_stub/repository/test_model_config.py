"""Reading model configurations, and the errors for unsupported ones."""

import pytest

from perfkit.errors import UsageError
from perfkit.protocol.tensor import Datatype
from server_stub.inference.definition import TensorDefinition, VersionPolicy
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
