"""An identity that takes its declared times: to load, for its first request, and for some more after that."""

from __future__ import annotations  # while Triton completes configurations, its module has no InferenceRequest

import json
import time

import triton_python_backend_utils as triton


class TritonPythonModel:
    """The class that Triton's Python backend instantiates for each instance of the model."""

    def initialize(self, args: dict[str, str]) -> None:
        """Sleeps for `load_ms`; the delays of the first requests are `first_ms`, then `slow_ms` for each of `slow_requests`."""
        declared = {name: int(one["string_value"]) / 1000 for name, one in json.loads(args["model_config"])["parameters"].items()}
        self._delays_s = [declared["first_ms"], *[declared["slow_ms"]] * round(1000 * declared["slow_requests"])]
        time.sleep(declared["load_ms"])

    def execute(self, requests: list[triton.InferenceRequest]) -> list[triton.InferenceResponse]:
        """One response per request, in order."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: triton.InferenceRequest) -> triton.InferenceResponse:
        if self._delays_s:
            time.sleep(self._delays_s.pop(0))
        given = triton.get_input_tensor_by_name(request, "INPUT0")
        return triton.InferenceResponse([triton.Tensor("OUTPUT0", given.as_numpy())])
