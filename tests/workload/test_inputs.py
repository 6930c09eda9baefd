"""Input tensors: generated, read from `.npy` files, written in the scenario."""

import re
import string

import numpy as np
import pytest

from perfkit.errors import ModelMismatchError, ScenarioError
from perfkit.protocol.tensor import Datatype, array_dtype, tensor_from_array, tensor_to_array
from perfkit.scenario.workload import FileInput, GeneratedInput, LiteralInput, StringsInput
from perfkit.workload.generated import generate_values
from perfkit.workload.inputs import TensorSource

NUMBERS = [datatype for datatype in Datatype if datatype is not Datatype.BYTES]
FLOATS = [datatype for datatype in Datatype if datatype.is_float]
INTEGERS = [datatype for datatype in Datatype if datatype.is_integer]


def seeded(seed=0):
    return np.random.default_rng(seed)


@pytest.fixture
def make(tmp_path):
    """The values of an input of the model, after a round trip over the wire form."""

    def make_values(given, datatype=Datatype.FP32, shape=(2,), batch_size=None, request=0):
        tensor = TensorSource("A", datatype, given, shape, batch_size, tmp_path).tensor(request, seeded())
        assert (tensor.name, tensor.datatype) == ("A", datatype)
        return tensor_to_array(tensor)

    return make_values


@pytest.fixture
def saved(tmp_path):
    """Writes an array to `x.npy`."""

    def save(array):
        np.save(tmp_path / "x.npy", array)
        return FileInput(file=("x.npy",))

    return save


@pytest.mark.parametrize("kind", ["random", "zeros", "ones", "arange"])
@pytest.mark.parametrize("datatype", list(Datatype))
def test_every_datatype_is_generated_in_every_kind_and_goes_over_the_wire_unchanged(datatype, kind):
    values = generate_values(kind, datatype, (2, 3), seeded())
    decoded = tensor_to_array(tensor_from_array("A", datatype, values))
    assert (decoded.dtype, decoded.shape) == (array_dtype(datatype), (2, 3))
    if datatype is not Datatype.BF16 or kind != "random":  # a random float loses digits there
        assert (decoded == values).all()


@pytest.mark.parametrize("datatype", NUMBERS)
def test_zeros_ones_and_arange_have_their_values(datatype):
    assert (generate_values("zeros", datatype, (3,), seeded()) == 0).all()
    assert (generate_values("ones", datatype, (3,), seeded()) == 1).all()
    assert generate_values("arange", datatype, (1, 2), seeded()).tolist() == [[0, 1]]


def test_bytes_are_generated_with_a_given_length_from_letters_and_digits():
    values = generate_values("random", Datatype.BYTES, (40, 5), seeded(), text_length=128)
    assert values.shape == (40, 5)
    assert {len(text) for text in values.flat} == {128}
    assert set(b"".join(values.flat)) == set((string.ascii_letters + string.digits).encode())
    assert len(set(values.flat)) == 200


def test_bytes_are_generated_as_decimal_text():
    assert generate_values("zeros", Datatype.BYTES, (2,), seeded()).tolist() == [b"", b""]
    assert generate_values("ones", Datatype.BYTES, (2, 1), seeded()).tolist() == [[b"1"], [b"1"]]
    assert generate_values("arange", Datatype.BYTES, (2, 2), seeded()).tolist() == [[b"0", b"1"], [b"2", b"3"]]
    random = generate_values("random", Datatype.BYTES, (500,), seeded())
    assert {int(element) for element in random} <= set(range(128))
    assert len(set(random)) > 100


@pytest.mark.parametrize("datatype", INTEGERS)
def test_random_integers_fill_0_to_127(datatype):
    values = generate_values("random", datatype, (4000,), seeded())
    assert set(values.tolist()) == set(range(128))


@pytest.mark.parametrize("datatype", FLOATS)
def test_random_floats_lie_between_0_and_1(datatype):
    values = generate_values("random", datatype, (4000,), seeded())
    assert (values >= 0).all()
    assert (values <= 1).all()
    assert len(set(values.tolist())) > 1000
    assert values.mean() == pytest.approx(0.5, abs=0.03)


