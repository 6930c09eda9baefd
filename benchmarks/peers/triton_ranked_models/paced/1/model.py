"""y = 2 x, in a random time with mean 8 ms + 1 ms a request of the batch, and coefficient of variation 0.3."""

from __future__ import annotations  # while Triton completes configurations, its module has no InferenceRequest

import random
import time

import triton_python_backend_utils as triton

_FIXED_S, _PER_REQUEST_S, _CV = 0.008, 0.001, 0.3


class TritonPythonModel:
    """The class that Triton's Python backend instantiates for each instance of the model."""

    def execute(self, requests: list[triton.InferenceRequest]) -> list[triton.InferenceResponse]:
        """One response per request, in order."""
        time.sleep((_FIXED_S + _PER_REQUEST_S * len(requests)) * random.gammavariate(_CV**-2, _CV**2))
        return [
            triton.InferenceResponse([triton.Tensor("y", 2 * triton.get_input_tensor_by_name(request, "x").as_numpy())])
            for request in requests
        ]
