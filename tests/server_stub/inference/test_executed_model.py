"""Executed models, with behaviour that the built-in ones do not have."""

import asyncio
from typing import Any

import numpy as np
import pytest

from perfkit.errors import ErrorKind, ProtocolError
from perfkit.protocol.message import InferRequest, RequestedOutput
from perfkit.protocol.tensor import Datatype, Tensor, tensor_from_array, tensor_to_array
from server_stub.executors.array import ArrayExecutor
from server_stub.inference.definition import ModelDefinition, TensorDefinition
from server_stub.inference.executed_model import ExecutedModel, WarmupSample
from server_stub.inference.layouts import RepeatedRequest, make_template
from server_stub.scheduling.batching import BatchingPolicy
from server_stub.scheduling.sequences import Control, ControlKind, SequencePolicy
from server_stub.tracing.request_trace import RequestTrace


def infer(function, request, *, max_batch_size=0, datatype=Datatype.FP32, **members):
    definition = ModelDefinition(
        "m",
        "",
        "array",
        max_batch_size,
        (TensorDefinition("x", Datatype.FP32, (-1,)),),
        (TensorDefinition("y", datatype, (-1,), **members),),
    )
    model = ExecutedModel(definition, ArrayExecutor(function))
    try:
        return asyncio.run(model.infer(request, 0, lambda response: response)), model.statistics()
    except ProtocolError as error:
        return error, model.statistics()
    finally:
        model.close()


def request(values, classes=0):
    return InferRequest("m", (tensor_from_array("x", Datatype.FP32, np.array(values, np.float32)),), (RequestedOutput("y", classes),))


def test_a_failing_model_is_an_internal_error_and_counted_as_failure():
    error, statistics = infer(lambda _: 1 / 0, request([1.0]))
    assert (error.kind, str(error)) == (ErrorKind.INTERNAL, "model 'm' failed: division by zero")
    assert statistics["inference_stats"]["fail"]["count"] == 1
    assert statistics["inference_stats"]["success"]["count"] == statistics["execution_count"] == 0


def test_tensors_are_reshaped_for_the_model_and_back():
    seen = []

    def keep(inputs):
        seen.append(inputs["x"].shape)
        return {"y": inputs["x"].reshape(2, 3, 1)}

    response, _ = infer(keep, request([[1, 2, 3], [4, 5, 6]]), max_batch_size=4, reshape=(-1, 1))
    assert seen == [(2, 3)]
    assert response.outputs[0].shape == (2, 3)
    assert tensor_to_array(response.outputs[0]).tolist() == [[1, 2, 3], [4, 5, 6]]


def test_variable_sizes_are_accepted():
    response, _ = infer(lambda inputs: {"y": inputs["x"] * 2}, request([1, 2, 3, 4, 5]))
    assert response.outputs[0].shape == (5,)


@pytest.mark.parametrize("datatype", [Datatype.FP16, Datatype.BF16, Datatype.BOOL, Datatype.BYTES])
def test_classification_of_unsupported_datatypes_is_rejected(datatype):
    error, _ = infer(lambda inputs: {"y": inputs["x"]}, request([1.0], classes=1), datatype=datatype)
    assert error.kind is ErrorKind.INVALID_ARGUMENT
    assert f"unsupported type '{datatype.value}'" in str(error)


def test_classes_without_labels_have_only_an_index():
    response, _ = infer(lambda inputs: {"y": inputs["x"]}, request([1.0, 3.0, 2.0], classes=2))
    assert list(tensor_to_array(response.outputs[0])) == [b"3.000000:1", b"2.000000:2"]


def test_an_output_that_contradicts_the_definition_is_an_internal_error():
    error, _ = infer(lambda _: {"y": np.array([1.5])}, request([1.0]), datatype=Datatype.INT32)
    assert error.kind is ErrorKind.INTERNAL


def infer_together(function, *requests, runs_inline, traces=(None, None)):
    """Infer two requests with three rows, which the batch waits for, for longer than a test may take."""
    definition = ModelDefinition(
        "m",
        "",
        "array",
        8,
        (TensorDefinition("x", Datatype.FP32, (-1,)),),
        (TensorDefinition("y", Datatype.FP32, (-1,)),),
        scheduling=BatchingPolicy((3,), 10**12),
    )
    model = ExecutedModel(definition, ArrayExecutor(function, runs_inline=runs_inline))

    async def main():
        inferring = (model.infer(one, 0, lambda response: response, trace) for one, trace in zip(requests, traces, strict=True))
        return await asyncio.gather(*inferring, return_exceptions=True)

    try:
        return asyncio.run(main()), model.statistics()
    finally:
        model.close()


@pytest.mark.parametrize("runs_inline", [True, False])
def test_S5_requests_are_executed_together_and_each_gets_its_own_rows(runs_inline):
    seen = []

    def double(inputs):
        seen.append(inputs["x"].tolist())
        return {"y": inputs["x"] * 2}

    (first, second), statistics = infer_together(double, request([[1, 2], [3, 4]]), request([[5, 6]]), runs_inline=runs_inline)
    assert seen == [[[1, 2], [3, 4], [5, 6]]]
    assert tensor_to_array(first.outputs[0]).tolist() == [[2, 4], [6, 8]]
    assert tensor_to_array(second.outputs[0]).tolist() == [[10, 12]]
    assert (statistics["execution_count"], statistics["inference_count"]) == (1, 3)
    assert statistics["inference_stats"]["success"]["count"] == 2
    assert [(one["batch_size"], one["compute_infer"]["count"]) for one in statistics["batch_stats"]] == [(3, 1)]


