"""Models that ONNX Runtime executes, on the CPU or through its CUDA provider."""

import pathlib
from typing import Any

import numpy as np

from perfkit.errors import UsageError
from perfkit.protocol.message import TensorMetadata
from perfkit.protocol.tensor import Datatype
from server_stub.devices.device import Kind
from server_stub.executors.array import Arrays

_DATATYPES = {
    "tensor(bool)": Datatype.BOOL, "tensor(float16)": Datatype.FP16, "tensor(float)": Datatype.FP32, "tensor(double)": Datatype.FP64,
    **{f"tensor({kind}{bits})": Datatype(f"{kind.upper()}{bits}") for kind in ("uint", "int") for bits in (8, 16, 32, 64)},
}  # fmt: skip
_PROVIDERS: dict[Kind, str] = {"cpu": "CPUExecutionProvider", "cuda": "CUDAExecutionProvider"}


class OnnxExecutor:
    """Executes an ONNX file, with `threads` threads per execution on the CPU.

    `inputs` and `outputs` are the graph's tensors, with -1 for variable sizes.
    """

    runs_inline = False

    def __init__(self, file: pathlib.Path, threads: int, device: Kind = "cpu") -> None:
        try:
            import onnxruntime
        except ImportError as error:
            raise UsageError(f"ONNX models need ONNX Runtime ({error}): pip install 'perfkit[server]'") from None
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
        # spinning threads would take CPU time from a load generator on the same machine
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.inter_op.allow_spinning", "0")
        provider = _PROVIDERS[device]
        # operators without a CUDA kernel run on the CPU
        providers = list(dict.fromkeys((provider, _PROVIDERS["cpu"])))
        try:
            # ONNX Runtime's own fallback would continue without the provider and print to stdout
            self._session: Any = onnxruntime.InferenceSession(file, options, providers=providers, enable_fallback=0)
        except Exception as error:  # noqa: BLE001 - ONNX Runtime's exceptions share no other base
            raise UsageError(f"{file} cannot be loaded by ONNX Runtime: {error}") from None
        if provider not in self._session.get_providers():  # it warns, but continues
            raise UsageError(f"{file} cannot run on {device}: ONNX Runtime could not start its {provider}.")
        self.device, self._runtime = device, onnxruntime
        self.inputs, self.outputs = (
            tuple(_metadata(file, tensor) for tensor in tensors) for tensors in (self._session.get_inputs(), self._session.get_outputs())
        )
        self._output_names = [tensor.name for tensor in self.outputs]

    def execute(self, inputs: Arrays) -> Arrays:
        """See `Executor.execute`."""
        # ONNX Runtime expects aligned memory, but a tensor after a JSON part of any length may not be aligned
        feeds = {name: np.require(array, requirements=("C", "A")) for name, array in inputs.items()}
        if self.device == "cpu":
            return dict(zip(self._output_names, self._session.run(self._output_names, feeds), strict=True))
        return self.execute_bound(feeds)

    def execute_bound(self, feeds: Arrays) -> Arrays:
        """Execute with I/O binding: inputs are copied to the device once, outputs allocated there and copied back once."""
        binding = self._session.io_binding()
        values = {name: self._runtime.OrtValue.ortvalue_from_numpy(array, self.device, 0) for name, array in feeds.items()}
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        for name in self._output_names:
            binding.bind_output(name, self.device)
        self._session.run_with_iobinding(binding)
        return dict(zip(self._output_names, binding.copy_outputs_to_cpu(), strict=True))


def _metadata(file: pathlib.Path, tensor: Any) -> TensorMetadata:
    if tensor.type not in _DATATYPES:
        raise UsageError(f"{file} has the tensor '{tensor.name}' of type {tensor.type}, which this server does not support.")
    shape = tuple(size if isinstance(size, int) else -1 for size in tensor.shape)
    return TensorMetadata(tensor.name, _DATATYPES[tensor.type].value, shape)
