"""Whether the optional input came with the request."""

from __future__ import annotations  # while Triton completes configurations, its module has no InferenceRequest

import numpy as np
import triton_python_backend_utils as triton


class TritonPythonModel:
    """The class that Triton's Python backend instantiates for each instance of the model."""

    def execute(self, requests: list[triton.InferenceRequest]) -> list[triton.InferenceResponse]:
        """One response per request, in order."""
        answers = []
        for request in requests:
            rows = triton.get_input_tensor_by_name(request, "x").as_numpy().shape[0]
            had_bias = triton.get_input_tensor_by_name(request, "bias") is not None
            answers.append(triton.InferenceResponse([triton.Tensor("had_bias", np.full((rows, 1), had_bias, np.int32))]))
        return answers
