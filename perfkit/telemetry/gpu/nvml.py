"""GPUs as their driver tells of them: the only module that speaks NVML, and the place where its refusals become words.

An error never leaves a question: it is kept as a sentence to be said once.
"""

import enum
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from perfkit.telemetry.gpu.queries import Question, StaleError, Stamped, memory_question, pcie_questions, quick_questions

_T = TypeVar("_T")
_MOST_INSTANCES = 16


class Why(enum.Enum):
    """Why a question has no answer."""

    UNSUPPORTED = "unsupported"
    FORBIDDEN = "forbidden"
    FAILED = "failed"
    LOST = "lost"


class Gpu:
    """One GPU, or an instance of a divided one (MIG), which tells its memory alone.

    `notes` has sentences not said yet; `questions` are quick, `slow_questions` block for some 20 ms each.
    """

    def __init__(self, nvml: Any, handle: Any, index: int, parent: "Gpu | None", wall_us: Callable[[], int]) -> None:
        self._nvml, self._handle, self._wall_us = nvml, handle, wall_us
        self.index, self.parent = index, parent
        self.name, self.uuid = "unnamed", f"index {index}"
        self.is_lost = self.is_divided = False
        self.notes: list[str] = []
        self._silent: dict[Why, list[str]] = {}
        self._said: set[str] = set()
        self._noting = threading.Lock()  # slow questions are asked in a thread of their own
        self.driver_version: str | None = (
            parent.driver_version if parent else self._once("its driver's version", lambda: str(nvml.nvmlSystemGetDriverVersion()))
        )
        self.name = self._once("its name", lambda: str(nvml.nvmlDeviceGetName(handle))) or self.name
        self.uuid = self._once("its UUID", lambda: str(nvml.nvmlDeviceGetUUID(handle))) or self.uuid
        self.memory_total_bytes = self._once("its memory", lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).total))
        self.questions = [memory_question(nvml, handle)] if parent else quick_questions(nvml, handle, wall_us)
        self.slow_questions = [] if parent else pcie_questions(nvml, handle)
        self._processes: list[Callable[[Any], Any]] = []
        if parent is None:
            self._processes = [nvml.nvmlDeviceGetComputeRunningProcesses_v3, nvml.nvmlDeviceGetComputeRunningProcesses_v2]

    @property
    def title(self) -> str:
        """What sentences call it."""
        return f"GPU {self.index} ({self.name}{', an instance of a divided GPU' if self.parent else ''})"

    def ask(self, question: Question) -> Sequence[Stamped]:
        """The question's new values, none where the driver has none; what it refuses is noted and not asked again."""
        while (way := question.way) and not self.is_lost:
            try:
                return way.ask()
            except StaleError:
                question.next_way()
            except self._nvml.NVMLError as error:
                why = self._judge(error)
                if why in (Why.UNSUPPORTED, Why.FORBIDDEN):
                    if question.next_way() is None:
                        self._note(why, question.words, error)
                    continue
                self._note(why, question.words, error)
                return ()
        return ()

    def processes(self) -> dict[int, int | None] | None:
        """The processes that compute here, and the bytes of GPU memory of each where they are known; None where nobody says."""
        while self._processes and not self.is_lost:
            try:
                return {int(one.pid): one.usedGpuMemory for one in self._processes[0](self._handle)}
            except self._nvml.NVMLError as error:
                why = self._judge(error)
                if why in (Why.UNSUPPORTED, Why.FORBIDDEN):
                    del self._processes[0]
                    if self._processes:
                        continue
                self._note(why, "the processes on it", error)
                return None
        return None

    def take_notes(self) -> list[str]:
        """What has not been said yet, fields of one kind in one sentence."""
        with self._noting:
            if silent := self._silent.pop(Why.UNSUPPORTED, None):
                self.notes.append(f"{self.title}: its driver does not tell {', '.join(silent)}; the rest is sampled.")
            if silent := self._silent.pop(Why.FORBIDDEN, None):
                self.notes.append(f"{self.title}: this user has no permission to read {', '.join(silent)}; the rest is sampled.")
            taken, self.notes = self.notes, []
        return taken

    def instances(self) -> list["Gpu"]:
        """The instances of a divided GPU; none of one that is whole."""
        nvml, found = self._nvml, list[Gpu]()
        try:
            self.is_divided = nvml.nvmlDeviceGetMigMode(self._handle)[0] == 1
            most = nvml.nvmlDeviceGetMaxMigDeviceCount(self._handle) if self.is_divided else 0
        except nvml.NVMLError:  # a GPU that cannot be divided
            return []
        for number in range(min(most, _MOST_INSTANCES)):
            try:
                found.append(Gpu(nvml, nvml.nvmlDeviceGetMigDeviceHandleByIndex(self._handle, number), self.index, self, self._wall_us))
            except nvml.NVMLError as error:
                if error.value != nvml.NVML_ERROR_NOT_FOUND:
                    self.notes.append(f"{self.title}: its instance {number} cannot be opened ({error}), and is left out.")
        if self.is_divided:
            parts = f"{len(found)} {'instance' if len(found) == 1 else 'instances'}"
            self.notes.append(
                f"{self.title} is divided (MIG) into {parts}: the driver tells their memory alone, and power, energy, "
                "clocks and temperature of the whole GPU, whoever works on it."
            )
        return found

    def _judge(self, error: Any) -> Why:
        nvml, code = self._nvml, error.value
        if code in (nvml.NVML_ERROR_GPU_IS_LOST, nvml.NVML_ERROR_RESET_REQUIRED, nvml.NVML_ERROR_UNINITIALIZED):
            return Why.LOST
        if code == nvml.NVML_ERROR_NO_PERMISSION:
            return Why.FORBIDDEN
        absent = (
            nvml.NVML_ERROR_NOT_SUPPORTED,
            nvml.NVML_ERROR_FUNCTION_NOT_FOUND,
            nvml.NVML_ERROR_INVALID_ARGUMENT,
            nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
            nvml.NVML_ERROR_DEPRECATED,
        )
        return Why.UNSUPPORTED if code in absent else Why.FAILED

    def _note(self, why: Why, words: str, error: Any) -> None:
        with self._noting:
            if why is Why.LOST and not self.is_lost:
                self.is_lost = True
                self.notes.append(f"{self.title} is lost to the driver ({error}): nothing more is sampled of it.")
            elif why is Why.FAILED and words not in self._said:
                self._said.add(words)
                self.notes.append(f"{self.title}: the driver failed to tell {words} ({error}).")
            elif why in (Why.UNSUPPORTED, Why.FORBIDDEN):
                self._silent.setdefault(why, []).append(words)

    def _once(self, words: str, ask: Callable[[], _T]) -> _T | None:
        try:
            return ask()
        except self._nvml.NVMLError as error:
            self._note(self._judge(error), words, error)
            return None


