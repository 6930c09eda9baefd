"""y = x; the first request after half a second without any fails."""

from __future__ import annotations  # while Triton completes configurations, its module has no InferenceRequest

import time

import triton_python_backend_utils as triton


class TritonPythonModel:
    """The class that Triton's Python backend instantiates for each instance of the model."""

    def initialize(self, _: dict[str, str]) -> None:
        """No request yet."""
        self.last_s = 0.0

    def execute(self, requests: list[triton.InferenceRequest]) -> list[triton.InferenceResponse]:
        """One response per request, in order."""
        return [self.answer(request) for request in requests]

    def answer(self, request: triton.InferenceRequest) -> triton.InferenceResponse:
        """The response to one request."""
        now_s, before_s = time.monotonic(), self.last_s
        self.last_s = now_s
        if now_s - before_s > 0.5:
            return triton.InferenceResponse(output_tensors=[], error=triton.TritonError("the disk is full"))
        return triton.InferenceResponse([triton.Tensor("y", triton.get_input_tensor_by_name(request, "x").as_numpy())])
