"""Tensors' two forms: literal bytes for every datatype, and NumPy, ml_dtypes and tritonclient as second opinions."""

import json
import math
import re
import struct

import ml_dtypes
import numpy as np
import pytest
import tritonclient.utils as triton
from hypothesis import given
from hypothesis import strategies as st

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol.tensor import (
    Datatype,
    Tensor,
    array_dtype,
    check_size,
    decode_bytes_elements,
    encode_bytes_elements,
    tensor_from_array,
    tensor_from_json,
    tensor_to_array,
    tensor_to_json,
)

NAN, INF = math.nan, math.inf

# datatype, values, their bytes
LITERAL = [
    ("BOOL", [False, True, True], "00 01 01"),
    ("UINT8", [0, 1, 255], "00 01 ff"),
    ("UINT16", [1, 0x1234, 65535], "0100 3412 ffff"),
    ("UINT32", [1, 0x12345678, 2**32 - 1], "01000000 78563412 ffffffff"),
    ("UINT64", [1, 2**53 + 1, 2**64 - 1], "0100000000000000 0100000000002000 ffffffffffffffff"),
    ("INT8", [0, 127, -128, -1], "00 7f 80 ff"),
    ("INT16", [1, -2, 32767, -32768], "0100 feff ff7f 0080"),
    ("INT32", [1, -2, 2**31 - 1, -(2**31)], "01000000 feffffff ffffff7f 00000080"),
    ("INT64", [-2, 2**53 + 1, 2**63 - 1, -(2**63)], "feffffffffffffff 0100000000002000 ffffffffffffff7f 0000000000000080"),
    ("FP16", [1.0, -2.0, 65504.0, 2.0**-24, INF], "003c 00c0 ff7b 0100 007c"),
    ("BF16", [1.0, -2.0, 0.15625, -INF], "803f 00c0 203e 80ff"),
    ("FP32", [1.0, -0.15625, INF], "0000803f 000020be 0000807f"),
    ("FP64", [1.0, -2.0, 0.1], "000000000000f03f 00000000000000c0 9a9999999999b93f"),
    ("BYTES", [b"ab", b"", b"a\x00c\x00", "ü€".encode()], "02000000 6162 00000000 04000000 61006300 05000000 c3bce282ac"),
]
HAS_JSON = [name for name in Datatype.__members__ if name not in {"FP16", "BF16"}]
INTEGER_BITS = {name: (name[0] == "U", int(name.lstrip("UINT"))) for name in Datatype.__members__ if name.lstrip("U").startswith("INT")}


def integer_range(name):
    unsigned, bits = INTEGER_BITS[name]
    return (0, 2**bits - 1) if unsigned else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


def bf16_value(word):
    return struct.unpack("<f", struct.pack("<I", word << 16))[0]


VALUES = {
    "BOOL": st.booleans(),
    **{name: st.integers(*integer_range(name)) for name in INTEGER_BITS},
    "FP16": st.floats(width=16, allow_nan=False),
    # the upper half of a finite or infinite float32 is what bfloat16 holds
    "BF16": st.integers(0, 0xFFFF).filter(lambda word: word & 0x7FFF <= 0x7F80).map(bf16_value),
    "FP32": st.floats(width=32, allow_nan=False),
    "FP64": st.floats(allow_nan=False),
    "BYTES": st.binary(max_size=9),
}
JSON_VALUES = {**VALUES, "BYTES": st.text(max_size=9)}
SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)


def object_array(values, shape):
    array = np.empty(len(values), dtype=object)
    for index, value in enumerate(values):
        array[index] = value
    return array.reshape(shape)


@st.composite
def arrays(draw, values=VALUES):
    """A datatype, a shape, and as many values as the shape asks for."""
    name = draw(st.sampled_from(sorted(values)))
    shape = draw(SHAPES)
    count = math.prod(shape)
    return Datatype[name], shape, draw(st.lists(values[name], min_size=count, max_size=count))


def test_the_literal_cases_are_of_all_fourteen_datatypes():
    assert [name for name, _, _ in LITERAL] == [member.value for member in Datatype]


@pytest.mark.parametrize(("name", "values", "raw"), LITERAL)
def test_values_become_these_bytes(name, values, raw):
    assert tensor_from_array("x", Datatype[name], values) == Tensor("x", Datatype[name], (len(values),), bytes.fromhex(raw))


