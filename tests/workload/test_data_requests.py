"""Requests of perf_analyzer's input data: which step each carries, what is missing, and what does not fit."""

import json
import pathlib
import tracemalloc

import numpy as np
import pytest
from tritonclient.utils import serialize_byte_tensor

from perfkit.errors import ModelMismatchError, PerfkitError, ScenarioError
from perfkit.machine.limits import MemoryBudget
from perfkit.protocol.message import ModelMetadata, TensorMetadata
from perfkit.protocol.tensor import tensor_to_array
from perfkit.scenario.workload import Workload
from perfkit.workload.data_requests import make_data_requests

PLAIN = ModelMetadata("m", ("1",), "", (TensorMetadata("X", "INT32", (2,)),), (TensorMetadata("Y", "INT32", (1,)),))
BATCHING = ModelMetadata("m", ("1",), "", (TensorMetadata("X", "INT32", (-1, 1)),), (TensorMetadata("Y", "INT32", (-1, 1)),))
OPEN = ModelMetadata("m", ("1",), "", (TensorMetadata("X", "INT32", (-1, -1)),), ())
TWO = ModelMetadata("m", ("1",), "", (TensorMetadata("X", "INT32", (1,)), TensorMetadata("B", "INT32", (1,))), ())


@pytest.fixture
def make(tmp_path):
    """Makes the requests of JSON documents, which are files a.json, b.json and so on, or of the named paths of the test's folder."""

    def make(*documents, metadata=PLAIN, data=None, max_batch_size=0, required=(), available_bytes=2**30, **workload):
        names = []
        for letter, document in zip("abc", documents, strict=False):
            names.append(f"{letter}.json")
            (tmp_path / names[-1]).write_text(document if isinstance(document, str) else json.dumps(document))
        given = Workload.model_validate({"data": data or names, **workload})
        return make_data_requests(
            given, metadata, max_batch_size, "2", tmp_path, required_inputs=frozenset(required), budget=MemoryBudget(available_bytes)
        )

    return make


def values(made, name="X"):
    return [tensor_to_array(tensor).tolist() for request in made.requests for tensor in request.inputs if tensor.name == name]


def steps(*numbers):
    return {"data": [{"X": [number]} for number in numbers]}


def test_requests_use_the_steps_of_all_files_in_turn(make):
    made = make({"data": [{"X": [1, 2]}, {"X": [3, 4], "model": "any"}]}, {"comment": "", "data": [{"X": [5, 6]}]}, request_id="r")
    assert values(made) == [[1, 2], [3, 4], [5, 6]]
    assert [request.id for request in made.requests] == ["r-0", "r-1", "r-2"]
    assert {(request.model, request.version) for request in made.requests} == {("m", "2")}
    assert made.expected == ()


@pytest.mark.parametrize(
    ("numbers", "batch_size", "batches"),
    [
        ((1, 2, 3), 1, [[1], [2], [3]]),
        ((1, 2, 3), 2, [[1, 2], [3, 1], [2, 3]]),
        ((1, 2, 3, 4), 2, [[1, 2], [3, 4]]),
        ((1, 2), 4, [[1, 2, 1, 2]]),
        ((7,), 3, [[7, 7, 7]]),
    ],
)
def test_each_element_of_a_batch_is_the_next_step(make, numbers, batch_size, batches):
    made = make(steps(*numbers), metadata=BATCHING, max_batch_size=8, batch_size=batch_size)
    assert values(made) == [[[number] for number in batch] for batch in batches]


def test_streams_keep_their_order_and_lengths(make):
    streams = {"data": [[{"X": [1, 1]}, {"X": [2, 2]}], [{"X": [11, 11]}, {"X": [12, 12]}, {"X": [13, 13]}]]}
    made = make(streams, {"data": [[{"X": [21, 21]}]]})
    assert values(made) == [[1, 1], [2, 2], [11, 11], [12, 12], [13, 13], [21, 21]]
    assert made.stream_lengths == (2, 3, 1)
    assert make(steps(1, 2, 3), metadata=BATCHING, max_batch_size=8).stream_lengths == (3,)