def test_random_booleans_take_both_values():
    assert generate_values("random", Datatype.BOOL, (4000,), seeded()).mean() == pytest.approx(0.5, abs=0.05)


def test_arange_starts_again_where_a_type_stops_holding_every_integer():
    for datatype, again in ((Datatype.UINT8, 2**8), (Datatype.UINT16, 2**16), (Datatype.BF16, 2**8), (Datatype.FP16, 2**11)):
        values = tensor_to_array(tensor_from_array("A", datatype, generate_values("arange", datatype, (70_000,), seeded())))
        assert (values == np.arange(70_000) % again).all()
    assert generate_values("arange", Datatype.FP32, (200_000,), seeded())[-1] == 199_999


@pytest.mark.parametrize("kind", ["random", "zeros", "ones", "arange"])
@pytest.mark.parametrize("datatype", [Datatype.FP32, Datatype.BYTES])
def test_an_empty_shape_and_a_scalar_can_be_generated(datatype, kind):
    assert generate_values(kind, datatype, (0, 2), seeded()).shape == (0, 2)
    assert generate_values(kind, datatype, (), seeded()).shape == ()


@pytest.mark.parametrize("datatype", NUMBERS)
def test_an_array_with_the_models_datatype_is_read_from_a_file(make, saved, datatype):
    values = np.array([1, 0], dtype=array_dtype(datatype))
    assert (make(saved(values), datatype) == values).all()


def test_strings_are_read_from_a_file_as_bytes_and_column_major_arrays_row_by_row(make, saved):
    for strings in (["a", "ü"], [b"a", b"\xc3\xbc"]):
        assert make(saved(np.array(strings)), Datatype.BYTES).tolist() == [b"a", b"\xc3\xbc"]
    values = np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3))
    assert make(saved(values), shape=(2, 3)).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_generated_text_stands_in_every_element_and_leaves_numbers_random(make):
    given = GeneratedInput(generate="random", text="hello")
    assert make(given, Datatype.BYTES, (2, 3)).tolist() == [[b"hello"] * 3] * 2
    assert make(given, shape=(3,)).tolist() == make(GeneratedInput(generate="random"), shape=(3,)).tolist()


def test_values_without_the_batch_dimension_are_repeated_and_those_with_it_are_not(make, saved):
    assert make(saved(np.array([1, 2], np.float32)), batch_size=3).tolist() == [[1, 2]] * 3
    assert make(saved(np.array([[1, 2], [3, 4]], np.float32)), batch_size=2).tolist() == [[1, 2], [3, 4]]
    assert make(LiteralInput(value=[[1, 2], [3, 4]]), batch_size=2).tolist() == [[1, 2], [3, 4]]
    assert make(LiteralInput(value=["x", "y"]), Datatype.BYTES, batch_size=2).tolist() == [[b"x", b"y"]] * 2
    assert make(GeneratedInput(generate="arange"), batch_size=3).tolist() == [[0, 1], [2, 3], [4, 5]]


@pytest.mark.parametrize(
    ("array", "datatype", "message"),
    [
        (np.zeros(2), Datatype.FP32, "holds float64, but the model takes FP32: save it with .astype('float32')"),
        (np.zeros(2), Datatype.BF16, "holds float64, but the model takes BF16: save it with .astype('float32')"),
        (np.zeros(2, ">i4"), Datatype.INT32, "holds >i4, but the model takes INT32: save it with .astype('int32')"),
        (np.zeros(2), Datatype.BYTES, "holds float64, but the model takes strings"),
    ],
)
def test_an_array_of_another_datatype_is_refused_with_the_way_to_convert_it(make, saved, tmp_path, array, datatype, message):
    with pytest.raises(ModelMismatchError) as caught:
        make(saved(array), datatype)
    assert str(caught.value) == f"workload.inputs.A.file: {tmp_path}/x.npy {message}"


