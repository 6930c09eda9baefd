"""ONNX models on a GPU with buffers at fixed addresses, filled on streams, and optionally captured as CUDA graphs.

Each instance has a session and a compute stream. Each of the threads that execute has a buffer set: one for every instance, or
two with a copy stream, so that the next batch is copied while the present one is computed. A captured graph repeats its
operations at the same addresses and of the same size, so smaller batches are padded to the next captured size.
"""

import contextlib
import ctypes
import itertools
import math
import pathlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from perfkit.errors import UsageError
from perfkit.protocol.message import TensorMetadata
from perfkit.protocol.tensor import Datatype, array_dtype
from server_stub.devices.cuda_driver import CudaDriver, CudaError
from server_stub.executors.array import Arrays, Executor, GpuArray, Inputs, SharedArray
from server_stub.executors.onnx_options import OnnxOptions
from server_stub.executors.onnx_session import open_session, tensor_metadata


class Staged(NamedTuple):
    """A batch whose inputs are being copied to a buffer set: its rows, and the size it is executed with."""

    rows: int
    size: int


def padded_sizes(max_batch: int) -> tuple[int, ...]:
    """1, 2, 4, and so on up to the largest batch, which is the last size whether or not it is a power of two."""
    powers = itertools.takewhile(lambda size: size < max_batch, (2**exponent for exponent in itertools.count()))
    return (*powers, max_batch)


class FixedBufferExecutor(Executor):
    """Executes an ONNX file with batches up to `max_batch`; 0 means that no tensor has a batch dimension.

    `inputs` and `outputs` are the graph's tensors, with -1 for variable sizes. Raises UsageError if another size is variable, or
    the GPU's memory does not suffice.
    """

    accepts_gpu_arrays = accepts_shared_arrays = True

    def __init__(
        self,
        file: pathlib.Path,
        options: OnnxOptions,
        driver: CudaDriver,
        *,
        max_batch: int,
        threads: int = 1,
        memory: str = "cuda",
        open_session: Callable[..., Any] = open_session,
    ) -> None:
        """`memory` is ONNX Runtime's name for the memory of the buffers."""
        self._claiming, self._claimed = threading.Lock(), 0
        self._mine = threading.local()
        self._file = file
        self.concurrency = options.instances * options.streams
        graph_ids = itertools.count(1)  # never repeated: a graph belongs to one size of one buffer set
        with contextlib.ExitStack() as resources:
            gpu = _GpuResources(driver, resources)
            try:
                instances = [_Instance(gpu.stream()) for _ in range(options.instances)]
                for instance in instances:
                    instance.session = open_session(file, threads, options, instance.stream)
                session = instances[0].session
                self.inputs, self.outputs = (tensor_metadata(file, tensors) for tensors in (session.get_inputs(), session.get_outputs()))
                _check_shapes(file, (*self.inputs, *self.outputs), max_batch)
                tensors = self.inputs, self.outputs
                self._sets = [
                    _BufferSet(gpu, instance, tensors, options, max_batch, memory, graph_ids)
                    for _ in range(options.streams)
                    for instance in instances
                ]
            except CudaError as error:
                raise UsageError(f"{file}: buffers for batches up to {max(1, max_batch)} cannot be made on the GPU: {error}") from None
            self._resources = resources.pop_all()

    def prepare(self) -> None:
        """Give the calling thread a buffer set, and capture its graphs: ONNX Runtime keeps a graph for the thread that captured it.

        Raises UsageError if that fails, such as for a model with operators that the GPU does not execute.
        """
        with self._claiming:  # a capture fails if another thread calls CUDA meanwhile
            if self._claimed == len(self._sets):
                raise RuntimeError(f"more than {len(self._sets)} threads execute the model")
            self._mine.buffers = self._sets[self._claimed]
            self._claimed += 1
            try:
                self._mine.buffers.capture()
            except Exception as error:  # noqa: BLE001 - ONNX Runtime's exceptions share no other base
                raise UsageError(f"{self._file}: its CUDA graphs cannot be captured: {error}; remove graphs=on from --onnx.") from None

    def join(self, parts: Sequence[Inputs]) -> Staged:
        """See `Executor.join`: starts to copy the inputs to the thread's buffers, from the host or within the GPU."""
        staged: Staged = self._mine.buffers.stage(parts)
        return staged

    def execute(self, inputs: Staged) -> Arrays:
        """See `Executor.execute`, for the batch that the same thread has joined."""
        outputs: Arrays = self._mine.buffers.execute(inputs)
        return outputs

    def close(self) -> None:
        """See `Executor.close`: first the sessions, then their streams and buffers."""
        for buffers in self._sets:
            buffers.close()
        self._sets.clear()
        self._resources.close()


