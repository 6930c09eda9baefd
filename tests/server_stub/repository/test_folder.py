"""Models from a model repository on disk."""

import asyncio
import concurrent.futures
import json
import types
from typing import Any

import numpy as np
import onnx
import pytest
import tritonclient.grpc
import tritonclient.http
from google.protobuf import json_format, text_format
from tritonclient.grpc import model_config_pb2
from tritonclient.utils import InferenceServerException

from perfkit.errors import UsageError
from server_stub.executors.onnx import OnnxRuntime
from server_stub.inference.definition import VersionPolicy
from server_stub.inference.model import InFlightRequests
from server_stub.options import Options
from server_stub.repository import folder
from server_stub.repository.repository import Repository
from server_stub.repository.sources import BuiltinModels, open_repository
from tests.conditions import until
from tests.server_stub.repository import configs


def write_model(file, operator="Relu", element=onnx.TensorProto.FLOAT):
    given, result = (onnx.helper.make_tensor_value_info(name, element, ["batch", 3]) for name in ("x", "y"))
    graph = onnx.helper.make_graph([onnx.helper.make_node(operator, ["x"], ["y"])], "g", [given], [result])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    file.parent.mkdir(parents=True)
    file.write_bytes(model.SerializeToString())


def test_the_highest_version_of_each_model_is_served(start_server, tmp_path):
    write_model(tmp_path / "relu" / "2" / "model.onnx", "Neg")
    write_model(tmp_path / "relu" / "10" / "model.onnx")
    write_model(tmp_path / "other" / "1" / "model.onnx")
    started = start_server("--model-repository", str(tmp_path), "--model", "relu")
    with tritonclient.http.InferenceServerClient(f"127.0.0.1:{started.http_port}") as client:
        assert client.get_model_metadata("relu") == {
            "name": "relu",
            "versions": ["10"],
            "platform": "onnxruntime_onnx",
            "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 3]}],
            "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 3]}],
        }
        given = tritonclient.http.InferInput("x", [2, 3], "FP32")
        given.set_data_from_numpy(np.array([[-1, 0, 1], [2, -2, 3]], np.float32))
        assert client.infer("relu", [given], "10").as_numpy("y").tolist() == [[0, 0, 1], [2, 0, 3]]
        assert not client.is_model_ready("other")
        assert not client.is_model_ready("relu", "2")
    assert started.end()[0] == 0


