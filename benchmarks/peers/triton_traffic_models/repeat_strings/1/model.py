"""A decoupled model of strings: one response for each element; an element `error` is answered with an error."""

from __future__ import annotations  # while Triton completes configurations, its module has no InferenceRequest

import numpy as np
import triton_python_backend_utils as triton


class TritonPythonModel:
    """The class that Triton's Python backend instantiates for each instance of the model."""

    def execute(self, requests: list[triton.InferenceRequest]) -> None:
        """Sends the responses in turn."""
        for request in requests:
            sender = request.get_response_sender()
            for element in triton.get_input_tensor_by_name(request, "TEXT").as_numpy():
                if element == b"error":
                    sender.send(triton.InferenceResponse(error=triton.TritonError("the model was asked to fail")))
                else:
                    sender.send(triton.InferenceResponse([triton.Tensor("WORD", np.array([element], np.object_))]))
            sender.send(flags=triton.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
