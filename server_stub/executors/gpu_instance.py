"""One instance of an ONNX model on a GPU: a stream, buffers at fixed addresses, and an execution prepared for each batch size."""

import contextlib
import ctypes
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from perfkit.errors import ProtocolError
from perfkit.protocol.message import TensorMetadata
from perfkit.protocol.tensor import Datatype, array_dtype
from server_stub.devices.cuda_driver import CudaDriver, CudaError
from server_stub.executors.array import Arrays, GpuArray, Inputs, SharedArray

_WARM_RUNS = 2  # the first makes the plans of convolutions, the second the memory that they need
_TIMED_RUNS = 3


def _release(function: Callable[[int], None], handle: int) -> None:
    """Release a handle. After an error of the GPU that fails, too, and the first error counts."""
    with contextlib.suppress(CudaError):
        function(handle)


class _Buffer:
    """Memory on the GPU for a tensor of the largest batch, and page-locked memory on the host."""

    def __init__(self, driver: CudaDriver, resources: contextlib.ExitStack, tensor: TensorMetadata, max_batch: int) -> None:
        self.row_shape = tensor.shape[1:] if max_batch else tensor.shape
        self.shape = (max_batch, *self.row_shape) if max_batch else self.row_shape
        self.dtype = array_dtype(Datatype(tensor.datatype))
        self.row_bytes = math.prod(self.row_shape) * self.dtype.itemsize
        byte_size = max(1, math.prod(self.shape) * self.dtype.itemsize)
        self.address = driver.allocate(byte_size)
        resources.callback(_release, driver.free, self.address)
        self.host_address = driver.allocate_host(byte_size)
        resources.callback(_release, driver.free_host, self.host_address)
        memory = memoryview((ctypes.c_char * byte_size).from_address(self.host_address))
        self.host: npt.NDArray[Any] = np.frombuffer(memory, self.dtype, math.prod(self.shape)).reshape(self.shape)


