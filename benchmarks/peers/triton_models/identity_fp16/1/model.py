"""Gives its input back, bit for bit."""

from __future__ import annotations  # while Triton completes configurations, its module has no InferenceRequest to name

import triton_python_backend_utils as triton


class TritonPythonModel:
    """What Triton's Python backend makes of each instance of the model."""

    def execute(self, requests: list[triton.InferenceRequest]) -> list[triton.InferenceResponse]:
        """One response a request, in their order."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: triton.InferenceRequest) -> triton.InferenceResponse:
        given = triton.get_input_tensor_by_name(request, "INPUT0").as_numpy()
        return triton.InferenceResponse([triton.Tensor("OUTPUT0", given)])
