"""Requests that are like one before but for their data are checked and read as `check_request` and `input_arrays` do it, which remember nothing."""

import dataclasses

import numpy as np
import pytest

from perfkit.errors import ProtocolError
from perfkit.protocol.message import InferRequest, RequestedOutput
from perfkit.protocol.tensor import Datatype, Tensor, encode_bytes_elements
from server_stub.inference.conversion import check_request, input_arrays
from server_stub.inference.definition import ModelDefinition, TensorDefinition
from server_stub.inference.layouts import Layouts, with_data

OUTPUTS = (TensorDefinition("y", Datatype.INT32, (2,)),)
PAIR = ModelDefinition("m", "", "array", 4, tuple(TensorDefinition(name, Datatype.INT32, (2,)) for name in "ab"), OUTPUTS)


def tensor(name, values, datatype=Datatype.INT32):
    array = np.array(values, np.dtype(datatype.value.lower().replace("fp", "float")))
    return Tensor(name, datatype, array.shape, array.tobytes())


def read(layouts, request):
    batch_size, layout = layouts.find(request)
    assert layout is not None
    return batch_size, {name: array.tolist() for name, array in layout.arrays([one.raw for one in request.inputs]).items()}


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
            layouts.find(request)
        assert (str(refusal.value), refusal.value.kind) == (str(expected.value), expected.value.kind)


def test_outputs_are_checked_also_for_known_inputs():
    layouts, inputs = Layouts(PAIR), (tensor("a", [[1, 2]]), tensor("b", [[3, 4]]))
    assert read(layouts, InferRequest("m", inputs, (RequestedOutput("y"),)))[0] == 1
    with pytest.raises(ProtocolError, match="unexpected inference output 'z' for model 'm'"):
        layouts.find(InferRequest("m", inputs, (RequestedOutput("z"),)))


def test_strings_are_checked_each_time():
    model = dataclasses.replace(PAIR, inputs=(TensorDefinition("s", Datatype.BYTES, (2,)),))
    layouts, right = Layouts(model), Tensor("s", Datatype.BYTES, (1, 2), encode_bytes_elements([b"ab", b"c"]))
    assert layouts.find(InferRequest("m", (right,))) == (1, None)
    with pytest.raises(ProtocolError, match="ends inside an element"):
        layouts.find(InferRequest("m", (dataclasses.replace(right, raw=b"\xff" * len(right.raw)),)))


@pytest.mark.parametrize("datatype", [Datatype.FP32, Datatype.FP16, Datatype.BOOL, Datatype.UINT64, Datatype.BF16])
def test_arrays_are_those_of_the_model(datatype):
    """With the shapes inside the model; what is no array on the wire, such as BF16, has no layout."""
    model = ModelDefinition("m", "", "array", 4, (TensorDefinition("a", datatype, (2, -1), reshape=(-1, 2)),), OUTPUTS)
    request = InferRequest("m", (Tensor("a", datatype, (1, 2, 3), bytes(6 * datatype.element_bits // 8)),))
    expected = input_arrays(model, request)["a"]
    for _ in range(2):
        _, layout = Layouts(model).find(request)
        if datatype is Datatype.BF16:
            assert layout is None
        else:
            found = layout.arrays([one.raw for one in request.inputs])["a"]
            assert (found.dtype, found.shape, found.tobytes()) == (expected.dtype, expected.shape, expected.tobytes())
            assert found.shape == (1, 3, 2)


def test_a_request_that_names_an_output_again_and_again_is_not_remembered():
    layouts = Layouts(PAIR)
    inputs = (tensor("a", [[1, 2]]), tensor("b", [[3, 4]]))
    assert read(layouts, InferRequest("m", inputs, (RequestedOutput("y"),) * 1000))[0] == 1
    assert layouts.find(InferRequest("m", inputs, (RequestedOutput("y"),)))[0] == 1
    assert len(layouts._known) == 1


def test_a_form_stands_for_requests_with_the_data_of_each():
    layouts = Layouts(PAIR)
    forms = [InferRequest("m", tuple(Tensor(name, Datatype.INT32, (1, 2), b"") for name in names)) for names in ("ab", "ba")]
    for first, second in ([1, 2], [3, 4]), ([5, 6], [7, 8]):
        data = [tensor("", values).raw for values in (first, second)]
        for form, names in zip(forms, ("ab", "ba"), strict=True):
            assert [one.raw for one in with_data(form, data).inputs] == data
            batch_size, layout = layouts.find(form, data)
            arrays = {name: array.tolist() for name, array in layout.arrays(data).items()}
            assert (batch_size, arrays) == (1, {names[0]: [first], names[1]: [second]})


def test_the_form_of_a_request_that_does_not_fit_is_refused_each_time():
    layouts, form = Layouts(PAIR), InferRequest("m", (Tensor("a", Datatype.INT32, (1, 2), b""),))
    for _ in range(2):
        with pytest.raises(ProtocolError, match="expected 2 inputs but got 1 inputs"):
            layouts.find(form, [bytes(8)])
