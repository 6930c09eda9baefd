"""What requests have in common whose tensors are alike but for their data: they are checked once, and their inputs read without ado."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Buffer
from server_stub.executors.array import Inputs
from server_stub.inference.conversion import check_request, input_arrays
from server_stub.inference.definition import ModelDefinition
from server_stub.inference.repetition import remember

_IN_REQUEST = (bytes, bytearray, memoryview)


def with_data(request: InferRequest, data: Sequence[Buffer] | None) -> InferRequest:
    """A request with the bytes of its inputs, if it is the form of several: their common part, whose inputs are empty but announce bytes of these sizes."""
    if data is None:
        return request
    inputs = [dataclasses.replace(tensor, raw=raw) for tensor, raw in zip(request.inputs, data, strict=True)]
    return dataclasses.replace(request, inputs=tuple(inputs))


class _Read(NamedTuple):
    """How an input of the model is read: from which of the request's tensors, and as what."""

    name: str
    place: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class Layout(NamedTuple):
    """A checked request without its data."""

    batch_size: int
    reads: tuple[_Read, ...]

    def arrays(self, data: Sequence[Buffer]) -> Inputs:
        """The model's inputs from the bytes of the request's; see `input_arrays`."""
        return {name: np.ndarray(shape, dtype, data[place]) for name, place, dtype, shape in self.reads}


class Layouts:
    """The layouts of a model's requests so far."""

    def __init__(self, definition: ModelDefinition) -> None:
        self._definition = definition
        self._known: dict[object, Layout] = {}
        self._forms: dict[int, tuple[InferRequest, Layout]] = {}  # by the form's id, which no other one has as long as it is here

    def find(self, request: InferRequest, data: Sequence[Buffer] | None = None) -> tuple[int, Layout | None]:
        """See `check_request`, and the request's layout; None if its inputs are not bytes of the request that are arrays as they are.

        With `data`, see `with_data`, the request is a form.
        """
        if data is None:
            return self._find(request)
        if (known := self._forms.get(id(request))) is not None:
            return known[1].batch_size, known[1]
        batch_size, layout = self._find(with_data(request, data))
        if layout is not None:
            remember(self._forms, id(request), (request, layout))
        return batch_size, layout

    def _find(self, request: InferRequest) -> tuple[int, Layout | None]:
        tensors = [(tensor.name, tensor.datatype, tensor.shape, tensor.raw.__class__, len(tensor.raw)) for tensor in request.inputs]
        key = request.outputs, tuple(tensors)
        layout = self._known.get(key)
        if layout is not None:
            return layout.batch_size, layout
        batch_size = check_request(self._definition, request)
        if not all(isinstance(tensor.raw, _IN_REQUEST) and tensor.datatype.is_encoded_as_array for tensor in request.inputs):
            return batch_size, None
        places = {tensor.name: place for place, tensor in enumerate(request.inputs)}
        arrays = input_arrays(self._definition, request)
        layout = Layout(batch_size, tuple(_Read(name, places[name], array.dtype, array.shape) for name, array in arrays.items()))
        if len(request.outputs) <= len(self._definition.outputs):
            remember(self._known, key, layout)
        return batch_size, layout
