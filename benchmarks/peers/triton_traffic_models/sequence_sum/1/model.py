"""The running sum of each sequence, with the sequence's id, the number of its step, and the number of sequences that are open."""

from __future__ import annotations  # while Triton completes configurations, its module has no InferenceRequest

import numpy as np
import triton_python_backend_utils as triton


class TritonPythonModel:
    """The class that Triton's Python backend instantiates for each instance of the model."""

    def initialize(self, args: dict[str, str]) -> None:
        """No sequence is open."""
        self._open: dict[str, tuple[int, int]] = {}

    def execute(self, requests: list[triton.InferenceRequest]) -> list[triton.InferenceResponse]:
        """One response per request, in order."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: triton.InferenceRequest) -> triton.InferenceResponse:
        value, starts, ends = (triton.get_input_tensor_by_name(request, name).as_numpy().item() for name in ("INPUT", "START", "END"))
        key = str(request.correlation_id())  # the control input CORRID has padded strings, which the backend refuses (Triton's core#339)
        total, steps = (0, 0) if starts else self._open.get(key, (0, -1_000_000))  # a step that was never started cannot look right
        total, steps = total + value, steps + 1
        self._open[key] = total, steps
        live = len(self._open)
        if ends:
            del self._open[key]
        figures = {"SUM": total, "STEP": steps, "LIVE": live}
        tensors = [triton.Tensor(name, np.array([[figure]], np.int64)) for name, figure in figures.items()]
        return triton.InferenceResponse([*tensors, triton.Tensor("ID", np.array([[key.encode()]], np.object_))])
