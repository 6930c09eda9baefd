"""Responses to repeated requests, which are answered at once, against those of the same model to the same requests in full."""

import asyncio

import numpy as np
import pytest

from perfkit.errors import ProtocolError
from perfkit.protocol.message import InferRequest, RequestedOutput
from perfkit.protocol.tensor import Datatype, tensor_from_array
from server_stub.executors.array import ArrayExecutor
from server_stub.inference.definition import ModelDefinition, TensorDefinition
from server_stub.inference.executed_model import ExecutedModel
from server_stub.inference.layouts import RepeatedRequest, make_template
from server_stub.inference.repeated_responses import RepeatedResponse
from server_stub.scheduling.batching import BatchingPolicy


def make_model(function, datatype=Datatype.FP32, scheduling=None, **members):
    outputs = TensorDefinition("y", datatype, (-1,), **members), TensorDefinition("z", Datatype.INT32, (-1,))
    definition = ModelDefinition("m", "", "array", 8, (TensorDefinition("x", Datatype.FP32, (-1,)),), outputs, scheduling=scheduling)
    return ExecutedModel(definition, ArrayExecutor(function))


def request(values, outputs=()):
    return InferRequest("m", (tensor_from_array("x", Datatype.FP32, np.array([values], np.float32)),), outputs, id="7")


def repeat(template, values):
    return RepeatedRequest(template, [np.array(values, np.float32).tobytes()])


def whole(response):
    return response.whole() if isinstance(response, RepeatedResponse) else response


def with_counts(make):
    return lambda inputs: {"y": make(inputs["x"]), "z": np.array([[inputs["x"].size]], np.int32)}


ROWS = ([1, 2, 3], [4, 5, 6], [0, 0, 7], [8, 9, 9])


@pytest.mark.parametrize(
    ("function", "members", "outputs", "repeated"),
    [
        (with_counts(lambda x: x + 1), {}, (), 3),
        (with_counts(lambda x: x + 1), {}, (RequestedOutput("z"),), 3),
        (with_counts(lambda x: (x + 1)[:, ::-1]), {}, (), 3),
        (with_counts(lambda x: x.astype(np.float64)), {}, (), 0),
        (with_counts(lambda x: x.astype(">f4")), {}, (), 0),
        (with_counts(lambda x: x + 1), {}, (RequestedOutput("y", classes=2),), 0),
        (with_counts(lambda x: x + 1), {}, (RequestedOutput("z"), RequestedOutput("y", classes=2)), 0),
        (with_counts(lambda x: x.reshape(1, 3, 1)), {"reshape": (-1, 1)}, (), 0),
        (with_counts(lambda x: np.array([[str(value).encode() for value in x[0]]], object)), {"datatype": Datatype.BYTES}, (), 0),
        (with_counts(lambda x: x + 1), {"datatype": Datatype.BF16}, (), 0),
        (with_counts(lambda x: np.repeat(x, 2000, 1)), {}, (), 0),
        (with_counts(lambda x: x[x > 4].reshape(1, -1)), {}, (), 0),
        (with_counts(lambda x: x.astype(np.uint8) > 0), {"datatype": Datatype.BOOL}, (), 3),
        (with_counts(lambda x: (x > 0).astype(np.uint8)), {"datatype": Datatype.BOOL}, (), 0),
    ],
    ids=[
        "plain", "one output", "not contiguous", "converted", "another byte order", "classes", "classes and data", "reshaped", "strings",
        "bfloat16", "large", "other shapes than the first", "flags", "flags as numbers",
    ],
)  # fmt: skip
def test_they_are_those_to_whole_requests(function, members, outputs, repeated):
    model = make_model(function, **members)
    template = make_template(request(ROWS[0], outputs))
    assert template is not None
    answers = [model.infer_at_once(repeat(template, values), lambda response: response) for values in ROWS]
    expected = [asyncio.run(model.infer(request(values, outputs), 0, lambda response: response)) for values in ROWS]
    assert [whole(answer) for answer in answers] == expected
    assert sum(isinstance(answer, RepeatedResponse) for answer in answers) == repeated
    assert model.statistics()["execution_count"] == 2 * len(ROWS)
    model.close()


def test_a_model_that_fails_is_counted_and_says_the_same():
    model = make_model(with_counts(lambda x: x if x[0, 0] < 4 else x + 1 // 0))
    template = make_template(request(ROWS[0]))
    assert template is not None
    texts = []
    for values in (ROWS[0], ROWS[1], ROWS[1]):
        try:
            model.infer_at_once(repeat(template, values), lambda response: response)
        except ProtocolError as error:
            texts.append((error.kind, str(error)))
    with pytest.raises(ProtocolError) as raised:
        asyncio.run(model.infer(request(ROWS[1]), 0, lambda response: response))
    assert texts == [(raised.value.kind, str(raised.value))] * 2
    statistics = model.statistics()["inference_stats"]
    assert (statistics["success"]["count"], statistics["fail"]["count"]) == (1, 3)
    model.close()


def test_another_version_of_a_model_gets_its_own():
    first, second = make_model(with_counts(lambda x: x)), make_model(with_counts(lambda x: x))
    second.version = "2"
    second.definition = first.definition
    template = make_template(request(ROWS[0]))
    assert template is not None
    for model in (first, first, second, second, first):
        answer = model.infer_at_once(repeat(template, ROWS[0]), lambda response: response)
        assert answer is not None
        assert whole(answer).version == model.version
    first.close()
    second.close()


def test_only_models_on_the_event_loop_without_batching_never_wait_until_they_are_closed():
    plain, batching = make_model(with_counts(lambda x: x)), make_model(with_counts(lambda x: x), scheduling=BatchingPolicy())
    assert [model.never_waits for model in (plain, batching)] == [True, False]
    plain.close()
    assert not plain.never_waits
    batching.close()