def test_an_array_of_another_shape_is_refused(make, saved):
    for shape, batch_size in (((3,), None), ((3, 2), 2)):
        with pytest.raises(ModelMismatchError, match=re.escape(f"workload.inputs.A: the model takes shape [2], found {list(shape)}")):
            make(saved(np.zeros(shape, np.float32)), batch_size=batch_size)


def test_a_missing_or_invalid_npy_file_is_refused(make, tmp_path):
    with pytest.raises(ScenarioError, match=rf"^workload\.inputs\.A\.file: no such file: {tmp_path}/none\.npy$"):
        make(FileInput(file=("none.npy",)))
    (tmp_path / "empty.npy").write_bytes(b"")
    (tmp_path / "junk.npy").write_bytes(b"junk" * 99)
    np.save(tmp_path / "short.npy", np.zeros(2, np.float32))
    (tmp_path / "short.npy").write_bytes((tmp_path / "short.npy").read_bytes()[:-1])
    np.savez(tmp_path / "several.npz", a=np.zeros(2, np.float32))
    np.save(tmp_path / "pickled.npy", np.array([{}, 1], dtype=object), allow_pickle=True)
    for name in ("empty.npy", "junk.npy", "short.npy", "several.npz", "pickled.npy"):
        with pytest.raises(ScenarioError, match=rf"^workload\.inputs\.A\.file: {tmp_path}/{name} is not a readable \.npy file: "):
            make(FileInput(file=(name,)))


@pytest.mark.parametrize(
    ("given", "datatype", "shape", "expected"),
    [
        ({"value": [[1, 2], [3, 4]]}, Datatype.INT32, (2, 2), [[1, 2], [3, 4]]),
        ({"value": [1, 2, 3, 4], "shape": [2, 2]}, Datatype.FP32, (2, -1), [[1.0, 2.0], [3.0, 4.0]]),
        ({"value": 5, "shape": [1]}, Datatype.UINT8, (1,), [5]),
        ({"value": 5}, Datatype.UINT8, (), 5),
        ({"value": [True, False]}, Datatype.BOOL, (2,), [True, False]),
        ({"value": [1.5, 2]}, Datatype.BF16, (2,), [1.5, 2.0]),
        ({"value": ["a", "ü", 7]}, Datatype.BYTES, (3,), [b"a", b"\xc3\xbc", b"7"]),
        ({"value": [2**64 - 1, 1]}, Datatype.UINT64, (2,), [2**64 - 1, 1]),
        ({"value": [2**53 + 1, 2.0]}, Datatype.INT64, (2,), [2**53 + 1, 2]),
        ({"value": [], "shape": [0, 3]}, Datatype.INT32, (-1, 3), []),
    ],
)
def test_values_written_in_the_scenario_are_sent_as_they_stand(make, given, datatype, shape, expected):
    assert make(LiteralInput.model_validate(given), datatype, shape).tolist() == expected


@pytest.mark.parametrize(
    ("given", "datatype", "message"),
    [
        ({"value": [1, 2, 3], "shape": [2]}, Datatype.FP32, "workload.inputs.A: 3 values cannot have the shape [2]"),
        ({"value": [1, 2, 3]}, Datatype.FP32, "workload.inputs.A: the model takes shape [2], found [3]"),
        ({"value": [[1, 2], [3]]}, Datatype.FP32, "workload.inputs.A.value: the nested lists differ in length"),
        ({"value": [["a"], "b"]}, Datatype.BYTES, "workload.inputs.A.value: the nested lists differ in length"),
        ({"value": [1.5, 2]}, Datatype.INT32, "workload.inputs.A: tensor 'A': some values do not fit INT32"),
        ({"value": [300, 2]}, Datatype.UINT8, "workload.inputs.A: tensor 'A': some values do not fit UINT8"),
        ({"value": ["1", "2"]}, Datatype.FP32, "workload.inputs.A: tensor 'A': <U1 values are not FP32"),
        ({"value": ["\ud800", "a"]}, Datatype.BYTES, "workload.inputs.A: tensor 'A': '\\ud800' cannot be written as UTF-8"),
    ],
)
def test_written_values_that_do_not_fit_are_refused(make, given, datatype, message):
    with pytest.raises(ModelMismatchError) as caught:
        make(LiteralInput.model_validate(given), datatype)
    assert str(caught.value) == message


