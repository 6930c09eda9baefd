"""Batch normalization with the products and sums that follow it: the same outputs from fewer operators."""

import collections
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from server_stub.executors.onnx_graph import fold_batch_normalizations
from server_stub.models import densenet_graph

RANDOM = np.random.default_rng(5)
CHANNELS = 4


def constant(name, *shape):
    return onnx.numpy_helper.from_array(RANDOM.uniform(0.5, 1.5, shape).astype(np.float32), name)


def write(tmp_path, nodes, constants, shape=("n", CHANNELS, 3, 3), outputs=("y",), opset=13):
    value = onnx.helper.make_tensor_value_info
    statistics = [constant(f"bn_{name}", CHANNELS) for name in ("scale", "bias", "mean", "var")]
    normalization = onnx.helper.make_node("BatchNormalization", ["x", *(one.name for one in statistics)], ["b"], epsilon=0.1)
    graph = onnx.helper.make_graph(
        [normalization, *(onnx.helper.make_node(operator, inputs, [output], **keys) for operator, inputs, output, keys in nodes)],
        "g",
        [value("x", onnx.TensorProto.FLOAT, shape)],
        [value(name, onnx.TensorProto.FLOAT, None) for name in outputs],
        [*statistics, *constants],
    )
    file = tmp_path / "model.onnx"
    file.write_bytes(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=8).SerializeToString())
    return file


def operators(encoded):
    return collections.Counter(node.op_type for node in onnx.load_from_string(encoded).graph.node)


def check_outputs(file, encoded, shape=(2, CHANNELS, 3, 3)):
    given = {"x": RANDOM.standard_normal(shape).astype(np.float32)}
    plain, folded = (
        onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, given) for model in (file.read_bytes(), encoded)
    )
    for one, other in zip(plain, folded, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-5, atol=1e-5)


PER_CHANNEL = (CHANNELS, 1, 1)
CHAINS: dict[str, Any] = {
    "scale and shift": ([("Mul", ["b", "m"], "p", {}), ("Add", ["p", "a"], "y", {})], [("m", PER_CHANNEL), ("a", PER_CHANNEL)]),
    "the constant first": ([("Add", ["a", "b"], "y", {})], [("a", (1, *PER_CHANNEL))]),
    "a single value": ([("Mul", ["b", "m"], "y", {})], [("m", ())]),
    "several of each": (
        [("Add", ["b", "a"], "p", {}), ("Mul", ["p", "m"], "q", {}), ("Add", ["q", "c"], "y", {})],
        [("a", PER_CHANNEL), ("m", PER_CHANNEL), ("c", ())],
    ),
}


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS)
def test_a_chain_becomes_one_operator_with_the_same_outputs(tmp_path, chain):
    nodes, constants = chain
    file = write(tmp_path, nodes, [constant(name, *shape) for name, shape in constants])
    encoded = fold_batch_normalizations(file)
    assert encoded is not None
    assert operators(encoded) == {"BatchNormalization": 1}
    assert len(onnx.load_from_string(encoded).graph.initializer) == 4, "what nothing uses is left out"
    check_outputs(file, encoded)


KEPT: dict[str, Any] = {
    "a constant for each row of an image": ([("Mul", ["b", "m"], "y", {})], [("m", (1, CHANNELS, 3, 1))], ("y",)),
    "a constant along another dimension": ([("Mul", ["b", "m"], "y", {})], [("m", (3,))], ("y",)),
    "a second user": ([("Mul", ["b", "m"], "p", {}), ("Add", ["p", "b"], "y", {})], [("m", PER_CHANNEL)], ("y",)),
    "an output of the graph": ([("Mul", ["b", "m"], "y", {})], [("m", PER_CHANNEL)], ("b", "y")),
    "two tensors": ([("Mul", ["b", "x"], "y", {})], [], ("y",)),
    "another operator": ([("Relu", ["b"], "y", {})], [], ("y",)),
}


