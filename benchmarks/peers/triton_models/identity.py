"""Returns its input, bit for bit."""

from __future__ import annotations  # while Triton completes configurations, its module has no InferenceRequest

import triton_python_backend_utils as triton


class TritonPythonModel:
    """The class that Triton's Python backend instantiates for each instance of the model."""

    def execute(self, requests: list[triton.InferenceRequest]) -> list[triton.InferenceResponse]:
        """One response per request, in order."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: triton.InferenceRequest) -> triton.InferenceResponse:
        given = triton.get_input_tensor_by_name(request, "INPUT0").as_numpy()
        return triton.InferenceResponse([triton.Tensor("OUTPUT0", given)])
