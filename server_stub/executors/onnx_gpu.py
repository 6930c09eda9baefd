"""ONNX models on a GPU: each batch size is prepared before the first request, if possible as a CUDA graph.

A batch has the memory of an instance from `join` to `finish`. A graph repeats its operations at the same addresses and of the same size,
so a batch is padded to the next prepared size; rows of the padding hold what was there before.
"""

import bisect
import collections
import concurrent.futures
import contextlib
import dataclasses
import functools
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from perfkit.errors import UsageError
from perfkit.override import override
from perfkit.protocol.message import TensorMetadata
from server_stub.devices.cuda_driver import CudaDriver, CudaError
from server_stub.executors.array import Arrays, Executor, GpuArray, Inputs
from server_stub.executors.batch_sizes import affordable_instances, best_rows, by_importance, graph_sizes, session_sizes
from server_stub.executors.gpu_instance import GpuInstance, is_page_locked
from server_stub.executors.onnx_options import GPU_INSTANCES, OnnxOptions
from server_stub.executors.onnx_session import open_session, rewritten_model, tensor_metadata

PREPARING_S = 30.0
"""After this time, only the largest batch and powers of two are still prepared."""
SPARE_BYTES = 2**30
"""Likewise where less than this is free on the GPU."""
_COPIED_BYTES = 2**16  # what the event loop may copy itself, to start a batch at once


class VariableSizesError(UsageError):
    """A model has variable sizes besides the batch, so there are no fixed buffers for it."""


class Batch(NamedTuple):
    """A batch in the memory of an instance: its rows, and the size that it is executed with."""

    instance: GpuInstance
    rows: int
    size: int


