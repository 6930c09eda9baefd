"""The generated densenet, against the graph of the trained one in the onnx package."""

import hashlib
import math
import pathlib
import sys

import numpy as np
import onnx
import onnx.backend.test
import pytest

from perfkit.errors import UsageError
from server_stub.executors.onnx import OnnxExecutor, OnnxRuntime
from server_stub.models import densenet, densenet_graph


@pytest.fixture(scope="module")
def model():
    return densenet_graph.build_model()


@pytest.fixture(scope="module")
def zoo_graph():
    """The zoo's graph from the onnx package, in which nodes with constants replace the weights."""
    (package,) = onnx.backend.test.__path__
    return onnx.load(pathlib.Path(package) / "data" / "light" / "light_densenet121.onnx").graph


@pytest.fixture(scope="module")
def seeded_file(tmp_path_factory, model):
    file = tmp_path_factory.mktemp("densenet") / "model.onnx"
    file.write_bytes(model.SerializeToString())
    return file


def parts(node):
    attributes = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    return node.op_type, list(node.input), list(node.output), attributes


def test_the_nodes_are_those_of_the_zoo(model, zoo_graph):
    expected = [parts(node) for node in zoo_graph.node if node.op_type != "ConstantOfShape"]
    assert [parts(node) for node in model.graph.node] == expected
    assert [len(expected), sum(operator == "Conv" for operator, *_ in expected)] == [910, 121]


def test_the_weights_have_the_names_and_shapes_of_the_zoo(model, zoo_graph):
    shapes = {one.name: [size.dim_value for size in one.type.tensor_type.shape.dim] for one in zoo_graph.input}
    weights = {one.name: list(one.dims) for one in model.graph.initializer}
    made = {node.output[0]: node.input[0] for node in zoo_graph.node if node.op_type == "ConstantOfShape"}
    constants = {one.name: onnx.numpy_helper.to_array(one).tolist() for one in zoo_graph.initializer if one.name.endswith("__SHAPE")}
    expected = {name: constants.get(shape, shapes.get(name)) for name, shape in made.items()}
    expected |= {name: shape for name, shape in shapes.items() if name not in (*constants, *expected, "data_0")}
    assert weights == expected


def test_it_has_the_parameters_of_densenet_121(model):
    trained = [one for one in model.graph.initializer if one.name.endswith(("_w_0", "fc6_b_0", "bn_b_0"))]
    assert sum(math.prod(one.dims) for one in trained) == 7_978_856


def test_the_weights_are_the_same_on_every_machine(model):
    digest = hashlib.sha256()
    for one in model.graph.initializer:
        digest.update(one.name.encode() + one.raw_data)
    assert digest.hexdigest() == "7c274872c57e9740842808032a280c1662984abd8fa340cfd7b2368f0a88d99e"
    assert densenet_graph.build_model() == model


def test_the_model_is_valid_onnx(model):
    onnx.checker.check_model(model, full_check=True)
    assert [(one.domain, one.version) for one in model.opset_import] == [("", 7)]


def test_different_inputs_give_different_bounded_outputs(seeded_file):
    definition, executor = densenet.load(OnnxRuntime(1), seeded_file)
    random = np.random.Generator(np.random.Philox(2)).random((1, 3, 224, 224), np.float32)
    stripes = np.tile(np.arange(224, dtype=np.float32) % 50 / 50, (1, 3, 224, 1))
    noise, pattern = (executor.execute({"data_0": image})["fc6_1"].ravel() for image in (random, stripes))
    for logits in (noise, pattern):
        assert logits.shape == (1000,)
        assert 0.5 < logits.std() < 10
    assert np.corrcoef(noise, pattern)[0, 1] < 0.9
    assert definition.outputs[0].labels[504] == "CLASS 504"


def test_the_batched_model_gives_each_image_the_unbatched_result(seeded_file, environment, monkeypatch):
    monkeypatch.setenv("PERFKIT_CACHE_DIR", environment["PERFKIT_CACHE_DIR"])
    images = np.random.Generator(np.random.Philox(2)).random((3, 3, 224, 224), np.float32)
    _, alone = densenet.load(OnnxRuntime(1), seeded_file)
    definition, batched = densenet.load_batched(OnnxRuntime(1))
    logits = batched.execute({"data_0": images})["fc6_1"]
    assert logits.shape == (3, 1000, 1, 1)
    for image, row in zip(images, logits, strict=True):
        np.testing.assert_allclose(row, alone.execute({"data_0": image[np.newaxis]})["fc6_1"][0], rtol=1e-3, atol=1e-3)
    assert (definition.max_batch_size, definition.config()["dynamic_batching"]["preferred_batch_size"]) == (8, [2])


def test_labels_in_the_trained_files_folder_name_the_classes(seeded_file, tmp_path):
    file = tmp_path / "trained.onnx"
    file.symlink_to(seeded_file)
    labels = file.with_name("densenet_labels.txt")
    labels.write_text("".join(f"LABEL {index}\n" for index in range(1000)))
    definition, _ = densenet.load(OnnxRuntime(1), file)
    assert definition.outputs[0].labels[504] == "LABEL 504"
    labels.write_text("COFFEE MUG\n")
    with pytest.raises(UsageError, match=r"densenet_labels.txt has 1 lines, expected the names of 1000 classes"):
        densenet.load(OnnxRuntime(1), file)


def test_a_file_of_another_model_is_an_error(tmp_path):
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1])
    result = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [value], [result])
    file = tmp_path / "relu.onnx"
    file.write_bytes(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 7)], ir_version=4).SerializeToString())
    with pytest.raises(
        UsageError, match=r"relu.onnx is not the model zoo's densenet-7: it has x FP32 \[1\], y FP32 \[1\], expected data_0 FP32 "
    ):
        densenet.load(OnnxRuntime(1), file)


def test_a_file_that_is_not_a_model_is_an_error(tmp_path):
    file = tmp_path / "model.onnx"
    file.write_bytes(b"nothing of the kind")
    with pytest.raises(UsageError, match=r"model.onnx cannot be loaded by ONNX Runtime"):
        OnnxExecutor(file, 1)


def test_without_onnx_runtime_the_error_says_how_to_install_it(monkeypatch, seeded_file):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(UsageError, match=r"pip install onnx"):
        OnnxExecutor(seeded_file, 1)


def test_the_weights_are_generated_once_and_cached(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("PERFKIT_CACHE_DIR", str(tmp_path))
    file = densenet.seeded_file()
    assert f"generating the weights of densenet_onnx (once; cached in {file})" in capfd.readouterr().err
    assert list(file.parent.iterdir()) == [file]
    assert densenet.seeded_file() == file
    assert not capfd.readouterr().err


def test_an_unwritable_cache_is_explained(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.touch()
    monkeypatch.setenv("PERFKIT_CACHE_DIR", str(blocked))
    with pytest.raises(UsageError, match="set PERFKIT_CACHE_DIR to a writable folder"):
        densenet.seeded_file()
