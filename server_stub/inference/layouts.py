"""Cache of checked request layouts: requests that differ in the data of their inputs only are checked once."""

import dataclasses
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from perfkit.protocol.message import InferRequest
from perfkit.protocol.tensor import Buffer
from server_stub.executors.array import Inputs
from server_stub.inference.conversion import check_request, input_arrays
from server_stub.inference.definition import ModelDefinition
from server_stub.inference.repeated_responses import Responder
from server_stub.inference.repetition import remember

_IN_REQUEST = (bytes, bytearray, memoryview)
_MAX_PARTS = 16  # inputs, outputs and parameters of a request with a template, which limits the template's memory


class _Read(NamedTuple):
    """How an input of the model is read: from which of the request's tensors, and as what."""

    name: str
    place: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class Layout(NamedTuple):
    """How the inputs of requests to a model are read, once one of them has been checked."""

    definition: ModelDefinition
    """The model's."""
    batch_size: int
    reads: tuple[_Read, ...]

    def arrays(self, data: Sequence[Buffer]) -> Inputs:
        """The model's inputs from the bytes of the request's; see `input_arrays`."""
        return {name: np.ndarray(shape, dtype, data[place]) for name, place, dtype, shape in self.reads}


@dataclasses.dataclass(slots=True, eq=False)
class RequestTemplate:
    """What requests have in common that differ in the data of their inputs only."""

    request: InferRequest
    """One of them, whose inputs have no data."""
    layout: Layout | None = None
    """Set by `Layouts` once their model has accepted one of them."""
    responder: Responder | None = None
    """Set by their model when it is first asked to answer one of them at once."""


@dataclasses.dataclass(slots=True, eq=False)  # not frozen, and no tuple: each request makes one, and these take twice as long to make
class RepeatedRequest:
    """A request that is like an earlier one but for the data of its inputs."""

    template: RequestTemplate
    data: Sequence[Buffer]
    """The data of each of the template's inputs, as long as in all requests of the template."""


AnyRequest: TypeAlias = InferRequest | RepeatedRequest


def make_template(request: InferRequest) -> RequestTemplate | None:
    """The template of requests like this one; None if it has too many tensors or parameters to be remembered."""
    if len(request.inputs) + len(request.outputs) + len(request.parameters) > _MAX_PARTS:
        return None
    inputs = tuple(dataclasses.replace(tensor, raw=b"") for tensor in request.inputs)
    return RequestTemplate(dataclasses.replace(request, inputs=inputs))


def whole_request(request: AnyRequest) -> InferRequest:
    """A request with the data of its inputs."""
    if not isinstance(request, RepeatedRequest):
        return request
    common = request.template.request
    inputs = tuple(dataclasses.replace(tensor, raw=raw) for tensor, raw in zip(common.inputs, request.data, strict=True))
    return dataclasses.replace(common, inputs=inputs)


class Layouts:
    """The layouts of a model's requests so far."""

    def __init__(self, definition: ModelDefinition) -> None:
        self._definition = definition
        self._known: dict[object, Layout] = {}

    def read(self, request: AnyRequest) -> tuple[InferRequest, int, Inputs | None]:
        """Check a request; see `check_request`. Returns it, its batch size and the model's inputs.

        The inputs are None where the request's bytes have to be converted; see `input_arrays`. Otherwise a repeated request is returned without
        its data.
        """
        if not isinstance(request, RepeatedRequest):
            batch_size, layout = self._find(request)
            return request, batch_size, None if layout is None else layout.arrays([tensor.raw for tensor in request.inputs])
        template = request.template
        layout = template.layout
        if layout is None or layout.definition is not self._definition:
            whole = whole_request(request)
            batch_size, layout = self._find(whole)
            if layout is None:
                return whole, batch_size, None
            template.layout = layout
        return template.request, layout.batch_size, layout.arrays(request.data)

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
        reads = tuple(_Read(name, places[name], array.dtype, array.shape) for name, array in arrays.items())
        layout = Layout(self._definition, batch_size, reads)
        if len(request.outputs) <= len(self._definition.outputs):
            remember(self._known, key, layout)
        return batch_size, layout
