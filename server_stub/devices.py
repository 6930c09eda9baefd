"""Where models are executed: the CPU, or a GPU through CUDA, and why it is the one or the other."""

import ctypes
import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from perfkit.errors import UsageError
from server_stub.cuda_driver import CudaDriver, CudaError

Kind = Literal["cpu", "cuda"]
_PROVIDER = "CUDAExecutionProvider"
_INSTALL = "pip install 'perfkit[cuda]' in place of 'perfkit[server]'"


@dataclasses.dataclass(frozen=True, slots=True)
class Device:
    """What was taken, and the sentence that says why; `driver` is there with a GPU alone."""

    kind: Kind = "cpu"
    reason: str = ""
    driver: CudaDriver | None = None


def choose_device(asked: str, find_cuda: "Callable[[], tuple[CudaDriver, str]] | None" = None) -> Device:
    """The device for `auto`, `cpu` or `cuda`; raises UsageError, saying what is missing, where `cuda` cannot be had."""
    if asked == "cpu":
        return Device("cpu", "the CPU, as --device asks")
    try:
        driver, name = (find_cuda or find_usable_cuda)()
    except CudaError as error:
        if asked == "cuda":
            raise UsageError(f"--device cuda: {error}; --device cpu or auto runs without a GPU.") from None
        return Device("cpu", f"the CPU, since {error}")
    return Device("cuda", f"{name}, since CUDA {driver.version} and ONNX Runtime's CUDA provider work", driver)


def find_usable_cuda(load: Callable[[str], Any] = ctypes.CDLL) -> tuple[CudaDriver, str]:
    """The driver and the first GPU's name, when all that ONNX Runtime needs for it can be loaded and works; raises CudaError."""
    driver = CudaDriver(load)
    try:
        import onnxruntime
    except ImportError as error:
        raise CudaError(f"ONNX Runtime is not there ({error}): {_INSTALL}") from None
    if _PROVIDER not in onnxruntime.get_available_providers():
        raise CudaError(f"ONNX Runtime {onnxruntime.__version__} is built without CUDA: {_INSTALL}")
    if hasattr(onnxruntime, "preload_dlls"):
        onnxruntime.preload_dlls()  # CUDA's libraries out of NVIDIA's Python packages, if those are installed
    check_provider(pathlib.Path(onnxruntime.__file__).parent / "capi", onnxruntime.__version__, driver.version)
    check_execution(_PROVIDER, driver.version)
    return driver, driver.device_name(0)


def check_provider(folder: pathlib.Path, version: str, cuda_version: str, load: Callable[..., Any] = ctypes.CDLL) -> None:
    """Loads ONNX Runtime's CUDA provider; raises CudaError, naming the library, where one that it needs is missing."""
    try:
        load(str(folder / "libonnxruntime_providers_shared.so"), mode=ctypes.RTLD_GLOBAL)
        load(str(folder / "libonnxruntime_providers_cuda.so"))
    except OSError as error:
        raise CudaError(
            f"the CUDA provider of ONNX Runtime {version} cannot be loaded ({error}); the driver is for CUDA {cuda_version}"
        ) from None


def check_execution(provider: str, cuda_version: str) -> None:
    """Executes one convolution there; raises CudaError where libraries that can be loaded do not fit the driver or the GPU."""
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        raise CudaError(f"a package is not there ({error}): {_INSTALL}") from None
    one = np.ones((1, 1, 1, 1), np.float32)
    tensors = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, one.shape) for name in ("x", "w", "y")]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Conv", ["x", "w"], ["y"])], "trial", tensors[:2], tensors[2:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 11)], ir_version=6)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # what fails is told here
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=[provider], enable_fallback=0)
        session.run(None, {"x": one, "w": one})
    except Exception as error:  # noqa: BLE001 - ONNX Runtime's exceptions share no other base
        raise CudaError(
            f"the {provider} of ONNX Runtime {onnxruntime.__version__} does not work ({error}); the driver is for CUDA {cuda_version}"
        ) from None
    if provider not in session.get_providers():
        raise CudaError(f"ONNX Runtime {onnxruntime.__version__} could not start its {provider}; the driver is for CUDA {cuda_version}")
