"""Triton's example of a decoupled model: one response for each value of IN, each DELAY ms after the one before, and the end after WAIT ms."""

from __future__ import annotations  # while Triton completes configurations, its module has no InferenceRequest

import threading
import time

import numpy as np
import triton_python_backend_utils as triton


class TritonPythonModel:
    """The class that Triton's Python backend instantiates for each instance of the model."""

    def execute(self, requests: list[triton.InferenceRequest]) -> None:
        """Sends the responses, from a thread of their own if there is anything to wait for."""
        for request in requests:
            values, delays, wait = (triton.get_input_tensor_by_name(request, name).as_numpy() for name in ("IN", "DELAY", "WAIT"))
            task = (request.get_response_sender(), values, delays.tolist(), int(wait[0]))
            if any(delays) or wait[0]:
                threading.Thread(target=_respond, args=task).start()
            else:
                _respond(*task)


def _respond(sender: triton.InferenceResponseSender, values: np.ndarray, delays: list[int], wait: int) -> None:
    for index, (value, delay) in enumerate(zip(values, delays, strict=True)):
        if delay:
            time.sleep(delay / 1000)
        outputs = [triton.Tensor("OUT", np.array([value], np.int32)), triton.Tensor("IDX", np.array([index], np.uint32))]
        sender.send(triton.InferenceResponse(outputs))
    if wait:
        time.sleep(wait / 1000)
    sender.send(flags=triton.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
