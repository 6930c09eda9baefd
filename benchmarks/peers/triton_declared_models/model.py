"""The program of all models of `odd_servers`: each output has its declared shape, and what it holds is declared by parameters of the model."""

from __future__ import annotations  # while Triton completes configurations, its module has no InferenceRequest

import json
import time

import numpy as np
import triton_python_backend_utils as triton


class TritonPythonModel:
    """The class that Triton's Python backend instantiates for each instance of the model."""

    def initialize(self, args: dict[str, str]) -> None:
        """Reads the parameters: `seconds` an answer takes, its `responses` if it is decoupled, and `length`, the size of each -1 of outputs."""
        self._config = json.loads(args["model_config"])
        parameters = {name: one["string_value"] for name, one in self._config.get("parameters", {}).items()}
        self._seconds, self._length = float(parameters.get("seconds", "0")), int(parameters.get("length", "2"))
        self._responses = int(parameters.get("responses", "0"))
        if parameters.get("is_broken"):
            raise triton.TritonModelException("this model does not load")

    def execute(self, requests: list[triton.InferenceRequest]) -> list[triton.InferenceResponse] | None:
        """One response per request, in order, or all responses of a decoupled model at once."""
        time.sleep(self._seconds)
        if not self._responses:
            return [self._answer(request) for request in requests]
        for request in requests:
            sender = request.get_response_sender()
            for _ in range(self._responses):
                sender.send(self._answer(request))
            sender.send(flags=triton.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return None

    def _answer(self, request: triton.InferenceRequest) -> triton.InferenceResponse:
        batch = [len(request.inputs()[0].as_numpy())] if self._config["max_batch_size"] else []
        tensors = []
        for output in self._config["output"]:
            dims = output.get("reshape", {}).get("shape", []) if "reshape" in output else output["dims"]
            shape = [*batch, *(self._length if int(size) == -1 else int(size) for size in dims)]
            kind = triton.triton_string_to_numpy(output["data_type"])
            tensors.append(triton.Tensor(output["name"], np.full(shape, b"text" if kind == np.object_ else 1, kind)))
        return triton.InferenceResponse(tensors)