@pytest.mark.parametrize("form", [bytes, bytearray, memoryview])
@pytest.mark.parametrize(("name", "values", "raw"), LITERAL)
def test_these_bytes_become_the_values(name, values, raw, form):
    array = tensor_to_array(Tensor("x", Datatype[name], (len(values),), form(bytes.fromhex(raw))))
    assert array.tolist() == values
    assert array.dtype == array_dtype(Datatype[name])


@pytest.mark.parametrize(("name", "values", "raw"), [case for case in LITERAL if case[0] in HAS_JSON])
def test_json_values_become_the_same_bytes_and_back(name, values, raw):
    in_json = [value.decode() for value in values] if name == "BYTES" else values
    tensor = Tensor("x", Datatype[name], (len(values),), bytes.fromhex(raw))
    assert tensor_from_json("x", Datatype[name], (len(values),), in_json) == tensor
    assert tensor_to_json(tensor) == in_json
    assert [type(value) for value in tensor_to_json(tensor)] == [type(value) for value in in_json]


@pytest.mark.parametrize(("name", "values", "raw"), LITERAL)
def test_a_scalar_has_one_element_and_no_dimension(name, values, raw):
    tensor = tensor_from_array("x", Datatype[name], np.array(values[0], dtype=array_dtype(Datatype[name])))
    assert (tensor.shape, tensor.element_count) == ((), 1)
    assert bytes.fromhex(raw).startswith(bytes(tensor.raw))
    assert len(tensor.raw) > 0
    assert tensor_to_array(tensor).shape == ()
    assert tensor_to_array(tensor).item() == values[0]


@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 2, 2)])
@pytest.mark.parametrize("name", list(Datatype.__members__))
def test_an_empty_tensor_has_no_bytes_and_keeps_its_shape(name, shape):
    datatype = Datatype[name]
    tensor = tensor_from_array("x", datatype, np.empty(shape, dtype=array_dtype(datatype)))
    assert tensor == Tensor("x", datatype, shape, b"")
    assert tensor_to_array(tensor).shape == shape
    assert tensor_to_array(tensor).dtype == array_dtype(datatype)


@pytest.mark.parametrize("name", list(Datatype.__members__))
def test_an_empty_list_is_an_empty_tensor(name):
    assert tensor_from_array("x", Datatype[name], []) == Tensor("x", Datatype[name], (0,), b"")
    if name in HAS_JSON:
        tensor = tensor_from_json("x", Datatype[name], (2, 0), [[], []])
        assert tensor == Tensor("x", Datatype[name], (2, 0), b"")
        assert tensor_to_json(tensor) == []


@pytest.mark.parametrize(
    ("name", "size_bytes", "is_integer", "is_float"),
    [
        ("BOOL", 1, False, False),
        ("UINT8", 1, True, False), ("UINT16", 2, True, False), ("UINT32", 4, True, False), ("UINT64", 8, True, False),
        ("INT8", 1, True, False), ("INT16", 2, True, False), ("INT32", 4, True, False), ("INT64", 8, True, False),
        ("FP16", 2, False, True), ("BF16", 2, False, True), ("FP32", 4, False, True), ("FP64", 8, False, True),
        ("BYTES", None, False, False),
    ],
)  # fmt: skip
def test_a_datatype_knows_its_size_and_kind(name, size_bytes, is_integer, is_float):
    datatype = Datatype.parse(name)
    assert (datatype.size_bytes(1), datatype.is_integer, datatype.is_float) == (size_bytes, is_integer, is_float)
    assert datatype.size_bytes(3) == (None if size_bytes is None else 3 * size_bytes)
    assert datatype.element_bits == (None if size_bytes is None else 8 * size_bytes)


@pytest.mark.parametrize("name", ["STRING", "fp32", "", "TYPE_FP32"])
def test_an_unknown_datatype_is_refused_with_the_known_ones(name):
    with pytest.raises(ProtocolError, match=f"invalid datatype '{name}': known are BOOL, UINT8.*BYTES$") as refused:
        Datatype.parse(name)
    assert refused.value.kind is ErrorKind.INVALID_ARGUMENT