class _GpuResources:
    """Makes streams, events and buffers, and registers their release."""

    def __init__(self, driver: CudaDriver, resources: contextlib.ExitStack) -> None:
        self.driver, self._resources = driver, resources

    def stream(self) -> int:
        return self._registered(self.driver.make_stream(), self.driver.close_stream)

    def event(self) -> int:
        return self._registered(self.driver.make_event(), self.driver.close_event)

    def buffer(self, byte_size: int) -> int:
        return self._registered(self.driver.allocate(byte_size), self.driver.free)

    def host_buffer(self, byte_size: int) -> int:
        return self._registered(self.driver.allocate_host(byte_size), self.driver.free_host)

    def _registered(self, handle: int, release: Callable[[int], None]) -> int:
        self._resources.callback(release, handle)
        return handle


class _Instance:
    """A session with its compute stream. One thread executes at a time."""

    def __init__(self, stream: int) -> None:
        self.stream = stream
        self.executing = threading.Lock()
        self.session: Any = None


class _Buffer:
    """Memory on the GPU for a tensor of the largest batch, and memory on the host that is copied to or from it."""

    def __init__(self, gpu: _GpuResources, tensor: TensorMetadata, max_batch: int, *, is_pinned: bool, has_host: bool) -> None:
        self.row_shape = tensor.shape[1:] if max_batch else tensor.shape
        self.shape = (max_batch, *self.row_shape) if max_batch else self.row_shape
        self.dtype = array_dtype(Datatype(tensor.datatype))
        self.row_bytes = math.prod(self.row_shape) * self.dtype.itemsize
        byte_size = max(1, math.prod(self.shape) * self.dtype.itemsize)
        self.address = gpu.buffer(byte_size)
        self.host: npt.NDArray[Any] | None = None
        self.host_address = 0
        if is_pinned:
            self.host_address = gpu.host_buffer(byte_size)
            memory = memoryview((ctypes.c_char * byte_size).from_address(self.host_address))
            self.host = np.frombuffer(memory, self.dtype, math.prod(self.shape)).reshape(self.shape)
        elif has_host:
            self.host = np.zeros(self.shape, self.dtype)
            self.host_address = self.host.ctypes.data


