"""Returns each step's input after 10 ms; each of its four instances serves one sequence at a time."""

from __future__ import annotations  # while Triton completes configurations, its module has no InferenceRequest

import time

import triton_python_backend_utils as triton

_SERVICE_S = 0.01


class TritonPythonModel:
    """The class that Triton's Python backend instantiates for each instance of the model."""

    def execute(self, requests: list[triton.InferenceRequest]) -> list[triton.InferenceResponse]:
        """One response per request, in order."""
        responses = []
        for request in requests:
            time.sleep(_SERVICE_S)
            responses.append(
                triton.InferenceResponse([triton.Tensor("OUTPUT", triton.get_input_tensor_by_name(request, "INPUT").as_numpy())])
            )
        return responses
