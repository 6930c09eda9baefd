"""The cache of layouts gives the batch sizes, arrays and errors of `check_request` and `input_arrays`, which have no cache."""

import dataclasses

import numpy as np
import pytest

from perfkit.errors import ProtocolError
from perfkit.protocol.message import InferRequest, RequestedOutput
from perfkit.protocol.tensor import Datatype, Tensor, encode_bytes_elements
from server_stub.inference.conversion import check_request, input_arrays
from server_stub.inference.definition import ModelDefinition, TensorDefinition
from server_stub.inference.layouts import Layouts, RepeatedRequest, make_template, whole_request

OUTPUTS = (TensorDefinition("y", Datatype.INT32, (2,)),)
PAIR = ModelDefinition("m", "", "array", 4, tuple(TensorDefinition(name, Datatype.INT32, (2,)) for name in "ab"), OUTPUTS)


def tensor(name, values, datatype=Datatype.INT32):
    array = np.array(values, np.dtype(datatype.value.lower().replace("fp", "float")))
    return Tensor(name, datatype, array.shape, array.tobytes())


def template_of(request):
    template = make_template(request)
    assert template is not None
    return template


def read(layouts, request):
    checked, batch_size, inputs = layouts.read(request)
    assert checked is request
    assert inputs is not None
    return batch_size, {name: array.tolist() for name, array in inputs.items()}


def test_each_request_gets_its_own_data_and_batch_size():
    layouts = Layouts(PAIR)
    for number in range(3):
        for rows in (1, 3):
            first, second = [[number, rows]] * rows, [[-number, 7]] * rows
            request = InferRequest("m", (tensor("b", second), tensor("a", first)), id=str(number))
            assert read(layouts, request) == (rows, {"a": first, "b": second}), "the inputs may come in any order"


def test_views_are_read_like_bytes():
    layouts, given = Layouts(PAIR), (tensor("a", [[1, 2]]), tensor("b", [[3, 4]]))
    for kind in (bytes, memoryview):
        inputs = tuple(dataclasses.replace(one, raw=kind(one.raw)) for one in given)
        assert read(layouts, InferRequest("m", inputs)) == (1, {"a": [[1, 2]], "b": [[3, 4]]})


@pytest.mark.parametrize(
    "inputs",
    [
        (tensor("a", [[1, 2]]),),
        (tensor("a", [[1, 2]]), tensor("a", [[1, 2]])),
        (tensor("a", [[1, 2]]), tensor("c", [[1, 2]])),
        (tensor("a", [[1, 2]]), tensor("b", [[1, 2], [3, 4]])),
        (tensor("a", [[1, 2]]), tensor("b", [[1, 2, 3]])),
        (tensor("a", [[1, 2]]), tensor("b", [[1, 2]], Datatype.FP32)),
        (tensor("a", [[1, 2]]), Tensor("b", Datatype.INT32, (1, 2), b"1234567")),
        tuple(tensor(name, [[1, 2]] * 5) for name in "ab"),
    ],
)
def test_what_does_not_fit_the_model_is_refused_each_time(inputs):
    layouts, right = Layouts(PAIR), InferRequest("m", (tensor("a", [[1, 2]]), tensor("b", [[3, 4]])))
    request = InferRequest("m", inputs, id="x")
    with pytest.raises(ProtocolError) as expected:
        check_request(PAIR, request)
    for _ in range(2):
        assert read(layouts, right)[0] == 1
        with pytest.raises(ProtocolError) as refusal:
            layouts.read(request)
        assert (str(refusal.value), refusal.value.kind) == (str(expected.value), expected.value.kind)


def test_outputs_are_checked_also_for_known_inputs():
    layouts, inputs = Layouts(PAIR), (tensor("a", [[1, 2]]), tensor("b", [[3, 4]]))
    assert read(layouts, InferRequest("m", inputs, (RequestedOutput("y"),)))[0] == 1
    with pytest.raises(ProtocolError, match="unexpected inference output 'z' for model 'm'"):
        layouts.read(InferRequest("m", inputs, (RequestedOutput("z"),)))


def test_strings_are_checked_each_time():
    model = dataclasses.replace(PAIR, inputs=(TensorDefinition("s", Datatype.BYTES, (2,)),))
    layouts, right = Layouts(model), Tensor("s", Datatype.BYTES, (1, 2), encode_bytes_elements([b"ab", b"c"]))
    request, template = InferRequest("m", (right,)), template_of(InferRequest("m", (right,)))
    assert layouts.read(request) == (request, 1, None)
    assert layouts.read(RepeatedRequest(template, [right.raw])) == (request, 1, None)
    wrong = b"\xff" * len(right.raw)
    for broken in (InferRequest("m", (dataclasses.replace(right, raw=wrong),)), RepeatedRequest(template, [wrong])):
        with pytest.raises(ProtocolError, match="ends inside an element"):
            layouts.read(broken)


