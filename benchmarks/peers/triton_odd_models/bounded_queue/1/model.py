"""y = 2 x, in 20 ms a batch."""

from __future__ import annotations  # while Triton completes configurations, its module has no InferenceRequest

import time

import triton_python_backend_utils as triton


class TritonPythonModel:
    """The class that Triton's Python backend instantiates for each instance of the model."""

    def execute(self, requests: list[triton.InferenceRequest]) -> list[triton.InferenceResponse]:
        """One response per request, in order."""
        time.sleep(0.020)
        return [
            triton.InferenceResponse([triton.Tensor("y", 2 * triton.get_input_tensor_by_name(request, "x").as_numpy())])
            for request in requests
        ]