def test_texts_continue_from_request_to_request(make):
    given = StringsInput(strings=("a", "b", "ü"))
    assert [make(given, Datatype.BYTES, request=number).tolist() for number in range(4)] == [
        [b"a", b"b"], [b"\xc3\xbc", b"a"], [b"b", b"\xc3\xbc"], [b"a", b"b"],
    ]  # fmt: skip
    assert make(given, Datatype.BYTES, (1,), batch_size=2, request=1).tolist() == [[b"\xc3\xbc"], [b"a"]]


@pytest.mark.parametrize(("texts", "count", "cycle"), [(3, 2, 3), (4, 2, 2), (4, 6, 2), (1, 5, 1), (5, 5, 1), (5, 0, 1), (6, 4, 3)])
def test_a_request_comes_again_when_the_texts_begin_anew(tmp_path, texts, count, cycle):
    given = StringsInput(strings=tuple("abcdefgh"[:texts]))
    assert TensorSource("A", Datatype.BYTES, given, (count,), None, tmp_path).cycle_length == cycle


def test_texts_for_numbers_are_refused(make):
    with pytest.raises(ModelMismatchError, match=r"^workload\.inputs\.A\.strings: the model takes FP32, not strings$"):
        make(StringsInput(strings=("1", "2")))


def test_several_files_are_sent_in_turn_and_fill_batches(make, tmp_path):
    for number in range(3):
        np.save(tmp_path / f"{number}.npy", np.full(2, number, np.float32))
    in_turn = FileInput(file=("2.npy", "0.npy"))
    assert [make(in_turn, request=number).tolist() for number in range(3)] == [[2, 2], [0, 0], [2, 2]]
    found = FileInput(file=("*.npy",))
    assert [make(found, request=number).tolist() for number in range(3)] == [[0, 0], [1, 1], [2, 2]]
    assert [make(found, batch_size=2, request=number)[:, 0].tolist() for number in range(3)] == [[0, 1], [2, 0], [1, 2]]
    assert make(FileInput(file=(f"{tmp_path}/1.np?",))).tolist() == [1, 1]


def test_files_that_hold_batches_already_stay_whole(make, tmp_path):
    for number in range(2):
        np.save(tmp_path / f"{number}.npy", np.array([[number, 0], [number, 1]], np.float32))
    assert make(FileInput(file=("*.npy",)), batch_size=2, request=1).tolist() == [[1, 0], [1, 1]]


def test_files_of_different_shapes_make_no_batch_but_requests(make, tmp_path):
    np.save(tmp_path / "0.npy", np.zeros(2, np.float32))
    np.save(tmp_path / "1.npy", np.zeros(3, np.float32))
    given = FileInput(file=("*.npy",))
    assert [make(given, shape=(-1,), batch_size=1, request=number).shape for number in range(2)] == [(1, 2), (1, 3)]
    with pytest.raises(ModelMismatchError, match="arrays of different shapes cannot form a batch of 2"):
        make(given, shape=(-1,), batch_size=2)


def test_an_array_is_reshaped_to_the_shape_in_the_scenario(make, saved):
    given = saved(np.arange(4, dtype=np.float32)).model_copy(update={"shape": (2, 2)})
    assert make(given, shape=(2, 2)).tolist() == [[0, 1], [2, 3]]


def test_an_empty_shape_of_the_scenario_is_a_shape(make):
    assert make(GeneratedInput(generate="ones", shape=(0,)), shape=(-1,)).shape == (0,)
    assert make(GeneratedInput(generate="ones", shape=()), shape=()).shape == ()


def test_an_invalid_pattern_is_an_error(make):
    with pytest.raises(ScenarioError, match=r"^workload\.inputs\.A\.file: (\*\*b is not a valid pattern|no file matches .*\*\*b$)"):
        make(FileInput(file=("**b",)))  # Python 3.13 takes it for *b
