"""Responses to requests that are alike: only their data is made anew, and what is written around it is written once."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from perfkit.protocol.message import InferRequest, InferResponse
from perfkit.protocol.tensor import is_encoded_as
from server_stub.executors.array import Arrays
from server_stub.inference.conversion import make_response
from server_stub.inference.definition import ModelDefinition
from server_stub.inference.repetition import MAX_HEAD_BYTES


@dataclasses.dataclass(slots=True, eq=False)  # like `RepeatedRequest`
class RepeatedResponse:
    """A response that is like an earlier one but for the data of its outputs."""

    written: Any
    """What a front end writes of both responses besides the data; see `Write`."""
    data: Sequence[bytes]
    """The data of each output."""


AnyResponse: TypeAlias = InferResponse | RepeatedResponse
Write: TypeAlias = Callable[[InferRequest, InferResponse], tuple[Any, int] | None]
"""What a front end writes of a response to a request besides the data of its outputs, in a form of its own, and how many bytes that is.

None if it does not write the data of each output by itself, as it is. The request has no data.
"""


class _Form(NamedTuple):
    """What responses have in common that differ in the data of their outputs only."""

    arrays: Sequence[tuple[str, np.dtype[Any], tuple[int, ...]]]
    """The model's output for each of the response's: name, type and shape."""
    written: Any


class Responder:
    """Makes the responses of one version of a model to requests that are alike; `request` is one of these, without data."""

    def __init__(self, definition: ModelDefinition, version: str, request: InferRequest, write: Write) -> None:
        self.definition, self.version, self._request, self._write = definition, version, request, write
        self._form: _Form | None = None
        self._is_first = True

    def respond(self, outputs: Arrays) -> AnyResponse:
        """The response that `make_response` makes; a repeated one if it is like the first one but for its data."""
        if (form := self._form) is not None:
            data = []
            for name, dtype, shape in form.arrays:
                array = outputs[name]
                if array.dtype is not dtype or array.shape != shape:
                    break
                data.append(array.tobytes())
            else:
                return RepeatedResponse(form.written, data)
        response = make_response(self.definition, self.version, self._request, outputs)
        if self._is_first:
            self._form, self._is_first = self._form_of(response, outputs), False
        return response

    def _form_of(self, response: InferResponse, outputs: Arrays) -> _Form | None:
        """The form of a response; None if its data is no copy of the model's arrays, or the rest of it is long or is not written apart from them."""
        for one in response.outputs:
            array = outputs[one.name]
            if not is_encoded_as(array, one.datatype) or one.shape != array.shape or not isinstance(one.raw, bytes):
                return None
        if not response.outputs or (written := self._write(self._request, response)) is None or written[1] > MAX_HEAD_BYTES:
            return None
        return _Form([(one.name, outputs[one.name].dtype, one.shape) for one in response.outputs], written[0])
