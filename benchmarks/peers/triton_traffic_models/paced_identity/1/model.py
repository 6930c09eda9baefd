"""Returns its input after 10 ms; it has four instances, so that at most 400 requests are answered in a second."""

from __future__ import annotations  # while Triton completes configurations, its module has no InferenceRequest

import time

import triton_python_backend_utils as triton

_SERVICE_S = 0.01


class TritonPythonModel:
    """The class that Triton's Python backend instantiates for each instance of the model."""

    def execute(self, requests: list[triton.InferenceRequest]) -> list[triton.InferenceResponse]:
        """One response per request, in order; each takes the whole time."""
        responses = []
        for request in requests:
            time.sleep(_SERVICE_S)
            responses.append(
                triton.InferenceResponse([triton.Tensor("OUTPUT0", triton.get_input_tensor_by_name(request, "INPUT0").as_numpy())])
            )
        return responses
