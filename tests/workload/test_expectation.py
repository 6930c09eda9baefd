"""What an answer has to be, and the sentence for what it is instead."""

import pathlib

import numpy as np
import pydantic
import pytest

from perfkit.errors import ModelMismatchError, ScenarioError
from perfkit.protocol.message import InferRequest, InferResponse, ModelMetadata, RequestedOutput, TensorMetadata
from perfkit.protocol.tensor import Datatype, Tensor, tensor_from_array
from perfkit.scenario.workload import Check
from perfkit.workload.expectation import Expectation

OUTPUTS = (TensorMetadata("A", "FP32", (-1, 2)), TensorMetadata("B", "BYTES", (1,)), TensorMetadata("C", "INT32", (2,)))
METADATA = ModelMetadata("m", ("1",), "", (), OUTPUTS)


def tensor(name, datatype, values):
    return tensor_from_array(name, Datatype(datatype), np.array(values, object if datatype == "BYTES" else None))


def whole(a=((1.0, 2.0),), b=(b"x",), c=(1, 2)):
    outputs = (tensor("A", "FP32", np.array(a, np.float32)), tensor("B", "BYTES", b), tensor("C", "INT32", np.array(c, np.int32)))
    return InferResponse("m", "1", outputs)


def fault(tmp_path, response, *, request=None, variant=0, metadata=METADATA, **check):
    requests = (request or InferRequest("m", ()),) * 3
    return Expectation.of(requests, metadata, Check.model_validate(check), None, tmp_path).fault(response, variant)


@pytest.mark.parametrize(
    ("values", "tolerance", "wrong"),
    [
        ([[1.0, 2.0]], 0, ""),
        ([[1.00001, 2.0]], 1e-4, ""),
        ([[1.001, 2.0]], 1e-4, "holds 1 wrong values in output 'A': the one at [0, 0] is 1.0010000467300415, where 1.0 is expected"),
        ([[1.0, float("nan")]], 1, "holds 1 wrong values in output 'A': the one at [0, 1] is nan, where 2.0 is expected"),
        ([[1.0, float("inf")]], 1, "holds 1 wrong values in output 'A': the one at [0, 1] is inf, where 2.0 is expected"),
        ([[1.0, 2.0], [3.0, 4.0]], 1, "has shape [2, 2] in output 'A', where [1, 2] is expected"),
    ],
)
def test_values_are_held_against_expected_ones_within_the_tolerance(tmp_path, values, tolerance, wrong):
    found = fault(tmp_path, whole(a=values), outputs={"A": {"value": [[1.0, 2.0]]}}, tolerance=tolerance)
    assert found.replace("1.001", "1.0010000467300415") == wrong or found == wrong


@pytest.mark.parametrize(("a", "expected"), [([[1e6, 2.0]], [[1_000_009.0, 2.0]]), ([[float("nan"), 2.0]], [[float("nan"), 2.0]]), ([[float("-inf"), 2]], [[float("-inf"), 2]])])  # fmt: skip
def test_the_tolerance_is_relative_for_large_floats_and_zero_for_other_values(tmp_path, a, expected):
    assert fault(tmp_path, whole(a=a), outputs={"A": {"value": expected}}, tolerance=1e-5) == ""


HALF = ModelMetadata("m", ("1",), "", (), (TensorMetadata("A", "FP16", (1, 2)),))


@pytest.mark.parametrize(
    ("tolerance", "found", "is_wrong"),
    [
        ({}, 1.001953125, False),  # two steps of FP16 from 1, which are 2 ** -10
        ({}, 1.0029296875, True),
        ({"FP16": 1e-2}, 1.0029296875, False),
        ({"FP32": 1e-2}, 1.0029296875, True),
        (1e-5, 1.0009765625, True),
    ],
)
def test_the_tolerance_depends_on_the_datatype(tmp_path, tolerance, found, is_wrong):
    response = InferResponse("m", "1", (tensor("A", "FP16", np.array([[found, 2.0]], np.float16)),))
    wrong = fault(tmp_path, response, metadata=HALF, outputs={"A": {"value": [[1.0, 2.0]]}}, tolerance=tolerance)
    assert bool(wrong) is is_wrong


