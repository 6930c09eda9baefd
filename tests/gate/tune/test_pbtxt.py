"""A configuration as protobuf's text format, read back by protobuf itself."""

import json

from google.protobuf import json_format, text_format

from perfkit.gate.tune.pbtxt import config_text
from perfkit.protocol import v2_pb2

CONFIG = {
    "name": "m",
    "backend": "python",
    "max_batch_size": 8,
    "input": [{"name": "INPUT0", "data_type": "TYPE_FP32", "format": "FORMAT_NONE", "dims": ["-1", 4], "optional": False}],
    "output": [{"name": 'a "quoted" näme', "data_type": "TYPE_STRING", "dims": [1]}],
    "instance_group": [{"name": "m_0", "kind": "KIND_CPU", "count": 2, "gpus": [], "passive": False}],
    "parameters": {"one": {"string_value": "TYPE_FP32 1"}, "two": {"string_value": ""}},
    "version_policy": {"latest": {"num_versions": 1}},
    "model_warmup": [],
    "default_model_filename": "",
}


def read_back(config):
    text = config_text(config)
    return text_format.Parse(text, v2_pb2.ModelConfig(), allow_unknown_field=True)


def test_protobuf_reads_the_text_as_it_reads_the_json():
    expected = json_format.Parse(json.dumps(CONFIG), v2_pb2.ModelConfig(), ignore_unknown_fields=True)
    assert read_back(CONFIG) == expected


def test_a_message_without_fields_that_says_something_is_there():
    assert read_back({"name": "m", "dynamic_batching": {}}).HasField("dynamic_batching")
    assert "optimization" not in config_text({"name": "m", "optimization": {"eager_batching": False}})


def test_a_delay_of_zero_is_the_default_and_left_out():
    assert "max_queue_delay" not in config_text({"dynamic_batching": {"max_queue_delay_microseconds": 0}})
    assert "max_queue_delay_microseconds: 500\n" in config_text({"dynamic_batching": {"max_queue_delay_microseconds": "500"}})
