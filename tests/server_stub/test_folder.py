"""Models from a folder."""

import numpy as np
import onnx
import pytest
import tritonclient.grpc
import tritonclient.http

from perfkit.errors import UsageError
from server_stub.models import folder


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


def test_G6_16_MiB_go_both_ways(start_server, tmp_path):
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


def test_a_folder_without_models_is_refused(tmp_path):
    (tmp_path / "model" / "one").mkdir(parents=True)
    (tmp_path / "model" / "one" / "model.onnx").touch()
    with pytest.raises(UsageError, match=r"it holds no model; they are expected as MODEL/VERSION/model.onnx"):
        folder.find_files(tmp_path)


def test_a_name_that_is_not_there_is_refused(tmp_path):
    write_model(tmp_path / "relu" / "1" / "model.onnx")
    with pytest.raises(UsageError, match=r"--model nope: .* holds no such model; choose from relu\."):
        folder.find_files(tmp_path, ["nope"])


def test_tensors_that_have_no_datatype_here_are_refused(tmp_path):
    file = tmp_path / "text" / "1" / "model.onnx"
    write_model(file, "Identity", onnx.TensorProto.STRING)
    with pytest.raises(UsageError, match=r"the tensor 'x' of type tensor\(string\), which this server does not serve"):
        folder.load("text", file, 1)