# float32 bits, the bfloat16 nearest to them
@pytest.mark.parametrize(
    ("bits", "word"),
    [
        (0x3F800000, 0x3F80),  # 1.0 is exact
        (0x3F807FFF, 0x3F80),  # just under half: down
        (0x3F808000, 0x3F80),  # half, even below: down
        (0x3F808001, 0x3F81),  # just over half: up
        (0x3F818000, 0x3F82),  # half, odd below: up
        (0xBF818000, 0xBF82),  # the same below zero
        (0x3FFF8000, 0x4000),  # the carry reaches the exponent
        (0x00000000, 0x0000),
        (0x80000000, 0x8000),  # -0 keeps its sign
        (0x00008000, 0x0000),  # the subnormals round alike
        (0x00018000, 0x0002),
        (0x80000001, 0x8000),
        (0x7F7FFFFF, 0x7F80),  # the largest float32 is over bfloat16's: infinity
        (0x7F7F7FFF, 0x7F7F),
        (0x7F800000, 0x7F80),
        (0xFF800000, 0xFF80),
    ],
)
def test_bf16_rounds_to_nearest_with_ties_to_even(bits, word):
    value = np.array([bits], dtype=np.uint32).view(np.float32)
    assert tensor_from_array("x", Datatype.BF16, value).raw == struct.pack("<H", word)


@pytest.mark.parametrize("bits", [0x7FC00000, 0xFFC00000, 0x7F800001, 0x7FFFFFFF, 0xFFFFFFFF])
def test_bf16_keeps_nan_a_nan(bits):
    tensor = tensor_from_array("x", Datatype.BF16, np.array([bits], dtype=np.uint32).view(np.float32))
    (word,) = struct.unpack("<H", tensor.raw)
    assert word & 0x7F80 == 0x7F80
    assert word & 0x007F != 0
    assert np.isnan(tensor_to_array(tensor)).all()


def test_every_bf16_word_but_nan_comes_back_as_it_went():
    words = np.arange(0x10000, dtype="<u2")
    values = tensor_to_array(Tensor("x", Datatype.BF16, (0x10000,), words.tobytes()))
    theirs = words.view(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(values, theirs)
    again = np.frombuffer(tensor_from_array("x", Datatype.BF16, values).raw, dtype="<u2")
    numbers = ~np.isnan(theirs)
    np.testing.assert_array_equal(again[numbers], words[numbers])


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=50))
def test_bf16_rounds_as_ml_dtypes_does(bits):
    values = np.array(bits, dtype=np.uint32).view(np.float32)
    with np.errstate(invalid="ignore"):  # signalling NaN among them
        theirs = values.astype(ml_dtypes.bfloat16).view(np.uint16)
    ours = np.frombuffer(tensor_from_array("x", Datatype.BF16, values).raw, dtype="<u2")
    numbers = ~np.isnan(values)
    np.testing.assert_array_equal(ours[numbers], theirs[numbers])


@pytest.mark.parametrize(
    ("name", "value", "raw"),
    [
        ("FP16", 65520.0, "007c"),
        ("FP16", -1e300, "00fc"),
        ("BF16", 1e300, "807f"),
        ("FP32", 1e39, "0000807f"),
        ("FP16", 2049, "0068"),  # 2048: ties to even
        ("FP32", 2**24 + 1, "0000804b"),
        ("FP16", NAN, "007e"),
        ("FP32", -0.0, "00000080"),
    ],
)
def test_floats_are_rounded_to_the_datatype_and_to_infinity_beyond_it(name, value, raw):
    assert tensor_from_array("x", Datatype[name], [value]).raw == bytes.fromhex(raw)


@pytest.mark.parametrize(("value", "raw"), [(1e39, "0000807f"), (-1e39, "000080ff"), (NAN, "0000c07f"), (3, "00004040")])
def test_json_numbers_are_rounded_to_fp32(value, raw):
    assert tensor_from_json("x", Datatype.FP32, (1,), [value]).raw == bytes.fromhex(raw)


@pytest.mark.parametrize("layout", [np.asfortranarray, np.ascontiguousarray, lambda array: np.repeat(array, 2, axis=0)[::2]])
@pytest.mark.parametrize("name", list(Datatype.__members__))
def test_bytes_are_row_major_however_the_array_lies_in_memory(name, layout):
    values = [[b"1", b"2", b"3"], [b"4", b"5", b"6"]] if name == "BYTES" else [[1, 0, 1], [0, 0, 1]]
    tensor = tensor_from_array("x", Datatype[name], layout(np.array(values, dtype=array_dtype(Datatype[name]))))
    assert tensor.shape == (2, 3)
    assert tensor.raw == tensor_from_array("x", Datatype[name], values[0] + values[1]).raw
    assert tensor_to_array(tensor).tolist() == values


