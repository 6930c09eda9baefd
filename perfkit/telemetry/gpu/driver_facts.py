"""The NVIDIA driver of this machine and its GPUs, as facts for `perfkit doctor`."""

import contextlib
import ctypes
import dataclasses
import pathlib
import re
from collections.abc import Callable
from typing import Any

from perfkit.machine.cpus import ROOT, read_system_file
from perfkit.telemetry.gpu.nvml import NoDriverError, NvmlDriver, open_driver
from perfkit.telemetry.gpu.settings import GpuSettings


@dataclasses.dataclass(frozen=True, slots=True)
class DriverFacts:
    """The driver and its GPUs; None where nothing says."""

    version: str | None = None
    """Such as 580.95.05; None without a driver."""
    cuda: tuple[int, int] | None = None
    """The newest CUDA that it supports."""
    gpus: tuple[GpuSettings, ...] = ()
    """The whole GPUs that NVML lists."""
    unusable: str | None = None
    """Why NVML lists none, although a driver is loaded."""


def read_driver_facts(
    root: pathlib.Path = ROOT,
    open_nvml: Callable[[], NvmlDriver] = lambda: open_driver(lambda: 0),
    load_library: Callable[[str], Any] = ctypes.CDLL,
) -> DriverFacts:
    """Asks NVML, else the loaded kernel module and the CUDA library."""
    kernel_version = _kernel_module_version(root)
    try:
        driver = open_nvml()
    except NoDriverError as error:
        cuda = _cuda_library_version(load_library)
        is_there = kernel_version is not None or cuda is not None
        return DriverFacts(kernel_version, cuda, unusable=error.reason if is_there else None)
    try:
        whole = [gpu for gpu in driver.gpus if gpu.parent is None]
        version = next((gpu.driver_version for gpu in whole if gpu.driver_version), kernel_version)
        cuda = driver.cuda_version() or _cuda_library_version(load_library)
        return DriverFacts(version, cuda, tuple(gpu.settings() for gpu in whole))
    finally:
        driver.close()


def _kernel_module_version(root: pathlib.Path) -> str | None:
    """From `NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.95.05  Tue Sep 23 10:11:16 UTC 2025`."""
    match = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)\s", read_system_file(root / "proc/driver/nvidia/version") or "")
    return match[1] if match else None


def _cuda_library_version(load_library: Callable[[str], Any]) -> tuple[int, int] | None:
    """What `cuDriverGetVersion` of the driver's CUDA library reports, which needs no GPU."""
    with contextlib.suppress(OSError, AttributeError):
        version = ctypes.c_int()
        if load_library("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version)) == 0:
            return version.value // 1000, version.value % 1000 // 10
    return None
