"""Health, metadata and configuration over HTTP: rows H1 to H14 of the conformance checklist."""

import importlib.metadata

import pytest

from server_stub.models import NAMES


@pytest.mark.parametrize("path", ["/v2/health/live", "/v2/health/ready", "/v2/models/simple/ready", "/v2/models/simple/versions/1/ready"])
def test_H1_H3_health_is_200_and_empty(wire, path):
    answer = wire.get(path)
    assert (answer.status, answer.body) == (200, b"")


def test_H4_ready_of_an_unknown_model_is_404(wire):
    answer = wire.get("/v2/models/nope/ready")
    assert (answer.status, answer.json) == (404, {"error": "Request for unknown model: 'nope' is not found"})


def test_H5_the_wrong_verb_is_405(wire):
    answer = wire.send("POST", "/v2/health/live", b"")
    assert (answer.status, answer.json) == (405, {"error": "Method Not Allowed"})
    assert wire.get("/v2/models/simple/infer").status == 405


@pytest.mark.parametrize(
    "path", ["/v2/nope", "/v2/", "/nope", "/v2/models/simple/nope", "/v2/models/simple/", "/v2/models/simple/versions/x"]
)
def test_H6_H13_an_unknown_path_is_404(wire, path):
    answer = wire.get(path)
    assert (answer.status, answer.json) == (404, {"error": "Not Found"})


def test_H7_the_server_names_itself_and_its_extensions(wire):
    answer = wire.get("/v2")
    assert answer.status == 200
    assert (answer.json["name"], answer.json["version"]) == ("triton", importlib.metadata.version("perfkit"))
    assert {"statistics", "classification", "binary_tensor_data"} <= set(answer.json["extensions"])


def test_H8_shapes_begin_with_the_batch_dimension(wire):
    assert wire.get("/v2/models/simple").json == {
        "name": "simple",
        "versions": ["1"],
        "platform": "array",
        "inputs": [{"name": name, "datatype": "INT32", "shape": [-1, 16]} for name in ("INPUT0", "INPUT1")],
        "outputs": [{"name": name, "datatype": "INT32", "shape": [-1, 16]} for name in ("OUTPUT0", "OUTPUT1")],
    }


def test_H9_densenet_has_no_batch_dimension(wire):
    metadata = wire.get("/v2/models/densenet_onnx").json
    assert metadata["platform"] == "onnxruntime_onnx"
    assert metadata["inputs"] == [{"name": "data_0", "datatype": "FP32", "shape": [3, 224, 224]}]
    assert metadata["outputs"] == [{"name": "fc6_1", "datatype": "FP32", "shape": [1000]}]


def test_H10_the_config_has_numbers_as_numbers(wire):
    config = wire.get("/v2/models/simple/config").json
    assert config["max_batch_size"] == 8
    assert [(one["name"], one["data_type"], one["dims"]) for one in config["input"]] == [
        ("INPUT0", "TYPE_INT32", [16]),
        ("INPUT1", "TYPE_INT32", [16]),
    ]
    assert "reshape" not in config["input"][0]


def test_H11_the_config_of_densenet_has_its_format_and_reshape(wire):
    config = wire.get("/v2/models/densenet_onnx/config").json
    assert config["max_batch_size"] == 0
    assert config["input"][0]["format"] == "FORMAT_NCHW"
    assert config["input"][0]["reshape"] == {"shape": [1, 3, 224, 224]}
    assert config["output"][0]["reshape"] == {"shape": [1, 1000, 1, 1]}


def test_H12_an_unknown_version_is_404(wire):
    assert wire.get("/v2/models/simple/versions/1").json == wire.get("/v2/models/simple").json
    answer = wire.get("/v2/models/simple/versions/9")
    assert (answer.status, answer.json) == (404, {"error": "Request for unknown model: 'simple' version 9 is not found"})


def test_H14_the_index_needs_no_body(wire):
    answer = wire.send("POST", "/v2/repository/index")
    assert answer.status == 200
    assert [(one["name"], one["version"], one["state"]) for one in answer.json] == [(name, "1", "READY") for name in NAMES]
    assert wire.send("POST", "/v2/repository/index", b'{"ready":true}').json == answer.json
    assert wire.send("POST", "/v2/repository/index", b'{"ready":1}').status == 500


def test_tritonclient_reads_all_metadata(triton_http):
    assert triton_http.is_server_live()
    assert triton_http.is_server_ready()
    assert triton_http.is_model_ready("densenet_onnx")
    assert not triton_http.is_model_ready("nope")
    assert triton_http.get_server_metadata()["name"] == "triton"
    assert triton_http.get_model_metadata("simple", "1")["name"] == "simple"
    assert triton_http.get_model_config("simple")["max_batch_size"] == 8
    assert {one["name"] for one in triton_http.get_model_repository_index()} == set(NAMES)
