"""Responses to requests that are alike: only their data is made anew, and what is written around it is written once."""

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from perfkit.protocol.message import InferRequest, InferResponse
from perfkit.protocol.tensor import Tensor, is_encoded_as
from server_stub.executors.array import Arrays
from server_stub.inference.conversion import make_response
from server_stub.inference.definition import ModelDefinition


@dataclasses.dataclass(slots=True, eq=False)
class ResponseForm:
    """What responses have in common that differ in the data of their outputs only."""

    response: InferResponse
    """One of them, whose outputs have no data."""
    arrays: Sequence[tuple[str, np.dtype[Any], tuple[int, ...]]]
    """The model's output for each of the response's: name, type and shape."""
    written: Any = None
    """What the front end that the request's template belongs to writes of each of them besides the data; set by it."""


@dataclasses.dataclass(slots=True, eq=False)  # like `RepeatedRequest`
class RepeatedResponse:
    """A response that is like an earlier one but for the data of its outputs."""

    form: ResponseForm
    data: Sequence[bytes]

    def whole(self) -> InferResponse:
        """The response with its data."""
        common = self.form.response
        outputs = [Tensor(one.name, one.datatype, one.shape, raw) for one, raw in zip(common.outputs, self.data, strict=True)]
        return dataclasses.replace(common, outputs=tuple(outputs))


AnyResponse: TypeAlias = InferResponse | RepeatedResponse


class Responder:
    """Makes the responses of one version of a model to requests that are alike; of these, `request` is one, with or without data."""

    def __init__(self, definition: ModelDefinition, version: str, request: InferRequest) -> None:
        self.definition, self.version, self._request = definition, version, request
        self._form: ResponseForm | None = None
        self._is_first = True

    def respond(self, outputs: Arrays) -> AnyResponse:
        """The response that `make_response` makes; a repeated one if the outputs have the types and shapes of the first one's."""
        if (form := self._form) is not None:
            data = []
            for name, dtype, shape in form.arrays:
                array = outputs[name]
                if array.dtype is not dtype or array.shape != shape:
                    break
                data.append(array.tobytes())
            else:
                return RepeatedResponse(form, data)
        response = make_response(self.definition, self.version, self._request, outputs)
        if self._is_first:
            self._form, self._is_first = _form(response, outputs), False
        return response


def _form(response: InferResponse, outputs: Arrays) -> ResponseForm | None:
    """The form of a response; None unless its data is a copy of the model's arrays, as they are."""
    arrays = [(one.name, outputs[one.name].dtype, outputs[one.name].shape) for one in response.outputs]
    for one in response.outputs:
        array = outputs[one.name]
        if not is_encoded_as(one.datatype, array) or one.shape != array.shape or not isinstance(one.raw, bytes):
            return None
    stripped = tuple(dataclasses.replace(one, raw=b"") for one in response.outputs)
    return ResponseForm(dataclasses.replace(response, outputs=stripped), arrays) if arrays else None
