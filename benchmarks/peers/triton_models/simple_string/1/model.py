"""The sum and the difference of two vectors of integers, encoded as decimal text."""

from __future__ import annotations  # while Triton completes configurations, its module has no InferenceRequest

import numpy as np
import triton_python_backend_utils as triton


class TritonPythonModel:
    """The class that Triton's Python backend instantiates for each instance of the model."""

    def execute(self, requests: list[triton.InferenceRequest]) -> list[triton.InferenceResponse]:
        """One response per request, in order; text that is not an integer fails only its own request."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: triton.InferenceRequest) -> triton.InferenceResponse:
        try:
            first, second = (_integers(triton.get_input_tensor_by_name(request, name).as_numpy()) for name in ("INPUT0", "INPUT1"))
        except ValueError as error:
            return triton.InferenceResponse(error=triton.TritonError(str(error)))
        return triton.InferenceResponse(
            [triton.Tensor("OUTPUT0", _texts(first + second)), triton.Tensor("OUTPUT1", _texts(first - second))]
        )


def _integers(texts: np.ndarray) -> np.ndarray:
    """Python integers, which do not overflow."""
    return np.array([int(text) for text in texts.flat], dtype=object).reshape(texts.shape)


def _texts(integers: np.ndarray) -> np.ndarray:
    return np.array([b"%d" % integer for integer in integers.flat], dtype=object).reshape(integers.shape)
