"""Models that ONNX Runtime executes, on the CPU or on a GPU, with new buffers for each execution."""

import dataclasses
import pathlib

import numpy as np

from server_stub.devices.cuda_driver import CudaDriver
from server_stub.devices.device import Kind
from server_stub.executors.array import Arrays, Executor, GpuArray, Inputs
from server_stub.executors.onnx_buffers import FixedBufferExecutor
from server_stub.executors.onnx_options import OnnxOptions
from server_stub.executors.onnx_session import open_session, tensor_metadata

ON_CPU = OnnxOptions(provider="cpu")


class OnnxExecutor(Executor):
    """Executes an ONNX file, with `threads` threads per execution on the CPU. `options.provider` must be set.

    `inputs` and `outputs` are the graph's tensors, with -1 for variable sizes.
    """

    def __init__(self, file: pathlib.Path, threads: int, options: OnnxOptions = ON_CPU) -> None:
        self._session = open_session(file, threads, options)
        self.inputs, self.outputs = (
            tensor_metadata(file, tensors) for tensors in (self._session.get_inputs(), self._session.get_outputs())
        )
        self._output_names = [tensor.name for tensor in self.outputs]
        self._device = "cpu" if options.provider == "cpu" else "cuda"
        self.accepts_gpu_arrays = self._device == "cuda"

    def execute(self, inputs: Inputs) -> Arrays:
        """See `Executor.execute`."""
        # ONNX Runtime expects aligned memory, but a tensor after a JSON part of any length may not be aligned
        feeds = {
            name: array if isinstance(array, GpuArray) else np.require(array, requirements=("C", "A")) for name, array in inputs.items()
        }
        if self._device == "cpu":
            return dict(zip(self._output_names, self._session.run(self._output_names, feeds), strict=True))
        return self.execute_bound(feeds)

    def execute_bound(self, feeds: Inputs) -> Arrays:
        """Execute with I/O binding: inputs are copied to the device once, outputs allocated there and copied back once."""
        import onnxruntime

        binding = self._session.io_binding()
        for name, array in feeds.items():
            if isinstance(array, GpuArray):
                binding.bind_input(name, self._device, 0, array.dtype.type, array.shape, array.address)
            else:
                binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array, self._device, 0))
        for name in self._output_names:
            binding.bind_output(name, self._device)
        self._session.run_with_iobinding(binding)
        return dict(zip(self._output_names, binding.copy_outputs_to_cpu(), strict=True))


@dataclasses.dataclass(frozen=True, slots=True)
class OnnxRuntime:
    """How ONNX files are loaded. `options` are resolved; a GPU needs the `driver`."""

    threads: int
    options: OnnxOptions = ON_CPU
    driver: CudaDriver | None = None

    @property
    def device(self) -> Kind:
        """The device of the models."""
        return "cpu" if self.options.provider == "cpu" else "cuda"

    def on(self, device: Kind) -> "OnnxRuntime":
        """The same, or with the CPU's defaults for a model that its configuration keeps off the GPU."""
        return self if device == self.device else OnnxRuntime(self.threads)

    def load(self, file: pathlib.Path, *, max_batch: int = 0, instances: int = 1) -> "OnnxExecutor | FixedBufferExecutor":
        """The executor of a file, for batches up to `max_batch`, or 0 for a model without batches.

        Raises UsageError if the file cannot be loaded, or not with these options.
        """
        if not self.options.has_fixed_buffers:
            return OnnxExecutor(file, self.threads, self.options)
        assert self.driver is not None, "options with fixed buffers are refused on the CPU"
        options = dataclasses.replace(self.options, instances=instances)
        return FixedBufferExecutor(file, options, self.driver, max_batch=max_batch, threads=self.threads)
