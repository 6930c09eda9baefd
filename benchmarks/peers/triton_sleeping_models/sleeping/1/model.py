"""A Triton model for its Python backend: each request sleeps as many milliseconds as its input says, then returns them."""

from __future__ import annotations  # while Triton completes configurations, its module has no InferenceRequest

import time

import triton_python_backend_utils as triton


class TritonPythonModel:
    """The class that Triton's Python backend instantiates for each instance of the model."""

    def execute(self, requests: list[triton.InferenceRequest]) -> list[triton.InferenceResponse]:
        """One response per request; a batch sleeps for the longest of its requests."""
        tensors = [triton.get_input_tensor_by_name(request, "MS").as_numpy() for request in requests]
        time.sleep(max(float(tensor.max()) for tensor in tensors) / 1000)
        return [triton.InferenceResponse([triton.Tensor("SLEPT", tensor)]) for tensor in tensors]