class _BufferSet:
    """The buffers of one thread, and the executions bound to them by batch size."""

    def __init__(
        self,
        gpu: _GpuResources,
        instance: _Instance,
        tensors: tuple[Sequence[TensorMetadata], Sequence[TensorMetadata]],
        options: OnnxOptions,
        max_batch: int,
        memory: str,
        graph_ids: Iterator[int],
    ) -> None:
        inputs, outputs = tensors
        self._driver, self._instance, self._memory = gpu.driver, instance, memory
        self._has_graphs, self._graph_ids, self._is_pinned = options.graphs, graph_ids, options.pinned
        self._has_batches = max_batch > 0
        self._sizes = padded_sizes(max(1, max_batch))
        self._inputs = {tensor.name: _Buffer(gpu, tensor, max_batch, is_pinned=options.pinned, has_host=False) for tensor in inputs}
        self._outputs = {tensor.name: _Buffer(gpu, tensor, max_batch, is_pinned=options.pinned, has_host=True) for tensor in outputs}
        self._copy_stream = instance.stream
        self._copied: int | None = None
        if options.streams > 1:
            self._copy_stream, self._copied = gpu.stream(), gpu.event()
        self._bound: dict[int, tuple[Any, Any]] = {}

    def capture(self) -> None:
        """Execute each padded size once, which captures its graph."""
        if self._has_graphs:
            for size in self._sizes:
                self.execute(Staged(size, size))

    def stage(self, parts: Sequence[Inputs]) -> Staged:
        """Start the copies of a batch's inputs to the GPU."""
        rows = sum(next(iter(part.values())).shape[0] if self._has_batches else 1 for part in parts)
        for name, buffer in self._inputs.items():
            start = 0
            for part in parts:
                start += self._copy_in(buffer, part[name], start)
        if self._copied is not None:
            self._driver.record(self._copied, self._copy_stream)
        size = next(size for size in self._sizes if size >= rows) if self._has_graphs else rows
        return Staged(rows, size)

    def execute(self, staged: Staged) -> Arrays:
        """Compute, and copy the outputs to the host. Rows of the padding hold what was there before, and are left out."""
        with self._instance.executing:
            binding, run_options = self._binding(staged.size)
            stream = self._instance.stream
            if self._copied is not None:
                self._driver.wait(stream, self._copied)
            self._instance.session.run_with_iobinding(binding, run_options)
            for buffer in self._outputs.values():
                rows = staged.rows if self._has_batches else 1
                size_bytes = rows * buffer.row_bytes
                self._driver.copy_out(buffer.host_address, buffer.address, size_bytes, stream, is_pinned=self._is_pinned)
            self._driver.synchronize(stream)
        outputs = {}
        for name, buffer in self._outputs.items():
            assert buffer.host is not None
            outputs[name] = (buffer.host[: staged.rows] if self._has_batches else buffer.host).copy()
        return outputs

    def close(self) -> None:
        """Release the session; its bindings hold it too."""
        self._bound.clear()
        self._instance.session = None

    def _copy_in(self, buffer: _Buffer, array: Any, start: int) -> int:
        """Start to copy one request's tensor to the rows from `start`, and return the number of its rows."""
        rows = array.shape[0] if self._has_batches else 1
        offset = start * buffer.row_bytes
        if isinstance(array, GpuArray):
            self._driver.copy_within(buffer.address + offset, array.address, array.nbytes, self._copy_stream)
        elif buffer.host is None:
            array = np.require(array.to_host() if isinstance(array, SharedArray) else array, buffer.dtype, ("C", "A"))
            self._driver.copy_in(buffer.address + offset, array.ctypes.data, array.nbytes, self._copy_stream)
        else:
            target = buffer.host[start : start + rows] if self._has_batches else buffer.host
            if isinstance(array, SharedArray):
                array.copy_to(target)
            else:
                np.copyto(target, array)
            self._driver.copy_in(
                buffer.address + offset, buffer.host_address + offset, rows * buffer.row_bytes, self._copy_stream, is_pinned=True
            )
        return rows

    def _binding(self, size: int) -> tuple[Any, Any]:
        """The bound inputs and outputs for a batch size, and the options of its run; made on first use."""
        if size in self._bound:
            return self._bound[size]
        binding = self._instance.session.io_binding()
        for buffers, bind in ((self._inputs, binding.bind_input), (self._outputs, binding.bind_output)):
            for name, buffer in buffers.items():
                shape = (size, *buffer.row_shape) if self._has_batches else buffer.row_shape
                bind(name, self._memory, 0, buffer.dtype.type, shape, buffer.address)
        run_options = None
        if self._has_graphs:
            import onnxruntime

            run_options = onnxruntime.RunOptions()
            run_options.add_run_config_entry("gpu_graph_id", str(next(self._graph_ids)))
            # the outputs are copied on the same stream, and waited for together
            run_options.add_run_config_entry("disable_synchronize_execution_providers", "1")
        self._bound[size] = binding, run_options
        return self._bound[size]


def _check_shapes(file: pathlib.Path, tensors: Sequence[TensorMetadata], max_batch: int) -> None:
    for tensor in tensors:
        sizes = tensor.shape[1:] if max_batch else tensor.shape
        if -1 in sizes:
            raise UsageError(
                f"{file} has '{tensor.name}' of shape {list(tensor.shape)}: buffers at fixed addresses need fixed sizes, except for the "
                "batch of a model with a max_batch_size; remove graphs, pinned, streams and instances from --onnx."
            )
