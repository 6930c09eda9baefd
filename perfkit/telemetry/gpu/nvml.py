"""The NVML driver and its GPUs; the only module that imports NVML.

A query never raises: each refusal becomes a note, a sentence that is reported once.
"""

import contextlib
import ctypes
import dataclasses
import enum
import pathlib
import re
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from perfkit.machine.cpus import ROOT, read_system_file
from perfkit.telemetry.gpu.queries import (
    GpuSettings,
    NvmlQuery,
    StaleBufferError,
    StampedValue,
    fast_queries,
    memory_query,
    read_settings,
    slow_queries,
)
from perfkit.telemetry.messages import NO_GPU_NOTE

_T = TypeVar("_T")
_MAX_INSTANCES = 16


class _Refusal(enum.Enum):
    UNSUPPORTED = "the driver does not report"
    FORBIDDEN = "this user has no permission to read"
    FAILED = "failed"
    LOST = "lost"


class Gpu:
    """A GPU, or a MIG instance of one, for which the driver reports memory only.

    `notes` holds sentences not yet reported. `fast_queries` return at once, `slow_queries` block for about 20 ms each.
    """

    def __init__(self, nvml: Any, handle: Any, index: int, parent: "Gpu | None", wall_us: Callable[[], int]) -> None:
        self._nvml, self._handle, self._wall_us = nvml, handle, wall_us
        self.index, self.parent = index, parent
        self.name, self.uuid = "unnamed", f"index {index}"
        self.is_lost = self.is_divided = False
        self.notes: list[str] = []
        self._unreadable: dict[_Refusal, list[str]] = {}
        self._failed: set[str] = set()
        self._note_lock = threading.Lock()  # slow queries run in a thread of their own
        self.driver_version: str | None = (
            parent.driver_version if parent else self._read_once("its driver version", lambda: str(nvml.nvmlSystemGetDriverVersion()))
        )
        self.name = self._read_once("its name", lambda: str(nvml.nvmlDeviceGetName(handle))) or self.name
        self.uuid = self._read_once("its UUID", lambda: str(nvml.nvmlDeviceGetUUID(handle))) or self.uuid
        self.memory_total_bytes = self._read_once("its memory size", lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).total))
        self.fast_queries = [memory_query(nvml, handle)] if parent else fast_queries(nvml, handle, wall_us)
        self.slow_queries = [] if parent else slow_queries(nvml, handle)
        process_calls = [nvml.nvmlDeviceGetComputeRunningProcesses_v3, nvml.nvmlDeviceGetComputeRunningProcesses_v2]
        self._process_calls: list[Callable[[Any], Any]] = [] if parent else process_calls

    @property
    def title(self) -> str:
        """Its index and name, for sentences."""
        return f"GPU {self.index} ({self.name}{', MIG instance' if self.parent else ''})"

    def read(self, query: NvmlQuery) -> Sequence[StampedValue]:
        """The query's new values, if any. A refusal is noted, and a method that is unsupported or forbidden is not tried again."""
        while (method := query.method) and not self.is_lost:
            try:
                return method.read()
            except StaleBufferError:
                query.drop_method()
            except self._nvml.NVMLError as error:
                refusal = self._classify(error)
                if refusal in (_Refusal.UNSUPPORTED, _Refusal.FORBIDDEN):
                    if query.drop_method() is None:
                        self._note(refusal, query.title, error)
                    continue
                self._note(refusal, query.title, error)
                return ()
        return ()

    def processes(self) -> dict[int, int | None] | None:
        """The PIDs that compute on it, and the bytes of GPU memory of each where known; None if the driver lists none."""
        while self._process_calls and not self.is_lost:
            try:
                return {int(process.pid): process.usedGpuMemory for process in self._process_calls[0](self._handle)}
            except self._nvml.NVMLError as error:
                refusal = self._classify(error)
                if refusal in (_Refusal.UNSUPPORTED, _Refusal.FORBIDDEN):
                    del self._process_calls[0]
                    if self._process_calls:
                        continue
                self._note(refusal, "its processes", error)
                return None
        return None

    def settings(self) -> GpuSettings:
        """Its settings now; None for what the driver does not report."""
        processes = self.processes()
        named = None if processes is None else tuple(map(_named_process, sorted(processes)))
        return read_settings(self._nvml, self._handle, self.title, named, self.is_divided)

    def take_notes(self) -> list[str]:
        """The notes since the previous call, with one sentence for all unsupported quantities and one for all forbidden ones."""
        with self._note_lock:
            for refusal in (_Refusal.UNSUPPORTED, _Refusal.FORBIDDEN):
                if titles := self._unreadable.pop(refusal, None):
                    self.notes.append(f"{self.title}: {refusal.value} {', '.join(titles)}; everything else is sampled.")
            taken, self.notes = self.notes, []
        return taken

    def instances(self) -> list["Gpu"]:
        """The MIG instances of a divided GPU; empty for a whole one."""
        nvml, instances = self._nvml, list[Gpu]()
        try:
            self.is_divided = nvml.nvmlDeviceGetMigMode(self._handle)[0] == 1
            maximum = nvml.nvmlDeviceGetMaxMigDeviceCount(self._handle) if self.is_divided else 0
        except nvml.NVMLError:  # a GPU without MIG
            return []
        for number in range(min(maximum, _MAX_INSTANCES)):
            try:
                handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(self._handle, number)
                instances.append(Gpu(nvml, handle, self.index, self, self._wall_us))
            except nvml.NVMLError as error:
                if error.value != nvml.NVML_ERROR_NOT_FOUND:
                    self.notes.append(f"{self.title}: MIG instance {number} cannot be opened ({error}), and is not sampled.")
        if self.is_divided:
            count = f"{len(instances)} {'instance' if len(instances) == 1 else 'instances'}"
            self.notes.append(
                f"{self.title} is divided (MIG) into {count}: the driver reports memory per instance, but power, energy, clocks and "
                "temperature only for the whole GPU."
            )
        return instances

    def _classify(self, error: Any) -> _Refusal:
        nvml, code = self._nvml, error.value
        if code in (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED, nvml.NVML_ERROR_UNINITIALIZED):
            return _Refusal.LOST
        if code == nvml.NVML_ERROR_NO_PERMISSION:
            return _Refusal.FORBIDDEN
        unsupported = (
            nvml.NVML_ERROR_NOT_SUPPORTED,
            nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            nvml.NVML_ERROR_INVALID_ARGUMENT,
            nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
            nvml.NVML_ERROR_DEPRECATED,
        )
        return _Refusal.UNSUPPORTED if code in unsupported else _Refusal.FAILED

    def _note(self, refusal: _Refusal, title: str, error: Any) -> None:
        with self._note_lock:
            if refusal is _Refusal.LOST and not self.is_lost:
                self.is_lost = True
                self.notes.append(f"{self.title}: the driver lost it ({error}); it is no longer sampled.")
            elif refusal is _Refusal.FAILED and title not in self._failed:
                self._failed.add(title)
                self.notes.append(f"{self.title}: reading {title} failed ({error}).")
            elif refusal in (_Refusal.UNSUPPORTED, _Refusal.FORBIDDEN):
                self._unreadable.setdefault(refusal, []).append(title)

    def _read_once(self, title: str, read: Callable[[], _T]) -> _T | None:
        try:
            return read()
        except self._nvml.NVMLError as error:
            self._note(self._classify(error), title, error)
            return None