def test_a_tolerance_is_for_floats_only():
    with pytest.raises(pydantic.ValidationError, match="a tolerance is for FP16, BF16, FP32, FP64, found INT8"):
        Check.model_validate({"tolerance": {"INT8": 1}})


def test_texts_and_whole_numbers_are_the_same_or_wrong(tmp_path):
    assert fault(tmp_path, whole(), outputs={"B": {"value": ["x"]}, "C": {"value": [1, 2]}}, tolerance=10) == ""
    assert "is b'x', where b'y' is expected" in fault(tmp_path, whole(), outputs={"B": {"value": ["y"]}}, tolerance=10)
    assert "the one at [1] is 2, where 3 is expected" in fault(tmp_path, whole(), outputs={"C": {"value": [1, 3]}}, tolerance=10)


def test_an_answer_is_held_against_the_metadata_and_the_request(tmp_path):
    assert fault(tmp_path, whole()) == ""
    broken = InferResponse("m", "1", (Tensor("C", Datatype.INT32, (2,), b"123"),))
    assert fault(tmp_path, broken).startswith("is broken: ")
    other = InferResponse("m", "1", (tensor("C", "FP32", np.zeros(2, np.float32)),))
    assert fault(tmp_path, other) == "holds FP32 in output 'C', where the model's metadata says INT32"
    asked = InferRequest("m", (), (RequestedOutput("A"), RequestedOutput("C")))
    assert fault(tmp_path, other, request=asked) == "lacks the output A"
    assert fault(tmp_path, whole(), request=InferRequest("m", (), id="7")) == "carries the id '', where '7' was sent"


@pytest.mark.parametrize("output", ["id", "OUT"])
def test_an_output_of_an_event_is_not_its_id(tmp_path, output):
    metadata = ModelMetadata("m", ("1",), "", (), (TensorMetadata(output, "BYTES", (1,)),))
    expectation = Expectation.of((InferRequest("m", (), id="7"),), metadata, Check(), None, tmp_path).of_events(is_decoupled=False)
    assert expectation.fault(InferResponse("m", "", (), "text")) == ("" if output == "id" else "carries the id 'text', where '7' was sent")


def test_expected_values_that_do_not_fit_the_model_are_refused_by_key(tmp_path):
    for check, error, message in (
        ({"outputs": {"D": {"value": 1}}}, ModelMismatchError, r"check\.outputs: the model has no output 'D'"),
        ({"outputs": {"C": {"value": [1, 2, 3]}}}, ModelMismatchError, r"check\.outputs\.C: the model takes shape \[2\], found \[3\]"),
        ({"outputs": {"C": {"file": "none.npy"}}}, ScenarioError, r"check\.outputs\.C\.file: no such file"),
    ):
        with pytest.raises(error, match=message):
            fault(tmp_path, whole(), **check)


def test_outputs_that_the_data_expect_belong_to_their_request():
    expected: tuple[dict[str, Tensor], ...] = (
        {"C": tensor("C", "INT32", np.array([1, 2], np.int32))},
        {"A": tensor("A", "FP32", np.array([[1.0, 2.0]], np.float32))},
        {},
    )
    expectation = Expectation.of((InferRequest("m", ()),) * 3, METADATA, Check(), None, pathlib.Path(), from_data=expected)
    assert [expectation.fault(whole(), variant) for variant in range(3)] == ["", "", ""]
    wrong = whole(a=[[1.0, 2.5]], c=(1, 3))
    assert [expectation.fault(wrong, variant) for variant in range(3)] == [
        "holds 1 wrong values in output 'C': the one at [1] is 3, where 2 is expected",
        "holds 1 wrong values in output 'A': the one at [0, 1] is 2.5, where 2.0 is expected",
        "",
    ]
    assert expectation.fault(InferResponse("m", "1", whole().outputs[1:]), 1) == "lacks the output A"
    check = Check.model_validate({"outputs": {"C": {"value": [1, 2]}}})
    with pytest.raises(
        ScenarioError, match=r"^check.outputs.C: workload.data has expected values of this output, too: remove one of them$"
    ):
        Expectation.of((InferRequest("m", ()),) * 3, METADATA, check, None, pathlib.Path(), from_data=expected)