def test_big_endian_arrays_are_turned():
    assert tensor_from_array("x", Datatype.INT32, np.array([1], dtype=">i4")).raw == b"\x01\x00\x00\x00"
    assert tensor_from_array("x", Datatype.BF16, np.array([1.0], dtype=">f4")).raw == b"\x80\x3f"


@pytest.mark.parametrize(
    ("name", "values", "text"),
    [
        ("UINT8", [300], "some values do not fit UINT8"),
        ("UINT8", [-1], "some values do not fit UINT8"),
        ("INT32", [1, 1.5], "some values do not fit INT32"),
        ("INT32", [2**31], "some values do not fit INT32"),
        ("INT32", [NAN], "some values do not fit INT32"),
        ("INT64", [INF], "some values do not fit INT64"),
        ("INT64", [2**63], "some values do not fit INT64"),
        ("INT64", [1, 2**63], "some values do not fit INT64"),
        ("UINT64", [-1, 2**63], "some values do not fit UINT64"),
        ("UINT64", np.array([-1]), "some values do not fit UINT64"),
        ("UINT64", np.array([NAN, -1.0]), "some values do not fit UINT64"),
        ("INT8", np.array([1e300]), "some values do not fit INT8"),
        ("INT64", [2**64], "values are not INT64"),
        ("BOOL", [2], "some values do not fit BOOL"),
        ("BOOL", [0.5], "some values do not fit BOOL"),
        ("FP32", ["1.5"], "values are not FP32"),
        ("INT32", [b"1"], "values are not INT32"),
        ("FP64", [1j], "complex128 values are not FP64"),
        ("BYTES", ["\ud800"], "cannot be written as UTF-8"),
    ],
)
def test_values_that_do_not_fit_are_refused(name, values, text):
    with pytest.raises(ProtocolError, match=f"^tensor 'x': .*{text}") as refused:
        tensor_from_array("x", Datatype[name], values)
    assert refused.value.kind is ErrorKind.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("name", "values", "raw"),
    [
        ("INT32", [1.0, -2.0], "01000000 feffffff"),
        ("INT8", [True, False], "01 00"),
        ("BOOL", [0, 1], "00 01"),
        ("FP32", [True, 2], "0000803f 00000040"),
        ("UINT64", [1, 2**63 + 1], "0100000000000000 0100000000000080"),  # of which NumPy alone would make floats
        ("UINT64", [2**53 + 1, 2**63, 0.0], "0100000000002000 0000000000000080 0000000000000000"),
        ("BYTES", ["a", b"\xff", 5], "01000000 61 01000000 ff 01000000 35"),
    ],
)
def test_values_of_another_type_are_accepted_if_they_fit(name, values, raw):
    assert tensor_from_array("x", Datatype[name], values).raw == bytes.fromhex(raw)


