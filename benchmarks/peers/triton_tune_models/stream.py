"""A decoupled model whose streams are declared: ten responses, `gap_ms` apart, sent while the request executes, whether or not anyone takes them."""

from __future__ import annotations  # while Triton completes configurations, its module has no InferenceRequest

import json
import time

import triton_python_backend_utils as triton

_RESPONSES = 10


class TritonPythonModel:
    """The class that Triton's Python backend instantiates for each instance of the model."""

    def initialize(self, args: dict[str, str]) -> None:
        """Reads the gap from the model's configuration."""
        self._gap_s = float(json.loads(args["model_config"])["parameters"]["gap_ms"]["string_value"]) / 1e3

    def execute(self, requests: list[triton.InferenceRequest]) -> None:
        """Sends the responses; Triton counts the time of all of them."""
        for request in requests:
            value = triton.get_input_tensor_by_name(request, "INPUT0").as_numpy()
            sender = request.get_response_sender()
            for _ in range(_RESPONSES):
                time.sleep(self._gap_s)
                sender.send(triton.InferenceResponse([triton.Tensor("OUTPUT0", value)]))
            sender.send(flags=triton.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
