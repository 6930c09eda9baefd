"""The requests of a replay: recorded ones, those of perf_analyzer's input data, and those that the workload makes."""

import base64
import json
import struct

import numpy as np
import pytest

from perfkit.errors import ModelMismatchError, ScenarioError
from perfkit.machine.limits import MemoryBudget
from perfkit.protocol.message import ModelMetadata, TensorMetadata
from perfkit.protocol.tensor import tensor_to_array
from perfkit.scenario.workload import Workload
from perfkit.trace.payloads import payload_name
from perfkit.trace.recorded import Content, TraceBuilder
from perfkit.workload.traced_requests import make_traced_requests

OPEN = ModelMetadata("m", ("1",), "p", (TensorMetadata("X", "INT32", (-1, -1)),), ())
BATCHES = 8


def body(*values):
    return json.dumps({"inputs": [{"name": "X", "datatype": "INT32", "shape": [1, len(values)], "data": values}]})


@pytest.fixture
def make(tmp_path):
    """Makes the requests of a trace with these contents, and returns the values, or the shape, of each request in order."""

    def make(*contents, metadata=OPEN, max_batch_size=BATCHES, payloads=None, budget=None, **workload):
        builder = TraceBuilder()
        for number, content in enumerate(contents):
            builder.add(number, "", content)
        folder = tmp_path / "t.payloads"
        for payload in payloads or ():
            folder.mkdir(exist_ok=True)
            (folder / payload_name(payload)).write_bytes(payload)
        given = Workload.model_validate(workload)
        made = make_traced_requests(builder.build(), folder, given, metadata, max_batch_size, "2", tmp_path, budget=budget)
        assert {(request.model, request.version) for request in made.requests} == {("m", "2")}
        return made

    return make


def values(made):
    return [tensor_to_array(made.requests[index].inputs[0]).ravel().tolist() for index in made.indices.tolist()]


def test_each_request_is_sent_as_it_was_recorded_and_made_once(make):
    one, two = body(1, 2).encode(), body(3).encode()
    contents = [Content(payload=payload_name(payload)) for payload in (two, one, two)]
    made = make(*contents, payloads=[one, two])
    assert values(made) == [[3], [1, 2], [3]]
    assert len(made.requests) == 2
    assert values(make(Content(request=body(9)), Content(request=body(8, 7)))) == [[9], [8, 7]]


def test_recorded_shapes_without_payloads_get_values_of_the_workload(make):
    contents = [Content(shapes=json.dumps({"X": shape})) for shape in ([4, 3], [1, 2], [4, 3], [4, 3])]
    made = make(*contents, variants=4)
    shapes = [made.requests[index].inputs[0].shape for index in made.indices.tolist()]
    assert shapes == [(4, 3), (1, 2), (4, 3), (4, 3)]
    first, _, second, third = values(made)
    assert first == third  # two variants for each of two shapes, in turn
    assert first != second
    assert made.mean_batch_size(BATCHES) == (4 + 1 + 4 + 4) / 4


def test_equal_digests_get_equal_requests_although_the_payloads_were_not_recorded(make):
    a, b = (Content(payload=payload_name(name), shapes='{"X":[1,5]}') for name in (b"a", b"b"))
    first, second, third, fourth = values(make(a, b, a, b, variants=8))
    assert first == third
    assert second == fourth
    assert first != second


def test_the_tensors_of_perf_analyzers_input_data(make):
    metadata = ModelMetadata("m", ("1",), "p", (TensorMetadata("X", "INT32", (2, 2)), TensorMetadata("T", "BYTES", (1,))), ())
    raw = base64.b64encode(np.array([5, 6, 7, 8], "<i4").tobytes()).decode()
    text = base64.b64encode(struct.pack("<I", 2) + b"hi").decode()
    entries = [
        {"X": [1, 2, 3, 4], "T": ["word"]},
        {"X": {"b64": raw}, "T": {"b64": text}},
        {"X": {"content": [1, 2, 3, 4], "shape": [2, 2]}, "T": {"content": {"b64": text}, "shape": [1]}},
    ]
    made = make(*(Content(tensors=json.dumps(entry)) for entry in entries), metadata=metadata, max_batch_size=0)
    assert values(made) == [[1, 2, 3, 4], [5, 6, 7, 8], [1, 2, 3, 4]]
    assert [tensor_to_array(request.inputs[1]).tolist() for request in made.requests] == [[b"word"], [b"hi"], [b"hi"]]
    assert made.requests[0].inputs[0].shape == (2, 2)
    batched = make(Content(tensors='{"X": {"content": [1, 2, 3], "shape": [3]}}'))
    assert batched.requests[0].inputs[0].shape == (1, 3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (Content(payload="../x"), "payload: expected 64 hexadecimal digits"),
        (Content(payload="0" * 64), "the payload 0+ is missing in .*t.payloads: restore it, or remove the folder"),
        (Content(request='{"inputs": [{"name": "X"}]}'), "is not a v2 infer request"),
        (Content(request=body(1, 2).replace("[1, 2]", "[1, 3]", 1)), "is not a v2 infer request"),
        (Content(request=body(1).replace('"X"', '"Z"')), "the model has no input 'Z'"),
        (Content(shapes='{"Z":[1]}'), "the model has no input 'Z'"),
        (Content(shapes='{"X":[1,-1]}'), "expected the dimensions of input 'X'"),
        (Content(shapes='{"X":[1]}'), r'the recorded shapes {"X":\[1\]} do not fit the model: workload.inputs.X'),
        (Content(tensors='{"X": [1, 2]}'), r"data: X: the model's shape is \[-1\]: .*, or give workload.inputs.X.shape"),
        (
            Content(tensors='{"X": {"content": [1], "shape": [2]}}'),
            r"expected a flat list of 2 whole numbers for INT32 of shape \[2\], found 1",
        ),
        (Content(tensors='{"X": {"content": {"b64": "!"}, "shape": [2]}}'), "data: X.b64: expected base64"),
    ],
)
def test_contents_that_cannot_be_sent_are_refused(make, content, message):
    with pytest.raises((ScenarioError, ModelMismatchError), match=message):
        make(content, payloads=[b"another"])


def test_a_damaged_payload_is_named(make, tmp_path):
    payload = body(1).encode()
    contents = [Content(payload=payload_name(payload))]
    make(*contents, payloads=[payload])
    (tmp_path / "t.payloads" / payload_name(payload)).write_bytes(payload[:-3])
    with pytest.raises(ScenarioError, match=f"the payload {payload_name(payload)} is not a v2 infer request"):
        make(*contents)


def test_payloads_beyond_the_budget_are_refused_before_they_are_read(make):
    payload = body(*range(3000)).encode()
    with pytest.raises(ScenarioError, match=r"1 distinct requests of .* reduce the number of distinct payloads in the trace"):
        make(Content(payload=payload_name(payload)), payloads=[payload], budget=MemoryBudget(20_000))