def test_G6_16_MiB_are_sent_and_received(start_server, tmp_path):
    write_model(tmp_path / "relu" / "1" / "model.onnx")
    values = np.arange(3 * 2**20 * 3 // 2, dtype=np.float32).reshape(-1, 3)
    assert values.nbytes > 16 * 2**20
    started = start_server("--model-repository", str(tmp_path))
    for library, port in ((tritonclient.http, started.http_port), (tritonclient.grpc, started.grpc_port)):
        with library.InferenceServerClient(f"127.0.0.1:{port}") as client:
            given = library.InferInput("x", values.shape, "FP32")
            given.set_data_from_numpy(values)
            np.testing.assert_array_equal(client.infer("relu", [given]).as_numpy("y"), values)
    assert started.end()[0] == 0


def test_a_placewithout_models_is_an_error(tmp_path):
    (tmp_path / "model" / "one").mkdir(parents=True)
    (tmp_path / "model" / "one" / "model.onnx").touch()
    with pytest.raises(UsageError, match=r"it holds no models. They must be named MODEL/VERSION/model.onnx"):
        open_repository(Options(model_repository=tmp_path), 1)


def test_an_unknown_model_name_is_an_error(tmp_path):
    write_model(tmp_path / "relu" / "1" / "model.onnx")
    with pytest.raises(UsageError, match=r"--model nope: .* holds no such model; choose from relu\."):
        open_repository(Options(model_repository=tmp_path, models=("nope",)), 1)


def test_unsupported_datatypes_are_an_error(tmp_path):
    write_model(tmp_path / "text" / "1" / "model.onnx", "Identity", onnx.TensorProto.STRING)
    with pytest.raises(UsageError, match=r"the tensor 'x' of type tensor\(string\), which this server does not support"):
        folder.load_versions(tmp_path, "text", OnnxRuntime(1))


def test_clients_see_the_written_configuration(tmp_path):
    for version in (1, 2, 3):
        write_model(tmp_path / "relu" / str(version) / "model.onnx")
    (tmp_path / "relu" / "labels.txt").write_text("a\nb\nc\n")
    (tmp_path / "relu" / "config.pbtxt").write_text(configs.RELU)
    loaded = folder.load_versions(tmp_path, "relu", OnnxRuntime(1))
    assert [version for _, version, *_ in loaded] == ["1", "3"]
    theirs = text_format.Parse(configs.RELU, model_config_pb2.ModelConfig())
    ours = json_format.ParseDict(loaded[0][0].config(), model_config_pb2.ModelConfig())
    for field in ("name", "backend", "max_batch_size", "input", "output", "version_policy", "dynamic_batching"):
        assert getattr(ours, field) == getattr(theirs, field), field
    assert (ours.instance_group[0].count, loaded[0][0].metadata().versions) == (2, ("1", "3"))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('input { name: "z" data_type: TYPE_FP32 dims: [ -1, 3 ] }', "has no 'z', which its configuration names; it has x."),
        ('input { name: "x" data_type: TYPE_INT32 dims: [ -1, 3 ] }', "has 'x' as FP32, its configuration as INT32."),
        (
            'input { name: "x" data_type: TYPE_FP32 dims: [ -1, 4 ] }',
            "has 'x' of shape [-1, 3], which does not match its configuration's [-1, 4].",
        ),
        ('max_batch_size: 2 sequence_batching { control_input { name: "s" control { int32_false_true: [0, 1] } } }', "has no input 's'"),
        (
            'max_batch_size: 2 sequence_batching { control_input { name: "x" control { fp32_false_true: [0, 1] } } }',
            "the control_input 'x' of shape [-1, 3]; it gets values of shape [-1, 1].",
        ),
        ('default_model_filename: "other.onnx"', "other.onnx"),
        ("version_policy { specific { versions: 9 } }", "it has no version that the version policy selects"),
    ],
)
def test_a_configuration_is_checked_against_the_file(tmp_path, text, sentence):
    write_model(tmp_path / "relu" / "1" / "model.onnx")
    (tmp_path / "relu" / "config.pbtxt").write_text(text)
    with pytest.raises(UsageError) as error:
        folder.load_versions(tmp_path, "relu", OnnxRuntime(1))
    assert sentence in str(error.value)


@pytest.mark.parametrize(
    ("policy", "served"),
    [
        (VersionPolicy(), [10]),
        (VersionPolicy(latest=2), [3, 10]),
        (VersionPolicy(latest=None), [1, 3, 10]),
        (VersionPolicy(specific=(1, 9)), [1]),
    ],
)
def test_version_policies(policy, served):
    assert policy.choose([10, 1, 3]) == served


