"""A control input with ids of 32 bits; an id that Triton has cut to them is an error."""

from __future__ import annotations  # while Triton completes configurations, its module has no InferenceRequest

import numpy as np
import triton_python_backend_utils as triton


class TritonPythonModel:
    """The class that Triton's Python backend instantiates for each instance of the model."""

    def execute(self, requests: list[triton.InferenceRequest]) -> list[triton.InferenceResponse]:
        """One response per request, in order."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: triton.InferenceRequest) -> triton.InferenceResponse:
        received, sent = triton.get_input_tensor_by_name(request, "CORRID").as_numpy().item(), request.correlation_id()
        if received != sent:
            return triton.InferenceResponse(error=triton.TritonError(f"the id {sent} was cut to {received}"))
        return triton.InferenceResponse([triton.Tensor("ID", np.array([[received]], np.int64))])
