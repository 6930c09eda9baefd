"""y = x; every 33rd request fails with one of two messages."""

from __future__ import annotations  # while Triton completes configurations, its module has no InferenceRequest

import triton_python_backend_utils as triton


class TritonPythonModel:
    """The class that Triton's Python backend instantiates for each instance of the model."""

    def initialize(self, _: dict[str, str]) -> None:
        """No request yet."""
        self.requests = 0

    def execute(self, requests: list[triton.InferenceRequest]) -> list[triton.InferenceResponse]:
        """One response per request, in order."""
        return [self.answer(request) for request in requests]

    def answer(self, request: triton.InferenceRequest) -> triton.InferenceResponse:
        """The response to one request."""
        self.requests += 1
        if not self.requests % 33:
            error = triton.TritonError(f"the disk is {'full' if self.requests % 2 else 'slow'}")
            return triton.InferenceResponse(output_tensors=[], error=error)
        return triton.InferenceResponse([triton.Tensor("y", triton.get_input_tensor_by_name(request, "x").as_numpy())])
