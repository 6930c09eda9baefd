"""Values of perf_analyzer's input data. What is accepted and refused, and its bytes, is what perf_analyzer 2.60 did on the bundled server."""

import base64
import struct

import pytest

from perfkit.errors import ModelMismatchError, ScenarioError
from perfkit.protocol.tensor import Datatype
from perfkit.workload.input_data import DataTensor

NAN, INFINITY = float("nan"), float("inf")


def encoded(raw):
    return base64.b64encode(raw).decode()


def read(value, datatype="FP32", shape=(2,), **options):
    return DataTensor("X", Datatype(datatype), shape, **options).read("d.json: data[3].X", value)


@pytest.mark.parametrize(
    ("datatype", "value", "raw"),
    [
        ("FP32", [1.0, 2.5], bytes.fromhex("0000803f 00002040")),
        ("FP32", [NAN, -INFINITY], bytes.fromhex("0000c07f 000080ff")),
        ("FP64", [0.5, -2.0], bytes.fromhex("000000000000e03f 00000000000000c0")),
        ("BOOL", [True, False], b"\1\0"),
        ("INT8", [-128, 127], b"\x80\x7f"),
        ("UINT16", [0, 65535], b"\0\0\xff\xff"),
        ("INT64", [-1, 2**62], b"\xff" * 8 + bytes.fromhex("0000000000000040")),
        ("BYTES", ["a", "é"], b"\1\0\0\0a\2\0\0\0\xc3\xa9"),
        ("BYTES", {"b64": encoded(b"\2\0\0\0ab\0\0\0\0")}, b"\2\0\0\0ab\0\0\0\0"),
        ("FP16", {"b64": encoded(struct.pack("<2e", 1, 2))}, b"\0\x3c\0\x40"),
        ("BF16", {"b64": encoded(b"\x80\x3f\0\x40")}, b"\x80\x3f\0\x40"),
        ("FP32", {"content": {"b64": encoded(struct.pack("<2f", 1, 2))}, "shape": [2]}, struct.pack("<2f", 1, 2)),
        ("FP32", {"b64": encoded(struct.pack("<2f", 1, 2)), "shape": [2]}, struct.pack("<2f", 1, 2)),
        # the files of a folder
        ("INT32", struct.pack("<2i", 5, -6), struct.pack("<2i", 5, -6)),
        ("BYTES", b"one\ntwo\n", b"\3\0\0\0one\3\0\0\0two"),
        ("BYTES", b"one\n\n", b"\3\0\0\0one\0\0\0\0"),
        ("BYTES", b"one\r\ntwo", b"\4\0\0\0one\r\3\0\0\0two"),
    ],
    ids=str,
)
def test_a_value_has_the_bytes_that_perf_analyzer_sends(datatype, value, raw):
    tensor = read(value, datatype)
    assert (tensor.name, tensor.datatype.value, tensor.shape, bytes(tensor.raw)) == ("X", datatype, (2,), raw)


def test_integers_are_floats_too_unlike_in_perf_analyzer():
    assert read([1, 2]).raw == struct.pack("<2f", 1, 2)


def test_a_shape_beside_the_values_wins_over_the_chosen_one_and_that_over_the_models():
    values = [1.0, 2.0, 3.0, 4.0]
    assert read({"content": values, "shape": [4, 1]}, shape=(-1, -1), chosen_shape=(2, 2)).shape == (4, 1)
    assert read(values, shape=(-1, -1), chosen_shape=(2, 2)).shape == (2, 2)
    assert read({"content": [], "shape": [0, 3]}, shape=(-1, 3)).shape == (0, 3)