class GpuExecutor(Executor):
    """Executes an ONNX file with batches up to `max_batch`; 0 means that no tensor has a batch dimension.

    `inputs` and `outputs` are the graph's tensors, with -1 for variable sizes; `instances` is the number of executions at a time. Raises
    VariableSizesError, and UsageError if the file cannot be loaded or the GPU's memory does not suffice.
    """

    accepts_gpu_arrays = accepts_shared_arrays = True

    def __init__(
        self,
        file: pathlib.Path,
        options: OnnxOptions,
        driver: CudaDriver,
        *,
        max_batch: int,
        instances: int | None = None,
        threads: int = 1,
        memory: str = "cuda",
        open_session: Callable[..., Any] = open_session,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Without `instances`, as many as fit up to `GPU_INSTANCES`. `memory` is ONNX Runtime's name for the memory of the buffers."""
        self._driver, self._has_batches = driver, max_batch > 0
        self.fallback = ""
        """Why it does without what was chosen at first, such as CUDA graphs; empty if it does not."""
        started_s, free_bytes = now_s(), driver.free_bytes()
        attempts = [options]
        if options.graphs:
            attempts.append(dataclasses.replace(options, graphs=False))
        if options.layout == "nhwc":
            attempts.append(dataclasses.replace(options, graphs=False, layout="nchw"))
        for attempt in attempts:
            opened = functools.partial(open_session, file, threads, attempt, model=rewritten_model(file, attempt))
            with contextlib.ExitStack() as resources:
                preparation = _Preparation(file, attempt, driver, resources, max_batch, lambda: now_s() - started_s)
                try:
                    preparation.run(opened, memory, instances)
                except VariableSizesError:
                    raise
                except Exception as error:  # noqa: BLE001 - ONNX Runtime's exceptions share no other base
                    if attempt is attempts[-1]:
                        raise UsageError(preparation.words(error)) from None
                    self.fallback = self.fallback or preparation.words(error)
                    continue
                self._resources = resources.pop_all()
                break
        self._options, self._sizes = attempt, sorted(preparation.seconds)
        self._instances = preparation.instances
        self.inputs, self.outputs = preparation.tensors
        self.instances = len(self._instances)
        self.begins_in_loop = bool(attempt.graphs)
        self.batch_rows = best_rows(preparation.seconds) if self._has_batches else ()
        self._idle = collections.deque(self._instances)
        self._load_s, self._used_bytes = now_s() - started_s, free_bytes - driver.free_bytes()

    @override
    def document(self) -> dict[str, Any]:
        chosen = {"instances": self.instances, "graphs": self._options.graphs, "layout": self._options.layout}
        figures = {"load_s": round(self._load_s, 1), "gpu_memory_bytes": self._used_bytes}
        return {**chosen, "batch_sizes": self._sizes, **figures, **({"fallback": self.fallback} if self.fallback else {})}

    @override
    def begins_at_once(self, parts: Sequence[Inputs]) -> bool:
        """The GPU copies the inputs itself, or nearly all of them."""
        arrays = [array for part in parts for array in part.values() if not isinstance(array, GpuArray)]
        copied_bytes = sum(int(array.nbytes) for array in arrays if not is_page_locked(self._driver, array))
        return copied_bytes <= _COPIED_BYTES

    @override
    def join(self, parts: Sequence[Inputs]) -> Batch:
        """Takes an instance, and starts to copy the inputs to its buffers."""
        rows = sum(next(iter(part.values())).shape[0] if self._has_batches else 1 for part in parts)
        instance = self._idle.popleft()
        batch = Batch(instance, rows, self._sizes[bisect.bisect_left(self._sizes, rows)])
        try:
            instance.fill(parts)
        except BaseException:
            self._give_back(batch)
            raise
        return batch

    @override
    def start(self, inputs: Batch) -> None:
        try:
            inputs.instance.start(inputs.size, inputs.rows)
        except BaseException:
            self._give_back(inputs)
            raise

    @override
    def finish(self, inputs: Batch) -> Arrays:
        try:
            outputs: Arrays = inputs.instance.finish(inputs.rows)
        finally:
            self._idle.append(inputs.instance)
        return outputs

    @override
    def execute(self, inputs: Batch) -> Arrays:
        """For a batch that has been joined."""
        self.start(inputs)
        return self.finish(inputs)

    @override
    def close(self) -> None:
        self._resources.close()

    def _give_back(self, batch: Batch) -> None:
        """Free the instance of a batch that failed, once the copies that had been started have ended."""
        with contextlib.suppress(CudaError):  # the first error counts
            batch.instance.wait()
        self._idle.append(batch.instance)


class _Preparation:
    """Makes the instances of a model and prepares its batch sizes, within the budgets of time and memory."""

    def __init__(
        self,
        file: pathlib.Path,
        options: OnnxOptions,
        driver: CudaDriver,
        resources: contextlib.ExitStack,
        max_batch: int,
        elapsed_s: Callable[[], float],
    ) -> None:
        self._file, self._options, self._driver, self._resources = file, options, driver, resources
        self._max_batch, self._elapsed_s = max_batch, elapsed_s
        self.instances: list[GpuInstance] = []
        self.tensors: tuple[tuple[TensorMetadata, ...], tuple[TensorMetadata, ...]] = ((), ())
        self.seconds: dict[int, float] = {}
        """The time of an execution by prepared batch size."""

    def run(self, open_session: Callable[..., Any], memory: str, instances: int | None) -> None:
        """Make and prepare everything. Raises VariableSizesError, CudaError, or what ONNX Runtime raises."""
        is_captured = bool(self._options.graphs)
        sizes = by_importance((graph_sizes if is_captured else session_sizes)(max(1, self._max_batch)))
        needed = set(session_sizes(sizes[0]))
        free_bytes = self._driver.free_bytes()
        self._add_instance(open_session, memory)
        self.instances[0].prepare(sizes[0], is_captured=is_captured)
        if instances is None:
            left_bytes = self._driver.free_bytes()
            instances = affordable_instances(GPU_INSTANCES, free_bytes - left_bytes, left_bytes)
        for _ in range(1, instances):
            self._add_instance(open_session, memory)
            self.instances[-1].prepare(sizes[0], is_captured=is_captured)
        prepared = [sizes[0]]
        with concurrent.futures.ThreadPoolExecutor(instances) as threads:
            for size in sizes[1:]:
                if size not in needed and (self._elapsed_s() > PREPARING_S or self._driver.free_bytes() < SPARE_BYTES):
                    break
                list(threads.map(lambda instance, size=size: instance.prepare(size, is_captured=is_captured), self.instances))
                prepared.append(size)
        self.seconds = {size: self.instances[0].time_s(size) for size in prepared}

    def words(self, error: Exception) -> str:
        """A sentence that says what failed."""
        if isinstance(error, UsageError):
            return str(error)
        how = "be captured as CUDA graphs" if self._options.graphs else "be prepared on the GPU"
        return f"{self._file}: its executions, for batches up to {max(1, self._max_batch)}, cannot {how}: {error}"

    def _add_instance(self, open_session: Callable[..., Any], memory: str) -> None:
        instance = GpuInstance(self._driver, self._resources, open_session, memory)
        if not self.instances:
            session = instance.session
            inputs, outputs = (tensor_metadata(self._file, tensors) for tensors in (session.get_inputs(), session.get_outputs()))
            self.tensors = inputs, outputs
            _check_shapes(self._file, (*inputs, *outputs), self._max_batch)
        instance.allocate(*self.tensors, self._max_batch)
        self.instances.append(instance)


def _check_shapes(file: pathlib.Path, tensors: Sequence[TensorMetadata], max_batch: int) -> None:
    for tensor in tensors:
        if max_batch and tensor.shape[:1] != (-1,):
            raise UsageError(
                f"{file} has '{tensor.name}' of shape {list(tensor.shape)}: with a max_batch_size above 0, the first size must be variable."
            )
        sizes = tensor.shape[1:] if max_batch else tensor.shape
        if -1 in sizes:
            raise VariableSizesError(
                f"{file} has '{tensor.name}' of shape {list(tensor.shape)}, so its sizes differ from request to request"
            )