def test_validation_data_are_expected_of_the_request_with_that_step(make):
    document = {**steps(1, 2, 3), "validation_data": [{"Y": [10]}, {}, {"Y": {"content": [30], "shape": [1]}}]}
    made = make(document, metadata=BATCHING, max_batch_size=8)
    assert [{name: tensor_to_array(one).tolist() for name, one in expected.items()} for expected in made.expected] == [
        {"Y": [[10]]},
        {},
        {"Y": [[30]]},
    ]
    whole = {**steps(1, 2, 3), "validation_data": [{"Y": [10]}, {"Y": [20]}, {"Y": [30]}]}
    made = make(whole, metadata=BATCHING, max_batch_size=8, batch_size=2)
    assert [tensor_to_array(expected["Y"]).tolist() for expected in made.expected] == [[[10], [20]], [[30], [10]], [[20], [30]]]
    streams = {"data": [[{"X": [1]}, {"X": [2]}]], "validation_data": [[{"Y": [10]}, {"Y": [20]}]]}
    made = make(streams, metadata=BATCHING, max_batch_size=8)
    assert [tensor_to_array(expected["Y"]).tolist() for expected in made.expected] == [[[10]], [[20]]]


def test_a_folder_has_a_file_for_each_tensor(make, tmp_path):
    texts = ModelMetadata("m", ("1",), "", (TensorMetadata("X", "INT32", (2,)), TensorMetadata("T", "BYTES", (3,))), PLAIN.outputs)
    for folder, number in (("one", 1), ("two", 5)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "X").write_bytes(np.array([number, number + 1], "<i4").tobytes())
        (tmp_path / folder / "T").write_text("a\nbé\n\n")
        (tmp_path / folder / "Y").write_bytes(np.array([9 * number], "<i4").tobytes())
    made = make(data=["one", "two"], metadata=texts)
    assert values(made) == [[1, 2], [5, 6]]
    serialized = serialize_byte_tensor(np.array([b"a", "bé".encode(), b""], object)).item()
    assert [bytes(request.inputs[1].raw) for request in made.requests] == [serialized, serialized]
    assert [tensor_to_array(expected["Y"]).tolist() for expected in made.expected] == [[9], [45]]


def test_an_input_that_a_step_lacks_is_made_omitted_or_refused(make):
    document = {"data": [{"X": [1]}, {"X": [2], "B": [7]}]}
    assert values(make(document, metadata=TWO, inputs={"B": {"value": [5]}}), "B") == [[5], [7]]
    assert values(make(document, metadata=TWO, inputs={"*": {"generate": "zeros"}}), "B") == [[0], [7]]
    assert values(make(document, metadata=TWO, inputs={"B": {"generate": "random"}}), "B")[1] == [7]
    for options in ({"inputs": {"B": "omit"}}, {"required": ["X"]}):
        made = make(document, metadata=TWO, **options)
        assert [[tensor.name for tensor in request.inputs] for request in made.requests] == [["X"], ["X", "B"]]
    for required in ((), ("X", "B")):  # unknown, and known
        with pytest.raises(
            ModelMismatchError, match=r"a.json: data\[0\].B: this input is missing: add it to the step, or give workload.in"
        ):
            make(document, metadata=TWO, required=required)


def test_the_workload_gives_shape_and_encoding_of_an_input_of_the_data(make):
    metadata = ModelMetadata("m", ("1",), "", (TensorMetadata("X", "INT32", (-1, -1)),), ())
    made = make(
        {"data": [{"X": [1, 2, 3, 4]}]}, metadata=metadata, inputs={"X": {"generate": "random", "shape": [2, 2], "encoding": "json"}}
    )
    assert values(made) == [[[1, 2], [3, 4]]]
    assert made.requests[0].plain_inputs == {"X"}


