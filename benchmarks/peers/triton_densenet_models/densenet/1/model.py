"""DenseNet-121 by ONNX Runtime, with one thread in each instance."""

from __future__ import annotations  # while Triton completes configurations, its module has no InferenceRequest

import pathlib

import numpy as np
import onnxruntime
import triton_python_backend_utils as triton


class TritonPythonModel:
    """The class that Triton's Python backend instantiates for each instance of the model."""

    def initialize(self, args: dict[str, str]) -> None:
        """Loads `model.onnx` beside this program."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        file = pathlib.Path(args["model_repository"], args["model_version"], "model.onnx")
        self._session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])

    def execute(self, requests: list[triton.InferenceRequest]) -> list[triton.InferenceResponse]:
        """Executes the requests as one batch."""
        images = [triton.get_input_tensor_by_name(request, "data_0").as_numpy() for request in requests]
        (scores,) = self._session.run(["fc6_1"], {"data_0": np.concatenate(images)})
        ends = np.cumsum([len(one) for one in images])[:-1]
        parts = np.split(scores.reshape(len(scores), -1), ends)
        return [triton.InferenceResponse([triton.Tensor("fc6_1", part)]) for part in parts]