@pytest.mark.parametrize("datatype", [Datatype.FP32, Datatype.FP16, Datatype.BOOL, Datatype.UINT64, Datatype.BF16])
def test_arrays_are_those_of_the_model(datatype):
    """With the shapes inside the model; what is no array on the wire, such as BF16, has no layout."""
    model = ModelDefinition("m", "", "array", 4, (TensorDefinition("a", datatype, (2, -1), reshape=(-1, 2)),), OUTPUTS)
    request = InferRequest("m", (Tensor("a", datatype, (1, 2, 3), bytes(6 * datatype.element_bits // 8)),))
    expected = input_arrays(model, request)["a"]
    for _ in range(2):
        _, _, inputs = Layouts(model).read(request)
        if datatype is Datatype.BF16:
            assert inputs is None
        else:
            assert inputs is not None
            found = inputs["a"]
            assert (found.dtype, found.shape, found.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())
            assert found.shape == (1, 3, 2)


def test_a_request_that_names_an_output_again_and_again_is_not_remembered():
    layouts = Layouts(PAIR)
    inputs = (tensor("a", [[1, 2]]), tensor("b", [[3, 4]]))
    assert read(layouts, InferRequest("m", inputs, (RequestedOutput("y"),) * 1000))[0] == 1
    assert read(layouts, InferRequest("m", inputs, (RequestedOutput("y"),)))[0] == 1
    assert len(layouts._known) == 1


def repeated(*names):
    """A function that makes requests of a template with inputs of these names, of the given data."""
    template = template_of(InferRequest("m", tuple(tensor(name, [[0, 0]]) for name in names), id="7"))
    return lambda *data: RepeatedRequest(template, data)


def test_repeated_requests_have_the_data_of_each():
    layouts, makers = Layouts(PAIR), {names: repeated(*names) for names in ("ab", "ba")}
    for first, second in ([[1, 2]], [[3, 4]]), ([[5, 6]], [[7, 8]]):
        for names, make in makers.items():
            request = make(tensor("", first).raw, tensor("", second).raw)
            whole = InferRequest("m", (tensor(names[0], first), tensor(names[1], second)), id="7")
            assert whole_request(request) == whole
            checked, batch_size, inputs = layouts.read(request)
            assert inputs is not None
            assert (checked.id, batch_size) == ("7", 1)
            assert {name: array.tolist() for name, array in inputs.items()} == {names[0]: first, names[1]: second}


def test_a_repeated_request_is_read_by_the_model_that_gets_it():
    """A model may be replaced by another one of its name."""
    request, data = repeated("a")(tensor("a", [[1, 2]]).raw), InferRequest("m", (tensor("a", [[1, 2]]),))
    models = [
        ModelDefinition("m", "", "array", 4, (TensorDefinition("a", Datatype.INT32, dims, reshape=reshape),), OUTPUTS)
        for dims, reshape in (((2,), None), ((2,), (2, 1)), ((-1,), None))
    ]
    for definition in (*models, *models):
        expected = input_arrays(definition, data)["a"]
        _, batch_size, inputs = Layouts(definition).read(request)
        assert inputs is not None
        assert (batch_size, inputs["a"].shape, inputs["a"].tolist()) == (1, expected.shape, expected.tolist())
    with pytest.raises(ProtocolError, match="expected 2 inputs but got 1 inputs"):
        Layouts(PAIR).read(request)


def test_a_repeated_request_that_does_not_fit_is_refused_each_time():
    layouts, request = Layouts(PAIR), repeated("a")(bytes(8))
    for _ in range(2):
        with pytest.raises(ProtocolError, match="expected 2 inputs but got 1 inputs"):
            layouts.read(request)


@pytest.mark.parametrize(("parts", "is_remembered"), [((2, 14, 0), True), ((2, 0, 14), True), ((2, 7, 8), False), ((17, 0, 0), False)])
def test_requests_of_many_parts_have_no_template(parts, is_remembered):
    inputs, outputs, parameters = parts
    request = InferRequest(
        "m", (tensor("a", [1]),) * inputs, (RequestedOutput("y"),) * outputs, parameters={str(number): 1 for number in range(parameters)}
    )
    assert (make_template(request) is not None) == is_remembered