def test_a_server_that_describes_nothing_needs_the_inputs_of_the_workload(make):
    silent = ModelMetadata("m", (), "", (), ())
    declared = {"X": {"generate": "random", "datatype": "INT32", "shape": [2]}}
    assert values(make({"data": [{"X": [1, 2]}]}, metadata=silent, inputs=declared)) == [[1, 2]]
    with pytest.raises(ModelMismatchError, match=r"workload.inputs: the server does not say what model 'm' takes"):
        make({"data": [{"X": [1, 2]}]}, metadata=silent)


X = {"X": [1, 2]}
REFUSALS = [
    ('{"data": [', "not JSON: Expecting value: line 1 column 11 (char 10)"),
    ("[" * 100_000, "not JSON: maximum recursion depth exceeded"),
    ([X], 'expected perf_analyzer\'s input data, an object with a list "data" of steps, or of streams of steps'),
    ({"data": []}, 'expected perf_analyzer\'s input data, an object with a list "data" of steps, or of streams of steps'),
    ({"data": [X, [X]]}, "data[1][0] is in an array, and workload.data: FILE: data[0] is not: an object is a step, which requests use in turn, an array a stream of steps, one a sequence: give one of the two"),
    ({"data": [[X], []]}, "data[1]: the stream has no steps"),
    ({"data": [5]}, "data[0]: expected an object with the inputs of a step, found 5"),
    ({"data": [[X, 5]]}, "data[0][1]: expected an object with the inputs of a step, found 5"),
    ({"data": [{"X": [1]}]}, "data[0].X: expected a flat list of 2 whole numbers for INT32 of shape [2], found 1 of them"),
    ({"data": [X, {"Z": [1, 2]}]}, "data[1].Z: the model has no input 'Z'. It has: X"),
    ({"data": [{**X, "timestamp": [5]}]}, "data[0].timestamp: data with timestamps is a schedule: give it as load.replay.trace, and remove workload.data"),
    ({"data": [X, {}]}, "data[1].X: this input is missing: add it to the step, or give workload.inputs.X, which may be `omit` for an input that the model calls optional"),
    ({"data": [X, X], "validation_data": [{"Y": [1]}]}, "validation_data: expected a list of 2, one entry for each in data, found 1"),
    ({"data": [[X, X]], "validation_data": [[{}]]}, "validation_data[0]: expected a list of 2, one entry for each in data, found 1"),
    ({"data": [[X]], "validation_data": [{}]}, "validation_data[0]: expected a list of 1, one entry for each in data, found {}"),
    ({"data": [X], "validation_data": [5]}, "validation_data[0]: expected an object with the outputs of the step, found 5"),
    ({"data": [X], "validation_data": [{"Z": [1]}]}, "validation_data[0].Z: the model has no output 'Z'. It has: Y"),
    ({"data": [[X]], "validation_data": [[{"Y": [1.5]}]]}, "validation_data[0][0].Y: expected a flat list of 1 whole numbers for INT32 of shape [1], found 1.5"),
]  # fmt: skip


@pytest.mark.parametrize(("document", "message"), REFUSALS, ids=lambda value: str(value)[:60])
def test_data_that_cannot_be_sent_is_refused_with_file_and_place(make, tmp_path, document, message):
    file = str(tmp_path / "a.json")
    with pytest.raises(PerfkitError) as refusal:
        make(document)
    assert str(refusal.value).startswith(f"workload.data: {file}: {message.replace('FILE', file)}")