class NvmlDriver:
    """An open NVML: `gpus` lists each GPU followed by its MIG instances, `notes` what could not be opened."""

    def __init__(self, nvml: Any, wall_ns: Callable[[], int]) -> None:
        self._nvml = nvml
        self.notes: list[str] = []
        self.gpus: list[Gpu] = []
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                gpu = Gpu(nvml, nvml.nvmlDeviceGetHandleByIndex(index), index, None, lambda: wall_ns() // 1000)
            except nvml.NVMLError as error:
                self.notes.append(f"GPU {index} cannot be opened ({error}), and is not sampled.")
                continue
            self.gpus += [gpu, *gpu.instances()]

    def cuda_version(self) -> tuple[int, int] | None:
        """The newest CUDA that the driver supports, such as (13, 0); None if it does not say."""
        with contextlib.suppress(self._nvml.NVMLError):
            version = int(self._nvml.nvmlSystemGetCudaDriverVersion_v2())
            return version // 1000, version % 1000 // 10
        return None

    def close(self) -> None:
        """Closes NVML; a failure to do so has no consequence."""
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()


class NoDriverError(Exception):
    """NVML or its GPUs cannot be used; `reason` says why, without a full stop, and the text is a sentence for a result's notes."""

    def __init__(self, reason: str, *notes: str) -> None:
        super().__init__(" ".join([f"{reason}: no GPU is sampled.", *notes]))
        self.reason = reason


def open_driver(wall_ns: Callable[[], int]) -> NvmlDriver:
    """Opens NVML; raises NoDriverError."""
    import pynvml as nvml

    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise NoDriverError(_no_driver_reason(nvml, error)) from None
    try:
        driver = NvmlDriver(nvml, wall_ns)
    except nvml.NVMLError as error:
        nvml.nvmlShutdown()
        raise NoDriverError(f"NVML cannot list the GPUs ({error})") from None
    if not driver.gpus:
        driver.close()
        raise NoDriverError("The NVIDIA driver reports no GPU", *driver.notes)
    return driver


def _named_process(pid: int) -> str:
    name = (read_system_file(ROOT / f"proc/{pid}/comm") or "").strip()
    return f"{name} (pid {pid})" if name else f"pid {pid}"


def _no_driver_reason(nvml: Any, error: Any) -> str:
    reasons = {
        nvml.NVML_ERROR_LIBRARY_NOT_FOUND: f"{NO_GPU_NOTE} (libnvidia-ml.so.1 was not found)",
        nvml.NVML_ERROR_DRIVER_NOT_LOADED: "The NVIDIA driver is installed but not loaded",
        nvml.NVML_ERROR_NO_PERMISSION: "The NVIDIA driver denies access to this user",
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "The NVIDIA driver and its library have different versions, as after an update without reboot",
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND: "The NVIDIA driver is too old for the NVML functions that perfkit uses",
    }
    return reasons.get(error.value, f"NVML cannot be opened ({error})")


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