class Driver:
    """NVML, opened: the machine's GPUs, instances of divided ones behind their GPU, and what could not be opened, in `notes`."""

    def __init__(self, nvml: Any, wall_ns: Callable[[], int]) -> None:
        self._nvml = nvml
        self.notes: list[str] = []
        self.gpus: list[Gpu] = []
        for index in range(nvml.nvmlDeviceGetCount()):
            try:
                gpu = Gpu(nvml, nvml.nvmlDeviceGetHandleByIndex(index), index, None, lambda: wall_ns() // 1000)
            except nvml.NVMLError as error:
                self.notes.append(f"GPU {index} cannot be opened ({error}): it is left out.")
                continue
            self.gpus += [gpu, *gpu.instances()]

    def close(self) -> None:
        """Lets go of the library; a driver that fails at that has nothing left to say."""
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError:
            return


class NoDriverError(Exception):
    """There is no NVML to be had; the text says why, in a sentence."""


def open_driver(wall_ns: Callable[[], int]) -> Driver:
    """Opens NVML; raises NoDriverError."""
    import pynvml as nvml

    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise NoDriverError(_why_not(nvml, error)) from None
    try:
        driver = Driver(nvml, wall_ns)
    except nvml.NVMLError as error:
        nvml.nvmlShutdown()
        raise NoDriverError(f"NVML does not say which GPUs there are ({error}): no GPU is sampled.") from None
    if not driver.gpus:
        driver.close()
        raise NoDriverError(" ".join(["There is an NVIDIA driver, and no GPU that it shows.", *driver.notes]))
    return driver


def _why_not(nvml: Any, error: Any) -> str:
    sentences = {
        nvml.NVML_ERROR_LIBRARY_NOT_FOUND: "There is no NVIDIA driver here (libnvidia-ml.so.1 was not found)",
        nvml.NVML_ERROR_DRIVER_NOT_LOADED: "The NVIDIA driver is installed, and not loaded",
        nvml.NVML_ERROR_NO_PERMISSION: "The NVIDIA driver does not let this user in",
        nvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "The NVIDIA driver and its library are of different versions, as after an update",
        nvml.NVML_ERROR_FUNCTION_NOT_FOUND: "The NVIDIA driver is too old for NVML as perfkit speaks it",
    }
    return f"{sentences.get(error.value, f'NVML cannot be opened ({error})')}: no GPU is sampled."
