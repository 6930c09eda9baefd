"""The pool of requests: seeds, variants, batches, and what does not fit the model."""

import pathlib

import pytest

from perfkit.errors import ModelMismatchError
from perfkit.protocol.message import ModelMetadata, RequestedOutput, TensorMetadata
from perfkit.protocol.tensor import tensor_to_array
from perfkit.scenario.workload import Workload
from perfkit.workload.requests import make_requests, payload_sha256

BATCHING = ModelMetadata(
    "m", ("1",), "p",
    (TensorMetadata("INPUT0", "FP32", (-1, 4)), TensorMetadata("INPUT1", "INT32", (-1, 2, 3))),
    (TensorMetadata("OUTPUT0", "FP32", (-1, 4)),),
)  # fmt: skip
PLAIN = ModelMetadata("m", ("1",), "p", (TensorMetadata("X", "FP32", (4,)),), (TensorMetadata("Y", "FP32", (4,)),))
DYNAMIC = ModelMetadata("m", ("1",), "p", (TensorMetadata("X", "FP32", (-1, 3, -1)),), ())


def make(metadata=BATCHING, max_batch_size=8, version="", **workload):
    return make_requests(Workload.model_validate(workload), metadata, max_batch_size, version, pathlib.Path("/nowhere"))


def raw(requests):
    return [bytes(tensor.raw) for request in requests for tensor in request.inputs]


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others():
    assert raw(make(seed=5)) == raw(make(seed=5))
    assert not set(raw(make(seed=5))) & set(raw(make(seed=6)))


def test_the_payloads_digest_tells_whatever_is_sent():
    same, again = make(seed=5), make(seed=5)
    assert payload_sha256(same) == payload_sha256(again)
    assert payload_sha256(same) == payload_sha256(make(seed=5, version="2"))  # which the model is, is another matter
    changes = (
        {"variants": 3},
        {"batch_size": 2},
        {"encoding": "json"},
        {"priority": 1},
        {"request_id": "r"},
        {"outputs": [{"name": "OUTPUT0"}]},
    )
    others = [make(seed=6), same[::-1], *(make(seed=5, **change) for change in changes)]
    assert payload_sha256(tuple(one.as_plain() for one in same)) == payload_sha256(make(seed=5, encoding="json"))
    assert len({payload_sha256(some) for some in (same, *others)}) == 1 + len(others)


def test_variants_and_inputs_differ_from_each_other():
    requests = make(variants=5)
    assert len(requests) == 5
    assert len(set(raw(requests))) == 10
    assert raw(make(variants=2)) == raw(requests)[:4]


def test_inputs_alike_hold_different_values():
    metadata = ModelMetadata("m", (), "p", tuple(TensorMetadata(name, "FP32", (4,)) for name in "AB"), ())
    assert len(set(raw(make(metadata, 0, variants=2)))) == 4


def test_an_input_left_out_is_the_random_one():
    assert raw(make(seed=3)) == raw(make(seed=3, inputs={"INPUT0": {"generate": "random"}, "INPUT1": {"generate": "random"}}))


def test_inputs_without_an_entry_are_generated_as_the_star_says():
    request, *others = make(inputs={"*": {"generate": "zeros"}, "INPUT1": {"generate": "ones"}})
    assert not others
    first, second = map(tensor_to_array, request.inputs)
    assert first.tolist() == [[0, 0, 0, 0]]
    assert second.tolist() == [[[1, 1, 1], [1, 1, 1]]]


def test_where_nothing_is_random_there_is_one_request():
    assert len(make(inputs={"INPUT0": {"generate": "zeros"}, "INPUT1": {"generate": "ones"}})) == 1
    assert len(make(inputs={"INPUT0": {"generate": "zeros"}})) == 16


def test_a_request_names_model_version_and_outputs():
    (request,) = make(PLAIN, 0, "3", inputs={"X": {"value": [1, 2, 3, 4]}}, outputs=[{"name": "Y", "classes": 2}])
    assert (request.model, request.version, request.outputs) == ("m", "3", (RequestedOutput("Y", 2),))
    assert [tensor.name for tensor in request.inputs] == ["X"]
    assert make(PLAIN, 0)[0].outputs == ()