class GpuInstance:
    """Executes one batch at a time: `fill`, `start` and `finish`, which may be called from different threads.

    `open_session` makes a session on a `compute_stream`; `memory` is ONNX Runtime's name for the memory of the buffers.
    """

    def __init__(self, driver: CudaDriver, resources: contextlib.ExitStack, open_session: Callable[..., Any], memory: str) -> None:
        self._driver, self._resources, self._open_session, self._memory = driver, resources, open_session, memory
        self._stream = driver.make_stream()
        resources.callback(_release, driver.close_stream, self._stream)
        self._sessions = [open_session(compute_stream=self._stream)]
        self._programs: dict[int, Callable[[], None]] = {}
        resources.callback(self._close)
        self._inputs: dict[str, _Buffer] = {}
        self._outputs: dict[str, _Buffer] = {}
        self._has_batches = False

    @property
    def session(self) -> Any:
        """Its first session."""
        return self._sessions[0]

    def allocate(self, inputs: Sequence[TensorMetadata], outputs: Sequence[TensorMetadata], max_batch: int) -> None:
        """Make the buffers, for batches up to `max_batch`, or 0 for tensors without a batch dimension. Raises CudaError."""
        self._has_batches = max_batch > 0
        for buffers, tensors in ((self._inputs, inputs), (self._outputs, outputs)):
            buffers.update({tensor.name: _Buffer(self._driver, self._resources, tensor, max_batch) for tensor in tensors})

    def prepare(self, size: int, *, is_captured: bool) -> None:
        """Prepare executions of `size` rows: captured as a graph, or else with a session that sees no other size.

        ONNX Runtime prepares every convolution anew whenever the size changes, so a session of several sizes would be cold each time.
        Raises CudaError, or what ONNX Runtime raises.
        """
        if not is_captured and self._programs:
            self._sessions.append(self._open_session(compute_stream=self._stream))
        session = self._sessions[-1]
        run = self._bound_run(session, size)
        self._driver.enter()
        for _ in range(_WARM_RUNS):
            run()
            self._driver.synchronize(self._stream)
        if is_captured:
            graph = self._driver.capture(self._stream, run)
            self._resources.callback(_release, self._driver.close_graph, graph)
            self._programs[size] = lambda: self._driver.launch(graph, self._stream)
            self._programs[size]()  # the first launch also brings the graph to the GPU
            self._driver.synchronize(self._stream)
        else:
            self._programs[size] = run

    def time_s(self, size: int) -> float:
        """The shortest time of a few executions of `size` rows."""
        self._driver.enter()
        times_s = []
        for _ in range(_TIMED_RUNS):
            started_s = time.perf_counter()
            self._programs[size]()
            self._driver.synchronize(self._stream)
            times_s.append(time.perf_counter() - started_s)
        return min(times_s)

    def fill(self, parts: Sequence[Inputs]) -> None:
        """Start to copy the inputs of a batch's requests to the GPU. Arrays in ordinary memory are copied to page-locked memory first."""
        self._driver.enter()
        for name, buffer in self._inputs.items():
            start = 0
            for part in parts:
                start += self._copy_in(buffer, part[name], start)

    def start(self, size: int, rows: int) -> None:
        """Start the execution of a prepared size, and the copy of the first `rows` rows of its outputs to the host."""
        self._driver.enter()
        self._programs[size]()
        for buffer in self._outputs.values():
            byte_size = (rows if self._has_batches else 1) * buffer.row_bytes
            self._driver.copy_out(buffer.host_address, buffer.address, byte_size, self._stream)

    def finish(self, rows: int) -> Arrays:
        """Wait for the execution, and return copies of its outputs."""
        self.wait()
        return {name: (buffer.host[:rows] if self._has_batches else buffer.host).copy() for name, buffer in self._outputs.items()}

    def wait(self) -> None:
        """Wait until nothing is being copied or executed."""
        self._driver.enter()
        self._driver.synchronize(self._stream)

    def _copy_in(self, buffer: _Buffer, array: Any, start: int) -> int:
        """Start to copy one request's tensor to the rows from `start`, and return the number of its rows."""
        rows = array.shape[0] if self._has_batches else 1
        offset = start * buffer.row_bytes
        if array.nbytes != rows * buffer.row_bytes:  # a configuration may leave a size open that the file fixes
            raise ProtocolError(f"an input of {array.nbytes} bytes was given where the model takes {rows * buffer.row_bytes}")
        if isinstance(array, GpuArray):
            self._driver.copy_within(buffer.address + offset, array.address, array.nbytes, self._stream)
            return rows
        if is_page_locked(self._driver, array):
            source = array.ctypes.data
        else:
            target = buffer.host[start : start + rows] if self._has_batches else buffer.host
            if isinstance(array, SharedArray):
                array.copy_to(target)
            else:
                np.copyto(target, array)
            source = buffer.host_address + offset
        self._driver.copy_in(buffer.address + offset, source, rows * buffer.row_bytes, self._stream)
        return rows

    def _bound_run(self, session: Any, size: int) -> Callable[[], None]:
        """A function that starts the session on its stream, with `size` rows of the buffers."""
        import onnxruntime

        binding = session.io_binding()
        binds: tuple[tuple[Mapping[str, _Buffer], Callable[..., None]], ...]
        binds = ((self._inputs, binding.bind_input), (self._outputs, binding.bind_output))
        for buffers, bind in binds:
            for name, buffer in buffers.items():
                shape = (size, *buffer.row_shape) if self._has_batches else buffer.row_shape
                bind(name, self._memory, 0, buffer.dtype.type, shape, buffer.address)
        options = onnxruntime.RunOptions()
        # the outputs are copied on the same stream, and waited for together
        options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        return lambda: session.run_with_iobinding(binding, options)

    def _close(self) -> None:
        """Release the sessions; what is bound to them holds them too."""
        self._programs.clear()
        self._sessions.clear()


def is_page_locked(driver: CudaDriver, array: Any) -> bool:
    """Whether an array is NumPy's, and the GPU can copy it from where it is while the CPU goes on."""
    return isinstance(array, np.ndarray) and array.flags.c_contiguous and driver.is_pinned(array.ctypes.data)
