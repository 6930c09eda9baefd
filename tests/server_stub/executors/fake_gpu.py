"""A fake GPU for the executor with fixed buffers: a fake driver, and sessions of ONNX Runtime's CPU provider on its streams."""

import ctypes
import threading
from typing import Any

from server_stub.devices.cuda_driver import CudaDriver
from server_stub.executors.onnx import ON_CPU
from server_stub.executors.onnx_buffers import FixedBufferExecutor
from server_stub.executors.onnx_options import OnnxOptions
from server_stub.executors.onnx_session import open_session
from tests.server_stub.devices.fake_cuda import FakeCuda

HANDLE = bytes(range(64))


class SessionOnStream:
    """A CPU session that executes in the order of a fake stream, and records the run options' graph ids."""

    def __init__(self, session, library, stream, runs):
        self._session, self._library, self._stream, self._runs = session, library, stream, runs

    def __getattr__(self, name):
        return getattr(self._session, name)

    def run_with_iobinding(self, binding, options):
        self._library.cuStreamSynchronize(ctypes.c_void_p(self._stream))
        graph = None if options is None else options.get_run_config_entry("gpu_graph_id")
        self._runs.append((threading.get_ident(), binding, graph))
        self._session.run_with_iobinding(binding)


class FakeGpu:
    """A fake GPU with the executors that use it."""

    def __init__(self, shared=None):
        self.library = FakeCuda(shared=shared)
        self.driver = CudaDriver(lambda _: self.library)
        self.runs: list[tuple[int, Any, str | None]] = []
        """The thread, the binding and the graph id of each execution."""

    def read(self) -> bytes:
        """Fails: what is in the GPU's memory is to stay there."""
        raise AssertionError("memory of the GPU was copied to the host")

    def executor(self, file, max_batch, **options):
        def open_on_stream(file, threads, _, stream):
            return SessionOnStream(open_session(file, threads, ON_CPU), self.library, stream, self.runs)

        return FixedBufferExecutor(
            file, OnnxOptions("cuda", **options), self.driver, max_batch=max_batch, memory="cpu", open_session=open_on_stream
        )