REFUSALS = [
    ("FP16", [1.0, 2.0], ': JSON has no values of FP16: give their bytes as {"b64": TEXT}'),
    ("BF16", [1.0, 2.0], ': JSON has no values of BF16: give their bytes as {"b64": TEXT}'),
    ("BOOL", [1, 0], ": expected a flat list of 2 true or false for BOOL of shape [2], found 1"),
    ("INT32", [2, 1.0], ": expected a flat list of 2 whole numbers for INT32 of shape [2], found 1.0"),
    ("INT32", [2, True], ": expected a flat list of 2 whole numbers for INT32 of shape [2], found True"),
    ("INT8", [1, 300], ": expected a flat list of 2 whole numbers for INT8 of shape [2], found 300"),
    ("UINT8", [-1, 1], ": expected a flat list of 2 whole numbers for UINT8 of shape [2], found -1"),
    ("FP32", [None, 1.0], ": expected a flat list of 2 numbers for FP32 of shape [2], found None"),
    ("FP32", [[1.0, 2.0]], ": expected a flat list of 2 numbers for FP32 of shape [2], found [1.0, 2.0]"),
    ("FP32", [1.0], ": expected a flat list of 2 numbers for FP32 of shape [2], found 1 of them"),
    ("BYTES", ["a", 1], ": expected a flat list of 2 strings for BYTES of shape [2], found 1"),
    ("FP32", 1.0, ': expected a list of values, {"b64": TEXT} or {"content": VALUES, "shape": SIZES}, found 1.0'),
    ("FP32", {"shape": [2]}, ': expected a list of values, {"b64": TEXT} or {"content": VALUES, "shape": SIZES}, found an object with \'shape\''),
    ("FP32", {"b64": "", "content": []}, ': expected a list of values, {"b64": TEXT} or {"content": VALUES, "shape": SIZES}, found an object with \'b64\', \'content\''),
    ("FP32", {"content": {"b46": ""}}, ".content: expected a list of values or {\"b64\": TEXT}, found {'b46': ''}"),
    ("FP32", {"content": [1.0, 2.0], "shape": "2"}, ".shape: expected a list of sizes such as [3, 224], without the batch, found '2'"),
    ("FP32", {"content": [1.0, 2.0], "shape": [True]}, ".shape: expected a list of sizes such as [3, 224], without the batch, found [True]"),
    ("FP32", {"b64": encoded(b"\0" * 4)}, ": the bytes do not fit FP32 of shape [2]: byte size mismatch for tensor 'X'. Expected 8, got 4"),
    ("FP32", {"b64": "%"}, ".b64: expected base64: Only base64 data is allowed"),
    ("FP32", {"b64": "é"}, ".b64: expected base64: string argument should contain only ASCII characters"),
    ("FP32", {"b64": 5}, ".b64: expected base64: found 5"),
    ("BYTES", {"b64": encoded(b"ab")}, ": the bytes do not fit BYTES of shape [2]: a BYTES tensor ends inside an element's length; base64 has 4 bytes of length (little-endian) before each string"),
    ("BYTES", b"one\n", ": the bytes do not fit BYTES of shape [2]: tensor 'X': expected 2 string elements, got 1; base64 has 4 bytes of length (little-endian) before each string"),
]  # fmt: skip


@pytest.mark.parametrize(("datatype", "value", "message"), REFUSALS, ids=str)
def test_a_value_that_cannot_be_sent_is_refused_with_its_place(datatype, value, message):
    with pytest.raises(ScenarioError) as refusal:
        read(value, datatype)
    assert str(refusal.value) == f"d.json: data[3].X{message}"


@pytest.mark.parametrize(
    ("value", "options", "message"),
    [
        ([1.0], {"shape": (-1,)}, 'the model\'s shape is [-1]: write {"content": VALUES, "shape": SIZES} with a size for each -1'),
        ([1.0], {"shape": (-1,), "shape_key": "k"}, 'the model\'s shape is [-1]: write {"content": VALUES, "shape": SIZES} with a size for each -1, or give k'),
        ({"content": [1.0], "shape": [1, 1]}, {"shape": (-1,)}, "the model has shape [-1], without the batch, found [1, 1]"),
        ({"content": [1.0], "shape": [1]}, {}, "the model has shape [2], without the batch, found [1]"),
        ([1.0], {"chosen_shape": (1,)}, "the model has shape [2], without the batch, found [1]"),
    ],
)  # fmt: skip
def test_a_shape_that_does_not_fit_the_model_is_refused(value, options, message):
    with pytest.raises(ModelMismatchError) as refusal:
        read(value, **options)
    assert str(refusal.value) == f"d.json: data[3].X: {message}"