@given(st.lists(st.integers(-(2**65), 2**65) | st.integers(-300, 70_000), min_size=1, max_size=4), st.sampled_from(sorted(INTEGER_BITS)))
def test_a_list_of_integers_is_encoded_exactly_or_refused(values, name):
    low, high = integer_range(name)
    if all(low <= value <= high for value in values):
        unsigned, bits = INTEGER_BITS[name]
        expected = b"".join(value.to_bytes(bits // 8, "little", signed=not unsigned) for value in values)
        assert tensor_from_array("x", Datatype[name], values).raw == expected
    else:
        with pytest.raises(ProtocolError):
            tensor_from_array("x", Datatype[name], values)


@pytest.mark.parametrize(
    ("name", "shape", "data", "raw"),
    [
        ("INT8", (2, 2), [[1, 2], [3, 4]], "01020304"),
        ("INT8", (2, 2), [1, 2, 3, 4], "01020304"),
        ("INT8", (1, 2, 2), [[[1, 2], [3, 4]]], "01020304"),
        ("INT8", (2, 2), [[[1], [2]], [[3], [4]]], "01020304"),
        ("INT8", (1,), 5, "05"),
        ("INT8", (), 5, "05"),
        ("BYTES", (2,), [["a"], ["bc"]], "01000000 61 02000000 6263"),
        ("BYTES", (1,), "abc", "03000000 616263"),
    ],
)
def test_json_data_may_be_nested_or_flat(name, shape, data, raw):
    assert tensor_from_json("x", Datatype[name], shape, data) == Tensor("x", Datatype[name], shape, bytes.fromhex(raw))


@pytest.mark.parametrize(
    ("name", "shape", "data", "text"),
    [
        ("BOOL", (2,), [True, 1], "attempt to access JSON non-boolean as boolean: 1 in tensor 'x'"),
        ("INT32", (2,), [1, True], "attempt to access JSON non-signed-integer as signed-integer: True in tensor 'x'"),
        ("INT32", (1,), [1.0], "attempt to access JSON non-signed-integer as signed-integer: 1.0 in tensor 'x'"),
        ("INT32", (1,), ["1"], "attempt to access JSON non-signed-integer as signed-integer: '1' in tensor 'x'"),
        ("INT32", (1,), [None], "attempt to access JSON non-signed-integer as signed-integer: None in tensor 'x'"),
        ("FP32", (1,), [True], "attempt to access JSON non-number as double: True in tensor 'x'"),
        ("FP32", (1,), ["1.5"], "attempt to access JSON non-number as double: '1.5' in tensor 'x'"),
        ("UINT8", (1,), [300], "a value in the JSON data does not fit UINT8"),
        ("UINT8", (1,), [-1], "a value in the JSON data does not fit UINT8"),
        ("UINT64", (1,), [2**64], "a value in the JSON data does not fit UINT64"),
        ("INT64", (1,), [-(2**63) - 1], "a value in the JSON data does not fit INT64"),
        ("FP64", (1,), [10**400], "a value in the JSON data does not fit FP64"),
        ("BYTES", (1,), [5], "Unable to parse JSON bytes array: attempt to access JSON non-string as string: 5 in tensor 'x'"),
        ("BYTES", (1,), [None], "Unable to parse JSON bytes array: attempt to access JSON non-string as string: None in tensor 'x'"),
        ("BYTES", (1,), ["\ud800"], "in the JSON data holds half of a surrogate pair"),
        *(
            (
                "INT32",
                shape,
                data,
                f"Unable to parse 'data': Shape does not match true shape of 'data' field: tensor 'x' of shape {list(shape)} holds",
            )
            for shape, data in (((3,), [1, 2]), ((2, 2), [1, 2, 3, 4, 5]), ((0,), [1]), ((-1,), [1]), ((-1, -1), [1]))
        ),
    ],
)
def test_json_data_of_the_wrong_kind_is_an_internal_error_as_in_triton(name, shape, data, text):
    with pytest.raises(ProtocolError) as refused:
        tensor_from_json("x", Datatype[name], shape, data)
    assert text in str(refused.value)
    assert "'x'" in str(refused.value)
    assert refused.value.kind is ErrorKind.INTERNAL


@pytest.mark.parametrize("name", ["FP16", "BF16"])
def test_every_finite_half_float_is_the_same_after_json(name):
    codes = np.arange(1 << 16, dtype="<u2")
    exponent = 0x7C00 if name == "FP16" else 0x7F80
    codes = codes[codes & exponent != exponent]
    tensor = Tensor("x", Datatype[name], (codes.size,), codes.tobytes())
    again = tensor_from_json("x", Datatype[name], (codes.size,), json.loads(json.dumps(tensor_to_json(tensor))))
    assert bytes(again.raw) == tensor.raw


def test_bytes_that_are_no_text_have_no_json_form():
    with pytest.raises(ProtocolError, match="output 'x' holds bytes that are not UTF-8: request it as binary data"):
        tensor_to_json(Tensor("x", Datatype.BYTES, (1,), b"\x01\x00\x00\x00\xff"))


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        ("01", "ends inside an element's length"),
        ("000000", "ends inside an element's length"),
        ("01000000", "ends inside an element"),
        ("02000000 61", "ends inside an element"),
        ("01000000 61 0000", "ends inside an element's length"),
        ("ffffffff 61", "ends inside an element"),
    ],
)
def test_truncated_bytes_elements_are_refused(raw, text):
    with pytest.raises(ProtocolError, match=f"a BYTES tensor {text}$"):
        decode_bytes_elements(bytes.fromhex(raw))


