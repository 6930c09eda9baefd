"""A fake GPU for the executor: a fake driver, and sessions of ONNX Runtime's CPU provider on its streams."""

from server_stub.devices.cuda_driver import CudaDriver
from server_stub.executors.onnx import ON_CPU
from server_stub.executors.onnx_gpu import GpuExecutor
from server_stub.executors.onnx_options import OnnxOptions
from server_stub.executors.onnx_session import open_session
from tests.server_stub.devices.fake_cuda import FakeCuda

HANDLE = bytes(range(64))


class SessionOnStream:
    """A CPU session that executes in the order of a fake stream, and records the batch sizes that it executes."""

    def __init__(self, session, library, stream, executed):
        self._session, self._library, self._stream, self._executed = session, library, stream, executed

    def __getattr__(self, name):
        return getattr(self._session, name)

    def run_with_iobinding(self, binding, options):
        assert options.get_run_config_entry("disable_synchronize_execution_providers") == "1"

        def execute():
            self._executed.append(binding.get_outputs()[0].shape()[0])
            self._session.run_with_iobinding(binding)

        self._library.add(self._stream, execute)


class FakeGpu:
    """A fake GPU with the executors that use it."""

    def __init__(self, shared=None):
        self.library = FakeCuda(shared=shared)
        self.driver = CudaDriver(lambda _: self.library)
        self.executed: list[list[int]] = []
        """The batch sizes of each execution, by session."""

    def read(self) -> bytes:
        """Fails: what is in the GPU's memory is to stay there."""
        raise AssertionError("memory of the GPU was copied to the host")

    def executor(self, file, max_batch, *, instances=1, now_s=lambda: 0.0, **options):
        def open_on_stream(file, threads, _, *, compute_stream, **_model):
            self.executed.append([])
            return SessionOnStream(open_session(file, threads, ON_CPU), self.library, compute_stream, self.executed[-1])

        chosen = OnnxOptions(**{"provider": "cuda", "precision": "tf32", "layout": "nhwc", "graphs": True, **options})
        return GpuExecutor(
            file,
            chosen,
            self.driver,
            max_batch=max_batch,
            instances=instances,
            memory="cpu",
            open_session=open_on_stream,
            now_s=now_s,
        )

    @property
    def is_clean(self):
        """Whether nothing is allocated, captured or open."""
        return not (self.library.allocated or self.library.streams or self.library.graphs or self.library.capturing)
