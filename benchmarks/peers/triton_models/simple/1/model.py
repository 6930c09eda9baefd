"""The sum and the difference of two vectors of 32-bit integers, which wrap around as in C."""

from __future__ import annotations  # while Triton completes configurations, its module has no InferenceRequest

import triton_python_backend_utils as triton


class TritonPythonModel:
    """The class that Triton's Python backend instantiates for each instance of the model."""

    def execute(self, requests: list[triton.InferenceRequest]) -> list[triton.InferenceResponse]:
        """One response per request, in order."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: triton.InferenceRequest) -> triton.InferenceResponse:
        first, second = (triton.get_input_tensor_by_name(request, name).as_numpy() for name in ("INPUT0", "INPUT1"))
        return triton.InferenceResponse([triton.Tensor("OUTPUT0", first + second), triton.Tensor("OUTPUT1", first - second)])
