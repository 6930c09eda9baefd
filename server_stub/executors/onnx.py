"""Models that ONNX Runtime executes, on the CPU or on a GPU, with new buffers for each execution."""

import dataclasses
import pathlib
from collections.abc import Callable

import numpy as np

from perfkit.override import override
from server_stub.devices.cuda_driver import CudaDriver
from server_stub.devices.device import Kind
from server_stub.executors.array import Arrays, Executor, GpuArray, Inputs
from server_stub.executors.onnx_gpu import GpuExecutor, VariableSizesError
from server_stub.executors.onnx_options import OnnxOptions, resolve_onnx_options
from server_stub.executors.onnx_session import open_session, tensor_metadata

ON_CPU = resolve_onnx_options(OnnxOptions(), "cpu")


class OnnxExecutor(Executor):
    """Executes an ONNX file, with `threads` threads per execution on the CPU. `options.provider` must be set.

    On a GPU it is for models whose sizes vary. `inputs` and `outputs` are the graph's tensors, with -1 for variable sizes.
    """

    def __init__(self, file: pathlib.Path, threads: int, options: OnnxOptions = ON_CPU, *, instances: int = 1) -> None:
        self.instances = instances
        self._session = open_session(file, threads, options)
        self.inputs, self.outputs = (
            tensor_metadata(file, tensors) for tensors in (self._session.get_inputs(), self._session.get_outputs())
        )
        self._output_names = [tensor.name for tensor in self.outputs]
        self._device = "cpu" if options.provider == "cpu" else "cuda"
        self.accepts_gpu_arrays = self._device == "cuda"

    @override
    def execute(self, inputs: Inputs) -> Arrays:
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
    """How ONNX files are loaded. `options` are resolved; a GPU needs the `driver`. `warn` gets what a user should know of a file."""

    threads: int
    options: OnnxOptions = ON_CPU
    driver: CudaDriver | None = None
    warn: Callable[[str], None] = lambda _: None

    @property
    def device(self) -> Kind:
        """The device of the models."""
        return "cpu" if self.options.provider == "cpu" else "cuda"

    def on(self, device: Kind) -> "OnnxRuntime":
        """The same, or with the CPU's defaults for a model that its configuration keeps off the GPU."""
        return self if device == self.device else OnnxRuntime(self.threads, warn=self.warn)

    def load(self, file: pathlib.Path, *, max_batch: int = 0, instances: int | None = None) -> "OnnxExecutor | GpuExecutor":
        """The executor of a file, for batches up to `max_batch`, or 0 for a model without batches.

        `instances` None leaves their number to the options, or to the GPU's memory. Raises UsageError if the file cannot be loaded, or
        not with these options.
        """
        wanted = instances or self.options.instances
        if self.device == "cpu":
            return OnnxExecutor(file, self.threads, self.options, instances=wanted or 1)
        assert self.driver is not None, "a GPU has a driver"
        try:
            executor = GpuExecutor(file, self.options, self.driver, max_batch=max_batch, instances=wanted, threads=self.threads)
        except VariableSizesError as error:
            self.warn(
                f"{error}: its buffers are made for each request, and the first request of each size is slow, because ONNX Runtime prepares "
                "convolutions anew whenever a size changes."
            )
            return OnnxExecutor(file, self.threads, self.options, instances=wanted or 1)
        if executor.fallback:
            self.warn(f"{executor.fallback}. It is executed without, so more slowly.")
        return executor
