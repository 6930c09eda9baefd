"""The device that models run on: the CPU, or a GPU through CUDA."""

import contextlib
import ctypes
import dataclasses
import pathlib
import sys
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from perfkit.errors import UsageError
from perfkit.installation import install_command
from server_stub.devices.cuda_driver import CudaDriver, CudaError

Kind = Literal["cpu", "cuda"]
_PROVIDER = "CUDAExecutionProvider"
_INSTALL = f"{install_command('cuda')}, in place of the extra 'server'"


@dataclasses.dataclass(frozen=True, slots=True)
class Device:
    """The chosen device, and why it was chosen. `driver` is set for a GPU only."""

    kind: Kind = "cpu"
    reason: str = ""
    driver: CudaDriver | None = None


def choose_device(
    requested: str, find_cuda: "Callable[[], tuple[CudaDriver, str]] | None" = None, *, has_onnx_on_cpu: bool = False
) -> Device:
    """The device for `auto`, `cpu` or `cuda`. Raises UsageError, saying what is missing, if `cuda` is unavailable.

    If ONNX models stay on the CPU, ONNX Runtime's CUDA build is not needed.
    """
    if requested == "cpu":
        return Device("cpu", "the CPU, as requested by --device")
    try:
        driver, name = (find_cuda or (find_gpu if has_onnx_on_cpu else find_usable_cuda))()
    except CudaError as error:
        if requested == "cuda":
            raise UsageError(f"--device cuda: {error}; use --device cpu or auto to run without a GPU.") from None
        return Device("cpu", f"the CPU, because {error}")
    if has_onnx_on_cpu:
        return Device("cuda", f"{name}: CUDA {driver.version} works; ONNX models run on the CPU, as requested by --onnx", driver)
    return Device("cuda", f"{name}: CUDA {driver.version} and ONNX Runtime's CUDA provider work", driver)


def find_gpu(load: Callable[[str], Any] = ctypes.CDLL) -> tuple[CudaDriver, str]:
    """The driver and the first GPU's name. Raises CudaError without a driver or a GPU."""
    driver = CudaDriver(load)
    return driver, driver.device_name(0)


def find_usable_cuda(load: Callable[[str], Any] = ctypes.CDLL) -> tuple[CudaDriver, str]:
    """The driver and the first GPU's name. Raises CudaError if anything that ONNX Runtime needs is missing or does not work."""
    driver = CudaDriver(load)
    try:
        import onnxruntime
    except ImportError as error:
        raise CudaError(f"ONNX Runtime is not installed ({error}): {_INSTALL}") from None
    if _PROVIDER not in onnxruntime.get_available_providers():
        raise CudaError(f"ONNX Runtime {onnxruntime.__version__} is built without CUDA: {_INSTALL}")
    if hasattr(onnxruntime, "preload_dlls"):
        with contextlib.redirect_stdout(sys.stderr):  # it prints what it cannot load, and stdout is for the ready line
            onnxruntime.preload_dlls()  # CUDA's libraries from NVIDIA's Python packages, if those are installed
    check_provider(pathlib.Path(onnxruntime.__file__).parent / "capi", onnxruntime.__version__, driver.version)
    check_execution(_PROVIDER, driver.version)
    return driver, driver.device_name(0)


def check_provider(folder: pathlib.Path, version: str, cuda_version: str, load: Callable[..., Any] = ctypes.CDLL) -> None:
    """Load ONNX Runtime's CUDA provider. Raises CudaError, naming the library, if one that it needs is missing."""
    try:
        load(str(folder / "libonnxruntime_providers_shared.so"), mode=ctypes.RTLD_GLOBAL)
        load(str(folder / "libonnxruntime_providers_cuda.so"))
    except OSError as error:
        raise CudaError(
            f"the CUDA provider of ONNX Runtime {version} cannot be loaded ({error}); the driver supports CUDA {cuda_version}"
        ) from None


def check_execution(provider: str, cuda_version: str) -> None:
    """Execute one convolution on a provider. Raises CudaError if its libraries do not match the driver or the GPU."""
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        raise CudaError(f"a package is not installed ({error}): {_INSTALL}") from None
    ones = np.ones((1, 1, 1, 1), np.float32)
    tensors = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ones.shape) for name in ("x", "w", "y")]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Conv", ["x", "w"], ["y"])], "trial", tensors[:2], tensors[2:])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 11)], ir_version=6)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are reported by the exceptions below
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=[provider], enable_fallback=0)
        session.run(None, {"x": ones, "w": ones})
    except Exception as error:  # noqa: BLE001 - ONNX Runtime's exceptions share no other base
        raise CudaError(
            f"the {provider} of ONNX Runtime {onnxruntime.__version__} does not work ({error}); the driver supports CUDA {cuda_version}"
        ) from None
    if provider not in session.get_providers():
        raise CudaError(f"ONNX Runtime {onnxruntime.__version__} could not start its {provider}; the driver supports CUDA {cuda_version}")
