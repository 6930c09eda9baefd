"""Networks of the ONNX project's test data, served from a folder without configurations."""

import pathlib

import numpy as np
import onnx
import onnxruntime
import pytest
import tritonclient.grpc
import tritonclient.http

from perfkit.errors import UsageError
from server_stub.executors.onnx import OnnxRuntime
from server_stub.repository import folder

LIGHT = pathlib.Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
# the path of each model file
PLACES = {
    "resnet50": "resnet50/1/model.onnx",
    "squeezenet": "squeezenet/3/model.onnx",
    "shufflenet": "shufflenet/1/light_shufflenet.onnx",
    "inception_v1": "inception_v1/light_inception_v1.onnx",
}


RANDOM = {"squeezenet", "shufflenet"}  # the others would be too large


def read_network(name):
    """The network with its constant weights, or with random ones."""
    model = onnx.load(LIGHT / f"light_{name}.onnx")
    if name in RANDOM:
        random = np.random.default_rng(7)
        shapes = {one.name: onnx.numpy_helper.to_array(one).tolist() for one in model.graph.initializer}
        for node in [one for one in model.graph.node if one.op_type == "ConstantOfShape"]:
            shape = shapes[node.input[0]]
            weights = random.normal(0, 1 / np.sqrt(np.prod(shape[1:])), shape) if len(shape) > 1 else random.uniform(0.5, 1.5, shape)
            model.graph.initializer.append(onnx.numpy_helper.from_array(weights.astype(np.float32), node.output[0]))
            model.graph.node.remove(node)
    return model.SerializeToString()


@pytest.fixture(scope="module")
def repository(tmp_path_factory):
    root = tmp_path_factory.mktemp("models")
    for name, place in PLACES.items():
        file = root / place
        file.parent.mkdir(parents=True)
        file.write_bytes(read_network(name))
    return root


@pytest.fixture(scope="module")
def zoo(start_server, repository):
    with start_server("--model-repository", str(repository), "--threads", "1", "--device", "cpu") as started:
        yield started


@pytest.fixture(scope="module")
def truth(repository):
    """The input, the output, and the result of ONNX Runtime, called directly on the same image."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    truth_by_name = {}
    image = np.random.default_rng(1).random((1, 3, 224, 224), dtype=np.float32)
    for name, place in PLACES.items():
        session = onnxruntime.InferenceSession(repository / place, options, providers=["CPUExecutionProvider"])
        (given,), (result,) = session.get_inputs(), session.get_outputs()
        truth_by_name[name] = (given, result, image, session.run(None, {given.name: image})[0])
    return truth_by_name


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("library", [tritonclient.http, tritonclient.grpc], ids=["http", "grpc"])
def test_networks_are_served_without_a_configuration_and_answer_as_onnx_runtime_does(zoo, truth, name, library):
    given, result, image, expected = truth[name]
    port = zoo.http_port if library is tritonclient.http else zoo.grpc_port
    patience = {"network_timeout": 110} if library is tritonclient.http else {}
    with library.InferenceServerClient(f"127.0.0.1:{port}", **patience) as client:
        metadata = client.get_model_metadata(name, **({} if library is tritonclient.http else {"as_json": True}))
        tensors = [(one["name"], one["datatype"], [int(size) for size in one["shape"]]) for one in metadata["inputs"] + metadata["outputs"]]
        assert tensors == [(given.name, "FP32", given.shape), (result.name, "FP32", result.shape)]
        asked = library.InferInput(given.name, list(image.shape), "FP32")
        asked.set_data_from_numpy(image)
        answer = client.infer(name, [asked]).as_numpy(result.name)
    assert answer.shape == expected.shape
    np.testing.assert_allclose(answer, expected, rtol=1e-4, atol=1e-6)
    assert name not in RANDOM or len(np.unique(expected)) > 100


def test_versions_and_files_of_a_folder_are_detected(repository):
    assert folder.FolderSource(repository, OnnxRuntime(1)).names() == tuple(sorted(PLACES))
    definitions = {name: folder.load_versions(repository, name, OnnxRuntime(1))[0] for name in ("squeezenet", "shufflenet")}
    assert [(one.versions, one.default_model_filename) for one, *_ in definitions.values()] == [
        (("3",), "model.onnx"),
        (("1",), "light_shufflenet.onnx"),
    ]


def test_several_files_without_the_default_name_are_an_error(tmp_path):
    place = tmp_path / "two" / "1"
    place.mkdir(parents=True)
    for name in ("a.onnx", "b.onnx"):
        (place / name).write_bytes((LIGHT / "light_squeezenet.onnx").read_bytes())
    with pytest.raises(UsageError, match=r"model\.onnx"):
        folder.load_versions(tmp_path, "two", OnnxRuntime(1))