@pytest.mark.parametrize(
    ("metadata", "max_batch_size", "batch_size", "shapes"),
    [(BATCHING, 8, 1, [(1, 4), (1, 2, 3)]), (BATCHING, 8, 8, [(8, 4), (8, 2, 3)]), (PLAIN, 0, 1, [(4,)])],
)
def test_the_batch_dimension_comes_first_if_the_model_supports_batches(metadata, max_batch_size, batch_size, shapes):
    assert [tensor.shape for tensor in make(metadata, max_batch_size, batch_size=batch_size)[0].inputs] == shapes


def test_the_items_of_a_random_batch_differ():
    values = tensor_to_array(make(batch_size=2)[0].inputs[0])
    assert (values[0] != values[1]).any()


def test_a_dimension_that_the_request_chooses_needs_a_shape():
    with pytest.raises(ModelMismatchError) as caught:
        make(DYNAMIC, 0)
    assert str(caught.value) == (
        "workload.inputs.X: the model's shape is [-1, 3, -1]: give a size for each -1, such as shape: [1,3,1], or --shape X=1,3,1"
    )
    (request,) = make(DYNAMIC, 0, inputs={"X": {"generate": "ones", "shape": [2, 3, 5]}})
    assert request.inputs[0].shape == (2, 3, 5)


def test_shapes_exclude_the_batch_dimension():
    (request,) = make(DYNAMIC, 8, inputs={"X": {"generate": "ones", "shape": [3, 5]}}, batch_size=2)
    assert request.inputs[0].shape == (2, 3, 5)


@pytest.mark.parametrize(
    ("metadata", "max_batch_size", "workload", "message"),
    [
        (PLAIN, 0, {"inputs": {"X": {"generate": "ones", "shape": [5]}}}, "workload.inputs.X: the model takes shape [4], found [5]"),
        (PLAIN, 0, {"inputs": {"X": {"generate": "ones", "shape": [1, 4]}}}, "workload.inputs.X: the model takes shape [4], found [1, 4]"),
        (BATCHING, 8, {"inputs": {"INPUT0": {"generate": "ones", "shape": [1, 4]}}}, "workload.inputs.INPUT0: the model takes shape [4], found [1, 4]"),
        (DYNAMIC, 0, {"inputs": {"X": {"generate": "ones", "shape": [2, 2, 5]}}}, "workload.inputs.X: the model takes shape [-1, 3, -1], found [2, 2, 5]"),
        (BATCHING, 8, {"inputs": {"INPUT2": {"generate": "ones"}}}, "workload.inputs: the model has no input 'INPUT2'; did you mean 'INPUT1'? It has: INPUT0, INPUT1"),
        (BATCHING, 8, {"inputs": {"zzz": {"generate": "ones"}}}, "workload.inputs: the model has no input 'zzz'. It has: INPUT0, INPUT1"),
        (BATCHING, 8, {"outputs": [{"name": "OUTPUT"}]}, "workload.outputs: the model has no output 'OUTPUT'; did you mean 'OUTPUT0'? It has: OUTPUT0"),
        (BATCHING, 8, {"batch_size": 9}, "workload.batch_size: model 'm' takes at most 8, found 9"),
        (PLAIN, 0, {"batch_size": 2}, "workload.batch_size: model 'm' does not support batches (its max_batch_size is 0): set it to 1, found 2"),
    ],
)  # fmt: skip
def test_an_input_that_does_not_fit_the_model_is_refused_by_key(metadata, max_batch_size, workload, message):
    with pytest.raises(ModelMismatchError) as caught:
        make(metadata, max_batch_size, **workload)
    assert str(caught.value) == message


def test_an_unknown_datatype_is_reported_with_the_input():
    metadata = ModelMetadata("m", (), "p", (TensorMetadata("X", "FP8", (1,)),), ())
    with pytest.raises(ModelMismatchError, match=r"^input 'X': invalid datatype 'FP8': known are BOOL, "):
        make(metadata, 0)


STRINGS = ModelMetadata(
    "m", ("1",), "p", (TensorMetadata("A", "BYTES", (1,)), TensorMetadata("B", "BYTES", (1,)), TensorMetadata("C", "FP32", (2,))), ()
)
UNSAID = ModelMetadata("m", (), "", (), ())


