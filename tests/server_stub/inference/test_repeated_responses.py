"""Responses to repeated requests, which are answered at once, against those of the same model to the same requests in full."""

import asyncio
import dataclasses

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
from server_stub.inference.repetition import MAX_HEAD_BYTES
from server_stub.scheduling.batching import BatchingPolicy


def make_model(function, datatype=Datatype.FP32, reshape=None, **members):
    outputs = TensorDefinition("y", datatype, (-1,), reshape=reshape), TensorDefinition("z", Datatype.INT32, (-1,))
    definition = ModelDefinition("m", "", "array", 8, (TensorDefinition("x", Datatype.FP32, (-1,)),), outputs, **members)
    return ExecutedModel(definition, ArrayExecutor(function))


def request(values, outputs=()):
    return InferRequest("m", (tensor_from_array("x", Datatype.FP32, np.array([values], np.float32)),), outputs, id="7")


def repeat(template, values):
    return RepeatedRequest(template, [np.array(values, np.float32).tobytes()])


def write(_request, response):
    """A front end that writes a response without its data as such."""
    return dataclasses.replace(response, outputs=tuple(dataclasses.replace(one, raw=b"") for one in response.outputs)), 0


def at_once(model, template, values, write=write):
    return model.infer_at_once(repeat(template, values), lambda response: response, write)


def whole(response):
    """A response with its data."""
    if not isinstance(response, RepeatedResponse):
        return response
    outputs = [dataclasses.replace(one, raw=raw) for one, raw in zip(response.written.outputs, response.data, strict=True)]
    return dataclasses.replace(response.written, outputs=tuple(outputs))


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
    answers = [at_once(model, template, values) for values in ROWS]
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
            at_once(model, template, values)
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
        assert whole(at_once(model, template, ROWS[0])).version == model.version
    first.close()
    second.close()


@pytest.mark.parametrize(
    ("written", "times"), [(("head", MAX_HEAD_BYTES), 1), (("head", MAX_HEAD_BYTES + 1), 0), (None, 0)], ids=["short", "long", "not apart"]
)
def test_what_is_written_around_the_data_is_asked_for_once(written, times):
    """And if it cannot be used, responses are made as others from then on."""
    model, asked = make_model(with_counts(lambda x: x)), []

    def write(request, response):
        asked.append((request, response))
        return written

    template = make_template(request(ROWS[0]))
    assert template is not None
    answers = [at_once(model, template, values, write) for values in ROWS]
    expected = asyncio.run(model.infer(request(ROWS[0]), 0, lambda response: response))
    assert asked == [(template.request, expected)]
    assert [isinstance(answer, RepeatedResponse) for answer in answers] == [False] + [times == 1] * 3
    assert all(answer.written == "head" for answer in answers if isinstance(answer, RepeatedResponse))
    model.close()


def test_only_models_on_the_event_loop_without_batching_or_more_responses_never_wait_until_they_are_closed():
    plain, batching, in_thread, decoupled = models = (
        make_model(with_counts(lambda x: x)),
        make_model(with_counts(lambda x: x), scheduling=BatchingPolicy()),
        make_model(with_counts(lambda x: x), instances=2),
        make_model(with_counts(lambda x: x), is_decoupled=True),
    )
    assert [model.never_waits for model in models] == [True, False, False, False]
    plain.close()
    assert not plain.never_waits
    for model in (batching, in_thread, decoupled):
        model.close()
