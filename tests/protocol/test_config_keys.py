"""A model's configuration as keys and texts."""

from google.protobuf import json_format

from perfkit.protocol import protobuf, rest_models, v2_pb2
from perfkit.protocol.config_keys import config_keys

DOCUMENT = {
    "max_batch_size": 8,
    "backend": "onnxruntime",
    "dynamic_batching": {"max_queue_delay_microseconds": 100, "preferred_batch_size": [4, 8]},
    "instance_group": [{"kind": "KIND_GPU", "count": 2}, {"count": 1}],
}


def test_values_have_dotted_keys_and_lists_of_numbers_are_one_value():
    assert config_keys(DOCUMENT) == {
        "backend": "onnxruntime",
        "dynamic_batching.max_queue_delay_microseconds": "100",
        "dynamic_batching.preferred_batch_size": "[4, 8]",
        "instance_group.0.count": "2",
        "instance_group.0.kind": "KIND_GPU",
        "instance_group.1.count": "1",
        "max_batch_size": "8",
    }
    assert config_keys({}) == {}


def test_parameters_and_long_values_are_digests_that_tell_two_apart():
    first, second = (
        config_keys({"parameters": {"key": {"string_value": text}}, "platform": "p" * 100}) for text in ("planted-secret", "x")
    )
    assert list(first) == ["parameters.key", "platform"]
    assert all(text.startswith("digest ") and len(text) == 19 for text in first.values())
    assert first["parameters.key"] != second["parameters.key"]
    assert "secret" not in str(first)


def test_a_hostile_configuration_is_bounded():
    deep = dict[str, object]()
    for _ in range(50):
        deep = {"a": deep}
    assert list(config_keys(deep)) == [".".join("a" * 8)]
    assert len(config_keys({str(number): number for number in range(1000)})) == 300
    assert config_keys({"k" * 10_000: 1}) == {}


def test_both_protocols_give_the_keys_that_a_server_reports():
    message = json_format.ParseDict({"max_batch_size": 8, "dynamic_batching": {}}, v2_pb2.ModelConfig(), ignore_unknown_fields=True)
    over_grpc = protobuf.model_config(v2_pb2.ModelConfigResponse(config=message)).keys
    over_http = rest_models.decode_model_config(b'{"max_batch_size": 8, "input": [{"name": "x", "dims": [3]}]}').keys
    assert over_grpc["max_batch_size"] == over_http["max_batch_size"] == "8"
    assert over_http["input.0.dims"] == "[3]"