def test_steps_of_one_batch_need_the_same_shapes_and_inputs(make, tmp_path):
    shapes = {"data": [{"X": {"content": [1] * count, "shape": [count]}} for count in (1, 2)]}
    assert values(make(shapes, metadata=OPEN, max_batch_size=8)) == [[[1]], [[1, 1]]]
    file = f"workload.data: {tmp_path / 'a.json'}: "
    rule = "2 steps in turn are a batch, and need the same tensors of the same shapes (or workload.batch_size: 1)"
    with pytest.raises(ModelMismatchError) as refusal:
        make(shapes, metadata=OPEN, max_batch_size=8, batch_size=2)
    assert str(refusal.value) == f"{file}data[1].X: {rule}: found shape [2], and [1] at {file}data[0].X"
    optional = {"data": [{"X": [1]}, {"X": [2], "B": [3]}]}
    metadata = ModelMetadata("m", ("1",), "", tuple(TensorMetadata(name, "INT32", (-1, 1)) for name in "XB"), ())
    with pytest.raises(ModelMismatchError, match=r"data\[1\].B: 2 steps in turn are a batch, .* is not alike: one of them is missing"):
        make(optional, metadata=metadata, max_batch_size=8, batch_size=2, required=["X"])


def test_files_of_steps_and_of_streams_do_not_go_together(make):
    with pytest.raises(ScenarioError, match=r"b.json: data\[0\]\[0\] is in an array, and workload.data: .*a.json: data\[0\] is not"):
        make({"data": [X]}, {"data": [[X]]})


def test_paths_that_cannot_be_read_are_named(make, tmp_path):
    for name, message in (("none.json", "no such file"), ("/dev/zero", "/dev/zero is not a regular file")):
        with pytest.raises(ScenarioError, match=f"^workload.data: .*{message}"):
            make(data=[name])
    (tmp_path / "folder" / "X").mkdir(parents=True)
    with pytest.raises(ScenarioError, match="folder/X is not a regular file"):
        make(data=["folder"])
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("x")
    with pytest.raises(ModelMismatchError, match=r"workload.data: .*other/notes.txt: the model has no input 'notes.txt'. It has: X"):
        make(data=["other"])


def test_data_beyond_the_budget_are_refused_before_they_are_decoded(make):
    with pytest.raises(ScenarioError, match=r"workload.data: .*a.json holds .* bytes = .*: reduce the steps of the file, or write their"):
        make({"data": [X] * 1000}, available_bytes=400_000)
    with pytest.raises(
        ScenarioError, match=r"workload.data: 1,009 requests of 7 steps, .* copied, .*: reduce the number of steps, or workl"
    ):
        make(steps(*range(1009)), metadata=BATCHING, max_batch_size=8, batch_size=7, available_bytes=17_000_000)


SIZE = 20_000


@pytest.mark.parametrize(
    ("datatype", "value"),
    [
        ("INT32", [1000 + number for number in range(SIZE)]),
        ("FP64", [number / 7 for number in range(SIZE)]),
        ("BYTES", [f"t{number}" for number in range(SIZE)]),
        ("BYTES", [*(str(number) for number in range(SIZE - 1)), "\U0001f600"]),
        ("FP32", {"b64": "AAAA" * SIZE}),
    ],
    ids=["integers", "floats", "texts", "wide texts", "base64"],
)
def test_the_budget_covers_what_reading_takes(tmp_path, datatype, value):
    size = SIZE if isinstance(value, list) else SIZE * 3 // 4
    metadata = ModelMetadata("m", ("1",), "", (TensorMetadata("X", datatype, (size,)),), ())
    (tmp_path / "a.json").write_text(json.dumps({"data": [{"X": value}]}, ensure_ascii=False), encoding="utf-8")
    tracemalloc.start()
    try:
        make_data_requests(Workload(data=("a.json",)), metadata, 0, "", tmp_path, budget=MemoryBudget(2**40))
        needed_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    with pytest.raises(ScenarioError, match=r"workload.data"):
        make_data_requests(Workload(data=("a.json",)), metadata, 0, "", tmp_path, budget=MemoryBudget(4 * needed_bytes))


def test_nothing_is_read_once_the_run_is_cancelled(tmp_path):
    calls = []
    (tmp_path / "a.json").write_text(json.dumps({"data": [X] * 5}))
    make_data_requests(Workload(data=("a.json",)), PLAIN, 0, "", pathlib.Path(tmp_path), checkpoint=lambda: calls.append(1))
    assert len(calls) == 1 + 5 + 5