@pytest.fixture
def explicit(start_server, tmp_path):
    write_model(tmp_path / "relu" / "1" / "model.onnx", "Neg")
    write_model(tmp_path / "relu" / "2" / "model.onnx")
    with start_server("--model-repository", str(tmp_path), "--model-control-mode", "explicit") as started:
        yield started


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_clients_load_and_unload_models(explicit, tmp_path, protocol):
    library, port = (tritonclient.http, explicit.http_port) if protocol == "http" else (tritonclient.grpc, explicit.grpc_port)
    given = library.InferInput("x", [1, 3], "FP32")
    given.set_data_from_numpy(np.array([[-1, 0, 1]], np.float32))
    with library.InferenceServerClient(f"127.0.0.1:{port}") as client:

        def index():
            answer = client.get_model_repository_index()
            entries = (
                answer if protocol == "http" else [{"name": one.name, "version": one.version, "state": one.state} for one in answer.models]
            )
            return [(one["name"], one.get("version", ""), one.get("state", "")) for one in entries]

        assert index() == [("relu", "", "")]
        assert client.is_model_ready("relu") is False, "Model Analyzer asks that of every model of the index"
        with pytest.raises(InferenceServerException, match="Request for unknown model: 'relu' is not found"):
            client.infer("relu", [given])
        with pytest.raises(InferenceServerException, match="failed to load 'nope', failed to poll from model repository"):
            client.load_model("nope")
        client.unload_model("nope")
        client.load_model("relu")
        assert index() == [("relu", "2", "READY")]
        assert client.infer("relu", [given]).as_numpy("y").tolist() == [[0, 0, 1]]
        client.load_model("relu", config='{"version_policy": {"all": {}}, "max_batch_size": 8}')
        assert index() == [("relu", "1", "READY"), ("relu", "2", "READY")]
        assert client.infer("relu", [given], "1").as_numpy("y").tolist() == [[1, 0, -1]]
        assert client.infer("relu", [given]).as_numpy("y").tolist() == [[0, 0, 1]]
        with pytest.raises(InferenceServerException, match="load failed for model 'relu': the given configuration of 'relu'") as error:
            client.load_model("relu", config='{"max_batch_size": "many"}')
        assert error.value.status() == ("400" if protocol == "http" else "StatusCode.INVALID_ARGUMENT")
        assert client.is_model_ready("relu"), "a failed load leaves the loaded model in place"
        write_model(tmp_path / "late" / "1" / "model.onnx")
        client.load_model("late")
        file = (tmp_path / "relu" / "1" / "model.onnx").read_bytes()
        client.load_model("given", config='{"max_batch_size": 4}', files={"file:1/model.onnx": file})
        assert client.infer("given", [given]).as_numpy("y").tolist() == [[1, 0, -1]]
        assert sorted(one.name for one in tmp_path.iterdir()) == ["late", "relu"], "files given by clients are not stored"
        for path in ("../../x/1/model.onnx", "/x/1/model.onnx", "1/../../../x", "1//model.onnx", "1/model.onnx/..", "."):
            with pytest.raises(InferenceServerException, match="is not allowed; use MODEL"):
                client.load_model("given", config="{}", files={f"file:{path}": file})
        client.unload_model("relu")
        assert ("relu", "2", "UNAVAILABLE") in index()
        with pytest.raises(InferenceServerException, match="'relu' has no available versions"):
            client.infer("relu", [given])
        assert client.infer("late", [given]).as_numpy("y").tolist() == [[0, 0, 1]]


def test_the_statistics_of_a_model_are_those_of_all_its_versions(explicit, wire_to):
    wire = wire_to(explicit)
    body = json.dumps({"parameters": {"config": '{"version_policy": {"all": {}}}'}}).encode()
    assert wire.send("POST", "/v2/repository/models/relu/load", body).status == 200
    document = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}]}
    assert wire.send("POST", "/v2/models/relu/versions/1/infer", json.dumps(document).encode()).status == 200
    entries = wire.get("/v2/models/relu/stats").json["model_stats"]
    assert [(one["version"], one["inference_count"]) for one in entries] == [("1", 1), ("2", 0)]
    assert [one["version"] for one in wire.get("/v2/models/relu/versions/2/stats").json["model_stats"]] == ["2"]
    for parameters, status, text in (
        ({"file:1/model.onnx": "AAAA"}, 400, "cannot be loaded by ONNX Runtime"),
        ({"file:1/model.onnx": "?"}, 400, "is not base64"),
        ({"file:1/model.onnx": 5}, 500, "non-string as string"),
        ({"other": "x"}, 501, "is not supported"),
    ):
        answer = wire.send("POST", "/v2/repository/models/relu/load", json.dumps({"parameters": parameters}).encode())
        assert (answer.status, text in answer.json["error"]) == (status, True), answer.json
    assert wire.send("POST", "/v2/repository/models/relu/load", b'{"parameters":{"config":5}}').status == 500
    assert wire.send("POST", "/v2/repository/models/relu/load", b'{"parameters":5}').status == 500


@pytest.mark.parametrize(
    "files", [{"1": b"", "1/model.onnx": b""}, {"a" * 300: b""}, {"1/\ud800": b""}], ids=["a file", "too long", "no text"]
)
def test_files_that_cannot_be_written_are_an_error(tmp_path, files):
    with pytest.raises(UsageError, match="of model 'm' cannot be written: "):
        folder.write_files(tmp_path, "m", files)