@pytest.mark.parametrize("runs_inline", [True, False])
def test_the_traces_of_a_batch_have_its_execution_and_each_its_own_queue(runs_inline):
    traces: list[Any] = [RequestTrace(number, "HTTP", None, 0, 0) for number in (1, 2)]
    _, statistics = infer_together(
        lambda inputs: {"y": inputs["x"]}, request([[1], [2]]), request([[3]]), runs_inline=runs_inline, traces=traces
    )
    assert traces[0].compute == traces[1].compute
    assert [trace.model for trace in traces] == ["m", "m"]
    sums = {name: statistics["inference_stats"][name]["ns"] for name in ("queue", "compute_input", "compute_infer", "compute_output")}
    started, ready, inferred, finished = traces[0].compute
    assert sums["queue"] == sum(started - trace.enqueued_ns for trace in traces)
    # each request counts the whole execution
    assert [sums[f"compute_{phase}"] for phase in ("input", "infer", "output")] == [
        2 * (ready - started),
        2 * (inferred - ready),
        2 * (finished - inferred),
    ]
    assert all(finished <= trace.completed_ns for trace in traces)


def test_the_trace_of_a_failed_request_ends_with_the_failure():
    traces = [RequestTrace(number, "HTTP", None, 0, 0) for number in (1, 2)]
    infer_together(lambda _: 1 / 0, request([[1], [2]]), request([[3]]), runs_inline=True, traces=traces)
    for trace in traces:
        names = [name for name, _ in trace.events()]
        assert {"COMPUTE_START", "COMPUTE_END", "REQUEST_END", "INFER_RESPONSE_COMPLETE"} <= set(names)


@pytest.mark.parametrize(
    ("function", "sentence"),
    [(lambda _: 1 / 0, "failed: division"), (lambda inputs: {"y": inputs["x"][:2]}, "2 rows of 'y' for a batch of 3")],
)
def test_an_error_in_a_batch_fails_all_its_requests(function, sentence):
    errors, statistics = infer_together(function, request([[1], [2]]), request([[3]]), runs_inline=True)
    assert [error.kind for error in errors] == [ErrorKind.INTERNAL] * 2
    assert all(sentence in str(error) for error in errors)
    assert statistics["inference_stats"]["fail"]["count"] == 2


def warmed_up(sample, *, runs_inline=True, scheduling=None):
    """The inputs that a warm-up gives to a model with one instance, and the model's statistics after it."""
    seen = []

    def keep(inputs):
        seen.append({name: array.tolist() for name, array in inputs.items()})
        return {"y": inputs["x"]}

    inputs, outputs = ((TensorDefinition(name, Datatype.FP32, (-1,)),) for name in "xy")
    definition = ModelDefinition("m", "", "array", 4, inputs, outputs, scheduling=scheduling)
    model = ExecutedModel(definition, ArrayExecutor(keep, runs_inline=runs_inline), warmup=[sample])
    try:
        return seen, model.statistics()
    finally:
        model.close()


@pytest.mark.parametrize("runs_inline", [True, False])
def test_a_warm_up_has_been_executed_and_counted_when_the_model_exists(runs_inline):
    """A Triton 2.51 counts the same for batch_size 4 and count 3."""
    seen, statistics = warmed_up(WarmupSample((request([[1, 2]]),) * 4, {}, 3, "here"), runs_inline=runs_inline)
    assert seen == [{"x": [[1, 2]] * 4}] * 3
    assert (statistics["execution_count"], statistics["inference_count"], statistics["inference_stats"]["success"]["count"]) == (3, 12, 12)


def test_each_request_of_a_warm_up_has_the_control_inputs_of_its_sample():
    start = Control("START", ControlKind.START, Datatype.INT32, (0, 1))
    sample = WarmupSample((request([[1, 2]]),) * 2, {"START": np.array([[7]], np.int32)}, 1, "here")
    seen, _ = warmed_up(sample, scheduling=SequencePolicy((start,), 1))
    assert seen == [{"x": [[1, 2], [1, 2]], "START": [[7], [7]]}]


def test_a_model_on_the_event_loop_answers_without_a_wait_and_counts_its_requests():
    """Also requests that are like one before but for their data, of which some are given as repeated ones."""
    inputs, outputs = ((TensorDefinition(name, Datatype.FP32, (-1,)),) for name in "xy")
    model = ExecutedModel(ModelDefinition("m", "", "array", 0, inputs, outputs), ArrayExecutor(lambda arrays: {"y": -arrays["x"]}))
    template = make_template(InferRequest("m", (Tensor("x", Datatype.FP32, (2,), bytes(8)),), id="7"))
    assert template is not None
    for number in range(4):
        given = tensor_from_array("x", Datatype.FP32, np.array([number, 1], np.float32))
        asked = RepeatedRequest(template, [given.raw]) if number % 2 else InferRequest("m", (given,), id="7")
        answering = model.infer(asked, 0, lambda response: response)
        with pytest.raises(StopIteration) as ended:
            answering.send(None)
        response = ended.value.value
        assert (response.model, response.version, response.id) == ("m", "1", "7")
        assert tensor_to_array(response.outputs[0]).tolist() == [-number, -1]
    statistics = model.statistics()
    assert (statistics["inference_count"], statistics["execution_count"]) == (4, 4)
    counts = {name: statistics["inference_stats"][name]["count"] for name in ("success", "queue", "compute_infer", "fail")}
    assert counts == {"success": 4, "queue": 4, "compute_infer": 4, "fail": 0}
    assert statistics["inference_stats"]["success"]["ns"] >= statistics["inference_stats"]["queue"]["ns"] > 0
    model.close()
