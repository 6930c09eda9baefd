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
    "parameters": {
        "one": {"string_value": "TYPE_FP32"},
        "two": {"string_value": ""},
        "REJECT": {"string_value": "REJECT"},
        "4": {"string_value": "4"},
    },
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
    text = config_text({"optimization": {"input_pinned_memory": {"enable": False}}, "input": [{"reshape": {"shape": []}}]})
    assert text == ("optimization {\n  input_pinned_memory {\n    enable: false\n  }\n}\ninput {\n  reshape { }\n}\n")


def test_names_of_enums_are_written_plainly_only_where_the_field_is_one():
    queue = {"timeout_action": "DELAY", "default_timeout_microseconds": "5", "max_queue_size": 3}
    config = {"dynamic_batching": {"priority_queue_policy": {"1": queue}}, "default_model_filename": "REJECT"}
    text = config_text(
        {**config, "instance_group": [{"kind": "KIND_CPU", "profile": ["0"]}], "batch_input": [{"kind": "BATCH_ELEMENT_COUNT"}]}
    )
    for line in (
        "key: 1",
        "timeout_action: DELAY",
        "default_timeout_microseconds: 5",
        "kind: KIND_CPU",
        'profile: "0"',
        "kind: BATCH_ELEMENT_COUNT",
    ):
        assert line in [one.strip() for one in text.splitlines()]
    assert 'default_model_filename: "REJECT"\n' in text


def test_a_delay_of_zero_is_the_default_and_left_out():
    assert "max_queue_delay" not in config_text({"dynamic_batching": {"max_queue_delay_microseconds": 0}})
    assert "max_queue_delay_microseconds: 500\n" in config_text({"dynamic_batching": {"max_queue_delay_microseconds": "500"}})