@pytest.mark.parametrize("kept", KEPT.values(), ids=KEPT)
def test_nothing_else_is_folded(tmp_path, kept):
    nodes, constants, outputs = kept
    assert fold_batch_normalizations(write(tmp_path, nodes, [constant(name, *shape) for name, shape in constants], outputs=outputs)) is None


def test_a_column_belongs_to_the_second_dimension_of_as_many_as_the_tensor_has(tmp_path):
    """[C, 1] is a value per channel of [n, C, 3], and not of [n, C, C, 3]."""
    nodes: list[Any] = [("Mul", ["b", "m"], "y", {})]
    three = write(tmp_path, nodes, [constant("m", CHANNELS, 1)], shape=("n", CHANNELS, 3))
    check_outputs(three, fold_batch_normalizations(three), shape=(2, CHANNELS, 3))
    four = write(tmp_path, nodes, [constant("m", CHANNELS, 1)], shape=("n", CHANNELS, CHANNELS, 3))
    assert fold_batch_normalizations(four) is None


@pytest.mark.parametrize("opset", [7, 13])
def test_constants_with_more_dimensions_by_unsqueeze_are_followed(tmp_path, opset):
    axes = {} if opset == 13 else {"axes": [1, 2]}
    given = [onnx.numpy_helper.from_array(np.array([1, 2]), "axes")] if opset == 13 else []
    nodes = [("Unsqueeze", ["m", *(["axes"] if given else [])], "u", axes), ("Mul", ["b", "u"], "y", {})]
    file = write(tmp_path, nodes, [constant("m", CHANNELS), *given], opset=opset)
    encoded = fold_batch_normalizations(file)
    assert operators(encoded) == {"BatchNormalization": 1}
    check_outputs(file, encoded)


def test_densenet_has_two_operators_less_for_each_normalization(tmp_path):
    file = tmp_path / "densenet.onnx"
    file.write_bytes(densenet_graph.build_model(is_batched=True).SerializeToString())
    folded = operators(fold_batch_normalizations(file))
    assert (folded["BatchNormalization"], folded["Mul"], folded["Add"], folded["Unsqueeze"], folded["Relu"]) == (121, 0, 0, 0, 121)


def test_what_cannot_be_read_is_left_to_onnx_runtime(tmp_path):
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"nothing of the kind")
    assert fold_batch_normalizations(broken) is fold_batch_normalizations(tmp_path / "missing.onnx") is None


def test_constants_that_an_old_file_lists_as_inputs_do_not_become_inputs(tmp_path):
    """IR version 3, as in the model zoo's older files."""
    file = write(tmp_path, [("Mul", ["b", "m"], "y", {})], [constant("m", *PER_CHANNEL)], opset=7)
    model = onnx.load(file)
    model.ir_version = 3
    model.graph.input.extend(onnx.helper.make_tensor_value_info(one.name, one.data_type, one.dims) for one in model.graph.initializer)
    file.write_bytes(model.SerializeToString())
    encoded = fold_batch_normalizations(file)
    assert encoded is not None
    session = onnxruntime.InferenceSession(encoded, providers=["CPUExecutionProvider"])
    assert [one.name for one in session.get_inputs()] == ["x"]
    check_outputs(file, encoded)


def test_a_model_with_branches_is_left_as_it_is(tmp_path):
    value = onnx.helper.make_tensor_value_info
    same = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["m"], ["o"])], "then", [], [value("o", onnx.TensorProto.FLOAT, None)])
    other = onnx.helper.make_graph(
        [onnx.helper.make_node("Identity", ["b"], ["o"])], "else", [], [value("o", onnx.TensorProto.FLOAT, None)]
    )
    nodes: list[Any] = [("Mul", ["b", "m"], "p", {}), ("If", ["c"], "y", {"then_branch": same, "else_branch": other})]
    constants = [constant("m", *PER_CHANNEL), onnx.numpy_helper.from_array(np.array(True), "c")]
    assert fold_batch_normalizations(write(tmp_path, nodes, constants, outputs=("p", "y"))) is None
