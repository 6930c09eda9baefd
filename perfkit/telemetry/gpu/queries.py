"""The NVML queries of a GPU, each with alternative methods, the best first.

Where a driver does not support a method the next one is used: an old driver reports no instant power, a new one may keep no
sample buffer. The NVML module is passed in, and its errors reach the caller.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from perfkit.units import NS_PER_S

_STALE_US = 2_000_000

StampedValue = tuple[int | None, float]
"""A value and when it was new, in µs since 1970; None where the driver gives no timestamp."""


@dataclasses.dataclass(frozen=True, slots=True)
class QueryMethod:
    """One way to read a quantity; `interval_ns` is the shortest time in which its value can change."""

    name: str
    interval_ns: int
    read: Callable[[], Sequence[StampedValue]]
    is_preceding_mean: bool = False
    """Whether each value is the mean since the previous one, instead of holding from its instant on."""


class StaleBufferError(Exception):
    """A sample buffer has had no new sample for too long."""


class NvmlQuery:
    """A quantity that is read repeatedly: the name and unit of its series, and the methods that remain to read it."""

    def __init__(self, name: str, title: str, unit: str, methods: Sequence[QueryMethod]) -> None:
        self.name, self.title, self.unit = name, title, unit
        self._methods = list(methods)

    @property
    def method(self) -> QueryMethod | None:
        """The method in use; None if the driver supports none."""
        return self._methods[0] if self._methods else None

    def drop_method(self) -> QueryMethod | None:
        """Drops the method in use, and returns the next one."""
        del self._methods[:1]
        return self.method


def fast_queries(nvml: Any, handle: Any, wall_us: Callable[[], int]) -> list[NvmlQuery]:
    """The queries of a whole GPU that return at once; `wall_us` is the clock of the driver's timestamps."""
    gpu_samples, memory_samples = nvml.NVML_GPU_UTILIZATION_SAMPLES, nvml.NVML_MEMORY_UTILIZATION_SAMPLES
    corrected, uncorrected = nvml.NVML_MEMORY_ERROR_TYPE_CORRECTED, nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED

    def rate(field: str) -> Callable[[], Sequence[StampedValue]]:
        return lambda: [(None, getattr(nvml.nvmlDeviceGetUtilizationRates(handle), field) / 100)]

    def plain(name: str, call: str, *arguments: Any, interval_ns: int = 0, scale: float = 1.0) -> QueryMethod:
        function = getattr(nvml, call)
        return QueryMethod(name, interval_ns, lambda: [(None, function(handle, *arguments) * scale)])

    return [
        NvmlQuery("gpu_power", "power", "W", [
            # the instant value, the driver's buffer of such values, and on newer GPUs a mean over a second
            QueryMethod("instant", NS_PER_S // 50, lambda: _read_field(nvml, handle, wall_us, nvml.NVML_FI_DEV_POWER_INSTANT)),
            QueryMethod("samples", NS_PER_S // 2, _buffer_reader(nvml, handle, wall_us, nvml.NVML_TOTAL_POWER_SAMPLES, 1e-3)),
            plain("average", "nvmlDeviceGetPowerUsage", interval_ns=NS_PER_S // 50, scale=1e-3),
        ]),
        NvmlQuery("gpu_energy", "the energy counter", "J", [
            QueryMethod("field", NS_PER_S // 50, lambda: _read_field(nvml, handle, wall_us, nvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION)),
            plain("counter", "nvmlDeviceGetTotalEnergyConsumption", interval_ns=NS_PER_S // 50, scale=1e-3),
        ]),
        # the driver measures utilisation over a sixth of a second to a second
        NvmlQuery("gpu_utilization", "utilisation", "share", [
            QueryMethod("samples", NS_PER_S // 2, _buffer_reader(nvml, handle, wall_us, gpu_samples, 0.01), is_preceding_mean=True),
            QueryMethod("rates", NS_PER_S // 6, rate("gpu")),
        ]),
        NvmlQuery("gpu_memory_utilization", "memory-controller utilisation", "share", [
            QueryMethod("samples", NS_PER_S // 2, _buffer_reader(nvml, handle, wall_us, memory_samples, 0.01), is_preceding_mean=True),
            QueryMethod("rates", NS_PER_S // 6, rate("memory")),
        ]),
        memory_query(nvml, handle),
        NvmlQuery("gpu_sm_clock", "the SM clock", "MHz", [plain("clock", "nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM)]),
        NvmlQuery("gpu_memory_clock", "the memory clock", "MHz", [plain("clock", "nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM)]),
        NvmlQuery("gpu_throttle_reasons", "throttle reasons", "", [
            plain("events", "nvmlDeviceGetCurrentClocksEventReasons"), plain("throttling", "nvmlDeviceGetCurrentClocksThrottleReasons"),
        ]),
        NvmlQuery("gpu_temperature", "temperature", "celsius", [
            plain("sensor", "nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU, interval_ns=NS_PER_S),
        ]),
        NvmlQuery("gpu_ecc_corrected", "corrected ECC errors", "count", [
            plain("total", "nvmlDeviceGetTotalEccErrors", corrected, nvml.NVML_VOLATILE_ECC, interval_ns=NS_PER_S),
        ]),
        NvmlQuery("gpu_ecc_uncorrected", "uncorrected ECC errors", "count", [
            plain("total", "nvmlDeviceGetTotalEccErrors", uncorrected, nvml.NVML_VOLATILE_ECC, interval_ns=NS_PER_S),
        ]),
    ]  # fmt: skip


def memory_query(nvml: Any, handle: Any) -> NvmlQuery:
    """Used memory, which MIG instances report as well."""
    return NvmlQuery("gpu_memory_used", "used memory", "bytes", [
        # the second version leaves out the memory that the driver reserves
        QueryMethod("v2", 0, lambda: [(None, nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2).used)]),
        QueryMethod("v1", 0, lambda: [(None, nvml.nvmlDeviceGetMemoryInfo(handle).used)]),
    ])  # fmt: skip


def slow_queries(nvml: Any, handle: Any) -> list[NvmlQuery]:
    """PCIe throughput: each call blocks for about 20 ms, in which the driver counts."""

    def method(counter: int) -> QueryMethod:
        return QueryMethod("throughput", NS_PER_S, lambda: [(None, nvml.nvmlDeviceGetPcieThroughput(handle, counter) * 1000.0)])

    return [
        NvmlQuery("gpu_pcie_sent", "PCIe bytes sent", "bytes_per_s", [method(nvml.NVML_PCIE_UTIL_TX_BYTES)]),
        NvmlQuery("gpu_pcie_received", "PCIe bytes received", "bytes_per_s", [method(nvml.NVML_PCIE_UTIL_RX_BYTES)]),
    ]


def _read_field(nvml: Any, handle: Any, wall_us: Callable[[], int], field: int) -> Sequence[StampedValue]:
    """The present value of a field in thousandths of its unit, such as milliwatts, as a value in the unit."""
    (value,) = nvml.nvmlDeviceGetFieldValues(handle, [field])
    if value.nvmlReturn:
        raise nvml.NVMLError(value.nvmlReturn)
    stamp_us = int(value.timestamp)
    is_plausible = 0 <= wall_us() - stamp_us < _STALE_US
    return [(stamp_us if is_plausible else None, _number(value.valueType, value.value) * 1e-3)]


def _buffer_reader(nvml: Any, handle: Any, wall_us: Callable[[], int], kind: int, scale: float) -> Callable[[], Sequence[StampedValue]]:
    """Returns a function that reads the samples which the driver's buffer has got since the previous call."""
    read_until_us = 0

    def read() -> Sequence[StampedValue]:
        nonlocal read_until_us
        now_us = wall_us()
        read_until_us = read_until_us or now_us - 1
        try:
            value_type, samples = nvml.nvmlDeviceGetSamples(handle, kind, read_until_us)
        except nvml.NVMLError as error:
            if error.value != nvml.NVML_ERROR_NOT_FOUND:
                raise
            samples, value_type = [], 0
        new = [sample for sample in samples if read_until_us < sample.timeStamp <= now_us + _STALE_US]
        if new:
            read_until_us = int(new[-1].timeStamp)
        elif now_us - read_until_us > _STALE_US:  # the buffer is not filled, or its timestamps are of another clock
            raise StaleBufferError
        return [(int(sample.timeStamp), _number(value_type, sample.sampleValue) * scale) for sample in new]

    return read


_VALUE_FIELDS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}


def _number(value_type: int, value: Any) -> float:
    return float(getattr(value, _VALUE_FIELDS.get(value_type, "ullVal")))


THROTTLE_REASONS = {
    # nvml.h, nvmlClocksEventReasons; idling and clocks that the user set (application clocks, sync boost, display) do not count
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
    0x200: "board limit",
    0x400: "reliability limit",
}
THROTTLE_MASK = sum(THROTTLE_REASONS)


_T = TypeVar("_T")
# nvml.h, nvmlComputeMode_t
_COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}


@dataclasses.dataclass(frozen=True, slots=True)
class GpuSettings:
    """The settings of a whole GPU, and what it does now; None where the driver does not say."""

    title: str
    """Its index and name, for sentences."""
    is_divided: bool = False
    """Whether it is divided into MIG instances."""
    persistence: bool | None = None
    """Whether the driver stays loaded while no process uses the GPU."""
    compute_mode: str | None = None
    power_limit_w: float | None = None
    default_power_limit_w: float | None = None
    sm_clock_limit_mhz: int | None = None
    """The application clock; the SM clock stays at or below it."""
    default_sm_clock_limit_mhz: int | None = None
    throttle_reasons: tuple[str, ...] = ()
    """Why its clocks are lowered now."""
    utilization: float | None = None
    """The share of the last moments in which it computed."""
    processes: tuple[str, ...] | None = None
    """The processes that compute on it: `python3 (pid 77)`, or the number alone of one that cannot be seen."""


def read_settings(nvml: Any, handle: Any, title: str, processes: tuple[str, ...] | None, is_divided: bool) -> GpuSettings:
    """Reads the settings of a GPU; what the driver refuses is None."""

    def read(name: str, convert: Callable[[Any], _T], *arguments: Any) -> _T | None:
        try:
            return convert(getattr(nvml, name)(handle, *arguments))
        except (nvml.NVMLError, AttributeError):  # newer versions of the library leave out deprecated functions
            return None

    def watts(milliwatts: int) -> float:
        return milliwatts / 1000

    reasons = read("nvmlDeviceGetCurrentClocksEventReasons", int) or read("nvmlDeviceGetCurrentClocksThrottleReasons", int) or 0
    return GpuSettings(
        title=title,
        is_divided=is_divided,
        persistence=read("nvmlDeviceGetPersistenceMode", bool),
        compute_mode=read("nvmlDeviceGetComputeMode", lambda mode: _COMPUTE_MODES.get(mode, f"mode {mode}")),
        power_limit_w=read("nvmlDeviceGetEnforcedPowerLimit", watts),
        default_power_limit_w=read("nvmlDeviceGetPowerManagementDefaultLimit", watts),
        sm_clock_limit_mhz=read("nvmlDeviceGetApplicationsClock", int, nvml.NVML_CLOCK_SM),
        default_sm_clock_limit_mhz=read("nvmlDeviceGetDefaultApplicationsClock", int, nvml.NVML_CLOCK_SM),
        throttle_reasons=tuple(reason for bit, reason in THROTTLE_REASONS.items() if reasons & bit),
        utilization=read("nvmlDeviceGetUtilizationRates", lambda rates: rates.gpu / 100),
        processes=processes,
    )
