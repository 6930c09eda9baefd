"""What can be asked of a GPU: a list of questions, each with the ways to ask it, the best first.

Where a driver does not have one way the next one is taken: an old driver has no instant power, a new one may keep no buffer.
NVML itself is handed in, and its errors go through to who asks.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from perfkit.units import NS_PER_S

_STALE_US = 2_000_000

Stamped = tuple[int | None, float]
"""A value, and when it was new in µs since 1970, None where the driver does not say."""


@dataclasses.dataclass(frozen=True, slots=True)
class Way:
    """One way to ask a question; `every_ns` is how often its answer can change, at most."""

    name: str
    every_ns: int
    ask: Callable[[], Sequence[Stamped]]
    precedes: bool = False
    """Whether each value is the mean since the one before, rather than what holds from its instant on."""


class StaleError(Exception):
    """A buffer has had nothing new for too long."""


class Question:
    """Something to be asked of a GPU again and again: the series it becomes, and how to ask it."""

    def __init__(self, name: str, words: str, unit: str, ways: Sequence[Way]) -> None:
        self.name, self.words, self.unit = name, words, unit
        self._ways = list(ways)

    @property
    def way(self) -> Way | None:
        """How it is asked now; None where the driver has no way."""
        return self._ways[0] if self._ways else None

    def next_way(self) -> Way | None:
        """Gives up the way it is asked now."""
        del self._ways[:1]
        return self.way


def quick_questions(nvml: Any, handle: Any, wall_us: Callable[[], int]) -> list[Question]:
    """What a whole GPU can be asked without waiting; `wall_us` is the clock of the driver's stamps."""
    gpu_samples, memory_samples = nvml.NVML_GPU_UTILIZATION_SAMPLES, nvml.NVML_MEMORY_UTILIZATION_SAMPLES
    corrected, uncorrected = nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED

    def rate(field: str) -> Callable[[], Sequence[Stamped]]:
        return lambda: [(None, getattr(nvml.nvmlDeviceGetUtilizationRates(handle), field) / 100)]

    def plain(name: str, call: str, *arguments: Any, every_ns: int = 0, scale: float = 1.0) -> Way:
        function = getattr(nvml, call)
        return Way(name, every_ns, lambda: [(None, function(handle, *arguments) * scale)])

    return [
        Question("gpu_power", "power", "W", [
            # what it is now, in the driver's memory; what it was, in its buffer; and a mean over a second on newer GPUs
            Way("instant", NS_PER_S // 50, lambda: _field(nvml, handle, wall_us, nvml.NVML_FI_DEV_POWER_INSTANT, 1e-3)),
            Way("samples", NS_PER_S // 2, _buffer(nvml, handle, wall_us, nvml.NVML_TOTAL_POWER_SAMPLES, 1e-3)),
            plain("average", "nvmlDeviceGetPowerUsage", every_ns=NS_PER_S // 50, scale=1e-3),
        ]),
        Question("gpu_energy", "the energy counter", "J", [
            Way("field", NS_PER_S // 50, lambda: _field(nvml, handle, wall_us, nvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION, 1e-3)),
            plain("counter", "nvmlDeviceGetTotalEnergyConsumption", every_ns=NS_PER_S // 50, scale=1e-3),
        ]),
        # the driver measures both over a sixth of a second to a second
        Question("gpu_utilization", "utilisation", "share", [
            Way("samples", NS_PER_S // 2, _buffer(nvml, handle, wall_us, gpu_samples, 0.01), precedes=True),
            Way("rates", NS_PER_S // 6, rate("gpu")),
        ]),
        Question("gpu_memory_utilization", "memory-controller utilisation", "share", [
            Way("samples", NS_PER_S // 2, _buffer(nvml, handle, wall_us, memory_samples, 0.01), precedes=True),
            Way("rates", NS_PER_S // 6, rate("memory")),
        ]),
        memory_question(nvml, handle),
        Question("gpu_sm_clock", "the SM clock", "MHz", [plain("clock", "nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM)]),
        Question("gpu_memory_clock", "the memory clock", "MHz", [plain("clock", "nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM)]),
        Question("gpu_throttle_reasons", "throttle reasons", "", [
            plain("events", "nvmlDeviceGetCurrentClocksEventReasons"), plain("throttling", "nvmlDeviceGetCurrentClocksThrottleReasons"),
        ]),
        Question("gpu_temperature", "temperature", "celsius", [
            plain("sensor", "nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU, every_ns=NS_PER_S),
        ]),
        Question("gpu_ecc_corrected", "corrected ECC errors", "count", [
            plain("total", "nvmlDeviceGetTotalEccErrors", corrected, nvml.NVML_VOLATILE_ECC, every_ns=NS_PER_S),
        ]),
        Question("gpu_ecc_uncorrected", "uncorrected ECC errors", "count", [
            plain("total", "nvmlDeviceGetTotalEccErrors", uncorrected, nvml.NVML_VOLATILE_ECC, every_ns=NS_PER_S),
        ]),
    ]  # fmt: skip


def memory_question(nvml: Any, handle: Any) -> Question:
    """What an instance of a divided GPU can be asked as well."""
    return Question("gpu_memory_used", "used memory", "bytes", [
        # the newer form leaves out what the driver keeps for itself
        Way("v2", 0, lambda: [(None, nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2).used)]),
        Way("v1", 0, lambda: [(None, nvml.nvmlDeviceGetMemoryInfo(handle).used)]),
    ])  # fmt: skip


def pcie_questions(nvml: Any, handle: Any) -> list[Question]:
    """What blocks for some 20 ms each: the driver counts for so long."""

    def way(counter: int) -> Way:
        return Way("throughput", NS_PER_S, lambda: [(None, nvml.nvmlDeviceGetPcieThroughput(handle, counter) * 1000.0)])

    return [
        Question("gpu_pcie_sent", "PCIe bytes sent", "bytes_per_s", [way(nvml.NVML_PCIE_UTIL_TX_BYTES)]),
        Question("gpu_pcie_received", "PCIe bytes received", "bytes_per_s", [way(nvml.NVML_PCIE_UTIL_RX_BYTES)]),
    ]


def _field(nvml: Any, handle: Any, wall_us: Callable[[], int], field: int, scale: float) -> Sequence[Stamped]:
    (value,) = nvml.nvmlDeviceGetFieldValues(handle, [field])
    if value.nvmlReturn:
        raise nvml.NVMLError(value.nvmlReturn)
    stamp_us = int(value.timestamp)
    is_sane = 0 <= wall_us() - stamp_us < _STALE_US
    return [(stamp_us if is_sane else None, _number(value.valueType, value.value) * scale)]


def _buffer(nvml: Any, handle: Any, wall_us: Callable[[], int], kind: int, scale: float) -> Callable[[], Sequence[Stamped]]:
    """Asks for what the driver's own buffer has got since it was asked last."""
    seen_us = 0

    def ask() -> Sequence[Stamped]:
        nonlocal seen_us
        now_us = wall_us()
        seen_us = seen_us or now_us - 1
        try:
            value_type, samples = nvml.nvmlDeviceGetSamples(handle, kind, seen_us)
        except nvml.NVMLError as error:
            if error.value != nvml.NVML_ERROR_NOT_FOUND:
                raise
            samples, value_type = [], 0
        new = [sample for sample in samples if seen_us < sample.timeStamp <= now_us + _STALE_US]
        if new:
            seen_us = int(new[-1].timeStamp)
        elif now_us - seen_us > _STALE_US:  # a buffer that nobody fills, or whose stamps are another clock's
            raise StaleError
        return [(int(sample.timeStamp), _number(value_type, sample.sampleValue) * scale) for sample in new]

    return ask


_VALUE_FIELDS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}


def _number(value_type: int, value: Any) -> float:
    return float(getattr(value, _VALUE_FIELDS.get(value_type, "ullVal")))


THROTTLE_REASONS = {
    # nvml.h, nvmlClocksEventReasons; what the user asked for (idle, application clocks, sync boost, display) is no throttling
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x200: "board limit",
    0x400: "reliability limit",
}
THROTTLING = sum(THROTTLE_REASONS)