@pytest.mark.parametrize("place", ["{secret}", "../../secret", "../../../{secret}"], ids=["absolute", "beside", "from the root"])
def test_weights_outside_the_model_file_are_not_read(tmp_path, place):
    (tmp_path / "secret").write_bytes(b"secret")
    weights = onnx.TensorProto(name="w", data_type=onnx.TensorProto.UINT8, dims=[6], data_location=onnx.TensorProto.EXTERNAL)
    weights.external_data.add(key="location", value=place.format(secret=tmp_path / "secret"))
    result = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.UINT8, [6])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["w"], ["y"])], "g", [], [result], [weights])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    folder.write_files(tmp_path, "m", {"1/model.onnx": model.SerializeToString()})
    with pytest.raises(UsageError, match=r"cannot be loaded by ONNX Runtime: .*[Ee]xternal data"):
        folder.load_versions(tmp_path, "m", OnnxRuntime(1))


def test_S5_requests_of_two_clients_are_one_execution(explicit, wire_to):
    """A model whose batch waits for a second row, for longer than a test may take."""
    config = {"max_batch_size": 2, "dynamic_batching": {"preferred_batch_size": [2], "max_queue_delay_microseconds": 10**9}}
    body = json.dumps({"parameters": {"config": json.dumps(config)}}).encode()
    first, second, administrator = wire_to(explicit), wire_to(explicit), wire_to(explicit)
    assert administrator.send("POST", "/v2/repository/models/relu/load", body).status == 200
    document = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}]}
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        answers = [threads.submit(one.infer, document, model="relu") for one in (first, second)]
        assert [answer.result(120).status for answer in answers] == [200, 200]
        (entry,) = administrator.get("/v2/models/relu/stats").json["model_stats"]
        assert (entry["execution_count"], entry["inference_count"]) == (1, 2)
        assert administrator.send("POST", "/v2/repository/models/relu/unload").status == 200


def test_without_explicit_control_clients_cannot_load_or_unload(wire, triton_grpc):
    expected = {"error": "explicit model load / unload is not allowed if polling is enabled"}
    for action in ("load", "unload"):
        answer = wire.send("POST", f"/v2/repository/models/simple/{action}")
        assert (answer.status, answer.json) == (503, expected)
    with pytest.raises(InferenceServerException, match="explicit model load / unload is not allowed") as error:
        triton_grpc.load_model("simple")
    assert error.value.status() == "StatusCode.UNAVAILABLE"


async def test_a_model_is_unloaded_after_its_requests_are_answered():
    model: Any = types.SimpleNamespace(version="1", in_flight=InFlightRequests(), is_closed=False)
    model.close, model.drain = lambda: setattr(model, "is_closed", True), model.in_flight.drain
    repository = Repository(BuiltinModels({"m": lambda: model}), ["m"], is_explicit=True)
    repository.load()
    with model.in_flight:
        unloading = asyncio.ensure_future(repository.unload_model("m"))
        await until(lambda: not repository.names)  # no new requests reach it
        for _ in range(3):
            await asyncio.sleep(0)
        assert (unloading.done(), model.is_closed) == (False, False)
    await unloading
    assert model.is_closed


async def test_requests_in_flight_are_drained_when_the_last_one_ends():
    in_flight = InFlightRequests()
    await in_flight.drain()
    with in_flight:
        with in_flight:
            draining = asyncio.ensure_future(in_flight.drain())
            await asyncio.sleep(0)  # it waits from here on
        await asyncio.sleep(0)
        assert not draining.done()
    await draining


@pytest.mark.parametrize("name", [b"x_name", b"y_name", b"a_size"])
def test_a_file_whose_names_are_not_utf8_is_refused_in_a_sentence(tmp_path, name):
    given, result = (onnx.helper.make_tensor_value_info(one, onnx.TensorProto.FLOAT, ["a_size", 3]) for one in ("x_name", "y_name"))
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x_name"], ["y_name"])], "g", [given], [result])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    file = tmp_path / "m" / "1" / "model.onnx"
    file.parent.mkdir(parents=True)
    file.write_bytes(model.SerializeToString().replace(name, b"\xff\xfename"))
    with pytest.raises(UsageError, match=r"has a tensor or a dimension whose name is not UTF-8"):
        folder.load_versions(tmp_path, "m", OnnxRuntime(1))
