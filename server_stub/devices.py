"""Where models are executed: the CPU, or a GPU through CUDA, and why it is the one or the other."""

import ctypes
import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any, Literal

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
    return Device("cuda", f"{name}, since CUDA {driver.version} and ONNX Runtime's CUDA provider are there", driver)


def find_usable_cuda(load: Callable[[str], Any] = ctypes.CDLL) -> tuple[CudaDriver, str]:
    """The driver and the first GPU's name, when all that ONNX Runtime needs for it can be loaded; raises CudaError."""
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