@given(st.lists(st.binary(max_size=6), min_size=1, max_size=4))
def test_bytes_elements_cut_anywhere_lose_elements_or_are_refused(elements):
    encoded = encode_bytes_elements(elements)
    ends = {len(encode_bytes_elements(elements[:count])): count for count in range(len(elements) + 1)}
    for cut in range(len(encoded)):
        if cut in ends:
            assert decode_bytes_elements(encoded[:cut]) == elements[: ends[cut]]
        else:
            with pytest.raises(ProtocolError, match="a BYTES tensor ends inside an element"):
                decode_bytes_elements(encoded[:cut])


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (Tensor("x", Datatype.INT32, (1, 16), bytes(32)), "byte size mismatch for tensor 'x'. Expected 64, got 32"),
        (Tensor("x", Datatype.BF16, (1,), bytes(4)), "byte size mismatch for tensor 'x'. Expected 2, got 4"),
        (Tensor("x", Datatype.FP64, (), b""), "byte size mismatch for tensor 'x'. Expected 8, got 0"),
        (Tensor("x", Datatype.UINT8, (0,), b"\x00"), "byte size mismatch for tensor 'x'. Expected 0, got 1"),
        (Tensor("x", Datatype.UINT8, (-1, -1), b"\x00"), "tensor 'x': dimensions must not be negative, found [-1, -1]"),
        (Tensor("x", Datatype.BYTES, (2,), bytes(4)), "tensor 'x': expected 2 string elements, got 1"),
        (Tensor("x", Datatype.BYTES, (1,), b""), "tensor 'x': expected 1 string elements, got 0"),
        (Tensor("x", Datatype.BYTES, (1,), b"\x05"), "a BYTES tensor ends inside an element's length"),
    ],
)
def test_bytes_that_do_not_match_shape_and_datatype_are_refused(tensor, text):
    for read in (check_size, tensor_to_array):
        with pytest.raises(ProtocolError) as refused:
            read(tensor)
        assert str(refused.value) == text
        assert refused.value.kind is ErrorKind.INVALID_ARGUMENT


@given(arrays())
def test_values_survive_the_binary_form(drawn):
    datatype, shape, values = drawn
    array = object_array(values, shape) if datatype is Datatype.BYTES else np.array(values, dtype=array_dtype(datatype)).reshape(shape)
    tensor = tensor_from_array("x", datatype, array)
    check_size(tensor)
    assert tensor.shape == shape
    decoded = tensor_to_array(tensor)
    assert decoded.dtype == array_dtype(datatype)
    assert decoded.shape == shape
    assert [repr(value) for value in decoded.ravel().tolist()] == [repr(value) for value in values]  # repr tells -0.0 from 0.0


@given(arrays({name: JSON_VALUES[name] for name in HAS_JSON}))
def test_values_survive_the_json_form(drawn):
    datatype, shape, values = drawn
    tensor = tensor_from_json("x", datatype, shape, object_array(values, shape).tolist() if shape else values[0])
    assert tensor.shape == shape
    check_size(tensor)
    assert [repr(value) for value in tensor_to_json(tensor)] == [repr(value) for value in values]


@given(arrays())
def test_the_binary_form_is_numpys_or_tritonclients(drawn):
    datatype, shape, values = drawn
    if datatype is Datatype.BYTES:
        array = object_array(values, shape)
        theirs = triton.serialize_byte_tensor(array).item() if values else b""
    else:
        array = np.array(values, dtype=array_dtype(datatype)).reshape(shape)
        theirs = array.astype(triton.triton_to_np_dtype(datatype.value)).tobytes()
    assert tensor_from_array("x", datatype, array).raw == theirs


@given(st.lists(st.binary(max_size=40), max_size=8))
def test_bytes_elements_are_those_tritonclient_reads_and_writes(elements):
    assert triton.deserialize_bytes_tensor(encode_bytes_elements(elements)).tolist() == elements
    if elements:
        assert decode_bytes_elements(triton.serialize_byte_tensor(object_array(elements, (-1,))).item()) == elements


@given(st.recursive(st.integers(-9, 9), lambda inner: st.lists(inner, max_size=4), max_leaves=30))
def test_any_nesting_is_read_in_the_order_in_which_it_is_written(nested):
    flat = [int(number) for number in re.findall(r"-?\d+", str(nested))]
    tensor = tensor_from_json("x", Datatype.INT8, (len(flat),), nested)
    assert tensor_to_array(tensor).tolist() == flat


def test_a_body_that_is_wide_and_deep_is_read():
    data: list[object] = []
    for _ in range(900):
        data = [data]
    tensor = tensor_from_json("x", Datatype.INT8, (200_000,), [1] * 200_000 + data)
    assert len(tensor.raw) == 200_000