def dealt(count):
    return {"strings": [str(number) for number in range(count)]}


@pytest.mark.parametrize(
    ("inputs", "variants", "count"),
    [
        ({"A": dealt(3), "B": dealt(1), "C": {"generate": "ones"}}, 16, 3),
        ({"A": dealt(3), "B": dealt(2), "C": {"generate": "ones"}}, 1, 6),
        ({"A": dealt(3), "B": dealt(2)}, 16, 18),  # C is random
        ({"A": dealt(20), "B": dealt(1)}, 16, 20),
        ({"A": dealt(97), "B": dealt(89), "C": {"generate": "ones"}}, 16, 97),  # together they come round after 8633
        ({}, 5, 5),
    ],
)
def test_every_text_has_its_turn(inputs, variants, count):
    requests = make(STRINGS, 0, inputs=inputs, variants=variants)
    assert len(requests) == count
    if "A" in inputs:
        assert {bytes(request.inputs[0].raw)[4:].decode() for request in requests} == set(inputs["A"]["strings"])


def test_parameters_stand_in_every_request():
    requests = make(PLAIN, 0, priority=2, queue_timeout="5ms", parameters={"custom": "x", "flag": True}, request_id="run", variants=2)
    assert [request.parameters for request in requests] == [{"custom": "x", "flag": True, "priority": 2, "timeout": 5000}] * 2
    assert [request.id for request in requests] == ["run-0", "run-1"]
    assert (make(PLAIN, 0)[0].parameters, make(PLAIN, 0)[0].id) == ({}, "")


def test_a_tensors_encoding_overrides_that_of_the_workload():
    inputs = {"INPUT0": {"generate": "random", "encoding": "json"}}
    outputs = [{"name": "OUTPUT0", "encoding": "json"}]
    (request, *_) = make(inputs=inputs, outputs=outputs)
    assert (request.plain_inputs, request.binary_output, request.outputs) == ({"INPUT0"}, True, (RequestedOutput("OUTPUT0", 0, False),))
    (request, *_) = make(inputs={"INPUT0": {"generate": "random", "encoding": "binary"}}, encoding="json")
    assert (request.plain_inputs, request.binary_output) == ({"INPUT1"}, False)


def test_a_plain_request_has_nothing_binary():
    (request, *_) = make(outputs=[{"name": "OUTPUT0", "classes": 2}], variants=1)
    plain = request.as_plain()
    assert plain.plain_inputs == {"INPUT0", "INPUT1"}
    assert (plain.binary_output, plain.outputs) == (False, (RequestedOutput("OUTPUT0", 2, False),))
    assert plain.inputs == request.inputs


def test_the_scenario_declares_inputs_for_a_server_without_metadata():
    requests = make(UNSAID, 0, inputs={"A": {"value": [1, 2], "datatype": "INT64", "shape": [1, 2]}}, outputs=[{"name": "any"}])
    (tensor,) = requests[0].inputs
    assert (tensor.name, tensor.datatype.value, tensor.shape, tensor_to_array(tensor).tolist()) == ("A", "INT64", (1, 2), [[1, 2]])


@pytest.mark.parametrize(
    ("metadata", "inputs", "message"),
    [
        (UNSAID, {}, "workload.inputs: the server does not say what model 'm' takes: give each input's datatype and shape, such as NAME: "),
        (UNSAID, {"A": {"value": [1]}}, "workload.inputs.A: the server does not say what model 'm' takes: give datatype and shape"),
        (UNSAID, {"A": {"value": [1], "shape": [1], "datatype": "FP8"}}, "input 'A': invalid datatype 'FP8'"),
        (PLAIN, {"X": {"generate": "ones", "datatype": "INT8"}}, "workload.inputs.X.datatype: the model takes FP32, found INT8"),
    ],
)
def test_incomplete_or_invalid_declarations_are_refused(metadata, inputs, message):
    with pytest.raises(ModelMismatchError) as caught:
        make(metadata, 0, inputs=inputs)
    assert str(caught.value).startswith(message)
